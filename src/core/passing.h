/* A pass under way: what the files that make it up share, and nobody else. Every step is 0, or -1
 * when the database failed; what the provider refuses is told and left for the next pass. */
#ifndef CORE_PASSING_H
#define CORE_PASSING_H

#include "core/census.h"
#include "core/pass.h"

struct passing {
	const struct pass_config *config;
	struct core *c;
	struct pass_report *out;
	int64_t began;        /* CLOCK_REALTIME; the pass's name in the database */
	struct census census; /* what the provider has of ours */
	bool counted;         /* there is a census */
	int refusals;         /* calls to the provider that failed, one after the other */
};

/* Tell and count it; event->failed makes it one that is left. */
void passing_tell(struct passing *p, const struct pass_event *event);
void passing_tell_row(struct passing *p, enum pass_deed deed, const struct sandbox_row *row,
		      const char *reason, const struct err *failed);

/* A provider that fails three times in a row is not asked again in this pass: look before a call,
 * and say what came of it; passing_asked returns rc. */
int passing_may_ask(const struct passing *p, struct err *err);
int passing_asked(struct passing *p, int rc);

/* Kill at the provider; one that is gone already is killed. A dry run kills nothing. */
int passing_kill(struct passing *p, const char *sandbox_id, struct err *err);

/* Of reap.c. Claim what is past its limits, and starts whose maker is gone. */
int reap_claim(struct passing *p, struct err *err);
/* Kill what has to end, whoever wanted it. */
int reap_kill(struct passing *p, struct err *err);

/* Of reconcile.c; both need a census. Rows that the provider does not have any more. */
int reconcile_lost(struct passing *p, struct err *err);
/* Sandboxes of ours that no row knows. */
int reconcile_orphans(struct passing *p, struct err *err);

/* Of eventsweep.c: delete the event logs that are too old, and the oldest when there are too many.
 */
int eventsweep(struct passing *p, struct err *err);

#endif
