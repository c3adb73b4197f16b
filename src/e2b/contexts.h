/* Contexts of a sandbox's interpreter: several kernels beside each other, each with its own
 * variables and its own queue. */
#ifndef E2B_CONTEXTS_H
#define E2B_CONTEXTS_H

#include "e2b/e2b.h"

struct e2b_context {
	char id[64];
	char language[64];
	char cwd[1024];
};

/* language and cwd may be NULL: Python, and the user's home. ERR_INVALID: there is no such
 * language. */
int e2b_context_create(struct e2b *c, const struct e2b_sandbox *sb, const char *language,
		       const char *cwd, struct e2b_context *out, const struct e2b_wait *wait,
		       struct err *err);

/* In the order in which they were made. -1 of fn ends it with ERR_ABANDONED. */
typedef int e2b_context_fn(void *ctx, const struct e2b_context *context);
int e2b_context_list(struct e2b *c, const struct e2b_sandbox *sb, e2b_context_fn *fn, void *ctx,
		     const struct e2b_wait *wait, struct err *err);

/* ERR_NOT_FOUND: there is no such context. */
int e2b_context_remove(struct e2b *c, const struct e2b_sandbox *sb, const char *id,
		       const struct e2b_wait *wait, struct err *err);

/* Restart the context of that id, or with NULL the oldest of that language: its variables are lost.
 */
int e2b_context_restart(struct e2b *c, const struct e2b_sandbox *sb, const char *id,
			const char *language, const struct e2b_wait *wait, struct err *err);

#endif
