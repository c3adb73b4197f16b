/* What became of one execution: a plain value, made by the run that ends or read back from its row.
 */
#ifndef CORE_REPORT_H
#define CORE_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "store/executions.h"

/* How it ended, for the answer's status. */
enum run_end {
	RUN_ENDED,     /* by itself, with or without an error of its own */
	RUN_TIMED_OUT, /* its limit passed; it was interrupted and the sandbox lives on */
	RUN_LEFT,      /* the client went away; it was interrupted */
	RUN_CANCELLED, /* somebody asked for its end */
	RUN_STOPPED,   /* its sandbox was stopped under it */
	RUN_EXPIRED,   /* its sandbox came to the end of its lifetime */
	RUN_LOST,      /* its sandbox is gone, and it was not us */
	RUN_UNKNOWN,   /* the stream broke; nobody can say how it ended */
	RUN_REFUSED,   /* it never ran; err says why */
};

struct run_report {
	char id[EXECUTION_ID];
	enum run_end end;
	enum execution_state state;
	bool not_run;        /* the sandbox was gone or paused before anything ran: try again */
	bool no_interpreter; /* RUN_REFUSED: nothing in this sandbox runs code, only commands */
	bool no_context;     /* RUN_REFUSED: there is no such context, or no such language */
	bool no_command;     /* RUN_REFUSED: the sandbox takes no such command or cwd */
	bool log_lost;       /* the event log could not be written in part */
	bool restarted;      /* it could not be interrupted; its context's variables are lost */
	bool killed;         /* nor could its context be restarted: its sandbox was ended */
	bool has_exit_code;  /* a command that came to its end */
	int exit_code;       /* of that; -1: it was ended by a signal */
	int64_t ms;          /* of running */
	int64_t stdout_bytes, stderr_bytes;
	int64_t events;      /* the number of its last one, or 0: not known */
	int64_t event_bytes; /* of all before that, in the log or not */
	/* Of its own error: "ValueError", "exit status 3", "signal: killed", or "". */
	char error_name[EXECUTION_ERROR_MAX + 1];
};

/* The state that follows from the end and from its own error. */
enum execution_state report_state(const struct run_report *report);

/* What its row says as error_name: the end's name if it was cut short, else its own error's, or "".
 */
const char *report_error_name(const struct run_report *report);

/* What it took to cancel it; none when it was not. */
enum cancelled_by report_cancelled_by(const struct run_report *report);

/* The report of an execution that has ended, as far as its row knows it; its ms count from when it
 * was asked for. -1 while it is unfinished. Whether part of the log was lost is not in the row, but
 * the byte counts are, so its result is the same. */
int report_of_row(const struct execution_row *row, struct run_report *out);

#endif
