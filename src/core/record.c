#include "core/record.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "wire/jsontext.h"

#define GATHER_BYTES (32u << 10) /* output is written to the log when this much is there */
#define GATHER_US    (SECOND_US / 20)
#define ERROR_PART   (1u << 20) /* of a value or traceback; six times as long in JSON at most */

void record_open(struct record *r, const char *dir, struct run_report *report)
{
	struct err ignored;
	*r = (struct record){ .report = report, .text = { BUF(GATHER_BYTES), BUF(GATHER_BYTES) } };
	if (!dir || eventlog_create(&r->log, dir, report->id, &ignored) < 0)
		report->log_lost = true;
}

static void add_event(struct record *r, enum event_type type, const char *p, size_t n)
{
	struct err ignored;
	if (!r->log || eventlog_add(r->log, type, p, n, NULL, &ignored) < 0)
		r->report->log_lost = true; /* the run goes on; the answer says so */
}

static void flush_text(struct record *r)
{
	for (int i = 0; i < 2; i++) {
		if (r->text[i].len)
			add_event(r, i ? EVENT_STDERR : EVENT_STDOUT, r->text[i].p, r->text[i].len);
		r->text[i].len = 0;
	}
	r->flushed = clock_mono_us();
}

void record_text(struct record *r, int stream, const char *p, size_t n)
{
	struct buf *b = &r->text[stream];
	*(stream ? &r->report->stderr_bytes : &r->report->stdout_bytes) += (int64_t)n;
	/* The order between the two streams is kept: only one of them ever waits. */
	if (r->text[!stream].len || b->len + n > GATHER_BYTES)
		flush_text(r);
	if (n > GATHER_BYTES || buf_add(b, p, n) < 0)
		add_event(r, stream ? EVENT_STDERR : EVENT_STDOUT, p, n);
	record_tick(r, clock_mono_us()); /* a lone line does not wait for the next one */
}

void record_result(struct record *r, struct json_object *result)
{
	const char *json = json_object_to_json_string_ext(result, JSON_C_TO_STRING_PLAIN);
	flush_text(r);
	add_event(r, EVENT_RESULT, json, strlen(json));
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
	flush_text(r);
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
		flush_text(r);
}

void record_close(struct record *r)
{
	char done[256];
	flush_text(r);
	int n = snprintf(done, sizeof done, "{\"state\":\"%s\",\"execution_time_ms\":%lld}",
			 execution_state_name(r->report->state), (long long)r->report->ms);
	add_event(r, EVENT_DONE, done, (size_t)n);
	eventlog_free(r->log);
	for (int i = 0; i < 2; i++)
		buf_free(&r->text[i]);
}
