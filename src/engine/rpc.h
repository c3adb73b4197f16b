/* Connect calls to envd: the request's JSON, whole, and the user it acts for. */
#ifndef ENGINE_RPC_H
#define ENGINE_RPC_H

#include "engine/answer.h"
#include "engine/sandbox.h"
#include "wire/path.h"

typedef void rpc_fn(struct sandbox *s, struct req *r, struct json_object *body, bool root);

/* One method of a service. */
struct rpc_method {
	const char *name;
	rpc_fn *fn; /* NULL: E2B has it, this engine has not */
};

/* Find the method, gather the body (of a streaming call: its one envelope) and call it. Errors in
 * the body or the user are answered here. */
void rpc_dispatch(struct sandbox *s, struct req *r, const struct rpc_method *table, size_t n,
		  const char *method);

/* Parts of a request. -1: it is answered, with what is wrong. */
int rpc_path(struct req *r, struct json_object *body, const char *key, bool root,
	     char out[PATH_TEXT]);
int rpc_timeout_ms(struct req *r, int64_t *out); /* Connect-Timeout-Ms; untouched when absent */
int rpc_keepalive_secs(const struct req *r);     /* how often a silent stream says that it lives */

#endif
