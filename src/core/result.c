#include "core/result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "core/eventlog.h"
#include "wire/base64.h"
#include "wire/utf8.h"

/* A stream cut in the middle: the first half of the limit and the last, and how much is missing. */
struct half_and_half {
	struct buf head;
	char *tail; /* a ring of half the limit */
	size_t half, at, in_tail;
	int64_t seen; /* bytes that came by */
};

struct collecting {
	const struct result_limits *limits;
	struct half_and_half stream[2];
	struct json_object *results, *artifacts, *error;
	char *text; /* of the main result */
	bool truncated;
};

static int init_stream(struct half_and_half *h, size_t limit)
{
	h->half = limit < 2 ? 1 : limit / 2;
	h->head = BUF(h->half);
	h->tail = malloc(h->half + 1);
	return h->tail ? 0 : -1;
}

static void free_stream(struct half_and_half *h)
{
	buf_free(&h->head);
	free(h->tail);
}

static void take(struct half_and_half *h, const char *p, size_t n)
{
	h->seen += (int64_t)n;
	size_t room = h->half - h->head.len, first = n < room ? n : room;
	buf_add(&h->head, p, first);
	p += first;
	n -= first;
	if (n > h->half) { /* only its end can stay */
		p += n - h->half;
		n = h->half;
	}
	while (n) {
		size_t piece = h->half - h->at < n ? h->half - h->at : n;
		memcpy(h->tail + h->at, p, piece);
		h->at = (h->at + piece) % h->half;
		h->in_tail = h->in_tail + piece < h->half ? h->in_tail + piece : h->half;
		p += piece;
		n -= piece;
	}
}

/* The stream as text. total is what the program really wrote; what is neither in head nor in tail
 * is named. */
static struct json_object *stream_text(struct half_and_half *h, int64_t total, bool *truncated)
{
	struct buf raw = BUF(2 * h->half + 256), text = BUF(6 * (2 * h->half + 256));
	struct utf8 u = { 0 };
	int64_t missing = total - (int64_t)(h->head.len + h->in_tail);
	buf_add(&raw, h->head.p, h->head.len);
	if (missing > 0) {
		buf_addf(&raw, "\n[... %lld bytes are missing here ...]\n", (long long)missing);
		*truncated = true;
	}
	size_t start = h->in_tail < h->half ? 0 : h->at;
	buf_add(&raw, h->tail + start, h->in_tail - start);
	buf_add(&raw, h->tail, start);
	utf8_feed(&u, raw.p ? raw.p : "", raw.len, &text);
	utf8_finish(&u, &text);
	struct json_object *o = json_object_new_string_len(text.p ? text.p : "", (int)text.len);
	buf_free(&raw);
	buf_free(&text);
	return o;
}

/* ---- results ---- */

/* What a browser can show as it is; only an SVG comes as text. */
static void add_artifact(struct collecting *c, struct json_object *result)
{
	static const struct {
		const char *key, *mime;
		bool is_text;
	} kinds[] = { { "png", "image/png", false },
		      { "jpeg", "image/jpeg", false },
		      { "svg", "image/svg+xml", true } };
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct json_object *v;
		if (!json_object_object_get_ex(result, kinds[i].key, &v) ||
		    !json_object_is_type(v, json_type_string))
			continue;
		const char *s = json_object_get_string(v);
		size_t n = (size_t)json_object_get_string_len(v);
		struct buf url = BUF(2 * EVENT_MAX);
		buf_addf(&url, "data:%s;base64,", kinds[i].mime);
		if (kinds[i].is_text)
			base64_put(&url, s, n);
		else
			buf_add(&url, s, n);
		json_object_array_add(c->artifacts,
				      json_object_new_string_len(url.p, (int)url.len));
		buf_free(&url);
	}
}

static void take_result(struct collecting *c, const char *json)
{
	struct json_object *o = json_tokener_parse(json), *v;
	if (!json_object_is_type(o, json_type_object)) {
		json_object_put(o);
		return;
	}
	add_artifact(c, o);
	bool main_result =
		json_object_object_get_ex(o, "is_main_result", &v) && json_object_get_boolean(v);
	if (main_result && !c->text && json_object_object_get_ex(o, "text", &v))
		c->text = strdup(json_object_get_string(v));
	json_object_object_del(o, "type");
	json_object_array_add(c->results, o);
}

/* Without the colours that a terminal would show. */
static void strip_ansi(char *s)
{
	char *to = s;
	for (const char *p = s; *p;) {
		if (p[0] == '\033' && p[1] == '[') {
			p += 2 + strspn(p + 2, "0123456789;");
			p += *p != '\0';
		} else {
			*to++ = *p++;
		}
	}
	*to = '\0';
}

static const char *field(struct json_object *o, const char *key)
{
	struct json_object *v;
	return json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : "";
}

