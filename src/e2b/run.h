/* Code and commands inside a sandbox, as streams of events. Nothing here is ever sent twice. */
#ifndef E2B_RUN_H
#define E2B_RUN_H

#include <stdbool.h>

#include "e2b/sandboxes.h"

enum e2b_event_type {
	E2B_RUNS,   /* the answer has begun, so it runs; of a command: pid is set */
	E2B_COUNT,  /* count: the context's number of executions (code only) */
	E2B_STDOUT, /* text; a command's are raw bytes, cut anywhere */
	E2B_STDERR,
	E2B_RESULT, /* result: the object as it came (code only) */
	E2B_ERROR,  /* name, value, traceback (code only) */
	E2B_END,    /* always the last; of a command: exit_code, exited, status */
};

/* Everything lives until the callback returns. What a type does not name is zero. */
struct e2b_event {
	enum e2b_event_type type;
	const char *text; /* NUL-terminated, may hold NULs */
	size_t ntext;
	int64_t count;
	struct json_object *result;
	const char *name, *value, *traceback; /* never NULL in E2B_ERROR */
	int pid;
	int exit_code;      /* -1: ended by a signal */
	bool exited;        /* by itself */
	const char *status; /* "exit status 3", "signal: killed"; never NULL in E2B_END */
};

/* 0, -1, or E2B_LATER. */
typedef int e2b_event_fn(void *ctx, const struct e2b_event *event);

struct e2b_code {
	const char *code;
	size_t ncode;
	const char *language; /* at most one of these two; neither is Python's own context */
	const char *context_id;
	const struct e2b_pair *envs;
	size_t nenvs;
};

/* Run code and give its events to fn until E2B_END. Giving it up (tick, fn, the deadline)
 * interrupts it. A stream that ends before its end is ERR_UNKNOWN_OUTCOME; refused before it ran,
 * ERR_UNAVAILABLE with E2B_WHY_NOT_SENT. A line over 17 MiB is ERR_INTERNAL. */
int e2b_run_code(struct e2b *c, const struct e2b_sandbox *sb, const struct e2b_code *code,
		 e2b_event_fn *fn, void *ctx, const struct e2b_wait *wait, struct err *err);

struct e2b_command {
	const char *const *argv; /* NULL-terminated */
	const char *cwd;         /* NULL: the template's */
	const char *user;        /* NULL: the template's */
	int64_t timeout_ms;      /* E2B kills it then, and the call is ERR_TIMEOUT; 0: never */
	const struct e2b_pair *envs;
	size_t nenvs;
};

/* The same for a command. Giving it up does NOT end it: e2b_signal does, from a tick or after. */
int e2b_run_command(struct e2b *c, const struct e2b_sandbox *sb, const struct e2b_command *command,
		    e2b_event_fn *fn, void *ctx, const struct e2b_wait *wait, struct err *err);

/* signal is SIGTERM or SIGKILL. ERR_NOT_FOUND when it has ended. */
int e2b_signal(struct e2b *c, const struct e2b_sandbox *sb, int pid, int signal,
	       const struct e2b_wait *wait, struct err *err);

#endif
