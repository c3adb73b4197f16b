/* Starting a sandbox: a process in new namespaces that builds its own world, gives up what it no
 * longer needs and becomes the agent. */
#ifndef ENGINE_LAUNCH_H
#define ENGINE_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/net.h"
#include "engine/rootfs.h"
#include "engine/seccomp.h"

struct launch {
	int agent; /* the agent's program, open */
	const struct seccomp_filter *filter;
	const struct net_host *host;
	int slot;        /* which pair of ids it gets */
	int cgroup;      /* its group's directory, or -1 */
	uint64_t memory; /* bytes of heap a process may have */
	struct rootfs root;
};

/* *sock is the engine's end of the agent's socket (non-blocking): AGENT_PLACED, then AGENT_READY,
 * or AGENT_FAILED. */
int launch(const struct launch *l, pid_t *pid, int *sock, struct err *err);

/* Copy a program into memory, so that it runs without a path: none is shown inside, and no closed
 * folder is in the way. The descriptor, or -1. */
int launch_load(const char *path, struct err *err);

#endif
