/* The code interpreter's HTTP: execute and contexts. */
#include "engine/surface.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/answer.h"
#include "engine/context.h"
#include "wire/path.h"

#define BODY_MAX (8u << 20) /* six times this, escaped, must fit what a kernel is sent */

typedef void body_fn(struct sandbox *s, struct req *r, struct json_object *body);

/* As FastAPI words a body that does not fit its model. */
static void unprocessable(struct req *r, const char *text)
{
	struct json_object *o = json_object_new_object(), *all = json_object_new_array(),
			   *one = json_object_new_object(), *where = json_object_new_array();
	json_object_array_add(where, json_object_new_string("body"));
	json_object_object_add(one, "type", json_object_new_string("value_error"));
	json_object_object_add(one, "loc", where);
	json_object_object_add(one, "msg", json_object_new_string(text));
	json_object_array_add(all, one);
	json_object_object_add(o, "detail", all);
	answer_json(r, 422, o);
}

static void on_body(struct sandbox *s, struct req *r, const struct buf *text, void (*fn)(void))
{
	struct json_object *body = NULL;
	struct err err;
	if (field_root(&body, text->p, text->len, &err) < 0)
		unprocessable(r, err.text);
	else
		((body_fn *)fn)(s, r, body);
	json_object_put(body);
}

static void collect(struct sandbox *s, struct req *r, body_fn *fn)
{
	surface_collect(s, r, BODY_MAX, on_body, (void (*)(void))fn);
}

static void refuse_language(struct req *r, const struct err *err)
{
	answer_text(r, err->code == ERR_UNAVAILABLE ? 501 : 500, err->text);
}

static void execute(struct sandbox *s, struct req *r, struct json_object *body)
{
	struct json_object *env = NULL, *code = NULL;
	const char *context_id = NULL, *language = NULL;
	enum kernel_language which = KERNEL_PYTHON;
	struct err err;
	if (!json_object_object_get_ex(body, "code", &code) ||
	    !json_object_is_type(code, json_type_string)) {
		unprocessable(r, "code is required and must be a string");
		return;
	}
	if (field_string(body, "context_id", &context_id, &err) < 0 ||
	    field_string(body, "language", &language, &err) < 0 ||
	    field_strings(body, "env_vars", true, &env, &err) < 0) {
		unprocessable(r, err.text);
		return;
	}
	if (context_id && !*context_id)
		context_id = NULL;
	if (context_id && language) {
		answer_text(r, 400, "Only one of context_id or language can be provided");
		return;
	}
	if (language && context_language(s->engine, language, &which, &err) < 0) {
		refuse_language(r, &err);
		return;
	}
	struct context *c = context_id ? context_find(s, context_id) : context_default(s, which);
	if (!c)
		answer_text(r, context_id ? 404 : 500,
			    context_id ? "Context ID not found"
				       : "Failed to create context: too many");
	else
		context_run(c, r, json_object_get_string(code),
			    (size_t)json_object_get_string_len(code), env);
}

struct creating {
	struct req *req;
};

static void on_created(void *ctx, struct context *c, const char *why)
{
	struct creating *w = ctx;
	if (w->req && c)
		answer_json(w->req, 200, context_json(c));
	else if (w->req)
		answer_text(w->req, 500, why);
	free(w);
}

static void create_context(struct sandbox *s, struct req *r, struct json_object *body)
{
	const char *language = "", *dir = "";
	enum kernel_language which;
	char cwd[PATH_TEXT];
	struct err err;
	if (field_string(body, "language", &language, &err) < 0 ||
	    field_string(body, "cwd", &dir, &err) < 0) {
		unprocessable(r, err.text);
		return;
	}
	if (context_language(s->engine, language, &which, &err) < 0) {
		refuse_language(r, &err);
		return;
	}
	struct creating *w = malloc(sizeof *w);
	if (!w || path_resolve(cwd, dir, AGENT_HOME, AGENT_HOME, &err) < 0 ||
	    context_create(s, which, cwd, on_created, w, &err) < 0) {
		free(w);
		answer_text(r, 500, w ? err.text : "no memory");
		return;
	}
	req_hold(r, &w->req);
}

/* /contexts/{id} and /contexts/{id}/restart. */
static void one_context(struct sandbox *s, struct req *r, const char *rest)
{
	char id[64];
	size_t n = strcspn(rest, "/");
	bool restart = !strcmp(rest + n, "/restart");
	const char *want = restart ? "POST" : "DELETE";
	if (rest[n] && !restart) {
		answer_text(r, 404, "Not Found");
		return;
	}
	if (strcmp(req_method(r), want) != 0) {
		answer_text(r, 405, "Method Not Allowed");
		return;
	}
	snprintf(id, sizeof id, "%.*s", (int)n, rest);
	struct context *c = context_find(s, id);
	if (!c) {
		char text[128];
		snprintf(text, sizeof text, "Context %s not found", id);
		answer_text(r, 404, text);
		return;
	}
	if (restart)
		context_restart(c);
	else
		context_delete(c);
	req_reply(r, 200, "application/json", "null", 4);
}

void interpreter_route(struct sandbox *s, struct req *r)
{
	const char *method = req_method(r), *path = req_path(r);
	bool get = !strcmp(method, "GET"), post = !strcmp(method, "POST");
	if (!strcmp(path, "/health") && get)
		req_reply(r, 200, "application/json", "\"OK\"", 4);
	else if (!strcmp(path, "/execute") && post)
		collect(s, r, execute);
	else if (!strcmp(path, "/contexts") && post)
		collect(s, r, create_context);
	else if (!strcmp(path, "/contexts") && get)
		answer_json(r, 200, contexts_json(s));
	else if (!strncmp(path, "/contexts/", 10) && path[10])
		one_context(s, r, path + 10);
	else if (!strcmp(path, "/health") || !strcmp(path, "/execute") ||
		 !strcmp(path, "/contexts"))
		answer_text(r, 405, "Method Not Allowed");
	else
		answer_text(r, 404, "Not Found");
}
