/* The agent's children: processes that the engine asked for. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/confine.h"
#include "wire/agentmsg.h"

/* Start a process. Its pid, or a negative errno: -ENOENT and -ENOTDIR speak of the cwd, -ENOSPC of
 * too many terminals. A program that cannot be executed is a process that says so on its stderr and
 * exits with 126 or 127. For AGENT_PTY *master is its terminal's other end, and the caller's. */
int spawn(const struct agent_msg *msg, const char *payload, size_t n, const int *fds, size_t nfds,
	  const struct limits *limits, int *master);

/* The pid of the process spawned under id, or 0 when it has ended. */
pid_t spawn_pid(uint32_t id);

/* A child was reaped: the id it was spawned under, or 0 when it is none of them. Forgets it. */
uint32_t spawn_reaped(pid_t pid);

#endif
