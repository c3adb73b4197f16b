/* The agent's children: processes that the engine asked for. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/agentmsg.h"

/* What every process inside may use. */
struct limits {
	bool two_users;     /* root and user exist; else everything runs as user */
	uint64_t data;      /* bytes of heap a process */
	uint64_t file_size; /* bytes of the largest file */
	uint64_t nproc;     /* processes of one user */
};

/* Start a process. Its pid, or a negative errno: -ENOENT and -ENOTDIR speak of the cwd. A program
 * that cannot be executed is a process that says so on its stderr and exits with 126 or 127. */
int spawn(const struct agent_msg *msg, const char *payload, size_t n, const int *fds, size_t nfds,
	  const struct limits *limits);

/* The pid of the process spawned under id, or 0 when it has ended. */
pid_t spawn_pid(uint32_t id);

/* A child was reaped: the id it was spawned under, or 0 when it is none of them. Forgets it. */
uint32_t spawn_reaped(pid_t pid);

#endif
