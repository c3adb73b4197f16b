/* What watch.c and visit.c share; nobody else includes this. */
#ifndef AGENT_WATCHING_H
#define AGENT_WATCHING_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/agentmsg.h"
#include "wire/path.h"

struct watch {
	struct watch *next;
	uint32_t id, waiting; /* waiting: the call to answer when there is something, or 0 */
	unsigned flags;
	int error;            /* it is lost, and why; a negative errno */
	struct buf changes;   /* each: enum agent_change as a byte, name, NUL */
	size_t said;          /* bytes of changes that the engine has */
	char path[PATH_TEXT]; /* as it was asked for */
	char real[PATH_TEXT]; /* without links */
};

void watch_say(struct watch *w, enum agent_change type, const char *name);
void watch_lose(struct watch *w, int error);

enum visit_how {
	VISIT_QUIETLY,     /* what is there is no news */
	VISIT_IF_NEW,      /* say what is in a directory that is not watched yet */
	VISIT_IN_ANY_CASE, /* say it also of one that is */
};

/* Watch path and, in a recursive watch, all below it. 0, or a negative errno when that cannot be
 * done; a path that is gone is fine but for the top, "". */
int watch_visit(struct watch *w, const char *path, enum visit_how how);

/* dir "" is the top. -1 when it is too long to be a path for anyone. */
int watch_join(char out[PATH_TEXT], const char *dir, const char *name);
/* The path of a name below a watch; top is its real path, or as it was asked for. */
int watch_full_path(char out[PATH_TEXT], const char *top, const char *name);

#endif
