#include "e2b/rpc.h"

int rpc_call(struct e2b *c, const struct e2b_sandbox *sb, const char *method, struct buf *body,
	     bool repeatable, struct json_object **out, const struct e2b_wait *wait,
	     struct err *err)
{
	char path[128];
	struct call call;
	call_init(&call, method, "POST", RPC_ANSWER_MAX);
	call.repeatable = repeatable;
	call.body = *body;
	*body = BUF(0);
	call_header(&call, "Content-Type", "application/json");
	call_header(&call, "Connect-Protocol-Version", "1");
	snprintf(path, sizeof path, "/%s", method);
	int rc = data_call(c, &call, sb, PORT_ENVD, path, wait, err);
	if (rc == 0)
		rc = data_run(c, &call, wait, err);
	if (rc == 0)
		rc = json_read(out, call.answer.p, call.answer.len, err);
	call_free(&call);
	return rc;
}
