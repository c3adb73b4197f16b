/* The commands for sandboxes. */
#include "store/sandboxes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "ctl/arguments.h"
#include "ctl/ctl.h"
#include "ctl/sheet.h"

/* ---- list ---- */

static const struct sheet_column columns[] = {
	{ "SANDBOX", "sandbox_id", CELL_TEXT }, { "OWNER", "owner", CELL_TEXT },
	{ "SESSION", "session_id", CELL_TEXT }, { "TYPE", "sandbox_type", CELL_TEXT },
	{ "STATUS", "status", CELL_TEXT },      { "GENERATION", "generation", CELL_NUMBER },
	{ "CREATED", "created_at", CELL_TEXT }, { "ACTIVE", "last_activity", CELL_TEXT },
	{ "EXPIRES", "expires_at", CELL_TEXT }, { "REASON", "reason", CELL_TEXT },
};

#define COLUMNS (sizeof columns / sizeof *columns)

struct listing {
	struct store *store;
	const char *user; /* only this one's; NULL is everybody's */
	bool all;         /* ended ones too */
};

static int print_row(struct sheet *sheet, const struct sandbox_row *row, struct err *err)
{
	char generation[24], created[CLOCK_TEXT], active[CLOCK_TEXT], expires[CLOCK_TEXT];
	snprintf(generation, sizeof generation, "%" PRId64, row->generation);
	const char *const cells[COLUMNS] = {
		row->sandbox_id,
		row->owner,
		row->session_id,
		sandbox_type_name(row->type),
		sandbox_status_name(row->status),
		generation,
		sheet_time(created, row->created_at),
		sheet_time(active, row->last_activity),
		sheet_time(expires, row->expires_at),
		end_reason_name(row->end_reason),
	};
	return sheet_row(sheet, cells, err);
}

struct printing {
	const struct listing *listing;
	struct sheet *sheet;
};

static int print_wanted(void *ctx, struct sandbox_row *row, struct err *err)
{
	const struct printing *p = ctx;
	const char *user = p->listing->user;
	return user && strcmp(user, row->owner) != 0 ? 0 : print_row(p->sheet, row, err);
}

static int print_set(const struct listing *l, enum sandbox_set set, struct sheet *sheet,
		     struct err *err)
{
	const struct sandbox_query query = { .set = set, .owner = l->user };
	struct printing printing = { l, sheet };
	return sandbox_each(l->store, query, print_wanted, &printing, err);
}

/* One whose kill is not confirmed may still run and cost money: an operator sees it as well. */
static int wanted_sandboxes(void *ctx, struct sheet *sheet, struct err *err)
{
	const struct listing *l = ctx;
	if (l->all)
		return print_set(l, l->user ? SANDBOXES_OF_OWNER : SANDBOXES_EVERY, sheet, err);
	if (print_set(l, SANDBOXES_LIVE, sheet, err) < 0)
		return -1;
	return print_set(l, SANDBOXES_STOPPING, sheet, err);
}

int ctl_list(struct ctl *ctl, int argc, char **argv)
{
	struct listing l = { 0 };
	bool json = false;
	const struct option_row options[] = {
		{ "--all", NULL, &l.all },
		{ "--user", &l.user, NULL },
		{ "--json", NULL, &json },
	};
	struct err err;
	if (arguments_read(argc, argv, options, sizeof options / sizeof *options, NULL, &err) < 0 ||
	    (l.user && argument_user("--user", l.user, &err) < 0))
		return ctl_usage(&err);
	int status = ctl_store(ctl);
	if (status != CTL_OK)
		return status;
	l.store = ctl->store;
	if (sheet_print(columns, COLUMNS, json, wanted_sandboxes, &l, &err) < 0)
		return ctl_fail(&err);
	return CTL_OK;
}

/* ---- kill ---- */

/* What to kill: by its id, or the live one of a session. */
struct victim {
	const char *id;             /* or NULL */
	const char *user, *session; /* or NULL both */
};

static int read_victim(int argc, char **argv, struct victim *v, struct err *err)
{
	const struct option_row options[] = {
		{ "--user", &v->user, NULL },
		{ "--session", &v->session, NULL },
	};
	if (arguments_read(argc, argv, options, sizeof options / sizeof *options, &v->id, err) < 0)
		return -1;
	if (v->id ? v->user || v->session : !v->user || !v->session)
		return err_set(err, ERR_INVALID,
			       "kill: name either SANDBOX_ID, or --user NAME and --session ID");
	if (v->id)
		return 0;
	if (argument_user("--user", v->user, err) < 0)
		return -1;
	return argument_session("--session", v->session, err);
}

static int find_victim(struct store *store, const struct victim *v, struct sandbox_row *row,
		       struct err *err)
{
	int rc = v->id ? sandbox_find_by_id(store, v->id, row, err)
		       : sandbox_find(store, v->user, v->session, row, err);
	if (rc == 0 || err->code != ERR_NOT_FOUND)
		return rc;
	if (v->id)
		return err_set(err, ERR_NOT_FOUND, "there is no sandbox '%s'", v->id);
	return err_set(err, ERR_NOT_FOUND, "session '%s' of %s has no live sandbox", v->session,
		       v->user);
}

static int say_ended(const struct sandbox_row *row)
{
	char when[CLOCK_TEXT];
	printf("sandbox %s has ended already, at %s: %s\n", row->sandbox_id,
	       sheet_time(when, row->destroyed_at), end_reason_name(row->end_reason));
	return CTL_OK;
}

/* It is written down that it has to end, and that is kept whatever happens to the provider. */
static int say_pending(const struct sandbox_row *row, const struct err *why)
{
	fprintf(stderr,
		"sandgatectl: %s\n"
		"sandgatectl: sandbox %s is recorded as killed, but the provider has not confirmed "
		"it; sandgate-cleanup will try again\n",
		why->text, row->sandbox_id[0] ? row->sandbox_id : "(not named yet)");
	return CTL_FAILED;
}

static int kill_row(struct ctl *ctl, struct core *core, struct sandbox_row *row)
{
	struct err err, why;
	char target[SESSION_KEY];
	bool killed;
	if (session_end(core, row, END_KILLED_BY_ADMIN, &killed, &why) < 0)
		return ctl_fail(&why);
	/* The cleanup may have been quicker with the confirmation. */
	if (!killed && sandbox_get(ctl->store, row->id, row, &err) < 0)
		return ctl_fail(&err);
	killed = killed || row->status == SANDBOX_ENDED;
	session_key(target, row->owner, row->session_id);
	if (ctl_audit(ctl, "kill", row->sandbox_id[0] ? row->sandbox_id : target,
		      killed ? "ok" : "provider_unavailable", &err) < 0)
		return ctl_fail(&err);
	if (!killed)
		return say_pending(row, &why);
	printf("killed sandbox %s of %s, session %s\n", row->sandbox_id, row->owner,
	       row->session_id);
	return CTL_OK;
}

int ctl_kill(struct ctl *ctl, int argc, char **argv)
{
	struct victim v = { 0 };
	struct sandbox_row row;
	struct core core;
	struct err err;
	if (read_victim(argc, argv, &v, &err) < 0)
		return ctl_usage(&err);
	int status = ctl_core(ctl, &core);
	if (status != CTL_OK)
		return status;
	if (find_victim(ctl->store, &v, &row, &err) < 0)
		return ctl_fail(&err);
	return row.status == SANDBOX_ENDED ? say_ended(&row) : kill_row(ctl, &core, &row);
}
