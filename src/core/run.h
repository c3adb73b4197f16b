/* One execution, from its row to its end: code or a command runs in the sandbox, its events go into
 * the event log, and whoever wants to show them reads that log. Nothing is ever run twice. */
#ifndef CORE_RUN_H
#define CORE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "core/record.h"
#include "core/report.h"
#include "core/session.h"

struct running; /* an execution under way */

/* What is done around a command as part of its execution: within its limit, watched like it, and
 * ended with it. A step is 0, or -1 when a call of its own failed, which is judged as if it were
 * the command's. Each may be NULL. */
struct run_steps {
	int (*before)(void *ctx, struct running *r, struct err *err);
	int (*after)(void *ctx, struct running *r, struct err *err); /* only after exit status 0 */
	void (*failed)(void *ctx, struct running *r);      /* after another one: may say why */
	void (*heard)(void *ctx, const char *p, size_t n); /* pieces of its stderr */
	void *ctx;
};

/* Who follows an execution while it runs: a client that reads a stream. */
struct run_audience {
	/* Its row is written; from here on it has an id. */
	void (*begun)(void *ctx, const char *id);
	/* All that has arrived was told to tap: send it on, without waiting. Returns the
	 * milliseconds until it wants to be called again; -1: not before there is more. */
	int (*send)(void *ctx);
	/* What of poll(2) to watch the client for, and whether there is more than it can take just
	 * now: then the run waits, but never its limit. */
	short (*events)(void *ctx);
	bool (*full)(void *ctx);
	/* The client is gone, and the execution goes on without it. */
	void (*left)(void *ctx);
	struct record_tap tap;
	void *ctx;
};

struct run_request {
	struct sandbox_row *row;  /* running; kept up to date */
	enum execution_kind kind; /* for the execution's row */
	const char *code;         /* ncode bytes, unless there is argv */
	size_t ncode;
	const char *language;    /* of code, at most one of these two; neither: the sandbox's own */
	const char *context_id;  /* context */
	const char *const *argv; /* a command, NULL-terminated; read when it starts; never a shell
				    of ours */
	const char *input;       /* of a command, for its row; NULL: argv joined by blanks */
	size_t ninput;
	const char *cwd; /* of a command; NULL: the user's home */
	bool own_group;  /* of a command: its first word is setsid's, and all that it starts
			    is ended with it */
	const struct run_steps *steps; /* of a command; NULL: none */
	const struct e2b_pair *envs;   /* besides the sandbox's own */
	size_t nenvs;
	enum end_reason lost_reason; /* what its answer says of older state */
	const char *request_hash;    /* NULL: none; see execution_repeated */
	int limit_secs;              /* from when the code or command, or its first step, runs */
	int port_wait_ms;            /* for an interpreter that does not listen yet; 0: 10 s */
	int client_fd;               /* readable when the client is gone; -1: none to leave */
	bool detached;               /* it goes on when the client leaves */
	const struct run_audience *audience; /* NULL: nobody */
	int wake_fd;                         /* an eventfd that says "look again"; -1: none */
	void (*woken)(void *ctx);            /* empties it; may be NULL */
	void *ctx;
};

/* The folder of event logs below the state folder; made if absent. */
int run_events_dir(const struct settings *s, char *out, size_t cap, struct err *err);

/* 0 whenever there is a report, whatever the end; -1 when not even its row could be written. *err
 * is set for RUN_REFUSED, RUN_LOST and RUN_UNKNOWN too. A command that is given up is killed; what
 * it started itself is not. */
int run_execution(struct core *c, const struct run_request *req, struct run_report *out,
		  struct err *err);

/* ---- for steps ---- */

/* Code in the sandbox's own kernel, when its turn comes, or a command: neither has an event or a
 * row. *out gets the head of stdout, up to its maximum. That it failed by itself is no failure of
 * the call: there is just no answer in *out. *no_interpreter: there is none, and nothing ran. */
int run_quiet_code(struct running *r, const char *code, size_t n, struct buf *out,
		   bool *no_interpreter, struct err *err);
int run_quiet_command(struct running *r, const char *const *argv, struct buf *out, struct err *err);

/* The execution has failed, with this for its error. */
void run_fail(struct running *r, const char *name, const char *value);

#endif
