/* The environment that a sandbox's later runs get. Values are secrets: they are given to runs and
 * to nobody else. */
#ifndef STORE_ENVS_H
#define STORE_ENVS_H

#include <stddef.h>

#include "store/sandboxes.h"

#define ENVS_MAX      256         /* of one sandbox */
#define ENV_VALUE_MAX (32u << 10) /* bytes of a value */

/* Set one, or change it. */
int env_set(struct store *s, int64_t sandbox, const char *name, const char *value, struct err *err);

/* ERR_LIMIT when there are more than ENVS_MAX. */
int env_check(struct store *s, int64_t sandbox, struct err *err);

/* Called for each, in the order of names; the texts live until it returns. */
typedef int env_fn(void *ctx, const char *name, const char *value);
int env_each(struct store *s, int64_t sandbox, env_fn *fn, void *ctx, struct err *err);

#endif
