/* What the operations on a session's sandbox have in common. */
#ifndef API_SANDBOX_H
#define API_SANDBOX_H

#include <json-c/json.h>

#include "api/call.h"

/* The session of the call, for a sandbox of the configured type. */
struct session call_session(const struct call *c);

/* The session's sandbox, made if there is none. -1: the call has been answered. */
int call_ensure(struct call *c, const struct session *want, struct sandbox_row *row);

/* The same, and the sandbox has just been asked whether it lives; it counts as used. */
int call_ensure_alive(struct call *c, const struct session *want, struct sandbox_row *row);

/* The session's sandbox, if it is there; it counts as used. -1: the call has been answered. */
int call_existing(struct call *c, struct sandbox_row *row);

/* Whether the user has stopped this one: then nothing is made in its place, and the call has been
 * answered. */
bool call_stopped(struct call *c, const struct sandbox_row *row);

/* After a call to the sandbox that failed: whether it is gone, which is recorded then. */
bool call_lost(struct call *c, struct sandbox_row *row);

/* It is used now: the idle limit and the provider's own timeout move. */
void call_touch(struct call *c, struct sandbox_row *row);

struct json_object *sandbox_json(const struct sandbox_row *row);

#endif
