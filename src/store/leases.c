#include "store/leases.h"

#include "store/db.h"

int lease_take(struct store *s, const char *id, int64_t sandbox, struct err *err)
{
	return db_expect(s, SQL_LEASE_TAKE,
			 ARGS(NAME(id), NUMBER(sandbox), NUMBER(s->slot), NUMBER(s->self.pid),
			      NUMBER(s->self.start), NUMBER(clock_real_us() + LEASE_US)),
			 "the sandbox is not running", err);
}

int lease_renew(struct store *s, const char *id, int64_t sandbox, struct err *err)
{
	int changed;
	if (db_write(s, SQL_LEASE_RENEW,
		     ARGS(NAME(id), NUMBER(s->self.pid), NUMBER(s->self.start),
			  NUMBER(clock_real_us() + LEASE_US)),
		     &changed, err) < 0)
		return -1;
	return changed ? 0 : lease_take(s, id, sandbox, err);
}

int lease_release(struct store *s, const char *id, struct err *err)
{
	return db_write(s, SQL_LEASE_RELEASE, ARGS(NAME(id)), NULL, err);
}

int lease_release_all_of(struct store *s, struct procid owner, struct err *err)
{
	return db_write(s, SQL_LEASE_RELEASE_ALL_OF, ARGS(NUMBER(owner.pid), NUMBER(owner.start)),
			NULL, err);
}

int lease_live(struct store *s, int64_t sandbox, bool *live, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	struct args args = ARGS(NUMBER(sandbox), NUMBER(clock_real_us()));
	bool there, found = false;
	if (db_query(s, SQL_LEASES_OF_SANDBOX, args, &st, err) < 0)
		return -1;
	while (!found) {
		if (db_row(s, st, &there, err) < 0)
			return -1;
		if (!there)
			break;
		struct reader r = READER(st);
		found = procid_alive(read_procid(&r));
	}
	*live = found;
	return 0;
}

static int prune(struct store *s, struct err *err)
{
	struct procid p = { 0 };
	bool there;
	if (db_write(s, SQL_LEASE_PRUNE_LATE, ARGS(NUMBER(clock_real_us())), NULL, err) < 0)
		return -1;
	for (;;) {
		if (db_next_process(s, SQL_LEASE_PROCESSES, &p, &there, err) < 0)
			return -1;
		if (!there)
			return 0;
		if (!procid_alive(p) && lease_release_all_of(s, p, err) < 0)
			return -1;
	}
}

int lease_prune(struct store *s, struct err *err)
{
	if (store_begin(s, err) < 0)
		return -1;
	return store_end(s, prune(s, err), err);
}
