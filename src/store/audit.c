#include "store/audit.h"

#include <stdio.h>

#include "base/clock.h"
#include "store/db.h"

int audit_append(struct store *s, const struct audit_entry *entry, struct err *err)
{
	/* A target may be any path of a request; a trail with its beginning is better than none. */
	char target[256];
	snprintf(target, sizeof target, "%s", entry->target ? entry->target : "");
	return db_write(s, SQL_AUDIT_APPEND,
			ARGS(NUMBER(clock_real_us()), NAME(entry->request_id), NAME(entry->user),
			     NAME(entry->action), TEXT(target, sizeof target),
			     NAME(entry->outcome)),
			NULL, err);
}
