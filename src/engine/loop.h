/* The engine's one event loop: descriptors and timers, all callbacks on one thread. Watches and
 * timers are embedded in their owners and may be removed at any time, also from within any
 * callback. */
#ifndef ENGINE_LOOP_H
#define ENGINE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct loop;

int loop_new(struct loop **out, struct err *err);
void loop_free(struct loop *l);
void loop_run(struct loop *l); /* until loop_stop */
void loop_stop(struct loop *l);

struct watch {
	struct loop *loop;
	int fd;          /* not owned */
	uint32_t events; /* EPOLLIN and so on; 0 while paused */
	void (*fn)(void *ctx, uint32_t events);
	void *ctx;
	bool added;
};

/* Start watching; 0 or -1 with errno. watch_set with the same events costs nothing. */
int watch_add(struct watch *w, struct loop *l, int fd, uint32_t events,
	      void (*fn)(void *, uint32_t), void *ctx);
void watch_set(struct watch *w, uint32_t events);
void watch_del(struct watch *w); /* fine when it was never added */

struct timer {
	struct loop *loop; /* set while it runs */
	int64_t at;        /* CLOCK_MONOTONIC, microseconds */
	void (*fn)(void *ctx);
	void *ctx;
	struct timer *prev, *next;
};

/* (Re)start a timer that fires once. */
void timer_at(struct timer *t, struct loop *l, int64_t mono_us, void (*fn)(void *), void *ctx);
void timer_stop(struct timer *t); /* fine when it does not run */

#endif
