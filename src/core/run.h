/* One execution, from its row to its end: the code runs in the sandbox, its events go into the
 * event log, and whoever wants to show them reads that log. Nothing is ever run twice. */
#ifndef CORE_RUN_H
#define CORE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/session.h"
#include "store/executions.h"

/* How it ended, for the answer's status. */
enum run_end {
	RUN_ENDED,     /* by itself, with or without an error of its own */
	RUN_TIMED_OUT, /* its limit passed; it was interrupted and the sandbox lives on */
	RUN_LEFT,      /* the client went away; it was interrupted */
	RUN_STOPPED,   /* its sandbox was stopped under it */
	RUN_EXPIRED,   /* its sandbox came to the end of its lifetime */
	RUN_LOST,      /* its sandbox is gone, and it was not us */
	RUN_UNKNOWN,   /* the stream broke; nobody can say how it ended */
	RUN_REFUSED,   /* it never ran; err says why */
};

struct run_request {
	struct sandbox_row *row;  /* running; kept up to date */
	enum execution_kind kind; /* for the execution's row */
	const char *code;
	size_t ncode;
	const char *request_hash; /* NULL: none; see execution_repeated */
	int limit_secs;           /* from when the code begins to run */
	int client_fd;            /* readable when the client is gone; -1: there is none to leave */
	int wake_fd;              /* an eventfd that says "look again"; -1: none */
	void (*woken)(void *ctx); /* empties it; may be NULL */
	void *ctx;
};

struct run_report {
	char id[EXECUTION_ID];
	enum run_end end;
	enum execution_state state;
	bool not_run;  /* the sandbox was gone before anything ran: another may be tried */
	bool log_lost; /* the event log could not be written in part */
	int64_t ms;    /* of running */
	int64_t stdout_bytes, stderr_bytes;
	char error_name[EXECUTION_ERROR_MAX + 1]; /* of the code's own error, or "" */
};

/* The folder of event logs below the state folder; made if absent. */
int run_events_dir(const struct settings *s, char *out, size_t cap, struct err *err);

/* 0 whenever there is a report, whatever the end; -1 when not even its row could be written. *err
 * is set for RUN_REFUSED, RUN_LOST and RUN_UNKNOWN too. */
int run_code(struct core *c, const struct run_request *req, struct run_report *out,
	     struct err *err);

#endif
