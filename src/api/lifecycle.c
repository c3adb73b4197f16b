#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/body.h"
#include "api/handlers.h"
#include "api/sandbox.h"
#include "core/expiry.h"

#define LABEL_PREFIX "sandgate_"

/* ---- start ---- */

static int read_type(struct call *c, struct json_object *o, enum sandbox_type *type)
{
	const char *name;
	size_t n;
	if (body_text(c, o, "sandbox_type", &name, &n) < 0)
		return -1;
	if (!name || sandbox_type_parse(name, type) == 0)
		return 0;
	answer_problem(c, BAD_REQUEST, "'sandbox_type' must be code_interpreter or custom");
	return -1;
}

/* A label of ours from outside could make a stranger's sandbox look like one of this server's. */
static int check_labels(struct call *c, const struct e2b_pair *labels, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strncmp(labels[i].key, LABEL_PREFIX, strlen(LABEL_PREFIX)) == 0) {
			answer_problem(c, BAD_REQUEST,
				       "names in 'metadata' must not begin with " LABEL_PREFIX);
			return -1;
		}
	}
	return 0;
}

static void start(struct call *c, const struct session *want)
{
	struct sandbox_row row;
	if (call_ensure_alive(c, want, &row) == 0)
		answer_json(c, 200, sandbox_json(&row));
}

void op_start(struct call *c)
{
	struct session want = call_session(c);
	struct json_object *o;
	struct e2b_pair *envs = NULL, *labels = NULL;
	if (body_object(c, &o) < 0)
		return;
	if (read_type(c, o, &want.type) == 0 && body_pairs(c, o, "envs", &envs, &want.nenvs) == 0 &&
	    body_pairs(c, o, "metadata", &labels, &want.nmetadata) == 0 &&
	    check_labels(c, labels, want.nmetadata) == 0) {
		want.envs = envs;
		want.metadata = labels;
		start(c, &want);
	}
	free(envs);
	free(labels);
	json_object_put(o);
}

/* ---- stop and status ---- */

void op_stop(struct call *c)
{
	struct err err = { 0 };
	if (session_stop(&c->w->core, c->caller.user, c->session, &err) < 0) {
		answer_err(c, &err);
		return;
	}
	if (c->route->dialect == DIALECT_A) {
		answer_empty(c, 204);
		return;
	}
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "status", json_object_new_string("stopped"));
	answer_json(c, 200, o);
}

void op_status(struct call *c)
{
	struct sandbox_row row;
	struct json_object *info = NULL;
	struct err err = { 0 };
	if (sandbox_find(c->w->core.store, c->caller.user, c->session, &row, &err) == 0) {
		memcpy(c->sandbox, row.sandbox_id, sizeof c->sandbox);
		info = expiry_is_over(&c->w->core, &row) ? NULL : sandbox_json(&row);
	} else if (err.code != ERR_NOT_FOUND) {
		answer_err(c, &err);
		return;
	}
	if (c->route->dialect == DIALECT_A) {
		answer_json(c, 200, info);
		return;
	}
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "exists", json_object_new_boolean(info != NULL));
	json_object_object_add(o, "info", info);
	answer_json(c, 200, o);
}
