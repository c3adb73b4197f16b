/* One interpreter process inside a sandbox: Python or Node.js under a driver of ours, or bash. It
 * takes one piece of code at a time and gives lines of E2B's /execute stream. Nothing it sends is
 * trusted: lines are bounded and checked before they are passed on. */
#ifndef ENGINE_KERNEL_H
#define ENGINE_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/sandbox.h"

enum kernel_language { KERNEL_PYTHON, KERNEL_BASH, KERNEL_JAVASCRIPT };

struct kernel;

struct kernel_events {
	void (*spawned)(void *ctx, int error); /* 0, or an errno: the cwd is missing */
	void (*ready)(void *ctx);              /* it can run code; spawned comes right before */
	void (*line)(void *ctx, const char *line,
		     size_t n);  /* one line for the client, without '\n' */
	void (*done)(void *ctx); /* the run has ended */
	void (*died)(void *ctx); /* the process is gone, or beyond use */
};

/* NULL when it could not even be asked for. */
struct kernel *kernel_start(struct sandbox *s, enum kernel_language language, const char *cwd,
			    const struct kernel_events *events, void *ctx);
void kernel_free(struct kernel *k); /* kills it; NULL is fine */

/* Run code; only when ready and nothing runs. env: object of strings for this run, or NULL. */
void kernel_run(struct kernel *k, const char *code, size_t n, struct json_object *env);

/* Variables (an object of strings) for all runs to come, of a Python that runs nothing. */
void kernel_set_env(struct kernel *k, struct json_object *env);

/* SIGINT to its group; a JavaScript driver is told as well. kernel_settled says whether it has been
 * delivered: no other run may begin before. */
void kernel_interrupt(struct kernel *k);
bool kernel_settled(const struct kernel *k);

/* Stop or go on reading what it says; it blocks when nobody reads. */
void kernel_read(struct kernel *k, bool on);

/* A child inside ended: whether it was this one, and then died() was called. */
bool kernel_exited(struct kernel *k, uint32_t id);

#endif
