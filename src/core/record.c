#include "core/record.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "wire/jsontext.h"
#include "wire/utf8.h"

#define GATHER_BYTES (32u << 10) /* output is written to the log when this much is there */
#define GATHER_US    (SECOND_US / 20)
#define ERROR_PART   (1u << 20) /* of a value or traceback; six times as long in JSON at most */

void record_open(struct record *r, const char *dir, const struct record_tap *tap,
		 struct run_report *report)
{
	struct err ignored;
	*r = (struct record){ .report = report,
			      .tap = tap,
			      .text = { BUF(GATHER_BYTES), BUF(GATHER_BYTES) } };
	if (!dir || eventlog_create(&r->log, dir, report->id, &ignored) < 0)
		report->log_lost = true;
}

static void add_event(struct record *r, enum event_type type, const char *p, size_t n)
{
	struct err ignored;
	const struct event event = { .seq = ++r->seq, .type = type, .p = p, .n = n };
	r->report->events = (int64_t)event.seq;
	r->report->event_bytes += type == EVENT_DONE ? 0 : (int64_t)n;
	if (!r->log || eventlog_add(r->log, type, p, n, NULL, &ignored) < 0)
		r->report->log_lost = true; /* the run goes on; the answer says so */
	if (r->tap)
		r->tap->hear(r->tap->ctx, &event);
}

/* The beginning of a character waits for its end, but not when there is none to come. */
static void flush_stream(struct record *r, int stream, bool last)
{
	struct buf *b = &r->text[stream];
	size_t held = last || !b->len ? 0 : utf8_cut_tail(b->p, b->len), n = b->len - held;
	if (!n)
		return;
	add_event(r, stream ? EVENT_STDERR : EVENT_STDOUT, b->p, n);
	buf_drop(b, n);
	r->flushed = clock_mono_us();
}

static void flush_text(struct record *r, bool last)
{
	for (int i = 0; i < 2; i++)
		flush_stream(r, i, last);
}

void record_flush(struct record *r)
{
	flush_text(r, false);
}

void record_text(struct record *r, int stream, const char *p, size_t n)
{
	struct buf *b = &r->text[stream];
	*(stream ? &r->report->stderr_bytes : &r->report->stdout_bytes) += (int64_t)n;
	/* The order between the two streams is kept: only one of them ever waits. */
	flush_stream(r, !stream, false);
	while (n) {
		size_t room = b->max - b->len, piece = n < room ? n : room;
		if (buf_add(b, p, piece) < 0) {
			r->report->log_lost = true;
			return;
		}
		p += piece;
		n -= piece;
		if (n)
			flush_stream(r, stream, false);
	}
	record_tick(r, clock_mono_us()); /* a lone line does not wait for the next one */
}

/* The key that said what kind of line it was is not part of it. */
void record_result(struct record *r, struct json_object *result)
{
	json_object_object_del(result, "type");
	const char *json = json_object_to_json_string_ext(result, JSON_C_TO_STRING_PLAIN);
	flush_text(r, false);
	add_event(r, EVENT_RESULT, json, strlen(json));
}

void record_note(struct record *r, enum event_type type, const char *json)
{
	flush_text(r, false);
	add_event(r, type, json, strlen(json));
}

/* A cut inside a character becomes a mark of its own. */
static void put_part(struct buf *json, const char *key, const char *text)
{
	buf_addf(json, "\"%s\":", key);
	json_put_string(json, text, strnlen(text, ERROR_PART));
}

void record_error(struct record *r, const char *name, const char *value, const char *traceback)
{
	struct buf json = BUF(EVENT_MAX);
	flush_text(r, false);
	snprintf(r->report->error_name, sizeof r->report->error_name, "%.*s", EXECUTION_ERROR_MAX,
		 *name ? name : "Error");
	buf_adds(&json, "{");
	put_part(&json, "name", name);
	buf_adds(&json, ",");
	put_part(&json, "value", value);
	buf_adds(&json, ",");
	put_part(&json, "traceback", traceback);
	buf_adds(&json, "}");
	add_event(r, EVENT_ERROR, json.p, json.len);
	buf_free(&json);
}

void record_tick(struct record *r, int64_t now_mono_us)
{
	if ((r->text[0].len || r->text[1].len) && now_mono_us - r->flushed >= GATHER_US)
		flush_text(r, false);
}

int record_due(struct record *r, int64_t now_mono_us)
{
	record_tick(r, now_mono_us);
	if (!r->text[0].len && !r->text[1].len)
		return -1;
	int64_t left = r->flushed + GATHER_US - now_mono_us;
	return (int)((left > 0 ? left : GATHER_US) / 1000) + 1;
}

void record_close(struct record *r, struct json_object *files, size_t nfiles)
{
	struct buf done = BUF(EVENT_MAX);
	flush_text(r, true);
	buf_addf(&done, "{\"state\":\"%s\",\"execution_time_ms\":%lld,\"files_changed_count\":%zu",
		 execution_state_name(r->report->state), (long long)r->report->ms, nfiles);
	if (files) {
		const char *json = json_object_to_json_string_ext(files, JSON_C_TO_STRING_PLAIN);
		buf_addf(&done, ",\"files_changed\":");
		buf_adds(&done, json);
	}
	buf_adds(&done, "}");
	add_event(r, EVENT_DONE, done.p, done.len);
	eventlog_free(r->log);
	buf_free(&done);
	for (int i = 0; i < 2; i++)
		buf_free(&r->text[i]);
}
