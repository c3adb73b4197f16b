#include "e2b/run.h"

#include <json-c/json.h>
#include <string.h>

#include "base/cleanup.h"
#include "e2b/bodies.h"
#include "e2b/client.h"
#include "e2b/streams.h"

static int began(void *ctx, struct err *err)
{
	return code_stream_began(ctx, err);
}

static int take(void *ctx, const char *p, size_t n, struct err *err)
{
	return code_stream_feed(ctx, p, n, err);
}

static int again(void *ctx, struct err *err)
{
	return stream_again(ctx, err);
}

int e2b_run_code(struct e2b *c, const struct e2b_sandbox *sb, const struct e2b_code *code,
		 e2b_event_fn *fn, void *ctx, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct err why = { 0 };
	struct stream stream;
	struct call call;
	call_init(&call, "execute", "POST", 64u << 10);
	code_stream_init(&stream, fn, ctx);
	call.began = began;
	call.take = take;
	call.again = again;
	call.ctx = &stream;
	call_header(&call, "Content-Type", "application/json");
	int rc = data_call(c, &call, sb, PORT_INTERPRETER, "/execute", wait, &why);
	if (rc == 0 && body_code(&call.body, code) < 0)
		rc = err_set(&why, ERR_LIMIT, "execute: the code is too long");
	if (rc == 0 && data_run(c, &call, wait, &why) < 0) {
		/* What breaks, or is given up, behind the end of the execution does not change it.
		 */
		rc = stream.ended ? 0 : -1;
		if (data_is_unknown(c, &call, &why))
			why.code = ERR_UNKNOWN_OUTCOME;
	} else if (rc == 0 && !stream.ended) {
		rc = err_set(&why, ERR_UNKNOWN_OUTCOME, "execute: the stream ended too early");
	}
	stream_free(&stream);
	call_free(&call);
	if (rc < 0 && err)
		*err = why;
	return client_end(c, since, sb, rc, err);
}
