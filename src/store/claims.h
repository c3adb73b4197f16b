/* Claims: who makes a session's sandbox. A row with status starting is the claim and, with its
 * nonce, the ledger entry of a create: it is committed before the provider is called. */
#ifndef STORE_CLAIMS_H
#define STORE_CLAIMS_H

#include "store/sandboxes.h"

enum claim_result {
	CLAIM_HAVE,  /* there is one, running or paused */
	CLAIM_WAIT,  /* another process is making it; look again when woken, or after a second */
	CLAIM_ADOPT, /* its maker is gone or late and the caller has taken over, with the SAME
			nonce: look for the nonce at the provider before creating anything */
	CLAIM_MINE,  /* there was none; the caller makes it */
};

struct claim {
	const char *owner;      /* with session_id the key */
	const char *session_id; /* checked by the caller */
	enum sandbox_type type; /* this and the rest are for a new row */
	const char *template;   /* the provider's template */
	const char *agent_id;   /* a label; NULL is none */
	const char *task_id;    /* a label; NULL is none */
	const char *nonce;      /* unique for all time */
	int64_t deadline;       /* until when the caller means to be ready */
	int max_total;          /* live sandboxes in all; 0 is no limit */
	int max_per_owner;      /* live sandboxes of this owner; 0 is no limit */
};

/* ERR_LIMIT, with a text that says which, when a new row would pass a limit. */
int sandbox_claim(struct store *s, const struct claim *want, struct sandbox_row *row,
		  enum claim_result *how, struct err *err);

/* Of one that is starting: its maker lives and has time left. */
bool sandbox_claim_holds(const struct sandbox_row *row);

/* What the provider said of a new sandbox. */
struct sandbox_facts {
	const char *sandbox_id;    /* the provider's */
	const char *envd_token;    /* NULL is none */
	const char *traffic_token; /* NULL is none */
	const char *domain;        /* NULL is the configured one */
	int64_t provider_end_at;   /* its own timeout, read back */
	int64_t lifetime_at;       /* when it ends at the latest */
	int64_t idle_us;           /* it ends when unused for so long */
};

/* Its maker needs more time than it thought. */
int sandbox_claim_longer(struct store *s, int64_t id, const char *nonce, int64_t deadline,
			 struct err *err);

/* starting -> running, by nonce. Whoever gets ERR_CONFLICT was overtaken: it reads the row again
 * and kills the sandbox that it holds, unless that is the one in the row. */
int sandbox_started(struct store *s, int64_t id, const char *nonce,
		    const struct sandbox_facts *facts, struct err *err);

/* starting -> ended, by the current claimer only: one that was overtaken must not end the work of
 * the process that took over. The next claim gets the same generation again. */
int sandbox_failed(struct store *s, int64_t id, const char *nonce, struct err *err);

/* starting -> stopping, likewise, when nobody can say whether there is a sandbox: it stays among
 * those to be killed, by its nonce. */
int sandbox_given_up(struct store *s, int64_t id, const char *nonce, struct err *err);

#endif
