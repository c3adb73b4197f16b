/* Routes of the network namespace that this process is in: which ranges cannot be reached. It waits
 * for the kernel's answers, so it is for short-lived processes, never for the engine's loop. */
#ifndef ENGINE_NETROUTE_H
#define ENGINE_NETROUTE_H

#include "base/err.h"
#include "engine/netrules.h"

/* Close these, beside what is closed already. */
int netroute_close(const struct netrules *r, struct err *err);

/* Close these, and open whatever else was closed. New ones come first: at no moment is more open
 * than before, or more than afterwards. */
int netroute_replace(const struct netrules *r, struct err *err);

#endif
