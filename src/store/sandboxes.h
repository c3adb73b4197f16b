/* Sandboxes: what is known of each, and the changes of one that has started. How one comes to be is
 * in claims.h. Every change looks at the row's state again and is ERR_CONFLICT when it came late.
 */
#ifndef STORE_SANDBOXES_H
#define STORE_SANDBOXES_H

#include <stddef.h>

#include "base/procid.h"
#include "store/store.h"

enum sandbox_type { SANDBOX_CODE_INTERPRETER, SANDBOX_CUSTOM };

/* The first three are live. STOPPING: to be killed, not confirmed yet; users do not see it. */
enum sandbox_status {
	SANDBOX_STARTING,
	SANDBOX_RUNNING,
	SANDBOX_PAUSED,
	SANDBOX_STOPPING,
	SANDBOX_ENDED,
};

enum end_reason {
	END_NONE,
	END_STOPPED, /* by its user; the next one has lost nothing */
	END_EXPIRED_IDLE,
	END_EXPIRED_LIFETIME,
	END_KILLED_BY_PROVIDER,
	END_KILLED_BY_ADMIN,
	END_CANCEL_KILL,
	END_START_FAILED, /* it never ran, so it is no generation either */
	END_UNKNOWN,
};

/* The words that the database and the REST answers use. */
const char *sandbox_type_name(enum sandbox_type type);
int sandbox_type_parse(const char *name, enum sandbox_type *out); /* -1: there is no such type */
const char *sandbox_status_name(enum sandbox_status status);
const char *end_reason_name(enum end_reason reason); /* "" for END_NONE */

/* Longest values in bytes; a longer one is ERR_INVALID. */
enum {
	STORE_NAME_MAX = 128,  /* users, session ids, templates, agent and task ids, ids of ours */
	STORE_ID_MAX = 64,     /* sandbox ids and nonces */
	STORE_TOKEN_MAX = 512, /* envd and traffic tokens */
	STORE_DOMAIN_MAX = 255,
};

struct sandbox_row {
	int64_t id;                           /* of the row; rises with time */
	char owner[STORE_NAME_MAX + 1];       /* the user; with session_id the key */
	char session_id[STORE_NAME_MAX + 1];  /* chosen by the client */
	int64_t generation;                   /* 1 for a session's first sandbox */
	char sandbox_id[STORE_ID_MAX + 1];    /* the provider's; "" while starting */
	enum sandbox_type type;               /* as asked for */
	char template[STORE_NAME_MAX + 1];    /* the provider's template */
	enum sandbox_status status;           /* see above */
	int64_t created_at;                   /* when it was asked for */
	int64_t last_activity;                /* at most a minute late */
	int64_t expires_at;                   /* the earlier of idle and lifetime limit */
	int64_t lifetime_at;                  /* the lifetime limit */
	int64_t provider_end_at;              /* the provider's own timeout */
	char nonce[STORE_ID_MAX + 1];         /* in the sandbox's metadata, to find it again */
	int64_t claim_deadline;               /* while starting: until when the claimer has time */
	int claim_slot;                       /* the claimer's slot */
	struct procid claimer;                /* the process that starts or started it */
	char envd_token[STORE_TOKEN_MAX + 1]; /* secret; gone once it has ended */
	char traffic_token[STORE_TOKEN_MAX + 1]; /* secret; gone once it has ended */
	char domain[STORE_DOMAIN_MAX + 1];       /* the provider's, or "" for the configured one */
	char agent_id[STORE_NAME_MAX + 1];       /* a label, or "" */
	char task_id[STORE_NAME_MAX + 1];        /* a label, or "" */
	enum end_reason end_reason;              /* END_NONE while live */
	int64_t destroyed_at;                    /* 0 until ended */
	bool state_lost;             /* its user has yet to hear that older state is gone */
	enum end_reason lost_reason; /* why that is so; stays after it was told */
};

/* The live one of a session; the one the provider or the ledger calls so, live or not.
 * ERR_NOT_FOUND. */
