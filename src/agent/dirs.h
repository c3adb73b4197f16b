/* The directories under watch: which one an inotify descriptor stands for. All watches share one
 * inotify instance, of which the machine has few; it is made by the first and then kept. A watch is
 * known here by its address only. */
#ifndef AGENT_DIRS_H
#define AGENT_DIRS_H

#include <stddef.h>

#define DIRS_MAX 8192 /* of one sandbox */

struct dir {
	struct dir *next;
	const void *owner; /* whose watch it belongs to */
	int wd;
	char path[]; /* below the watched directory, which is "" itself */
};

int dirs_fd(void); /* to poll and read; -1 until there is one */
size_t dirs_count(void);

/* What this watch calls the directory behind wd; NULL when it has none. */
struct dir *dirs_find(const void *owner, int wd);

/* Watch the directory that fd is open on. 1, or 0 when it was watched under this path already, or a
 * negative errno: -ENOSPC for too many. One that is known under another path has been moved: all
 * that was below that path is forgotten. */
int dirs_enter(const void *owner, int fd, const char *path);

/* Forget path and all below it; "" is everything. */
void dirs_leave(const void *owner, const char *path);
void dirs_forget(int wd); /* the kernel did (IN_IGNORED) */

#endif
