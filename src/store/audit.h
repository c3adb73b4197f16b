/* The audit trail: who did what to what, and with which outcome. Only ever appended to; never
 * secrets, code or environment values. */
#ifndef STORE_AUDIT_H
#define STORE_AUDIT_H

#include "store/store.h"

struct audit_entry {
	const char *request_id; /* as in the log and in X-Request-Id; NULL for tools */
	const char *user;       /* who; NULL where nobody was recognised */
	const char *action;     /* "start", "execute", "token_revoke" */
	const char *target; /* a session, sandbox or token id; NULL is none. Cut when it is long. */
	const char *outcome; /* "ok", or the error's public name */
};

int audit_append(struct store *s, const struct audit_entry *entry, struct err *err);

#endif
