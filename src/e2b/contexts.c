#include "e2b/contexts.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "e2b/bodies.h"
#include "e2b/client.h"

/* One call; json, where it is not NULL, is its body, and *answer what came back. */
static int call_contexts(struct e2b *c, const struct e2b_sandbox *sb, const char *method,
			 const char *path, const struct buf *json, struct json_object **answer,
			 const struct e2b_wait *wait, struct err *err)
{
	struct call call;
	call_init(&call, "context", method, 1u << 20);
	call_header(&call, "Content-Type", "application/json");
	call.repeatable = !json;
	int rc = data_call(c, &call, sb, PORT_INTERPRETER, path, wait, err);
	if (rc == 0 && json && buf_add(&call.body, json->p, json->len))
		rc = err_set(err, ERR_LIMIT, "the context's fields are too long");
	if (rc == 0)
		rc = data_run(c, &call, wait, err);
	if (rc == 0 && answer)
		rc = json_read(answer, call.answer.p, call.answer.len, err);
	call_free(&call);
	return rc;
}

static int read_context(struct json_object *o, struct e2b_context *out, struct err *err)
{
	struct e2b_context context = { 0 };
	const char *cwd = json_text(o, "cwd"); /* any name that a directory may have */
	if (json_copy(o, "id", context.id, sizeof context.id) < 0 ||
	    json_copy(o, "language", context.language, sizeof context.language) < 0 ||
	    address_check_id(context.id, NULL) < 0 || (cwd && strlen(cwd) >= sizeof context.cwd))
		return err_set(err, ERR_INTERNAL, "a context with fields that cannot be used");
	snprintf(context.cwd, sizeof context.cwd, "%s", cwd ? cwd : "");
	*out = context;
	return 0;
}

int e2b_context_create(struct e2b *c, const struct e2b_sandbox *sb, const char *language,
		       const char *cwd, struct e2b_context *out, const struct e2b_wait *wait,
		       struct err *err)
{
	int64_t since = client_begin(c);
	_cleanup_(json_drop) struct json_object *answer = NULL;
	struct buf body = BUF(8u << 10);
	int rc = body_context(&body, language, cwd)
			 ? err_set(err, ERR_LIMIT, "the context's fields are too long")
			 : call_contexts(c, sb, "POST", "/contexts", &body, &answer, wait, err);
	if (rc == 0)
		rc = read_context(answer, out, err);
	buf_free(&body);
	return client_end(c, since, sb, rc, err);
}

static int list(struct e2b *c, const struct e2b_sandbox *sb, e2b_context_fn *fn, void *ctx,
		const struct e2b_wait *wait, struct err *err)
{
	_cleanup_(json_drop) struct json_object *all = NULL;
	if (call_contexts(c, sb, "GET", "/contexts", NULL, &all, wait, err) < 0)
		return -1;
	if (!json_object_is_type(all, json_type_array))
		return err_set(err, ERR_INTERNAL, "contexts: the answer is no list");
	for (size_t i = 0; i < json_object_array_length(all); i++) {
		struct e2b_context context;
		if (read_context(json_object_array_get_idx(all, i), &context, err) < 0)
			return -1;
		if (fn(ctx, &context) < 0)
			return err_set(err, ERR_ABANDONED, "contexts: given up by the caller");
	}
	return 0;
}

int e2b_context_list(struct e2b *c, const struct e2b_sandbox *sb, e2b_context_fn *fn, void *ctx,
		     const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	return client_end(c, since, sb, list(c, sb, fn, ctx, wait, err), err);
}

/* /contexts/ID and what follows. */
static int call_one(struct e2b *c, const struct e2b_sandbox *sb, const char *method, const char *id,
		    const char *rest, const struct e2b_wait *wait, struct err *err)
{
	char path[128];
	if (address_check_id(id, err) < 0)
		return -1;
	snprintf(path, sizeof path, "/contexts/%.64s%s", id, rest);
	return call_contexts(c, sb, method, path, NULL, NULL, wait, err);
}

int e2b_context_remove(struct e2b *c, const struct e2b_sandbox *sb, const char *id,
		       const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	return client_end(c, since, sb, call_one(c, sb, "DELETE", id, "", wait, err), err);
}

/* The first of a language is its default one. */
struct wanted {
	const char *language;
	char id[64];
};

static int find_first(void *ctx, const struct e2b_context *context)
{
	struct wanted *w = ctx;
	if (!w->id[0] && !strcmp(context->language, w->language))
		memcpy(w->id, context->id, sizeof w->id);
	return 0;
}

int e2b_context_restart(struct e2b *c, const struct e2b_sandbox *sb, const char *id,
			const char *language, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct wanted wanted = { .language = language ? language : "python" };
	int rc = id ? 0 : list(c, sb, find_first, &wanted, wait, err);
	if (rc == 0 && !id && !wanted.id[0])
		rc = err_set(err, ERR_NOT_FOUND, "no context of this language");
	if (rc == 0)
		rc = call_one(c, sb, "POST", id ? id : wanted.id, "/restart", wait, err);
	return client_end(c, since, sb, rc, err);
}
