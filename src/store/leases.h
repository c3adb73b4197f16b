/* Leases: a running execution or transfer says that its sandbox is in use. A lease is dead when its
 * process is gone or when it was not renewed in time. */
#ifndef STORE_LEASES_H
#define STORE_LEASES_H

#include "base/clock.h"
#include "base/procid.h"
#include "store/store.h"

#define LEASE_US       (60 * SECOND_US) /* how long one lasts without being renewed */
#define LEASE_RENEW_US (15 * SECOND_US) /* how often to renew it */

/* id names the execution or transfer. ERR_CONFLICT when the sandbox is not running or paused,
 * ERR_EXISTS when there is such a lease already. */
int lease_take(struct store *s, const char *id, int64_t sandbox, struct err *err);

/* It lasts anew from now. One that was pruned meanwhile, because the clock was set or this process
 * was stopped for a while, is taken again. */
int lease_renew(struct store *s, const char *id, int64_t sandbox, struct err *err);

int lease_release(struct store *s, const char *id, struct err *err); /* again is no error */

/* All leases of a process that died. */
int lease_release_all_of(struct store *s, struct procid owner, struct err *err);

/* Whether a lease that is not dead protects the sandbox. */
int lease_live(struct store *s, int64_t sandbox, bool *live, struct err *err);

/* Removes the dead ones. */
int lease_prune(struct store *s, struct err *err);

#endif
