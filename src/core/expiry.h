/* The ends that a sandbox comes to by the clock: unused for too long, or at its lifetime. */
#ifndef CORE_EXPIRY_H
#define CORE_EXPIRY_H

#include "core/session.h"

/* Whether one of its limits has passed, by the clock and the database alone: it is then as good as
 * gone. A lease protects from the idle limit. */
bool expiry_is_over(struct core *c, const struct sandbox_row *row);

/* Why one that is gone may be gone: its limits have passed, or it was not us. */
enum end_reason expiry_reason(const struct sandbox_row *row);

/* End one that is over. *gone is false when it was used meanwhile and lives. */
int expiry_end(struct core *c, struct sandbox_row *row, bool *gone, struct err *err);

/* End one that is over and takes a place which this owner needs; whether there was any. */
bool expiry_make_room(struct core *c, const char *owner);

#endif
