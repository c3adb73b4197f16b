/* Ending what has to end: the intent is committed first, the kill follows, and it is repeated by
 * every pass until the provider has confirmed it. */
#include "base/clock.h"
#include "core/expiry.h"
#include "core/passing.h"
#include "store/audit.h"

/* ---- claiming ---- */

static int note(struct passing *p, const char *action, const struct sandbox_row *row,
		const char *outcome, struct err *err)
{
	const struct audit_entry entry = {
		.action = action,
		.target = row->sandbox_id[0] ? row->sandbox_id : row->session_id,
		.outcome = outcome,
	};
	return audit_append(p->c->store, &entry, err);
}

/* The row's limits and leases are looked at again under the database's lock: ERR_CONFLICT is one
 * that was used meanwhile. */
static int expire(void *ctx, struct sandbox_row *row, struct err *err)
{
	struct passing *p = ctx;
	if (p->config->dry_run) {
		if (expiry_is_over(p->c, row))
			passing_tell_row(p, PASS_EXPIRE, row, end_reason_name(expiry_reason(row)),
					 NULL);
		return 0;
	}
	if (sandbox_expire(p->c->store, row->id, row, err) < 0)
		return err->code == ERR_CONFLICT ? 0 : -1;
	const char *reason = end_reason_name(row->end_reason);
	passing_tell_row(p, PASS_EXPIRE, row, reason, NULL);
	return note(p, "expire", row, reason, err);
}

static int give_up(void *ctx, struct sandbox_row *row, struct err *err)
{
	struct passing *p = ctx;
	if (row->status != SANDBOX_STARTING || sandbox_claim_holds(row))
		return 0;
	if (!p->config->dry_run &&
	    sandbox_stop(p->c->store, row->id, END_START_FAILED, row, err) < 0)
		return err->code == ERR_CONFLICT ? 0 : -1;
	passing_tell_row(p, PASS_GIVE_UP, row, end_reason_name(END_START_FAILED), NULL);
	return 0;
}

int reap_claim(struct passing *p, struct err *err)
{
	const struct sandbox_query expired = { .set = SANDBOXES_EXPIRED },
				   live = { .set = SANDBOXES_LIVE };
	if (sandbox_each(p->c->store, expired, expire, p, err) < 0)
		return -1;
	return sandbox_each(p->c->store, live, give_up, p, err);
}

/* ---- killing ---- */

/* The sandbox of a row whose maker never named it. NULL: there is none, as far as anybody knows. */
static const char *find_name(struct passing *p, const struct sandbox_row *row)
{
	const struct counted *found = census_by_nonce(&p->census, row->nonce);
	return found ? found->id : NULL;
}

/* Its create may still be on its way for a while. Should it arrive later than this, it is an orphan
 * like any other. */
static bool may_still_come(const struct passing *p, const struct sandbox_row *row)
{
	return row->claim_deadline + p->c->settings->orphan_grace * SECOND_US > p->began;
}

/* Where nothing was made, there is nothing to kill. */
static int settle(struct passing *p, const struct sandbox_row *row, struct err *why)
{
	if (row->sandbox_id[0])
		return passing_kill(p, row->sandbox_id, why);
	if (!p->counted)
		return err_set(why, ERR_UNAVAILABLE, "whether it was made is not known");
	const char *name = find_name(p, row);
	if (name)
		return passing_kill(p, name, why);
	return may_still_come(p, row)
		       ? err_set(why, ERR_UNKNOWN_OUTCOME, "it may still be on its way")
		       : 0;
}

static int kill_one(void *ctx, struct sandbox_row *row, struct err *err)
{
	struct passing *p = ctx;
	struct err why;
	int rc = settle(p, row, &why);
	/* Who stopped it may have been quicker with the confirmation. */
	if (rc == 0 && !p->config->dry_run && sandbox_killed(p->c->store, row->id, err) < 0 &&
	    err->code != ERR_CONFLICT)
		return -1;
	passing_tell_row(p, PASS_KILL, row, end_reason_name(row->end_reason), rc < 0 ? &why : NULL);
	return 0;
}

int reap_kill(struct passing *p, struct err *err)
{
	const struct sandbox_query stopping = { .set = SANDBOXES_STOPPING };
	return sandbox_each(p->c->store, stopping, kill_one, p, err);
}
