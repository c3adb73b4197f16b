/* Control groups (version 2), where they can be had: one group for the engine, one for each
 * sandbox, all below one top that is removed at the end. What a crash left is found again by the
 * name in the state folder. */
#ifndef ENGINE_CGROUP_H
#define ENGINE_CGROUP_H

#include <stdbool.h>
#include <sys/types.h>

#define CGROUP_PATH 512

/* Choose a name for the top, below this process's own group; 0, or -1 with errno where there is no
 * version 2. */
int cgroup_name_top(char out[CGROUP_PATH]);

/* Make it, with a leaf `engine` in it, both owned by uid; 0, or -1 with errno. Call before
 * privileges are dropped. */
int cgroup_make_top(const char *top, uid_t uid);

/* Move a process into the engine's leaf; 0 or -1 with errno. */
int cgroup_enter_leaf(const char *top, pid_t pid);

/* Kill what is left inside the top and remove it all. */
void cgroup_remove_top(const char *top);

/* A sandbox's group: its directory descriptor, or -1 with errno. */
int cgroup_make(const char *top, const char *name);
void cgroup_remove(const char *top, const char *name);

/* Stop every process inside, or let them go on. 0, or -1 with errno; asynchronous, done within
 * milliseconds. */
int cgroup_freeze(int dir, bool frozen);
int cgroup_kill(int dir);

#endif
