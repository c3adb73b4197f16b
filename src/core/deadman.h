/* The provider's own timeout, a dead-man's switch: if this machine dies, nothing runs for days. It
 * lies two minutes behind the idle limit, never past the lifetime, and moves as the sandbox is
 * used.
 */
#ifndef CORE_DEADMAN_H
#define CORE_DEADMAN_H

#include "core/session.h"

/* Seconds to ask for, given those that are left of the lifetime. */
int deadman_secs(const struct settings *s, int64_t left);

/* What is left of its lifetime, in whole seconds, and none too few: a sandbox that the provider
 * ended a moment before our own limit would look as if it had been lost. */
int64_t deadman_lifetime_left(const struct sandbox_row *row, int64_t now);

/* When the provider will really end it (CLOCK_REALTIME); what was asked for is only a wish. */
int64_t deadman_granted(struct core *c, const char *id, int64_t otherwise);

/* Move it: idle limit and two minutes from now, at least until `needed` seconds from now, never
 * past the lifetime. What was granted is read back and recorded. */
int deadman_renew(struct core *c, struct sandbox_row *row, int needed, struct err *err);

#endif
