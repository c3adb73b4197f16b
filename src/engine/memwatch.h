/* The watcher of memory, for machines without a memory controller: a child process of the engine
 * that walks the processes of all sandboxes a few times a second, sums what they use and names
 * those that use too much. It never stalls the loop, and dies with the engine.
 *
 * What a process shares with others counts in parts (PSS). That is dear to know, so the cheap upper
 * bound (RSS) is taken first. What it cannot see: files in memory that no process maps and that lie
 * on no disk of a sandbox (memfd), and buffers of the kernel. */
#ifndef ENGINE_MEMWATCH_H
#define ENGINE_MEMWATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/loop.h"

struct memwatch;

/* A sandbox to be watched. */
struct memwatch_target {
	uint64_t serial; /* never used twice */
	pid_t pid;       /* a process of its pid namespace that outlives the watch */
	uint64_t memory; /* bytes that its processes may use for themselves */
	uint64_t disk;   /* and so many more in files that they map or shared memory */
};

/* Start it, for at most `slots` targets. over() is called for one that uses too much, perhaps more
 * than once and perhaps when it is gone already. */
int memwatch_new(struct memwatch **out, struct loop *l, int slots,
		 void (*over)(void *ctx, uint64_t serial, uint64_t used), void *ctx,
		 struct err *err);
void memwatch_free(struct memwatch *w); /* ends the process; NULL is fine */

void memwatch_set(struct memwatch *w, int slot, const struct memwatch_target *t);
void memwatch_clear(struct memwatch *w, int slot); /* before its pid can be reaped */

/* What all of them use, in bytes, as the last walk found it. */
uint64_t memwatch_total(const struct memwatch *w);

/* A child of the engine was reaped: true when it was this one, which is then started anew. */
bool memwatch_reaped(struct memwatch *w, pid_t pid);

/* Call it every few seconds: a watcher that hangs is killed, so that a new one takes its place;
 * false when it had to be. */
bool memwatch_check(struct memwatch *w);

#endif
