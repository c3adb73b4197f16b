/* Several kernels in one sandbox. */
#include <string.h>

#include "api/answer.h"
#include "api/body.h"
#include "api/handlers.h"
#include "api/sandbox.h"
#include "e2b/contexts.h"

static struct json_object *context_json(const struct e2b_context *context)
{
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "context_id", json_object_new_string(context->id));
	json_object_object_add(o, "language", json_object_new_string(context->language));
	json_object_object_add(o, "cwd", json_object_new_string(context->cwd));
	return o;
}

/* A call to the sandbox's interpreter failed. */
static void answer_failure(struct call *c, struct sandbox_row *row, const struct err *err)
{
	const enum e2b_why why = e2b_last(c->w->core.e2b)->why;
	if (why == E2B_WHY_NO_SANDBOX && call_lost(c, row))
		answer_problem(c, SANDBOX_NOT_FOUND, "it is gone; start a new one");
	else if (why == E2B_WHY_PORT_CLOSED)
		answer_problem(c, NO_INTERPRETER, "this sandbox's template runs no code");
	else if (err->code == ERR_NOT_FOUND && why != E2B_WHY_NO_SANDBOX)
		answer_problem(c, CONTEXT_NOT_FOUND, "this sandbox has no such context");
	else if (err->code == ERR_INVALID)
		answer_problem(c, BAD_REQUEST,
			       "this sandbox's template does not run that language, or has no such "
			       "'cwd'");
	else
		answer_err(c, err);
}

static int add_context(void *ctx, const struct e2b_context *context)
{
	return json_object_array_add(ctx, context_json(context));
}

void op_contexts(struct call *c)
{
	struct sandbox_row row;
	struct e2b_sandbox sb;
	struct err err = { 0 };
	if (call_existing(c, &row) < 0)
		return;
	session_address(&row, &sb);
	struct json_object *all = json_object_new_array();
	if (e2b_context_list(c->w->core.e2b, &sb, add_context, all, NULL, &err) < 0) {
		json_object_put(all);
		answer_failure(c, &row, &err);
		return;
	}
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "contexts", all);
	answer_json(c, 200, o);
}

static void create(struct call *c, struct json_object *o)
{
	const struct session want = call_session(c);
	struct sandbox_row row;
	struct e2b_sandbox sb;
	struct e2b_context context;
	struct err err = { 0 };
	const char *language, *cwd;
	size_t n;
	if (body_text(c, o, "language", &language, &n) < 0 || body_text(c, o, "cwd", &cwd, &n) < 0)
		return;
	if (cwd && (*cwd != '/' || n >= sizeof context.cwd)) {
		answer_problem(c, BAD_PATH, "'cwd' must be absolute, and no longer than %zu bytes",
			       sizeof context.cwd - 1);
		return;
	}
	if (call_ensure_alive(c, &want, &row) < 0)
		return;
	session_address(&row, &sb);
	if (e2b_context_create(c->w->core.e2b, &sb, language, cwd, &context, NULL, &err) < 0)
		answer_failure(c, &row, &err);
	else
		answer_json(c, 201, context_json(&context));
}

void op_context_create(struct call *c)
{
	struct json_object *o;
	if (body_object(c, &o) < 0)
		return;
	create(c, o);
	json_object_put(o);
}

/* One of the sandbox that is there. -1: the call has been answered. */
static int find(struct call *c, struct sandbox_row *row, struct e2b_sandbox *sb)
{
	if (call_existing(c, row) < 0)
		return -1;
	session_address(row, sb);
	if (c->id[0] && strlen(c->id) < sizeof((struct e2b_context *)0)->id)
		return 0;
	answer_problem(c, CONTEXT_NOT_FOUND, "this is no context's id");
	return -1;
}

void op_context_restart(struct call *c)
{
	struct sandbox_row row;
	struct e2b_sandbox sb;
	struct err err = { 0 };
	if (find(c, &row, &sb) < 0)
		return;
	if (e2b_context_restart(c->w->core.e2b, &sb, c->id, NULL, NULL, &err) < 0)
		answer_failure(c, &row, &err);
	else
		answer_empty(c, 204);
}

void op_context_remove(struct call *c)
{
	struct sandbox_row row;
	struct e2b_sandbox sb;
	struct err err = { 0 };
	if (find(c, &row, &sb) < 0)
		return;
	if (e2b_context_remove(c->w->core.e2b, &sb, c->id, NULL, &err) < 0)
		answer_failure(c, &row, &err);
	else
		answer_empty(c, 204);
}
