/* An execution while it runs: what run.c and run_calls.c share, and nobody else. */
#ifndef CORE_RUNNING_H
#define CORE_RUNNING_H

#include "core/changes.h"
#include "core/record.h"
#include "core/run.h"

/* An execution while it runs. */
struct running {
	struct core *c;
	const struct run_request *req;
	struct run_report *out;
	struct e2b_sandbox sandbox;
	struct e2b_wait wait;
	struct record record;
	struct changes changes; /* below the user's home */
	int64_t began;          /* when the limit began to count; CLOCK_MONOTONIC, or 0 */
	int64_t asked_at;       /* when its row was written; CLOCK_MONOTONIC */
	bool queued;            /* another was running or waiting then */
	bool asked;             /* the execution itself, not only its first step, was asked for */
	bool accepted;          /* the provider has the code that was last sent, and says so */
	bool ran;               /* and has begun */
	bool starting;          /* a command was asked for and may run, but has no pid yet */
	int64_t count;          /* the executions of its context, this one included */
	int pid;                /* of the command that runs, or 0 */
	int64_t watched, renewed, looked; /* since when, and when last; CLOCK_MONOTONIC */
	int client_fd;    /* the request's, until the client leaves a detached execution */
	uint64_t told;    /* the last event that those who follow were woken for */
	bool held;        /* its audience could not take the last piece */
	bool warned;      /* that its sandbox will come to its end */
	enum run_end why; /* set by whoever gives it up */
	bool given_up;
	int64_t given_up_at; /* CLOCK_REALTIME */
};

#define PROBE_SECS 3 /* an interrupted context must answer within this */

/* From here on the client, the wake-up and the sandbox's row are watched during every call. */
void running_watch(struct running *r);

/* Run the request's code or command. When it is given up, given_up and why say so. */
int running_code(struct running *r, struct err *err);
int running_command(struct running *r, struct err *err);

/* Whether the sandbox is no longer ours to use; then *end is what that makes of the execution. */
bool running_sandbox_ended(struct running *r, enum run_end *end);

/* Its audience, or NULL when there is none any more. */
const struct run_audience *running_audience(const struct running *r);

/* Seconds that the sandbox must still live for this run to reach its limit. */
int running_needs(const struct running *r);

/* When its limit has passed, once it counts; CLOCK_MONOTONIC. */
int64_t running_limit(const struct running *r);

#endif
