/* A sandbox's control group: one folder in each hierarchy that serves (hierarchy.h), with the
 * sandbox's limits in it. Only the engine uses these, and the process that enters. */
#ifndef ENGINE_CGROUP_H
#define ENGINE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/hierarchy.h"

#define CGROUP_NAME 32

struct cgroup_limits {
	uint64_t memory; /* bytes, files in memory included */
	int pids;        /* processes and threads */
	int cpus;
};

/* All zero: no group. */
struct cgroup {
	const struct cgroup_tops *tops; /* NULL: nothing is made and nothing is open */
	char name[CGROUP_NAME];
	int dir[CGROUP_TOPS]; /* as many as there are tops */
	int oom;              /* see cgroup_oom; -1 where memory is not limited here */
};

/* Make it and set its limits, as far as the tops serve them. Where there are no tops *out is zeroed
 * and it is a success. 0, or -1 and nothing is left. */
int cgroup_make(struct cgroup *out, const struct cgroup_tops *tops, const char *name,
		const struct cgroup_limits *limits, struct err *err);

/* Close it and remove its folders, which must be empty by now. Zeroed and made anew is fine; a name
 * is not used twice. */
void cgroup_free(struct cgroup *g);

/* The ways in, all of them while the process still has the engine's own uid.
 *
 * A process that is made by clone3 with CLONE_INTO_CGROUP and this descriptor is born into the part
 * of version 2, for free. -1 when there is no such part. */
int cgroup_birthplace(const struct cgroup *g);

/* Called by the process itself, which has one thread: it goes into the parts of version 1. That
 * takes microseconds; to be moved by another, or within version 2, takes 10 ms. 0, or -1 with
 * errno. */
int cgroup_join(const struct cgroup *g);

/* Its folders, for a process that is not the engine to do both of these; that of version 2, if
 * there is one, is the first. How many. */
size_t cgroup_parts(const struct cgroup *g, int dirs[CGROUP_TOPS]);

/* Whether a freezer serves; stop every process inside, or let them go on. 0, or -1 with errno;
 * asynchronous, done within milliseconds. */
bool cgroup_can_freeze(const struct cgroup *g);
int cgroup_freeze(const struct cgroup *g, bool frozen);

/* Kill all of it, frozen or not, where the kernel has a word for that. Kill the first process of
 * the sandbox before: then nothing of it runs again when version 1 has to thaw it. */
void cgroup_kill(const struct cgroup *g);

/* Out of memory. The descriptor `oom` is to be watched for these events of epoll. When they come,
 * cgroup_oom tells whether the kernel has killed here for want of memory, and readies the
 * descriptor for the next. In version 1 the word may come before the deed: then ask again a little
 * later. It may also be the word of a group above. */
enum cgroup_oom { CGROUP_OOM_NO, CGROUP_OOM_OWN_LIMIT, CGROUP_OOM_ABOVE };
uint32_t cgroup_oom_events(const struct cgroup *g);
enum cgroup_oom cgroup_oom(const struct cgroup *g);

/* What all sandboxes use, in bytes, as far as it cannot be taken from them:
 * memory of processes and files in memory. -1 where no memory controller serves. */
int64_t cgroup_memory_used(const struct cgroup_tops *t);

/* What the groups above allow all of them together, in bytes; UINT64_MAX where nothing is said. */
uint64_t cgroup_memory_ceiling(const struct cgroup_tops *t);

#endif
