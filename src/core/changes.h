/* The files below the user's home that changed while something ran: told by a watcher that the
 * sandbox keeps from one run to the next, so that files nobody touches cost nothing. */
#ifndef CORE_CHANGES_H
#define CORE_CHANGES_H

#include <json-c/json.h>

#include "core/session.h"
#include "store/executions.h"

#define CHANGES_MAX 1000 /* that are named; more are counted */

struct changes {
	struct execution_watch watch; /* id "": it is not known what changes */
};

/* Whose the sandbox's watcher is, as part of the change that writes the execution's row. */
int changes_claim(struct core *c, const char *execution_id, int64_t sandbox, struct changes *out,
		  struct err *err);

/* From here on all that changes is told to changes_end. It never fails: what could not be watched
 * is not known in the end. */
void changes_begin(struct core *c, const char *execution_id, int64_t sandbox,
		   const struct e2b_sandbox *sb, struct changes *changes);

/* What has changed: an array of {path, size, change}, or NULL when that is not known. *total is how
 * many there were. */
struct json_object *changes_end(struct core *c, const char *execution_id, int64_t sandbox,
				const struct e2b_sandbox *sb, const struct changes *changes,
				size_t *total);

#endif
