/* File operations inside the sandbox. They run in its own mount namespace, so no path and no link
 * can lead outside it; as root where there is one, as envd does. */
#ifndef AGENT_FILES_H
#define AGENT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "wire/path.h"

/* Who owns what is made; -1 leaves it to the process. */
struct owner {
	uid_t uid;
	gid_t gid;
};

/* All return 0 or a negative errno; descriptors are of regular files only, and never on /proc. */
int file_open_read(const char *path, int *fd);
/* A directory, to be read; links on the way are followed, or refused with -ELOOP. */
int file_open_dir(const char *path, bool links, int *fd);
/* bad (PATH_TEXT bytes) is the component that is no directory, for -ENOTDIR. */
int file_open_write(const char *path, struct owner who, int *fd, char *bad);
/* The directories above path, where they are missing; part is the one that was worked at last. */
int file_make_parents(const char *path, struct owner who, char part[PATH_TEXT]);
void file_own(int fd, struct owner who);
int file_entry(const char *path, struct buf *json);           /* append an EntryInfo */
int file_list(const char *path, int depth, struct buf *json); /* append {"entries":[...]} */
/* -EEXIST: it is there; -ENOTEMPTY: something else is; -ENOTDIR: a parent is no folder. */
int file_mkdir(const char *path, struct owner who);                /* with parents */
int file_move(const char *from, const char *to, struct owner who); /* makes to's parents */
int file_remove(const char *path); /* a whole tree; absent is fine */

#endif
