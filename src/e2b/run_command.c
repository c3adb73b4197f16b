#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "e2b/bodies.h"
#include "e2b/rpc.h"
#include "e2b/streams.h"
#include "wire/base64.h"

#define BODY_MAX       (16u << 20)
#define KEEPALIVE_SECS "50"

static int take(void *ctx, const char *p, size_t n, struct err *err)
{
	return command_stream_feed(ctx, p, n, err);
}

static int again(void *ctx, struct err *err)
{
	return stream_again(ctx, err);
}

/* envd takes the user's name as that of Basic credentials without a password. */
static void add_user(struct call *call, const char *user)
{
	struct buf text = BUF(256), field = BUF(512);
	if (!user || !*user)
		return;
	if (buf_addf(&text, "%s:", user) || buf_adds(&field, "Basic ") ||
	    base64_put(&field, text.p, text.len))
		call->no_memory = true;
	else
		call_header(call, "Authorization", field.p);
	buf_free(&text);
	buf_free(&field);
}

static int fill(struct call *call, const struct e2b_command *command, struct err *err)
{
	struct buf json = BUF(BODY_MAX);
	char ms[32] = "";
	if (!command->argv || !command->argv[0])
		return err_set(err, ERR_INVALID, "a command without a name");
	if (command->timeout_ms > 0)
		snprintf(ms, sizeof ms, "%" PRId64, command->timeout_ms);
	call_header(call, "Content-Type", "application/connect+json");
	call_header(call, "Connect-Protocol-Version", "1");
	call_header(call, "Connect-Timeout-Ms", ms);
	call_header(call, "Keepalive-Ping-Interval", KEEPALIVE_SECS);
	add_user(call, command->user);
	int rc = body_command(&json, command) || connect_put(&call->body, 0, json.p, json.len);
	buf_free(&json);
	return rc ? err_set(err, ERR_LIMIT, "the command is too long") : 0;
}

int e2b_run_command(struct e2b *c, const struct e2b_sandbox *sb, const struct e2b_command *command,
		    e2b_event_fn *fn, void *ctx, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct err why = { 0 };
	struct stream stream;
	struct call call;
	call_init(&call, "command", "POST", 64u << 10);
	command_stream_init(&stream, fn, ctx);
	call.take = take;
	call.again = again;
	call.ctx = &stream;
	int rc = data_call(c, &call, sb, PORT_ENVD, "/process.Process/Start", wait, &why);
	if (rc == 0)
		rc = fill(&call, command, &why);
	if (rc == 0 && data_run(c, &call, wait, &why) < 0) {
		rc = stream.ended ? 0 : -1;
		/* What envd says in the stream is certain; a stream that breaks is not. */
		if (!stream.closed && data_is_unknown(c, &call, &why))
			why.code = ERR_UNKNOWN_OUTCOME;
	} else if (rc == 0 && !stream.ended) {
		rc = err_set(&why, ERR_UNKNOWN_OUTCOME, "command: the stream ended too early");
	}
	stream_free(&stream);
	call_free(&call);
	if (rc < 0 && err)
		*err = why;
	return client_end(c, since, sb, rc, err);
}

int e2b_signal(struct e2b *c, const struct e2b_sandbox *sb, int pid, int signal,
	       const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	_cleanup_(json_drop) struct json_object *answer = NULL;
	struct buf body = BUF(256);
	const char *name = signal == SIGKILL ? "SIGKILL" : signal == SIGTERM ? "SIGTERM" : NULL;
	int rc;
	if (!name || body_signal(&body, pid, name))
		rc = err_set(err, ERR_INVALID, "signal %d cannot be sent", signal);
	else
		rc = rpc_call(c, sb, "process.Process/SendSignal", &body, true, &answer, wait, err);
	buf_free(&body);
	return client_end(c, since, sb, rc, err);
}
