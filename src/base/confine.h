/* What every process that runs for a client inside a sandbox gives up before it runs: limits on
 * what it may use, and every capability with all ways back to one. The agent does this to what it
 * spawns, the zygote to what it forks; it is the same to both. */
#ifndef BASE_CONFINE_H
#define BASE_CONFINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct limits {
	bool two_users;     /* root and user exist; else everything runs as user */
	uint64_t data;      /* bytes of heap a process */
	uint64_t file_size; /* bytes of the largest file */
	uint64_t nproc;     /* processes of one user */
};

/* Limits that the process has already and that are lower stay. */
void confine_limits(const struct limits *l);

/* No exec and no change of ids gives a capability, now and later. Without CAP_SETPCAP nothing
 * happens. */
void confine_secure(void);

/* Become uid (and the group of the same number) of the sandbox's user namespace, without any
 * capability, not even as root. 0, or -1 with errno. */
int confine_become(uid_t uid, bool two_users);

#endif
