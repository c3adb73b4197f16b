/* Other routes for a sandbox that runs. A short-lived child of the engine joins the sandbox's user
 * and network namespaces, sets them and says so; the loop goes on meanwhile, and gives the child up
 * when it takes too long. */
#ifndef ENGINE_NETCHANGE_H
#define ENGINE_NETCHANGE_H

#include "base/err.h"
#include "engine/netrules.h"
#include "engine/sandbox.h"

enum netchange_end {
	NETCHANGE_DONE,
	NETCHANGE_FAILED, /* what is closed lies between the old rules and the new; try again */
	NETCHANGE_GONE,   /* the sandbox ended first */
};

/* One at a time for each sandbox (s->netchange is set meanwhile). 0, and then done() comes exactly
 * once, later; or -1. */
int netchange_start(struct sandbox *s, const struct netrules *rules,
		    void (*done)(void *ctx, enum netchange_end end), void *ctx, struct err *err);

/* The sandbox ends: so does a change that is under way. */
void netchange_end(struct sandbox *s);

#endif
