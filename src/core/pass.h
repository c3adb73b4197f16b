/* One pass of the cleanup: what is over is ended, what the provider and the database know of each
 * other is brought together, and old event logs go. Every step commits its intent before it acts,
 * so whatever a crash leaves undone is found and done by the next pass. One pass at a time: the
 * caller sees to it. */
#ifndef CORE_PASS_H
#define CORE_PASS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/session.h"

enum pass_deed {
	PASS_EXPIRE,      /* past a limit: it has to end */
	PASS_GIVE_UP,     /* who was making it is gone: it has to end, if it was made at all */
	PASS_KILL,        /* one that has to end was killed, or was gone already */
	PASS_LOSE,        /* the provider has it no more; nobody told us */
	PASS_SEE_ORPHAN,  /* it has our labels and nobody knows it: wait and see */
	PASS_KILL_ORPHAN, /* the same, seen before */
	PASS_DELETE_LOG,  /* an event log that is too old, or one too many */
	PASS_DEEDS,
};

/* "expire", "give_up", ... */
const char *pass_deed_name(enum pass_deed deed);

/* What was done, or in a dry run would be. What a deed has not is "". */
struct pass_event {
	enum pass_deed deed;
	const char *sandbox_id, *owner, *session_id;
	const char *reason;
	const char *execution_id; /* of PASS_DELETE_LOG */
	const struct err *failed; /* NULL: it was done; else the next pass tries again */
};

struct pass_config {
	struct core *core;
	bool dry_run; /* tell, and change nothing */
	void (*tell)(void *ctx, const struct pass_event *event);
	void *ctx;
};

struct pass_report {
	size_t done[PASS_DEEDS];
	size_t left;       /* what failed, and is for the next pass */
	int64_t log_bytes; /* of the event logs that were deleted */
	bool clock_jumped; /* the clock was set: nothing was ended in this pass */
	bool checkpointed; /* the whole of the WAL is in the database */
	struct err why;    /* the last failure; code 0 when all went well */
};

/* 0 when the pass came to its end, whatever it left; -1 when the database failed. */
int pass_run(const struct pass_config *config, struct pass_report *out, struct err *err);

#endif
