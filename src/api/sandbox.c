#include "api/sandbox.h"

#include <string.h>

#include "api/answer.h"
#include "core/deadman.h"
#include "core/expiry.h"
#include "base/clock.h"
#include "e2b/remote_files.h"

struct session call_session(const struct call *c)
{
	struct session s = { .owner = c->caller.user, .id = c->session };
	/* The settings were checked: it is one of the two. */
	sandbox_type_parse(c->w->settings->default_type, &s.type);
	return s;
}

static void remember(struct call *c, const struct sandbox_row *row)
{
	memcpy(c->sandbox, row->sandbox_id, sizeof c->sandbox);
}

/* Whether there is a template of that type. One that is there already is returned as it is, so only
 * a new sandbox needs one. */
static bool has_template(struct call *c, struct session *want)
{
	struct sandbox_row row;
	struct err ignored;
	if (want->type != SANDBOX_CUSTOM || c->w->settings->custom_template)
		return true;
	if (sandbox_find(c->w->core.store, want->owner, want->id, &row, &ignored) < 0)
		return false;
	want->type = row.type;
	return row.type != SANDBOX_CUSTOM;
}

int call_ensure(struct call *c, const struct session *wanted, struct sandbox_row *row)
{
	struct session want = *wanted;
	struct err err = { 0 };
	if (!has_template(c, &want)) {
		answer_problem(c, TEMPLATE_NOT_CONFIGURED,
			       "this server has no template for custom sandboxes");
		return -1;
	}
	if (session_ensure(&c->w->core, &want, row, NULL, &err) < 0) {
		answer_err(c, &err);
		return -1;
	}
	remember(c, row);
	return 0;
}

void call_touch(struct call *c, struct sandbox_row *row)
{
	/* Neither is worth failing for: the call itself tells whether the sandbox is well. */
	struct err ignored;
	sandbox_touch(c->w->core.store, row->id, c->w->settings->idle_timeout * SECOND_US,
		      &ignored);
	deadman_renew(&c->w->core, row, 0, &ignored);
}

int call_existing(struct call *c, struct sandbox_row *row)
{
	struct err err = { 0 };
	int rc = sandbox_find(c->w->core.store, c->caller.user, c->session, row, &err);
	if (rc < 0 && err.code != ERR_NOT_FOUND) {
		answer_err(c, &err);
		return -1;
	}
	if (rc < 0 || row->status == SANDBOX_STARTING || expiry_is_over(&c->w->core, row)) {
		answer_problem(c, SANDBOX_NOT_FOUND, "this session has none; start one");
		return -1;
	}
	remember(c, row);
	call_touch(c, row);
	return 0;
}

bool call_lost(struct call *c, struct sandbox_row *row)
{
	struct err ignored;
	bool lost = false;
	return e2b_last(c->w->core.e2b)->why == E2B_WHY_NO_SANDBOX &&
	       session_check(&c->w->core, row, &lost, &ignored) == 0 && lost;
}

/* Whether the one that is there still lives. A provider that cannot say so is believed to mean yes:
 * the next operation will tell. */
static bool is_alive(struct call *c, struct sandbox_row *row)
{
	struct e2b_sandbox sb;
	struct err err;
	session_address(row, &sb);
	return e2b_alive(c->w->core.e2b, &sb, NULL, &err) == 0 || !call_lost(c, row);
}

bool call_stopped(struct call *c, const struct sandbox_row *row)
{
	struct sandbox_row now;
	struct err ignored;
	if (sandbox_get(c->w->core.store, row->id, &now, &ignored) < 0 ||
	    now.end_reason != END_STOPPED)
		return false;
	answer_problem(c, SANDBOX_STOPPED, "it was stopped meanwhile");
	return true;
}

int call_ensure_alive(struct call *c, const struct session *want, struct sandbox_row *row)
{
	if (call_ensure(c, want, row) < 0)
		return -1;
	if (!is_alive(c, row) && (call_stopped(c, row) || call_ensure(c, want, row) < 0))
		return -1;
	call_touch(c, row);
	return 0;
}

struct json_object *sandbox_json(const struct sandbox_row *row)
{
	struct json_object *o = json_object_new_object();
	json_object_object_add(o, "sandbox_id", json_object_new_string(row->sandbox_id));
	json_object_object_add(o, "session_id", json_object_new_string(row->session_id));
	json_object_object_add(o, "sandbox_type",
			       json_object_new_string(sandbox_type_name(row->type)));
	json_object_object_add(o, "status",
			       json_object_new_string(sandbox_status_name(row->status)));
	json_object_object_add(o, "created_at", json_time(row->created_at));
	json_object_object_add(o, "last_activity", json_time(row->last_activity));
	json_object_object_add(o, "expires_at",
			       row->expires_at ? json_time(row->expires_at) : NULL);
	json_object_object_add(o, "generation", json_object_new_int64(row->generation));
	return o;
}
