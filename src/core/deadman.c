#include "core/deadman.h"

#include <limits.h>

#include "base/clock.h"

#define GRACE_SECS 120 /* the provider's timeout outlasts the idle limit by this */
#define SLACK_SECS 60  /* of the grace, not worth a call */

static int64_t first_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int deadman_secs(const struct settings *s, int64_t left)
{
	int64_t secs = first_of(s->idle_timeout + GRACE_SECS, left);
	return secs < 1 ? 1 : secs > INT_MAX ? INT_MAX : (int)secs;
}

int64_t deadman_lifetime_left(const struct sandbox_row *row, int64_t now)
{
	return (row->lifetime_at - now + SECOND_US - 1) / SECOND_US;
}

int64_t deadman_granted(struct core *c, const char *id, int64_t otherwise)
{
	struct e2b_info info;
	struct err ignored;
	const struct e2b_wait wait = core_patience(c);
	if (e2b_get(c->e2b, id, &info, &wait, &ignored) < 0)
		return otherwise;
	int64_t end = info.end_us ? info.end_us : otherwise;
	e2b_info_free(&info);
	return end;
}

int deadman_renew(struct core *c, struct sandbox_row *row, int needed, struct err *err)
{
	const struct e2b_wait wait = core_patience(c);
	const int64_t now = clock_real_us(), left = deadman_lifetime_left(row, now);
	const int64_t has = (row->provider_end_at - now) / SECOND_US;
	const int usual = deadman_secs(c->settings, left);
	const int must = (int)first_of(needed, left < 1 ? 1 : left);
	/* Most calls find it far enough away. What a run needs has no slack. */
	if (has >= usual - SLACK_SECS && has >= must)
		return 0;
	const int secs = usual > must ? usual : must;
	if (e2b_set_timeout(c->e2b, row->sandbox_id, secs, &wait, err) < 0)
		return -1;
	row->provider_end_at = deadman_granted(c, row->sandbox_id, now + secs * SECOND_US);
	return sandbox_extend(c->store, row->id, row->provider_end_at, 0, err);
}
