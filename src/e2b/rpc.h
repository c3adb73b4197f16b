/* Unary Connect calls to envd. Only src/e2b includes this. */
#ifndef E2B_RPC_H
#define E2B_RPC_H

#include "e2b/client.h"

#define RPC_ANSWER_MAX (64u << 20) /* a folder of some 200,000 files */
#define RPC_FILESYSTEM "filesystem.Filesystem/"

/* method is "package.Service/Method". *out is the answer; json_drop it. body is taken over. */
int rpc_call(struct e2b *c, const struct e2b_sandbox *sb, const char *method, struct buf *body,
	     bool repeatable, struct json_object **out, const struct e2b_wait *wait,
	     struct err *err);

#endif
