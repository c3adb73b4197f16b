/* What every new sandbox is given, as the settings say: variables and packages. */
#ifndef CORE_INITIAL_H
#define CORE_INITIAL_H

#include "core/session.h"

#define INITIAL_ENVS_MAX 64

/* SANDGATE_INIT_ENVS as pairs, whose texts lie in *text: free it. ERR_INVALID names what is none.
 */
int initial_envs(const struct settings *s, struct e2b_pair pairs[INITIAL_ENVS_MAX], size_t *n,
		 char **text, struct err *err);

/* Whether both settings can be used at all; for the start of a program. */
int initial_check(const struct settings *s, struct err *err);

/* Install SANDGATE_INIT_PACKAGES in a sandbox that nobody uses yet. -1: it has none of them, or not
 * all. */
int initial_packages(struct core *c, const struct e2b_sandbox *sb, struct err *err);

#endif
