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
		/* What breaks behind the end of the execution does not change it. */
		rc = stream.ended && why.code != ERR_ABANDONED ? 0 : -1;
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

/* ---- contexts ---- */

static int call_contexts(struct e2b *c, const struct e2b_sandbox *sb, struct call *call,
			 const char *method, const char *path, const struct e2b_wait *wait,
			 struct err *err)
{
	call_init(call, "context", method, 1u << 20);
	call_header(call, "Content-Type", "application/json");
	call->repeatable = true;
	if (data_call(c, call, sb, PORT_INTERPRETER, path, wait, err) < 0)
		return -1;
	return data_run(c, call, wait, err);
}

/* Contexts are listed in the order they were made; the first of a language is its default one. */
static int find_context(struct e2b *c, const struct e2b_sandbox *sb, const char *language, char *id,
			size_t cap, const struct e2b_wait *wait, struct err *err)
{
	_cleanup_(json_drop) struct json_object *all = NULL;
	struct call call;
	int rc = call_contexts(c, sb, &call, "GET", "/contexts", wait, err);
	if (rc == 0)
		rc = json_read(&all, call.answer.p, call.answer.len, err);
	call_free(&call);
	if (rc < 0)
		return -1;
	size_t n = json_object_is_type(all, json_type_array) ? json_object_array_length(all) : 0;
	for (size_t i = 0; i < n; i++) {
		struct json_object *o = json_object_array_get_idx(all, i);
		const char *its = json_text(o, "language");
		if (its && !strcmp(its, language ? language : "python") &&
		    json_copy(o, "id", id, cap) == 0 && address_check_id(id, NULL) == 0)
			return 0;
	}
	return err_set(err, ERR_NOT_FOUND, "no context of this language");
}

int e2b_restart_context(struct e2b *c, const struct e2b_sandbox *sb, const char *context_id,
			const char *language, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	char id[64];
	struct buf path = BUF(256);
	int rc = 0;
	if (context_id)
		rc = address_check_id(context_id, err);
	else
		rc = find_context(c, sb, language, id, sizeof id, wait, err);
	if (rc == 0 && buf_addf(&path, "/contexts/%s/restart", context_id ? context_id : id))
		rc = err_set(err, ERR_INVALID, "the context's id is too long");
	if (rc == 0) {
		struct call call;
		rc = call_contexts(c, sb, &call, "POST", path.p, wait, err);
		call_free(&call);
	}
	buf_free(&path);
	return client_end(c, since, sb, rc, err);
}
