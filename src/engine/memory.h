/* Memory: what a sandbox may use and what becomes of one that uses more, and what all of them may
 * use before no more are made. A sandbox is limited by its control group where there is a memory
 * controller, else by the watcher (memwatch.h); past its limit it ends as a whole. */
#ifndef ENGINE_MEMORY_H
#define ENGINE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/cgroup.h"
#include "engine/loop.h"
#include "engine/template.h"

struct engine;
struct memory;
struct sandbox;

/* Embedded in the sandbox; zeroed at first. */
struct memory_watch {
	struct watch oom;   /* the group's word that memory ran out */
	struct timer again; /* for the deed that follows the word */
	int tries;
	bool watched; /* by the watcher */
};

/* Sets e->memory, and starts the watcher where one is needed. */
int memory_new(struct engine *e, struct err *err);
void memory_free(struct engine *e);

/* What the group of a sandbox made from this template is limited to. */
void memory_limits(const struct template *t, struct cgroup_limits *out);

/* Begin to watch a sandbox that has its group and its first process. */
int memory_watch(struct sandbox *s, struct err *err);

/* The end of a sandbox begins; whoever has said nothing of the reason hears here whether it was
 * memory. Call it before its processes are reaped. */
void memory_unwatch(struct sandbox *s);

/* Whether there is no room for another sandbox, and then why, in the words of a 503. Asked as often
 * as one likes: what it knows is up to 100 ms old. */
bool memory_full(struct engine *e, struct err *why);

/* Whether that is near: then nothing is made that nobody has asked for. */
bool memory_short(struct engine *e);

/* A child of the engine was reaped; true when it was one of ours. */
bool memory_reaped(struct engine *e, pid_t pid);

/* Every few seconds. */
void memory_check(struct engine *e);

#endif
