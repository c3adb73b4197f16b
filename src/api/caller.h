/* Who calls. nginx says who it is; whether they may is decided here, from the token's row as it is
 * now, so that a revocation acts at once. */
#ifndef API_CALLER_H
#define API_CALLER_H

#include "api/call.h"

/* Whether the call may go on to its handler; if not, it has been answered. */
bool caller_may(struct call *c);

#endif
