/* What an execution writes down while it runs: its events go into the log, its output gathered to
 * pieces worth a record and cut between characters, and its sizes into the report. A log that
 * cannot be written never stops a run; the report says so. */
#ifndef CORE_RECORD_H
#define CORE_RECORD_H

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "core/eventlog.h"
#include "core/report.h"

/* One who hears every event as it is written down, also where the log could not take it. */
struct record_tap {
	void (*hear)(void *ctx, const struct event *event);
	void *ctx;
};

struct record {
	struct run_report *report;
	struct eventlog *log;         /* NULL: it could not be made */
	const struct record_tap *tap; /* NULL: nobody */
	uint64_t seq;                 /* of the last event */
	struct buf text[2];           /* stdout and stderr, not yet in the log */
	int64_t flushed;              /* when output was last put there; CLOCK_MONOTONIC */
};

/* dir is the folder of logs; NULL: there is none. */
void record_open(struct record *r, const char *dir, const struct record_tap *tap,
		 struct run_report *report);

/* A piece of stdout (0) or stderr (1): bytes, cut anywhere. */
void record_text(struct record *r, int stream, const char *p, size_t n);
void record_result(struct record *r, struct json_object *result);

/* The execution's own error, which fails it. */
void record_error(struct record *r, const char *name, const char *value, const char *traceback);

/* An event of the gateway's own: its JSON. */
void record_note(struct record *r, enum event_type type, const char *json);

/* Output that has waited long enough goes into the log; call it now and then. */
void record_tick(struct record *r, int64_t now_mono_us);

/* The same; and the milliseconds until there is such output again, -1 when none is waiting. */
int record_due(struct record *r, int64_t now_mono_us);

/* All of it goes there at once, but for the beginning of a character. */
void record_flush(struct record *r);

/* The last event, for which the report's state and ms are set; then everything is freed. files is
 * what has changed, of which there are so many; NULL: it is not known. */
void record_close(struct record *r, struct json_object *files, size_t nfiles);

#endif
