/* The warm pool: sandboxes that are made before they are asked for, with a kernel that has started,
 * so that a create takes what is there. It has so many places, each for one kind of sandbox; places
 * follow what is asked for. A place is filled in the background, one at a time. Under memory
 * pressure the pool is what goes first. */
#ifndef ENGINE_POOL_H
#define ENGINE_POOL_H

#include "engine/sandbox.h"

struct pool;

/* Begin to fill it. NULL when there is to be none (--pool 0) or no memory: all calls take that. */
struct pool *pool_new(struct engine *e);
void pool_free(struct pool *p); /* its sandboxes are ended by sandbox_end_all */

/* A sandbox that fits, or NULL. It is the caller's from here on, running or still starting. */
struct sandbox *pool_take(struct pool *p, const struct sandbox_config *config);

/* One of its own became ready, or ended. */
void pool_changed(struct pool *p, struct sandbox *s);

/* Give the memory back, and do not come back soon. */
void pool_drain(struct pool *p);

#endif
