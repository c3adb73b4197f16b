/* The split at the start. The process that was started, perhaps as root, becomes the keeper: it
 * makes the control groups and the id maps, waits, and removes what is left; it reads nothing from
 * the network or from a sandbox. Its child is the engine: root of an outer user namespace, and
 * nobody on the machine. */
#ifndef ENGINE_KEEPER_H
#define ENGINE_KEEPER_H

#include <stdbool.h>

#include "base/err.h"
#include "engine/hierarchy.h"
#include "engine/options.h"

/* Where wheels stand in the engine's own mount namespace. */
#define KEEPER_WHEELS "/mnt/wheels"

/* What the engine stands on. */
struct ground {
	bool two_users; /* ids beyond our own are mapped: root and user inside */
	int slots;      /* how many sandboxes have ids of their own */
	bool tun;       /* /dev/net/tun can be opened */
	struct cgroup_tops tops;
};

/* Returns in the engine only, or -1 before anything was split. The keeper stays inside and exits
 * with the engine's status. */
int keeper_split(const struct options *o, struct ground *g, struct err *err);

#endif
