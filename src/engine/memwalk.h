/* One look at the memory of sandboxes: which processes belong to which by their pid namespaces, and
 * what they use. No state of the engine's is touched; the watcher calls it in its own process. */
#ifndef ENGINE_MEMWALK_H
#define ENGINE_MEMWALK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct memwalk;

/* A sandbox between two walks. The caller sets the first four and zeroes the rest for a new one. */
struct memwalk_sandbox {
	uint64_t serial; /* 0: none */
	pid_t pid;       /* one process of its namespace */
	uint64_t memory, disk;

	uint64_t ns;       /* its pid namespace, once known */
	uint64_t anon;     /* bytes by RSS: an upper bound of what processes have for themselves */
	uint64_t resident; /* bytes by RSS of all kinds */
	uint64_t files;    /* bytes on its disk */
	uint64_t exact_anon, exact_shared; /* the same by PSS: for themselves, in shared memory */
	uint64_t exact_from;               /* anon when that was measured */
	int64_t exact_at;                  /* CLOCK_MONOTONIC, microseconds; 0: never */
};

/* alive() is called again and again in a walk. 0, or -1 with errno. */
int memwalk_new(struct memwalk **out, void (*alive)(void *ctx), void *ctx);
void memwalk_free(struct memwalk *w);

/* Measure all n of them. 0, or -1 with errno and the numbers of before. */
int memwalk_look(struct memwalk *w, struct memwalk_sandbox *s, int n);

/* What one uses, and whether that is more than it may. */
uint64_t memwalk_used(const struct memwalk_sandbox *s);
bool memwalk_over(const struct memwalk_sandbox *s);

#endif
