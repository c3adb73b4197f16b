/* Executions: a row for each run of code, a command or an installation. The output is in the event
 * log; the row has its fate and its sizes. */
#ifndef STORE_EXECUTIONS_H
#define STORE_EXECUTIONS_H

#include <stddef.h>

#include "base/sha256.h"
#include "store/sandboxes.h"

enum execution_kind { EXECUTION_CODE, EXECUTION_COMMAND, EXECUTION_INSTALL };

/* The first two are unfinished. */
enum execution_state {
	EXECUTION_QUEUED,
	EXECUTION_RUNNING,
	EXECUTION_SUCCEEDED,
	EXECUTION_FAILED,
	EXECUTION_TIMED_OUT,
	EXECUTION_CANCELLED,
	EXECUTION_COMPLETION_UNKNOWN,
};

const char *execution_kind_name(enum execution_kind kind);
const char *execution_state_name(enum execution_state state);

#define EXECUTION_ID        23   /* "x_", 20 characters and the NUL */
#define EXECUTION_INPUT_MAX 4096 /* bytes of the input that are kept */
#define EXECUTION_ERROR_MAX 128  /* bytes of an error's name that are kept */

void execution_new_id(char out[EXECUTION_ID]);

struct execution_start {
	const char *id;           /* from execution_new_id */
	int64_t sandbox;          /* the row's id */
	enum execution_kind kind; /* what input is */
	const char *input;        /* code, command or packages; the first 4 KiB are kept */
	size_t input_bytes;       /* its whole length */
	const char
		*request_hash;  /* SHA-256 of the request in hex, or NULL; for execution_repeated */
	int64_t idle_us;        /* the idle limit, which counts anew */
	const char *context_id; /* whose turn it waits for; NULL: the sandbox's own */
	enum end_reason lost_reason; /* what its answer says of older state; END_NONE: nothing */
};

/* Writes the row, as queued when another execution of the same context is unfinished (*queued, NULL
 * is fine, says so), and touches the sandbox. A command waits for nobody, and nobody for it.
 * ERR_CONFLICT when that is not running. */
int execution_begin(struct store *s, const struct execution_start *start, bool *queued,
		    struct err *err);

/* The provider's watcher of the sandbox's files, which one execution at a time may read. */
#define EXECUTION_WATCHER 64

struct execution_watch {
	bool shared;                /* it is this execution's until it ends */
	char id[EXECUTION_WATCHER]; /* "" when none was made yet */
	int64_t read_at;            /* when the one before has read it, or 0 */
};
int execution_watch(struct store *s, const char *id, int64_t sandbox, struct execution_watch *out,
		    struct err *err);

/* Files of the sandbox were changed by something whose changes nobody wants to know. */
int execution_spoil_watch(struct store *s, int64_t sandbox, struct err *err);
int execution_set_watcher(struct store *s, const char *id, int64_t sandbox, const char *watcher,
			  struct err *err);

/* Its turn has come: it runs from now on. */
int execution_started(struct store *s, const char *id, struct err *err);

/* Whether another execution of this context has begun to run since then. */
int execution_began_since(struct store *s, int64_t sandbox, const char *context_id,
			  const char *except, int64_t since, bool *began, struct err *err);

/* How many unfinished ones of its context came before it. */
int execution_ahead(struct store *s, const char *id, int64_t *n, struct err *err);

/* Of one sandbox, ended or not. */
int execution_count(struct store *s, int64_t sandbox, int64_t *n, struct err *err);

/* Somebody wants its end; whoever runs it sees to that. Again, and after its end, is no error. */
int execution_cancel(struct store *s, const char *id, struct err *err);
int execution_is_cancelled(struct store *s, const char *id, bool *cancelled, struct err *err);

/* What it took to end one that was cancelled. */
enum cancelled_by {
	CANCELLED_BY_NONE,
	CANCELLED_BY_INTERRUPT,
	CANCELLED_BY_RESTART,
	CANCELLED_BY_KILL
};
const char *cancelled_by_name(enum cancelled_by by); /* "" for none */

struct execution_end {
	const char *id;             /* as at the start */
	enum execution_state state; /* how it ended */
	bool has_exit_code;         /* a command or an installation that came to its end */
	int exit_code;              /* of that */
	int64_t stdout_bytes;       /* in all, kept or not */
	int64_t stderr_bytes;       /* in all, kept or not */
	const char *error_name; /* "ValueError", "sandbox_stopped", or NULL; a long one is cut */
	int64_t idle_us;        /* the idle limit, which counts anew; 0 leaves the sandbox alone */
	enum cancelled_by cancelled_by; /* of one that was */
	int64_t events;                 /* the number of its last one */
	int64_t event_bytes;            /* of all before that, kept or not */
};

/* ERR_CONFLICT when it was finished already, e.g. as the work of a process taken for dead. */
int execution_finish(struct store *s, const struct execution_end *end, struct err *err);

struct execution_row {
	int64_t seq;                              /* rises with time; the cursor of lists */
	char id[STORE_NAME_MAX + 1];              /* "x_..." */
	int64_t sandbox;                          /* the row's id */
	char owner[STORE_NAME_MAX + 1];           /* the sandbox's */
	char session_id[STORE_NAME_MAX + 1];      /* the sandbox's */
	int64_t generation;                       /* the sandbox's */
	enum execution_kind kind;                 /* what input is */
	enum execution_state state;               /* see above */
	char input[EXECUTION_INPUT_MAX + 1];      /* its first 4 KiB, cut between characters */
	int64_t input_bytes;                      /* its whole length */
	char request_hash[SHA256_HEX];            /* or "" */
	struct procid runner;                     /* the process that runs or ran it */
	int64_t started_at;                       /* when it began to run */
	int64_t ended_at;                         /* 0 while unfinished */
	bool has_exit_code;                       /* whether there is one */
	int exit_code;                            /* of a command or an installation */
	int64_t stdout_bytes;                     /* in all, kept or not */
	int64_t stderr_bytes;                     /* in all, kept or not */
	char error_name[EXECUTION_ERROR_MAX + 1]; /* or "" */
	char context_id[STORE_NAME_MAX + 1];      /* or "" */
	int64_t cancel_at;                        /* when its end was asked for, or 0 */
	enum cancelled_by cancelled_by;           /* what that took */
	enum end_reason lost_reason;              /* what its answer says of older state */
	int64_t events;                           /* the number of its last one; 0: not known */
	int64_t event_bytes;                      /* of all before that, kept or not */
};

/* ERR_NOT_FOUND also when it is another owner's. */
int execution_find(struct store *s, const char *owner, const char *id, struct execution_row *out,
		   struct err *err);

/* The last execution of this very request in this session when it timed out after since, to answer
 * a client that only sent it again; else ERR_NOT_FOUND. */
int execution_repeated(struct store *s, const char *owner, const char *session_id,
		       const char *request_hash, int64_t since, struct execution_row *out,
		       struct err *err);

/* A session's executions, newest first, of all generations; with seq below before, or 0 for all. */
int execution_list(struct store *s, const char *owner, const char *session_id, int64_t before,
		   struct execution_row *rows, size_t max, size_t *n, struct err *err);

/* Whether there is such an execution that has not ended, whosever it is. */
int execution_unfinished(struct store *s, const char *id, bool *unfinished, struct err *err);

/* What dead processes left unfinished becomes completion_unknown, and so does what a living one
 * could not write down: its lease has run out and was pruned. *n counts them. */
int execution_end_dead(struct store *s, size_t *n, struct err *err);

#endif
