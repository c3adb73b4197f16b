/* The id maps of a user namespace. */
#ifndef ENGINE_IDMAP_H
#define ENGINE_IDMAP_H

#include <sys/types.h>

/* Write text into /proc/PID/which: uid_map, gid_map or setgroups. 0, or -1 with errno. */
int idmap_write(pid_t pid, const char *which, const char *text);

#endif
