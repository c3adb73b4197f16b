/* The changes of a sandbox that has started, up to its end. */
#include "base/clock.h"
#include "store/claims.h"
#include "store/db.h"
#include "store/leases.h"

int sandbox_touch(struct store *s, int64_t id, int64_t idle_us, struct err *err)
{
	/* A short idle limit must not run out between two writes of a busy client. */
	int64_t pause = 60 * SECOND_US < idle_us / 10 ? 60 * SECOND_US : idle_us / 10;
	int64_t now = clock_real_us();
	bool due;
	{
		_query_ sqlite3_stmt *st = NULL;
		if (db_query(s, SQL_SANDBOX_TOUCH_DUE, ARGS(NUMBER(id), NUMBER(now - pause)), &st,
			     err) < 0 ||
		    db_row(s, st, &due, err) < 0)
			return -1;
	}
	if (!due)
		return 0;
	return db_write(s, SQL_SANDBOX_TOUCH,
			ARGS(NUMBER(id), NUMBER(now), NUMBER(now - pause), NUMBER(idle_us)), NULL,
			err);
}

int sandbox_touch_now(struct store *s, int64_t id, int64_t idle_us, struct err *err)
{
	int64_t now = clock_real_us();
	return db_write(s, SQL_SANDBOX_TOUCH,
			ARGS(NUMBER(id), NUMBER(now), NUMBER(now), NUMBER(idle_us)), NULL, err);
}

int sandbox_extend(struct store *s, int64_t id, int64_t provider_end_at, int64_t expires_at,
		   struct err *err)
{
	return db_expect(s, SQL_SANDBOX_EXTEND,
			 ARGS(NUMBER(id), NUMBER(provider_end_at), NUMBER(expires_at)),
			 "the sandbox is not running", err);
}

int sandbox_pause(struct store *s, int64_t id, struct err *err)
{
	return db_expect(s, SQL_SANDBOX_PAUSE, ARGS(NUMBER(id)), "the sandbox is not running", err);
}

int sandbox_resume(struct store *s, int64_t id, struct err *err)
{
	return db_expect(s, SQL_SANDBOX_RESUME, ARGS(NUMBER(id)), "the sandbox is not paused", err);
}

int sandbox_lost(struct store *s, int64_t id, enum end_reason reason, struct err *err)
{
	return db_write(s, SQL_SANDBOX_LOST,
			ARGS(NUMBER(id), NAME(end_reason_name(reason)), NUMBER(clock_real_us())),
			NULL, err);
}

bool sandbox_claim_holds(const struct sandbox_row *row)
{
	return row->claim_deadline > clock_real_us() && procid_alive(row->claimer);
}

/* Both are called under the write lock. */

static int stop(struct store *s, int64_t id, enum end_reason reason, struct sandbox_row *row,
		struct err *err)
{
	if (sandbox_get(s, id, row, err) < 0)
		return -1;
	if (row->status == SANDBOX_STARTING && sandbox_claim_holds(row))
		return err_set(err, ERR_CONFLICT, "the sandbox is still starting");
	if (db_expect(s, SQL_SANDBOX_STOP, ARGS(NUMBER(id), NAME(end_reason_name(reason))),
		      "the sandbox is stopped already", err) < 0)
		return -1;
	return sandbox_get(s, id, row, err);
}

static int expire(struct store *s, int64_t id, struct sandbox_row *row, struct err *err)
{
	int64_t now = clock_real_us();
	bool in_use = false;
	if (sandbox_get(s, id, row, err) < 0)
		return -1;
	if (row->status != SANDBOX_RUNNING && row->status != SANDBOX_PAUSED)
		return err_set(err, ERR_CONFLICT, "the sandbox is not running");
	if (row->lifetime_at <= now)
		return stop(s, id, END_EXPIRED_LIFETIME, row, err);
	if (row->expires_at > now)
		return err_set(err, ERR_CONFLICT, "the sandbox has time left");
	if (lease_live(s, id, &in_use, err) < 0)
		return -1;
	if (in_use)
		return err_set(err, ERR_CONFLICT, "the sandbox is in use");
	return stop(s, id, END_EXPIRED_IDLE, row, err);
}

int sandbox_stop(struct store *s, int64_t id, enum end_reason reason, struct sandbox_row *out,
		 struct err *err)
{
	struct sandbox_row row;
	if (store_begin(s, err) < 0 || store_end(s, stop(s, id, reason, &row, err), err) < 0)
		return -1;
	*out = row;
	return 0;
}

int sandbox_expire(struct store *s, int64_t id, struct sandbox_row *out, struct err *err)
{
	struct sandbox_row row;
	if (store_begin(s, err) < 0 || store_end(s, expire(s, id, &row, err), err) < 0)
		return -1;
	*out = row;
	return 0;
}

int sandbox_killed(struct store *s, int64_t id, struct err *err)
{
	return db_expect(s, SQL_SANDBOX_KILLED, ARGS(NUMBER(id), NUMBER(clock_real_us())),
			 "the sandbox is not being stopped", err);
}

int sandbox_take_state_lost(struct store *s, int64_t id, bool *lost, enum end_reason *why,
			    struct err *err)
{
	/* Almost always there is nothing to tell, and a look costs no lock. */
	struct sandbox_row row;
	int changed = 0;
	if (sandbox_get(s, id, &row, err) < 0)
		return -1;
	if (row.state_lost && db_write(s, SQL_STATE_LOST_TAKE, ARGS(NUMBER(id)), &changed, err) < 0)
		return -1;
	*lost = changed > 0;
	if (*lost)
		*why = row.lost_reason;
	return 0;
}
