/* What the provider has and what the database says it has, brought together. */
#include <string.h>

#include "base/clock.h"
#include "core/expiry.h"
#include "core/passing.h"
#include "store/audit.h"
#include "store/passes.h"

/* ---- rows without a sandbox ---- */

/* A list can be late or cut short, so the provider is asked for this one by its name. */
static int look_for(void *ctx, struct sandbox_row *row, struct err *err)
{
	struct passing *p = ctx;
	struct err why;
	bool there = true;
	if (row->status == SANDBOX_STARTING || census_by_id(&p->census, row->sandbox_id))
		return 0;
	const enum end_reason reason = expiry_reason(row);
	int rc = passing_may_ask(p, &why);
	if (rc == 0)
		rc = passing_asked(p, session_exists(p->c, row, &there, NULL, &why));
	if (rc == 0 && there)
		return 0;
	if (rc == 0 && !p->config->dry_run && sandbox_lost(p->c->store, row->id, reason, err) < 0)
		return -1;
	passing_tell_row(p, PASS_LOSE, row, end_reason_name(reason), rc < 0 ? &why : NULL);
	return 0;
}

int reconcile_lost(struct passing *p, struct err *err)
{
	const struct sandbox_query live = { .set = SANDBOXES_LIVE };
	return sandbox_each(p->c->store, live, look_for, p, err);
}

/* ---- sandboxes without a row ---- */

/* One that ended since the census was taken is still in it. */
static bool is_over(const struct passing *p, const struct sandbox_row *row)
{
	return row->status == SANDBOX_ENDED && row->destroyed_at < p->began;
}

/* Whether a row stands for it: it lives, is just being made, or is about to be killed. */
static int is_known(struct passing *p, const struct counted *one, bool *known, struct err *err)
{
	struct sandbox_row row;
	*known = true;
	if (sandbox_find_by_id(p->c->store, one->id, &row, err) == 0) {
		*known = !is_over(p, &row);
		return 0;
	}
	if (err->code != ERR_NOT_FOUND)
		return -1;
	if (one->nonce[0] && sandbox_find_by_nonce(p->c->store, one->nonce, &row, err) == 0) {
		*known = !is_over(p, &row) && !row.sandbox_id[0];
		return 0;
	}
	*known = false;
	return err->code == ERR_NOT_FOUND || !one->nonce[0] ? 0 : -1;
}

static int kill_orphan(struct passing *p, const struct counted *one, struct err *err)
{
	const struct audit_entry entry = { .action = "kill_orphan",
					   .target = one->id,
					   .outcome = "ok" };
	struct err why;
	struct pass_event event = { .deed = PASS_KILL_ORPHAN, .sandbox_id = one->id };
	int rc = passing_kill(p, one->id, &why);
	event.failed = rc < 0 ? &why : NULL;
	passing_tell(p, &event);
	return rc < 0 || p->config->dry_run ? 0 : audit_append(p->c->store, &entry, err);
}

static int judge(struct passing *p, const struct counted *one, struct err *err)
{
	const int64_t grace = p->c->settings->orphan_grace * SECOND_US;
	const struct pass_event event = { .deed = PASS_SEE_ORPHAN, .sandbox_id = one->id };
	int64_t first_seen = 0;
	bool known, seen;
	if (is_known(p, one, &known, err) < 0)
		return -1;
	if (known)
		return 0;
	if (orphan_find(p->c->store, one->id, &first_seen, &seen, err) < 0)
		return -1;
	if (!p->config->dry_run && orphan_seen(p->c->store, one->id, p->began, err) < 0)
		return -1;
	if (seen && p->began - first_seen >= grace)
		return kill_orphan(p, one, err);
	passing_tell(p, &event);
	return 0;
}

int reconcile_orphans(struct passing *p, struct err *err)
{
	for (size_t i = 0; i < p->census.n; i++)
		if (judge(p, &p->census.all[i], err) < 0)
			return -1;
	return p->config->dry_run ? 0 : orphan_forget_others(p->c->store, p->began, err);
}
