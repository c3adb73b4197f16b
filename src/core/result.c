#include "core/result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "core/eventlog.h"
#include "wire/base64.h"
#include "wire/utf8.h"

#define RESULT_DEPTH 64 /* of a rich result, as deep as they come from a sandbox */

/* A stream cut in the middle: the first half of the limit and the last, and how much is missing. */
struct half_and_half {
	struct buf head;
	char *tail; /* a ring of half the limit; NULL until the head is full */
	size_t half, at, in_tail;
	int64_t seen; /* bytes that came by */
};

struct collecting {
	const struct result_limits *limits;
	struct half_and_half stream[2];
	struct json_object *results, *artifacts, *error;
	struct json_object *text; /* of the main result: a string */
	struct json_object *done; /* the last event */
	bool truncated;
};

static void init_stream(struct half_and_half *h, size_t limit)
{
	h->half = limit < 2 ? 1 : limit / 2;
	h->head = BUF(h->half);
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
	if (n && !h->tail && !(h->tail = malloc(h->half)))
		return;    /* it is missing, and said to be */
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

/* ---- text ---- */

/* How much of p's first most bytes are whole characters. */
static size_t whole_head(const char *p, size_t n, size_t most)
{
	if (n <= most)
		return n;
	for (size_t back = 0; back < 4 && back < most; back++)
		if ((p[most - back] & 0xc0) != 0x80)
			return most - back;
	return most; /* it is no text anyway */
}

/* How many bytes of p are the end of a character that began before it. */
static size_t broken_head(const char *p, size_t n)
{
	size_t i = 0;
	while (i < 3 && i < n && (p[i] & 0xc0) == 0x80)
		i++;
	return i;
}

/* Without the colours that a terminal would show; the new length. */
static size_t strip_ansi(char *s, size_t n)
{
	size_t to = 0;
	for (size_t i = 0; i < n;) {
		if (s[i] == '\033' && i + 1 < n && s[i + 1] == '[') {
			for (i += 2; i < n && strchr("0123456789;", s[i]) && s[i];)
				i++;
			i += i < n;
		} else {
			s[to++] = s[i++];
		}
	}
	return to;
}

/* The stream as text. total is what the program really wrote; what is neither in head nor in tail
 * is named. */
static struct json_object *stream_text(struct half_and_half *h, int64_t total, bool *truncated)
{
	struct buf tail = BUF(h->half + 1), raw = BUF(2 * h->half + 256),
		   text = BUF(6 * (2 * h->half + 256));
	struct utf8 u = { 0 };
	size_t start = h->in_tail < h->half ? 0 : h->at, head = h->head.len, skip = 0;
	if (h->tail) {
		buf_add(&tail, h->tail + start, h->in_tail - start);
		buf_add(&tail, h->tail, start);
	}
	if (total > (int64_t)(head + tail.len)) {
		head -= utf8_cut_tail(h->head.p, head);
		skip = broken_head(tail.p, tail.len);
		*truncated = true;
	}
	int64_t missing = total - (int64_t)(head + tail.len - skip);
	buf_add(&raw, h->head.p, head);
	if (missing > 0)
		buf_addf(&raw, "\n[... %lld bytes are missing here ...]\n", (long long)missing);
	if (tail.len)
		buf_add(&raw, tail.p + skip, tail.len - skip);
	utf8_feed(&u, raw.p ? raw.p : "", raw.len, &text);
	utf8_finish(&u, &text);
	struct json_object *o = json_object_new_string_len(text.p ? text.p : "", (int)text.len);
	buf_free(&tail);
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

/* NULL when it is no object. */
static struct json_object *parse_object(const char *json)
{
	struct json_tokener *t = json_tokener_new_ex(RESULT_DEPTH);
	struct json_object *o = t ? json_tokener_parse_ex(t, json, -1) : NULL;
	json_tokener_free(t);
	if (json_object_is_type(o, json_type_object))
		return o;
	json_object_put(o);
	return NULL;
}

static void take_result(struct collecting *c, const char *json)
{
	struct json_object *o = parse_object(json), *v;
	c->truncated |= !o;
	if (!o)
		return;
	add_artifact(c, o);
	bool main_result =
		json_object_object_get_ex(o, "is_main_result", &v) && json_object_get_boolean(v);
	if (main_result && !c->text && json_object_object_get_ex(o, "text", &v) &&
	    json_object_is_type(v, json_type_string))
		c->text = json_object_get(v);
	json_object_array_add(c->results, o);
}

static const char *field(struct json_object *o, const char *key)
{
	struct json_object *v;
	const char *s = json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : NULL;
	return s ? s : "";
}

/* The parts of the error, each within the limit. */
static struct json_object *error_parts(struct collecting *c)
{
	static const char *const keys[] = { "name", "value", "traceback" };
	struct json_object *o = json_object_new_object();
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		const char *text = field(c->error, keys[i]);
		size_t n = strlen(text), fits = whole_head(text, n, c->limits->error);
		c->truncated |= fits < n;
		json_object_object_add(o, keys[i], json_object_new_string_len(text, (int)fits));
	}
	return o;
}

/* E2B joins the pieces of a traceback without anything between them. Those that begin a frame, and
 * the rule of dashes above them all, are known by their colours. */
static void add_traceback(struct buf *b, const char *p)
{
	static const char *const starts[] = { "Cell \033[", "File \033[", NULL };
	for (const char *line = p; *p; p++) {
		bool piece = p > line && p[-1] == 'm' && p[0] == '\033' && p - line > 40 &&
			     !strncmp(p - 5, "-\033[0m", 5);
		for (size_t i = 0; starts[i]; i++)
			piece |= p > line && !strncmp(p, starts[i], strlen(starts[i]));
		if (piece)
			buf_adds(b, "\n");
		if (piece || *p == '\n')
			line = *p == '\n' ? p + 1 : p;
		buf_add(b, p, 1);
	}
}

/* One readable string of name, value and traceback. */
static struct json_object *own_error(struct collecting *c)
{
	struct buf b = BUF(EVENT_MAX * 2);
	const char *name = field(c->error, "name"), *value = field(c->error, "value");
	buf_addf(&b, "%s%s%s", name, *name && *value ? ": " : "", value);
	if (*field(c->error, "traceback")) {
		buf_adds(&b, "\n");
		add_traceback(&b, field(c->error, "traceback"));
	}
	size_t n = b.p ? strip_ansi(b.p, b.len) : 0, fits = whole_head(b.p, n, c->limits->error);
	struct json_object *o = json_object_new_string_len(b.p ? b.p : "", (int)fits);
	c->truncated |= fits < n;
	buf_free(&b);
	return o;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0';
}

/* The tail of what a command said on stderr, else how it exited. */
static struct json_object *exit_error(const struct collecting *c, const struct run_report *report,
				      struct json_object *errors)
{
	struct buf b = BUF((size_t)json_object_get_string_len(errors) + EXECUTION_ERROR_MAX);
	buf_add(&b, json_object_get_string(errors), (size_t)json_object_get_string_len(errors));
	size_t from = 0, end = b.p ? strip_ansi(b.p, b.len) : 0;
	while (end && is_blank(b.p[end - 1]))
		end--;
	if (end > c->limits->error) {
		from = end - c->limits->error;
		from += broken_head(b.p + from, end - from);
	}
	while (from < end && is_blank(b.p[from]))
		from++;
	if (from == end) { /* it said nothing */
		b.len = from = 0;
		if (report->error_name[0])
			buf_adds(&b, report->error_name);
		else
			buf_addf(&b, "exit status %d", report->exit_code);
		end = b.len;
	}
	struct json_object *o = json_object_new_string_len(b.p + from, (int)(end - from));
	buf_free(&b);
	return o;
}

static struct json_object *error_text(struct collecting *c, const struct run_report *report,
				      struct json_object *errors)
{
	if (c->error)
		return own_error(c);
	return report->has_exit_code && report->exit_code ? exit_error(c, report, errors) : NULL;
}

/* stdout, then the main result's text on a line of its own. */
static struct json_object *output_text(struct collecting *c, struct json_object *out)
{
	const char *s = json_object_get_string(out);
	size_t n = (size_t)json_object_get_string_len(out);
	struct buf b = BUF(n + c->limits->output + 16);
	buf_add(&b, s, n);
	if (c->text) {
		size_t len = (size_t)json_object_get_string_len(c->text);
		const char *text = json_object_get_string(c->text);
		size_t fits = whole_head(text, len, c->limits->output);
		c->truncated |= fits < len;
		if (n && s[n - 1] != '\n')
			buf_adds(&b, "\n");
		buf_add(&b, text, fits);
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
		c->error = parse_object(e->p);
		break;
	case EVENT_DONE:
		json_object_put(c->done);
		c->done = parse_object(e->p);
		break;
	case EVENT_QUEUED:
	case EVENT_STARTED:
	case EVENT_EXPIRING:
		break;
	}
}

/* What is missing between two events shows; what is missing behind the last one does by their
 * number. */
static void read_log(struct collecting *c, const char *dir, const struct run_report *report)
{
	struct eventreader *r;
	struct err ignored;
	enum event_answer answer;
	struct event e;
	struct event_gap gap;
	int64_t last = 0;
	if (eventreader_open(&r, dir, report->id, 0, &ignored) < 0) {
		c->truncated = true;
		return;
	}
	while (eventreader_next(r, &answer, &e, &gap, &ignored) == 0 && answer != EVENT_NONE) {
		if (answer == EVENT_NEXT)
			take_event(c, &e);
		else
			c->truncated = true;
		last = answer == EVENT_NEXT ? (int64_t)e.seq : last;
	}
	c->truncated |= last < report->events;
	eventreader_free(r);
}

/* null: it is not known. */
static void add_files(const struct collecting *c, struct json_object *o)
{
	struct json_object *files = NULL, *count = NULL;
	json_object_object_get_ex(c->done, "files_changed", &files);
	json_object_object_get_ex(c->done, "files_changed_count", &count);
	json_object_object_add(o, "files_changed", json_object_get(files));
	if (files && json_object_get_int64(count) > (int64_t)json_object_array_length(files))
		json_object_object_add(o, "files_changed_count", json_object_get(count));
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
	json_object_object_add(o, "error", error_text(c, report, errors));
	if (c->error)
		json_object_object_add(o, "error_detail", error_parts(c));
	json_object_object_add(o, "execution_time_ms", json_object_new_int64(report->ms));
	json_object_object_add(o, "artifacts", json_object_get(c->artifacts));
	json_object_object_add(o, "execution_id", json_object_new_string(report->id));
	json_object_object_add(o, "state",
			       json_object_new_string(execution_state_name(report->state)));
	json_object_object_add(o, "stdout", out);
	json_object_object_add(o, "stderr", errors);
	json_object_object_add(o, "text", json_object_get(c->text));
	json_object_object_add(o, "results", json_object_get(c->results));
	json_object_object_add(o, "truncated",
			       json_object_new_boolean(c->truncated || report->log_lost));
	json_object_object_add(o, "stdout_bytes", json_object_new_int64(report->stdout_bytes));
	json_object_object_add(o, "stderr_bytes", json_object_new_int64(report->stderr_bytes));
	if (report->has_exit_code)
		json_object_object_add(o, "exit_code", json_object_new_int(report->exit_code));
	add_files(c, o);
	return o;
}

struct json_object *result_read(const char *dir, const struct run_report *report,
				const struct result_limits *limits)
{
	struct collecting c = { .limits = limits,
				.results = json_object_new_array(),
				.artifacts = json_object_new_array() };
	for (int i = 0; i < 2; i++)
		init_stream(&c.stream[i], limits->output);
	read_log(&c, dir, report);
	struct json_object *o = assemble(&c, report);
	for (int i = 0; i < 2; i++)
		free_stream(&c.stream[i]);
	json_object_put(c.results);
	json_object_put(c.artifacts);
	json_object_put(c.error);
	json_object_put(c.text);
	json_object_put(c.done);
	return o;
}
