#include "core/pass.h"

#include "base/clock.h"
#include "core/clockjump.h"
#include "core/passing.h"
#include "store/executions.h"
#include "store/leases.h"

#define REFUSALS_MAX 3

static const char *const names[PASS_DEEDS] = {
	[PASS_EXPIRE] = "expire",
	[PASS_GIVE_UP] = "give_up",
	[PASS_KILL] = "kill",
	[PASS_LOSE] = "lose",
	[PASS_SEE_ORPHAN] = "see_orphan",
	[PASS_KILL_ORPHAN] = "kill_orphan",
	[PASS_DELETE_LOG] = "delete_log",
};

const char *pass_deed_name(enum pass_deed deed)
{
	return names[deed];
}

/* ---- for the steps ---- */

static const char *or_none(const char *text)
{
	return text ? text : "";
}

void passing_tell(struct passing *p, const struct pass_event *event)
{
	struct pass_event full = *event;
	full.sandbox_id = or_none(event->sandbox_id);
	full.owner = or_none(event->owner);
	full.session_id = or_none(event->session_id);
	full.reason = or_none(event->reason);
	full.execution_id = or_none(event->execution_id);
	if (event->failed) {
		p->out->left++;
		p->out->why = *event->failed;
	} else {
		p->out->done[event->deed]++;
	}
	p->config->tell(p->config->ctx, &full);
}

void passing_tell_row(struct passing *p, enum pass_deed deed, const struct sandbox_row *row,
		      const char *reason, const struct err *failed)
{
	const struct pass_event event = { .deed = deed,
					  .sandbox_id = row->sandbox_id,
					  .owner = row->owner,
					  .session_id = row->session_id,
					  .reason = reason,
					  .failed = failed };
	passing_tell(p, &event);
}

int passing_may_ask(const struct passing *p, struct err *err)
{
	return p->refusals < REFUSALS_MAX
		       ? 0
		       : err_set(err, ERR_UNAVAILABLE, "the provider has failed too often to ask");
}

int passing_asked(struct passing *p, int rc)
{
	p->refusals = rc < 0 ? p->refusals + 1 : 0;
	return rc;
}

int passing_kill(struct passing *p, const char *sandbox_id, struct err *err)
{
	const struct e2b_wait wait = core_patience(p->c);
	if (p->config->dry_run)
		return 0;
	if (passing_may_ask(p, err) < 0)
		return -1;
	return passing_asked(p, e2b_kill(p->c->e2b, sandbox_id, NULL, &wait, err));
}

/* ---- the pass ---- */

/* The mark of this pass is written before anything else, so that one which is cut short does not
 * make the next one wait. */
static int check_clock(struct passing *p, struct err *err)
{
	struct clock_mark then, now = clockjump_mark();
	bool there;
	if (clock_mark_read(p->c->store, &then, &there, err) < 0)
		return -1;
	p->out->clock_jumped = there && clockjump_between(&then, &now);
	if (p->config->dry_run)
		return 0;
	/* Since when an orphan has been seen is not known any more. */
	if (p->out->clock_jumped && orphan_forget_others(p->c->store, 0, err) < 0)
		return -1;
	return clock_mark_write(p->c->store, &now, err);
}

/* What dead processes have left: their leases protect nothing any more. */
static int bury_dead(struct passing *p, struct err *err)
{
	size_t unfinished;
	if (p->config->dry_run)
		return 0;
	if (lease_prune(p->c->store, err) < 0)
		return -1;
	return execution_end_dead(p->c->store, &unfinished, err);
}

static void take_census(struct passing *p)
{
	struct err why;
	p->counted = passing_asked(p, census_take(p->c, &p->census, &why)) == 0;
	if (p->counted)
		return;
	p->out->left++;
	p->out->why = why;
}

static int end_and_reconcile(struct passing *p, struct err *err)
{
	if (bury_dead(p, err) < 0 || reap_claim(p, err) < 0)
		return -1;
	take_census(p);
	if (reap_kill(p, err) < 0)
		return -1;
	if (p->counted && (reconcile_lost(p, err) < 0 || reconcile_orphans(p, err) < 0))
		return -1;
	return eventsweep(p, err);
}

int pass_run(const struct pass_config *config, struct pass_report *out, struct err *err)
{
	struct passing p = {
		.config = config, .c = config->core, .out = out, .began = clock_real_us()
	};
	*out = (struct pass_report){ 0 };
	int rc = check_clock(&p, err);
	if (rc == 0 && !out->clock_jumped)
		rc = end_and_reconcile(&p, err);
	census_free(&p.census);
	if (rc == 0 && !config->dry_run)
		rc = store_checkpoint(p.c->store, &out->checkpointed, err);
	return rc;
}
