/* What a sandbox has and uses: its environment, its time, its machine. */
#include <stdlib.h>

#include "api/answer.h"
#include "api/body.h"
#include "api/handlers.h"
#include "api/sandbox.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/deadman.h"
#include "e2b/usage.h"
#include "store/envs.h"
#include "store/executions.h"

/* ---- envs ---- */

static int set_all(struct store *s, int64_t sandbox, const struct e2b_pair *pairs, size_t n,
		   struct err *err)
{
	for (size_t i = 0; i < n; i++)
		if (env_set(s, sandbox, pairs[i].key, pairs[i].value, err) < 0)
			return -1;
	return env_check(s, sandbox, err);
}

static void set_envs(struct call *c, const struct e2b_pair *pairs, size_t n)
{
	const struct session want = call_session(c);
	struct store *store = c->w->core.store;
	struct sandbox_row row;
	struct err err = { 0 };
	if (call_ensure_alive(c, &want, &row) < 0)
		return;
	if (store_begin(store, &err) < 0 ||
	    store_end(store, set_all(store, row.id, pairs, n, &err), &err) < 0) {
		if (err.code == ERR_LIMIT)
			answer_problem(c, BAD_REQUEST, "%s", err.text);
		else
			answer_err(c, &err);
		return;
	}
	answer_empty(c, 204);
}

/* The whole body is the object of names and values. */
void op_envs(struct call *c)
{
	struct json_object *o, *all = json_object_new_object();
	_free_ struct e2b_pair *pairs = NULL;
	size_t n;
	if (body_object(c, &o) == 0) {
		json_object_object_add(all, "the body", o);
		if (body_pairs(c, all, "the body", &pairs, &n) == 0)
			set_envs(c, pairs, n);
	}
	json_object_put(all);
}

/* A call to the provider failed. */
static void answer_failure(struct call *c, struct sandbox_row *row, const struct err *err)
{
	if (call_lost(c, row))
		answer_problem(c, SANDBOX_NOT_FOUND, "it is gone; start a new one");
	else
		answer_err(c, err);
}

/* ---- keepalive ---- */

static void keep_alive(struct call *c, int64_t secs)
{
	struct core *core = &c->w->core;
	struct sandbox_row row;
	struct err err = { 0 };
	if (call_existing(c, &row) < 0)
		return;
	if (sandbox_extend(core->store, row.id, 0, clock_real_us() + secs * SECOND_US, &err) < 0)
		answer_err(c, &err);
	else if (deadman_renew(core, &row, (int)secs, &err) < 0)
		answer_failure(c, &row, &err);
	else if (sandbox_get(core->store, row.id, &row, &err) < 0)
		answer_err(c, &err);
	else
		answer_json(c, 200, sandbox_json(&row));
}

void op_keepalive(struct call *c)
{
	struct json_object *o;
	int64_t secs = 0;
	bool there = false;
	if (body_object(c, &o) < 0)
		return;
	int rc = body_number(c, o, "secs", 1, c->w->settings->max_lifetime, &secs, &there);
	json_object_put(o);
	if (rc == 0 && !there)
		answer_problem(c, BAD_REQUEST, "'secs' is missing: send {\"secs\": 600}");
	else if (rc == 0)
		keep_alive(c, secs);
}

/* ---- metrics ---- */

static struct json_object *usage_json(const struct e2b_usage *u, const struct sandbox_row *row,
				      int64_t executions)
{
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "cpu_count", json_object_new_int64(u->cpus));
	json_object_object_add(o, "cpu_used_pct", json_object_new_double(u->cpu_percent));
	json_object_object_add(o, "memory_used_bytes", json_object_new_int64(u->memory_used));
	json_object_object_add(o, "memory_total_bytes", json_object_new_int64(u->memory_total));
	json_object_object_add(o, "disk_used_bytes", json_object_new_int64(u->disk_used));
	json_object_object_add(o, "disk_total_bytes", json_object_new_int64(u->disk_total));
	json_object_object_add(o, "create_ms", json_object_new_int64(row->create_ms));
	json_object_object_add(o, "executions", json_object_new_int64(executions));
	return o;
}

void op_metrics(struct call *c)
{
	struct sandbox_row row;
	struct e2b_sandbox sb;
	struct e2b_usage usage;
	struct err err = { 0 };
	int64_t executions;
	if (call_existing(c, &row) < 0)
		return;
	session_address(&row, &sb);
	if (e2b_usage(c->w->core.e2b, &sb, &usage, NULL, &err) < 0)
		answer_failure(c, &row, &err);
	else if (execution_count(c->w->core.store, row.id, &executions, &err) < 0)
		answer_err(c, &err);
	else
		answer_json(c, 200, usage_json(&usage, &row, executions));
}
