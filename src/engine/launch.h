/* Starting a sandbox: a process in new namespaces that builds its own world, gives up what it no
 * longer needs and becomes the agent. */
#ifndef ENGINE_LAUNCH_H
#define ENGINE_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/confine.h"
#include "base/err.h"
#include "engine/cgroup.h"
#include "engine/net.h"
#include "engine/rootfs.h"
#include "engine/seccomp.h"

#define LAUNCH_NPROC 1024 /* processes and threads of one user inside */

struct launch {
	int agent; /* the agent's program, open */
	const struct seccomp_filter *filter;
	const struct netrules *unreachable; /* NULL: it has no network */
	int slot;                           /* which pair of ids it gets */
	const struct cgroup *group;         /* its control group */
	struct limits limits;
	struct rootfs root;
};

/* *sock is the engine's end of the agent's socket (non-blocking): AGENT_PLACED, then AGENT_READY,
 * or AGENT_FAILED. *pid is set as soon as there is a process, also when it has to be given up: it
 * is killed then, and the caller's to reap, since its control groups last as long as it does. */
int launch(const struct launch *l, pid_t *pid, int *sock, struct err *err);

/* For a child of the engine that is about to become something else: sock and program (a descriptor
 * of either kind) become 3 and 4, the null device 0 to 2, nothing else stays open; no signal is
 * caught, ignored or blocked. */
int launch_place_fds(int sock, int program);
void launch_reset_signals(void);

/* Copy a program into memory, so that it runs without a path: none is shown inside, and no closed
 * folder is in the way. The descriptor, or -1. */
int launch_load(const char *path, struct err *err);

#endif
