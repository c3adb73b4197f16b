/* Watching a directory inside a sandbox: the sandbox keeps what changes until it is asked. A
 * watcher ends with its removal, and with the pause or the end of its sandbox. */
#ifndef E2B_WATCH_H
#define E2B_WATCH_H

#include <stdbool.h>

#include "e2b/e2b.h"

#define E2B_WATCHER_ID 64 /* with the NUL */

enum e2b_change_type {
	E2B_CHANGE_OTHER,
	E2B_CREATED, /* also: moved here, or found in a directory that was */
	E2B_WRITTEN,
	E2B_REMOVED,
	E2B_RENAMED, /* moved away from this name */
	E2B_CHMODDED,
};

struct e2b_change {
	enum e2b_change_type type;
	const char *name; /* relative to the watched directory; "." is that itself */
};

/* The change lives until it returns. -1 ends the call with ERR_ABANDONED; the rest is lost. */
typedef int e2b_change_fn(void *ctx, const struct e2b_change *change);

/* recursive: and all below it. ERR_NOT_FOUND, ERR_INVALID when it is no directory, ERR_LIMIT when
 * there are too many watchers or directories. */
int e2b_watch_create(struct e2b *c, const struct e2b_sandbox *sb, const char *path, bool recursive,
		     char id[E2B_WATCHER_ID], const struct e2b_wait *wait, struct err *err);

/* What changed since the last time, oldest first; one call each. A call that fails may have taken
 * changes along; ERR_LIMIT says that some were lost at the other end, and from then on all are kept
 * again: either way the directory is to be listed. ERR_NOT_FOUND: there is no such watcher any
 * more, or no sandbox. */
int e2b_watch_events(struct e2b *c, const struct e2b_sandbox *sb, const char *id, e2b_change_fn *fn,
		     void *ctx, const struct e2b_wait *wait, struct err *err);

/* One that is not there is success; a sandbox that is not is ERR_NOT_FOUND. */
int e2b_watch_remove(struct e2b *c, const struct e2b_sandbox *sb, const char *id,
		     const struct e2b_wait *wait, struct err *err);

#endif
