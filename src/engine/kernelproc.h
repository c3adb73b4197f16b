/* The process of a kernel: forked by the zygote where that will do, else started by the sandbox's
 * agent like any other. Which of the two it was makes no difference to anyone else. */
#ifndef ENGINE_KERNELPROC_H
#define ENGINE_KERNELPROC_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sandbox.h"

struct kernelproc;

struct kernelproc_events {
	void (*refused)(void *ctx,
			int error);   /* an errno: the cwd is missing, or no process can be had */
	void (*signalled)(void *ctx); /* no signal is under way any more */
	void (*ended)(void *ctx);
};

struct kernelproc_spec {
	const char *const *argv;
	const char *cwd;
	bool forkable;         /* it is what the zygote is: Python under our driver */
	bool reads_stdin;      /* control is its stdin as well */
	int control, out, err; /* become 3, 1 and 2; they stay the caller's */
};

/* Whether some of these variables (an object of strings, or NULL) count only when a Python starts.
 */
bool kernelproc_looks_early(struct json_object *envs);

/* NULL when it could not even be asked for. */
struct kernelproc *kernelproc_start(struct sandbox *s, const struct kernelproc_spec *spec,
				    const struct kernelproc_events *events, void *ctx);
void kernelproc_free(struct kernelproc *p); /* kills it; NULL is fine */

/* To its whole group. Until it is settled, the signal may still arrive. */
void kernelproc_signal(struct kernelproc *p, int sig);
bool kernelproc_settled(const struct kernelproc *p);

/* A child of the agent's ended: whether it was this one, and then ended() was called. */
bool kernelproc_exited(struct kernelproc *p, uint32_t id);

#endif
