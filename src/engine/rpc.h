/* Connect calls to envd: the request's JSON, whole, and the user it acts for. */
#ifndef ENGINE_RPC_H
#define ENGINE_RPC_H

#include "engine/answer.h"
#include "engine/sandbox.h"

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

#endif
