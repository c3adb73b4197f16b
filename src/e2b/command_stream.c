#include <json-c/json.h>

#include <string.h>

#include "base/cleanup.h"
#include "e2b/answer.h"
#include "e2b/streams.h"
#include "wire/base64.h"

#define SLACK (2u << 20) /* a piece of input, and a head for each envelope in it */

static int give(struct stream *s, const struct e2b_event *event, struct err *err)
{
	int rc = s->fn(s->ctx, event);
	if (rc == 0 && event->type == E2B_END)
		s->ended = true;
	if (rc == 0 && event->type == E2B_RUNS)
		s->started = true;
	return rc < 0 ? err_set(err, ERR_ABANDONED, "the consumer of the output stopped") : rc;
}

static int give_bytes(struct stream *s, enum e2b_event_type type, const char *base64,
		      struct err *err)
{
	struct buf bytes = BUF(COMMAND_ENVELOPE_MAX);
	int rc;
	if (base64_get(&bytes, base64, strlen(base64)) < 0)
		rc = err_set(err, ERR_INTERNAL, "output that is no base64");
	else
		rc = bytes.len ? give(s,
				      &(struct e2b_event){
					      .type = type, .text = bytes.p, .ntext = bytes.len },
				      err)
			       : 0;
	buf_free(&bytes);
	return rc;
}

static int give_end(struct stream *s, struct json_object *end, struct err *err)
{
	const char *status = json_text(end, "status");
	struct e2b_event event = { .type = E2B_END,
				   .exit_code = (int)json_integer(end, "exitCode", 0),
				   .exited = json_true(end, "exited"),
				   .status = status ? status : "" };
	return give(s, &event, err);
}

/* Keepalives and events that are newer than we are pass by. */
static int give_event(struct stream *s, struct json_object *event, struct err *err)
{
	struct json_object *start = json_member(event, "start"), *end = json_member(event, "end"),
			   *data = json_member(event, "data");
	const char *out = json_text(data, "stdout"), *bad = json_text(data, "stderr");
	if (start)
		return give(s,
			    &(struct e2b_event){ .type = E2B_RUNS,
						 .pid = (int)json_integer(start, "pid", 0) },
			    err);
	if (out)
		return give_bytes(s, E2B_STDOUT, out, err);
	if (bad)
		return give_bytes(s, E2B_STDERR, bad, err);
	return end ? give_end(s, end, err) : 0;
}

static int on_item(void *ctx, unsigned flags, const char *p, size_t n, struct err *err)
{
	struct stream *s = ctx;
	_cleanup_(json_drop) struct json_object *o = NULL;
	if (flags & CONNECT_COMPRESSED)
		return err_set(err, ERR_INTERNAL, "a compressed envelope, which nobody asked for");
	if (json_read(&o, n ? p : "{}", n ? n : 2, err) < 0)
		return -1;
	if (flags & CONNECT_END) {
		struct json_object *error = json_member(o, "error");
		s->closed = true;
		s->refused = error && !s->ended;
		return s->refused ? answer_connect_fail("command", error, err) : 0;
	}
	return s->ended ? 0 : give_event(s, json_member(o, "event"), err);
}

static int on_envelope(void *ctx, unsigned flags, const char *p, size_t n, struct err *err)
{
	struct stream *s = ctx;
	return backlog_put(&s->backlog, flags, p, n, err);
}

void command_stream_init(struct stream *s, e2b_event_fn *fn, void *ctx)
{
	*s = (struct stream){ .fn = fn, .ctx = ctx };
	lines_init(&s->lines, 0);
	connect_init(&s->envelopes, COMMAND_ENVELOPE_MAX);
	backlog_init(&s->backlog, COMMAND_ENVELOPE_MAX + SLACK, on_item, s);
}

int command_stream_feed(struct stream *s, const char *p, size_t n, struct err *err)
{
	if (backlog_waits(&s->backlog))
		return 1;
	struct err why = { 0 };
	if (connect_feed(&s->envelopes, p, n, on_envelope, s, &why) < 0)
		return stream_break(s, &why, err);
	return 0;
}
