#include "api/feed.h"

#include <poll.h>

#include "base/clock.h"
#include "wire/httpfield.h"
#include "wire/jsontext.h"
#include "wire/sse.h"

#define PENDING_MAX  (64u << 20) /* room for the largest event, twice */
#define ENOUGH       (64u << 10) /* more is not asked for while so much waits */
#define KEEPALIVE_US (15 * SECOND_US)
#define PATIENCE_US                                                                                \
	(30 * SECOND_US) /* with a client that takes nothing; as nginx's send_timeout              \
			  */

static const char *const names[] = {
	[EVENT_STDOUT] = "stdout", [EVENT_STDERR] = "stderr",     [EVENT_RESULT] = "result",
	[EVENT_ERROR] = "error",   [EVENT_QUEUED] = "queued",     [EVENT_STARTED] = "started",
	[EVENT_DONE] = NULL,       [EVENT_EXPIRING] = "expiring",
};

bool feed_wanted(const struct call *c)
{
	return http_accepts_type(web_param(c->web, "HTTP_ACCEPT"), "text/event-stream");
}

static size_t waiting(const struct feed *s)
{
	return s->pending.len - s->at;
}

/* The client that cannot have all is told by the end of its connection. */
static void put(struct feed *s, uint64_t seq, const char *name, const char *json, size_t n)
{
	if (s->gone || seq <= s->seq)
		return;
	if (sse_put(&s->pending, seq, name, json, n) < 0)
		s->gone = true;
	s->seq = seq;
}

void feed_open(struct feed *s, struct call *c, const char *execution_id)
{
	if (s->open)
		return;
	*s = (struct feed){
		.c = c, .pending = BUF(PENDING_MAX), .sent_at = clock_mono_us(), .open = true
	};
	c->status = 200;
	web_status(c->web, 200);
	web_header(c->web, "X-Request-Id", c->request_id);
	web_header(c->web, "Content-Type", "text/event-stream");
	web_header(c->web, "Cache-Control", "no-store");
	web_header(c->web, "X-Execution-Id", execution_id);
	web_header(c->web, "X-Accel-Buffering", "no");
	buf_adds(&s->pending, ": sandgate\n\n");
	feed_send(s);
}

static void put_text(struct feed *s, const struct event *event, const char *name)
{
	struct buf json = BUF(6 * event->n + 64);
	if (buf_adds(&json, "{\"text\":") == 0 && json_put_utf8(&json, event->p, event->n) == 0 &&
	    buf_adds(&json, "}") == 0)
		put(s, event->seq, name, json.p, json.len);
	buf_free(&json);
}

void feed_event(struct feed *s, const struct event *event)
{
	const size_t known = sizeof names / sizeof *names;
	const char *name = event->type > 0 && event->type < known ? names[event->type] : NULL;
	if (!name)
		return;
	if (event->type == EVENT_STDOUT || event->type == EVENT_STDERR)
		put_text(s, event, name);
	else
		put(s, event->seq, name, event->p, event->n);
}

void feed_gap(struct feed *s, const struct event_gap *gap)
{
	struct buf json = BUF(256);
	buf_addf(&json, "{\"from\":%llu,\"to\":%llu,\"bytes\":%llu}", (unsigned long long)gap->from,
		 (unsigned long long)gap->to, (unsigned long long)gap->bytes);
	put(s, gap->to, "dropped", json.p, json.len);
	buf_free(&json);
}

void feed_last(struct feed *s, const char *name, struct json_object *o)
{
	size_t n;
	const char *json = json_object_to_json_string_length(
		o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
	put(s, s->seq + 1, name, json, n);
	json_object_put(o);
}

/* ---- sending ---- */

static void forget_sent(struct feed *s)
{
	if (waiting(s))
		return;
	s->at = s->pending.len = 0;
	if (s->pending.cap > 4 * ENOUGH) /* one large event must not stay for the whole run */
		buf_free(&s->pending);
}

static void send_pieces(struct feed *s)
{
	while (!s->gone && waiting(s)) {
		ssize_t n = web_offer(s->c->web, s->pending.p + s->at, waiting(s));
		if (n == 0)
			return;
		if (n < 0) {
			s->gone = true;
			return;
		}
		s->at += (size_t)n;
		s->sent_at = clock_mono_us();
	}
	forget_sent(s);
}

int feed_send(struct feed *s)
{
	if (s->gone)
		return -1;
	if (!waiting(s) && clock_mono_us() - s->sent_at >= KEEPALIVE_US)
		buf_adds(&s->pending, ": keep-alive\n\n");
	send_pieces(s);
	int64_t left = s->sent_at + KEEPALIVE_US - clock_mono_us();
	return left > 0 ? (int)(left / 1000) + 1 : 1000;
}

bool feed_full(const struct feed *s)
{
	return !s->gone && waiting(s) > ENOUGH;
}

short feed_events(const struct feed *s)
{
	return waiting(s) && !s->gone ? POLLIN | POLLOUT : POLLIN;
}

void feed_close(struct feed *s)
{
	while (!s->gone && waiting(s)) {
		struct pollfd p = { .fd = web_fd(s->c->web), .events = POLLOUT | POLLRDHUP };
		poll(&p, 1, 1000);
		if ((p.revents & (POLLHUP | POLLERR | POLLRDHUP)) ||
		    clock_mono_us() - s->sent_at >= PATIENCE_US)
			break;
		send_pieces(s);
	}
	buf_free(&s->pending);
	s->at = 0;
}
