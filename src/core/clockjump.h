/* Whether somebody has set the machine's clock. Limits are points in time: after a jump they would
 * seem to have passed, or leases to be dead, though nothing has become older. */
#ifndef CORE_CLOCKJUMP_H
#define CORE_CLOCKJUMP_H

#include "store/passes.h"

/* What the clocks say now. */
struct clock_mark clockjump_mark(void);

/* Whether the clock that can be set has moved otherwise than the one that cannot, by more than a
 * minute. Across a start of the machine only a step back can be seen. */
bool clockjump_between(const struct clock_mark *then, const struct clock_mark *now);

#endif
