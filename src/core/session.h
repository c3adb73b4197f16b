/* A session's sandbox: found, made, replaced, ended. However many processes ask at once, there is
 * one: the claim in the database decides who makes it, and its nonce, which is also among the
 * sandbox's labels, finds again what a lost reply or a crash left behind. */
#ifndef CORE_SESSION_H
#define CORE_SESSION_H

#include <stdbool.h>

#include "base/err.h"
#include "base/settings.h"
#include "e2b/sandboxes.h"
#include "store/claims.h"
#include "store/store.h"

/* Labels of every sandbox that is ours. */
#define LABEL_NONCE       "sandgate_nonce"
#define LABEL_INSTANCE    "sandgate_instance"
#define LABEL_ENVIRONMENT "sandgate_environment"

/* What one process needs to work on sessions. */
struct core {
	const struct settings *settings;
	struct store *store;
	struct e2b *e2b;
	/* Sleep until the session's key is woken or ms have passed; -1: the caller gives up. */
	int (*sleep)(void *ctx, const char *key, int ms);
	/* Something about this key has changed. */
	void (*wake)(void *ctx, const char *key);
	/* Something went wrong that nobody's call fails for; may be NULL. */
	void (*complain)(void *ctx, const struct err *err);
	void *ctx;
};

/* How the settings say that the provider is reached. */
struct e2b_config core_provider(const struct settings *s);

/* For a program that serves nobody: it wakes no one and gives up instead of sleeping. */
struct core core_of_tool(const struct settings *s, struct store *store, struct e2b *e2b);

/* A wait as long as one call to the provider may take. */
struct e2b_wait core_patience(const struct core *c);

struct session {
	const char *owner, *id;
	enum sandbox_type type;      /* of a new sandbox */
	const struct e2b_pair *envs; /* of a new sandbox */
	size_t nenvs;
	const struct e2b_pair *metadata; /* labels of a new sandbox besides ours */
	size_t nmetadata;
};

#define SESSION_METADATA_MAX 100
#define SESSION_ENVS_MAX     100

/* Whether a client may call a session so: 1 to 128 of A-Z a-z 0-9 . _ ~ : - */
bool session_id_valid(const char *id);

/* The key that waiters sleep on: "owner/id". */
#define SESSION_KEY (2 * STORE_NAME_MAX + 2)
void session_key(char out[SESSION_KEY], const char *owner, const char *id);

/* The session's sandbox, made if there is none; *created (NULL is fine) says which. ERR_LIMIT: a
 * quota; ERR_INVALID: the type has no template; ERR_STOPPED: the user stopped it meanwhile;
 * ERR_TIMEOUT: not within the provider's time; else what the provider said. */
int session_ensure(struct core *c, const struct session *want, struct sandbox_row *row,
		   bool *created, struct err *err);

/* The user's own stop. The intent is committed first: with the provider down it is a success all
 * the same, and the kill is retried later. No sandbox is a success, too. */
int session_stop(struct core *c, const char *owner, const char *id, struct err *err);

/* End this one, whoever asks. 0: the intent is committed, waiters are woken, and *killed says
 * whether the provider has confirmed it; if not, *err says why, and the kill is retried later. One
 * that is stopping already is killed once more. ERR_CONFLICT: it is just being made, or has ended.
 */
int session_end(struct core *c, struct sandbox_row *row, enum end_reason reason, bool *killed,
		struct err *err);

/* Ask the provider whether it has the sandbox; then *paused (NULL is fine) is set, too. */
int session_exists(struct core *c, const struct sandbox_row *row, bool *there, bool *paused,
		   struct err *err);

/* The sandbox did not answer as one that lives. Ask the provider: *lost, and then it is recorded,
 * or it is alive (again: a paused one is resumed) and *row is up to date. */
int session_check(struct core *c, struct sandbox_row *row, bool *lost, struct err *err);

/* Kill one that is stopping, and record that it is gone. */
int session_kill(struct core *c, const struct sandbox_row *row, struct err *err);

/* Where its sandbox is, for calls of e2b. */
void session_address(const struct sandbox_row *row, struct e2b_sandbox *out);

#endif
