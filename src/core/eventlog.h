/* The event log of one execution: numbered records that the process which runs it appends, and
 * anyone may read meanwhile or later. Its first 8 MiB and at least its last 8 MiB are kept; what
 * was in between is gone, and a reader is told exactly how much. The files are DIR/ID.head,
 * DIR/ID.tail0 and DIR/ID.tail1; the tails take turns. */
#ifndef CORE_EVENTLOG_H
#define CORE_EVENTLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define EVENTLOG_PART                                                                              \
	(8u << 20)            /* bytes of the head, and of each tail before the other is used      \
			       */
#define EVENT_MAX (20u << 20) /* bytes of one record's payload */

enum event_type {
	EVENT_STDOUT = 1, /* text */
	EVENT_STDERR,     /* text */
	EVENT_RESULT,     /* a rich result, JSON */
	EVENT_ERROR,      /* {"name","value","traceback"} */
	EVENT_DONE,       /* the end: JSON of how */
	EVENT_QUEUED,     /* {"position","wait_secs"} */
	EVENT_STARTED,    /* {"execution_id","generation","state_lost","reason"?} */
	EVENT_EXPIRING,   /* {"expires_in_secs"} */
};

/* ---- writing: one process, once ---- */

struct eventlog;

int eventlog_create(struct eventlog **out, const char *dir, const char *id, struct err *err);
void eventlog_free(struct eventlog *l); /* NULL is fine; the files stay */

/* Append one event; *seq (NULL is fine) is its number, from 1. When the disk is full (ERR_NO_SPACE)
 * or the event too long (ERR_LIMIT) it is lost but counted: readers see a gap, and the next one may
 * succeed. */
int eventlog_add(struct eventlog *l, enum event_type type, const void *p, size_t n, uint64_t *seq,
		 struct err *err);

/* Remove an execution's files; what is not there is fine. */
int eventlog_remove(const char *dir, const char *id, struct err *err);

/* Whether a file of this name is part of an event log; then id is whose. */
bool eventlog_is_part(const char *file, char *id, size_t size);

/* ---- reading ---- */

struct event {
	uint64_t seq;
	enum event_type type;
	const char *p; /* n bytes and a NUL, until the next call */
	size_t n;
};

/* Events that are not there any more, or never were written. */
struct event_gap {
	uint64_t from, to; /* numbers, both included */
	uint64_t bytes;    /* of payload */
};

enum event_answer {
	EVENT_NONE, /* nothing more now; ask again when woken */
	EVENT_NEXT, /* *event is set */
	EVENT_LOST, /* *gap is set; the next call goes on behind it */
};

/* The number of the last event that is in a log; 0 when it has none. ERR_NOT_FOUND. */
int eventlog_last(const char *dir, const char *id, uint64_t *seq, struct err *err);

struct eventreader;

/* Read what comes after that number; 0 is everything. ERR_NOT_FOUND when there is no such log. */
int eventreader_open(struct eventreader **out, const char *dir, const char *id, uint64_t after,
		     struct err *err);
void eventreader_free(struct eventreader *r); /* NULL is fine */
int eventreader_next(struct eventreader *r, enum event_answer *answer, struct event *event,
		     struct event_gap *gap, struct err *err);

/* Of an execution that has ended with event `last`, once there is no next one: what is missing at
 * the end of the log before that event. bytes is of all before it. False: nothing. */
bool eventreader_rest(const struct eventreader *r, uint64_t last, uint64_t bytes,
		      struct event_gap *gap);

#endif