int sandbox_find(struct store *s, const char *owner, const char *session_id,
		 struct sandbox_row *out, struct err *err);
int sandbox_find_by_id(struct store *s, const char *sandbox_id, struct sandbox_row *out,
		       struct err *err);
int sandbox_find_by_nonce(struct store *s, const char *nonce, struct sandbox_row *out,
			  struct err *err);
int sandbox_get(struct store *s, int64_t id, struct sandbox_row *out, struct err *err);

/* What whoever uses one asks every second. */
struct sandbox_fate {
	enum sandbox_status status;
	enum end_reason end_reason; /* END_NONE while live */
	int64_t lifetime_at;        /* the lifetime limit */
};

int sandbox_fate(struct store *s, int64_t id, struct sandbox_fate *out, struct err *err);

enum sandbox_set {
	SANDBOXES_OF_OWNER, /* all of query.owner, ended ones too */
	SANDBOXES_EVERY,    /* everybody's, ended ones too */
	SANDBOXES_LIVE,     /* everybody's that are starting, running or paused */
	SANDBOXES_STOPPING, /* to be killed; sandbox_id "" means: look the nonce up */
	SANDBOXES_EXPIRED,  /* running or paused past expires_at; sandbox_expire decides */
};

struct sandbox_query {
	enum sandbox_set set;
	const char *owner; /* for SANDBOXES_OF_OWNER */
	int64_t before;    /* only rows with a smaller id, the cursor of the next page; 0 is all */
};

/* At most max rows, newest first; *n says how many. */
int sandbox_list(struct store *s, const struct sandbox_query *query, struct sandbox_row *rows,
		 size_t max, size_t *n, struct err *err);

/* One after the other, newest first, read in pages: fn may change rows. -1 of fn ends it, with the
 * *err that fn has set. */
typedef int sandbox_fn(void *ctx, struct sandbox_row *row, struct err *err);
int sandbox_each(struct store *s, struct sandbox_query query, sandbox_fn *fn, void *ctx,
		 struct err *err);

struct sandbox_counts {
	int64_t of[SANDBOX_ENDED]; /* by status; ended ones are not counted */
};

/* Everybody's where owner is NULL. */
int sandbox_count(struct store *s, const char *owner, struct sandbox_counts *out, struct err *err);

/* It was used now: the idle limit counts anew. Writes at most once a minute (or a tenth of idle_us,
 * when that is less) and is no error for one that is not running. */
int sandbox_touch(struct store *s, int64_t id, int64_t idle_us, struct err *err);

/* The provider's timeout as it was granted, and a later end of idleness; 0 leaves either.
 * expires_at never passes the lifetime limit and never moves back. */
int sandbox_extend(struct store *s, int64_t id, int64_t provider_end_at, int64_t expires_at,
		   struct err *err);

/* running -> paused, or back. */
int sandbox_pause(struct store *s, int64_t id, struct err *err);
int sandbox_resume(struct store *s, int64_t id, struct err *err);

/* The provider says it is gone. Only a running or paused one ends by this; others stay as they are.
 */
int sandbox_lost(struct store *s, int64_t id, enum end_reason reason, struct err *err);

/* To be killed: -> STOPPING; *out is the row, with what to kill. One that is starting can be
 * stopped only when nobody works on it any more. */
int sandbox_stop(struct store *s, int64_t id, enum end_reason reason, struct sandbox_row *out,
		 struct err *err);

/* The same for one that is past its limits, checked under the write lock: ERR_CONFLICT when it was
 * used meanwhile, or when a lease protects it from the idle limit. */
int sandbox_expire(struct store *s, int64_t id, struct sandbox_row *out, struct err *err);

/* The kill is confirmed: STOPPING -> ENDED. */
int sandbox_killed(struct store *s, int64_t id, struct err *err);

/* *lost is true for one caller only, the first that asks after state was lost; then *why is set. */
int sandbox_take_state_lost(struct store *s, int64_t id, bool *lost, enum end_reason *why,
			    struct err *err);

#endif
