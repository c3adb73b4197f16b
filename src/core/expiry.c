#include "core/expiry.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/leases.h"

#define PAGE 64 /* of those that are over, to choose from */

bool expiry_is_over(struct core *c, const struct sandbox_row *row)
{
	int64_t now = clock_real_us();
	bool leased = false;
	struct err ignored;
	if (row->status != SANDBOX_RUNNING && row->status != SANDBOX_PAUSED)
		return false;
	if (now >= row->lifetime_at || (row->provider_end_at && now >= row->provider_end_at))
		return true;
	if (now < row->expires_at)
		return false;
	return lease_live(c->store, row->id, &leased, &ignored) == 0 && !leased;
}

enum end_reason expiry_reason(const struct sandbox_row *row)
{
	int64_t now = clock_real_us();
	if (now >= row->lifetime_at)
		return END_EXPIRED_LIFETIME;
	return now >= row->expires_at ? END_EXPIRED_IDLE : END_KILLED_BY_PROVIDER;
}

int expiry_end(struct core *c, struct sandbox_row *row, bool *gone, struct err *err)
{
	struct err later; /* the kill is retried by cleanup */
	*gone = true;
	if (sandbox_expire(c->store, row->id, row, err) == 0) {
		session_kill(c, row, &later);
		return 0;
	}
	/* Used meanwhile, or it is the provider's own end that has passed. */
	return err->code == ERR_CONFLICT ? session_check(c, row, gone, err) : -1;
}

/* One place is enough for one who waits. */
static bool end_one(struct core *c, struct sandbox_row *rows, size_t n, const char *owner, bool own)
{
	for (size_t i = 0; i < n; i++) {
		struct err ignored;
		bool gone = false;
		if ((strcmp(rows[i].owner, owner) == 0) == own &&
		    expiry_end(c, &rows[i], &gone, &ignored) == 0 && gone)
			return true;
	}
	return false;
}

bool expiry_make_room(struct core *c, const char *owner)
{
	const struct sandbox_query query = { .set = SANDBOXES_EXPIRED };
	struct sandbox_row *rows = calloc(PAGE, sizeof *rows);
	struct err ignored;
	size_t n = 0;
	if (rows)
		sandbox_list(c->store, &query, rows, PAGE, &n, &ignored);
	/* Others' places help only where the limit is that of all. */
	bool room = end_one(c, rows, n, owner, true) || end_one(c, rows, n, owner, false);
	free(rows);
	return room;
}
