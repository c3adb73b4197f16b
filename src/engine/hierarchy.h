/* The hierarchies of control groups that this machine has, and the engine's top in each: a group
 * below the one that it was started in, with a leaf `engine` for the engine itself and, made by the
 * engine, one group for each sandbox. Version 2 is taken where its controllers are delegated, else
 * version 1 where that is mounted; what serves which purpose is decided once, here.
 *
 * All of this is the keeper's, before and after the engine's life. What a crash left is found again
 * by the names in the state folder. */
#ifndef ENGINE_HIERARCHY_H
#define ENGINE_HIERARCHY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CGROUP_PATH 512
#define CGROUP_LEAF "engine" /* the group below a top that the engine itself is in */
#define CGROUP_TOPS 5        /* version 2, and version 1 of memory, pids, cpu and freezer */

enum cgroup_use { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_FREEZER, CGROUP_USES };

struct cgroup_top {
	char path[CGROUP_PATH];
	bool v2;
	unsigned can; /* bits of enum cgroup_use that it could serve */
	/* Version 2: the controllers that the parent has, does not hand down yet and shall hand
	 * down as long as the top is there, as bits of enum cgroup_use. */
	unsigned enable;
};

/* A plain value. All zero but for `by` is a machine without control groups. */
struct cgroup_tops {
	struct cgroup_top top[CGROUP_TOPS];
	int n;
	int by[CGROUP_USES];       /* which top serves it, or -1 */
	char why[CGROUP_USES][96]; /* why none does */
	bool keeper_inside;        /* the keeper had to move into a leaf of the version 2 top */
};

/* No tops, for this reason. */
void cgroup_tops_none(struct cgroup_tops *t, const char *why);

/* Name a top in every hierarchy that could be of use, from files like /proc/self/cgroup and
 * /proc/self/mountinfo. Nothing is made. */
void cgroup_tops_find(struct cgroup_tops *t, const char *groups, const char *mounts);

/* Make those that are needed, owned by uid, and forget the others. Call before privileges are
 * dropped and before anything is forked: in version 2 no process may be left in a group whose
 * children have controllers, so this process moves. */
void cgroup_tops_make(struct cgroup_tops *t, uid_t uid);

/* Move a process into the engine's leaf, everywhere; 0 or -1 with errno. */
int cgroup_tops_enter(const struct cgroup_tops *t, pid_t pid);

/* Kill what is left inside, remove it all, and give the parents back as they were. */
void cgroup_tops_remove(struct cgroup_tops *t);

/* One top as a line of text without its end, and back: 0, or -1 when the line is none of ours. */
void cgroup_top_print(const struct cgroup_top *top, char *out, size_t cap);
int cgroup_top_parse(struct cgroup_top *top, const char *line);

#endif