/* One readable string of name, value and traceback. */
static struct json_object *error_text(const struct collecting *c)
{
	if (!c->error)
		return NULL;
	struct buf b = BUF(EVENT_MAX * 2);
	const char *name = field(c->error, "name"), *value = field(c->error, "value");
	buf_addf(&b, "%s%s%s", name, *name && *value ? ": " : "", value);
	if (*field(c->error, "traceback"))
		buf_addf(&b, "\n%s", field(c->error, "traceback"));
	strip_ansi(b.p);
	size_t n = strlen(b.p), most = c->limits->error;
	while (n > most && (b.p[most] & 0xc0) == 0x80)
		most--; /* not in the middle of a character */
	struct json_object *o = json_object_new_string_len(b.p, (int)(n > most ? most : n));
	buf_free(&b);
	return o;
}

/* stdout, then the main result's text on a line of its own. */
static struct json_object *output_text(const struct collecting *c, struct json_object *out)
{
	const char *s = json_object_get_string(out);
	size_t n = (size_t)json_object_get_string_len(out);
	struct buf b = BUF(n + c->limits->output + 16);
	buf_add(&b, s, n);
	if (c->text) {
		size_t len = strlen(c->text);
		if (n && s[n - 1] != '\n')
			buf_adds(&b, "\n");
		buf_add(&b, c->text, len < c->limits->output ? len : c->limits->output);
		buf_adds(&b, "\n");
	}
	struct json_object *o = json_object_new_string_len(b.p ? b.p : "", (int)b.len);
	buf_free(&b);
	return o;
}

/* ---- reading ---- */

static void take_event(struct collecting *c, const struct event *e)
{
	switch (e->type) {
	case EVENT_STDOUT:
	case EVENT_STDERR:
		take(&c->stream[e->type == EVENT_STDERR], e->p, e->n);
		break;
	case EVENT_RESULT:
		take_result(c, e->p);
		break;
	case EVENT_ERROR:
		json_object_put(c->error);
		c->error = json_tokener_parse(e->p);
		break;
	case EVENT_DONE:
		break;
	}
}

static void read_log(struct collecting *c, const char *dir, const char *id)
{
	struct eventreader *r;
	struct err ignored;
	enum event_answer answer;
	struct event e;
	struct event_gap gap;
	if (eventreader_open(&r, dir, id, 0, &ignored) < 0) {
		c->truncated = true;
		return;
	}
	while (eventreader_next(r, &answer, &e, &gap, &ignored) == 0 && answer != EVENT_NONE) {
		if (answer == EVENT_NEXT)
			take_event(c, &e);
		else
			c->truncated = true;
	}
	eventreader_free(r);
}

static struct json_object *assemble(struct collecting *c, const struct run_report *report)
{
	struct json_object *o = json_object_new_object();
	struct json_object *out = stream_text(&c->stream[0], report->stdout_bytes, &c->truncated);
	struct json_object *errors =
		stream_text(&c->stream[1], report->stderr_bytes, &c->truncated);
	json_object_object_add(o, "success",
			       json_object_new_boolean(report->state == EXECUTION_SUCCEEDED));
	json_object_object_add(o, "output", output_text(c, out));
	json_object_object_add(o, "error", error_text(c));
	json_object_object_add(o, "execution_time_ms", json_object_new_int64(report->ms));
	json_object_object_add(o, "artifacts", json_object_get(c->artifacts));
	json_object_object_add(o, "execution_id", json_object_new_string(report->id));
	json_object_object_add(o, "state",
			       json_object_new_string(execution_state_name(report->state)));
	json_object_object_add(o, "stdout", out);
	json_object_object_add(o, "stderr", errors);
	json_object_object_add(o, "text", c->text ? json_object_new_string(c->text) : NULL);
	json_object_object_add(o, "results", json_object_get(c->results));
	json_object_object_add(o, "truncated",
			       json_object_new_boolean(c->truncated || report->log_lost));
	json_object_object_add(o, "stdout_bytes", json_object_new_int64(report->stdout_bytes));
	json_object_object_add(o, "stderr_bytes", json_object_new_int64(report->stderr_bytes));
	if (c->error)
		json_object_object_add(o, "error_detail", json_object_get(c->error));
	return o;
}

int result_read(struct json_object **out, const char *dir, const struct run_report *report,
		const struct result_limits *limits, struct err *err)
{
	struct collecting c = { .limits = limits,
				.results = json_object_new_array(),
				.artifacts = json_object_new_array() };
	int rc = init_stream(&c.stream[0], limits->output) |
		 init_stream(&c.stream[1], limits->output);
	if (rc == 0) {
		read_log(&c, dir, report->id);
		*out = assemble(&c, report);
	}
	for (int i = 0; i < 2; i++)
		free_stream(&c.stream[i]);
	json_object_put(c.results);
	json_object_put(c.artifacts);
	json_object_put(c.error);
	free(c.text);
	return rc < 0 ? err_set(err, ERR_INTERNAL, "no memory") : 0;
}
