#include "store/claims.h"

#include "base/clock.h"
#include "store/db.h"

/* What a session's older sandboxes mean for its next one. */
struct heritage {
	int64_t generation;     /* of the next one */
	enum end_reason reason; /* why state was lost; END_NONE when none was */
};

static int inherit(struct store *s, const struct claim *want, struct heritage *out, struct err *err)
{
	struct sandbox_row last;
	bool there;
	if (sandbox_read_one(s, SQL_SANDBOX_LAST, ARGS(NAME(want->owner), NAME(want->session_id)),
			     &last, &there, err) < 0)
		return -1;
	if (!there)
		*out = (struct heritage){ 1, END_NONE };
	else if (last.end_reason == END_START_FAILED) /* its generation and its news still stand */
		*out = (struct heritage){ last.generation,
					  last.state_lost ? last.lost_reason : END_NONE };
	else if (last.end_reason == END_STOPPED)
		*out = (struct heritage){ last.generation + 1, END_NONE };
	else
		*out = (struct heritage){ last.generation + 1, last.end_reason };
	return 0;
}

static int check_quota(struct store *s, const struct claim *want, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	bool there;
	if (db_query(s, SQL_SANDBOX_QUOTA, ARGS(NAME(want->owner)), &st, err) < 0 ||
	    db_row(s, st, &there, err) < 0)
		return -1;
	struct reader r = READER(st);
	int64_t total = read_number(&r), own = read_number(&r);
	if (want->max_per_owner && own >= want->max_per_owner)
		return err_set(err, ERR_LIMIT, "the limit of %d sandboxes per user is reached",
			       want->max_per_owner);
	if (want->max_total && total >= want->max_total)
		return err_set(err, ERR_LIMIT, "the limit of %d sandboxes in total is reached",
			       want->max_total);
	return 0;
}

static int insert(struct store *s, const struct claim *want, struct sandbox_row *row,
		  struct err *err)
{
	struct heritage from;
	if (check_quota(s, want, err) < 0 || inherit(s, want, &from, err) < 0)
		return -1;
	struct args args =
		ARGS(NAME(want->owner), NAME(want->session_id), NUMBER(from.generation),
		     NAME(sandbox_type_name(want->type)), NAME(want->template),
		     NUMBER(clock_real_us()), TEXT(want->nonce, STORE_ID_MAX),
		     NUMBER(want->deadline), NUMBER(s->slot), NUMBER(s->self.pid),
		     NUMBER(s->self.start), NAME(want->agent_id), NAME(want->task_id),
		     NUMBER(from.reason != END_NONE), NAME(end_reason_name(from.reason)));
	if (db_write(s, SQL_SANDBOX_INSERT, args, NULL, err) < 0)
		return -1;
	return sandbox_find(s, want->owner, want->session_id, row, err);
}

static int adopt(struct store *s, const struct claim *want, struct sandbox_row *row,
		 struct err *err)
{
	struct args args = ARGS(NUMBER(row->id), NAME(row->nonce), NUMBER(want->deadline),
				NUMBER(s->slot), NUMBER(s->self.pid), NUMBER(s->self.start));
	if (db_expect(s, SQL_SANDBOX_ADOPT, args, "the claim was lost", err) < 0)
		return -1;
	return sandbox_get(s, row->id, row, err);
}

/* Whether there is a sandbox, or somebody who makes it, so that the caller has nothing to do. */
static int look(struct store *s, const struct claim *want, struct sandbox_row *row, bool *there,
		bool *settled, enum claim_result *how, struct err *err)
{
	if (sandbox_read_one(s, SQL_SANDBOX_FIND, ARGS(NAME(want->owner), NAME(want->session_id)),
			     row, there, err) < 0)
		return -1;
	*how = *there && row->status != SANDBOX_STARTING ? CLAIM_HAVE : CLAIM_WAIT;
	*settled = *there && (*how == CLAIM_HAVE || sandbox_claim_holds(row));
	return 0;
}

static int claim_locked(struct store *s, const struct claim *want, struct sandbox_row *row,
			enum claim_result *how, struct err *err)
{
	bool there, settled;
	if (look(s, want, row, &there, &settled, how, err) < 0)
		return -1;
	if (settled)
		return 0;
	*how = there ? CLAIM_ADOPT : CLAIM_MINE;
	return there ? adopt(s, want, row, err) : insert(s, want, row, err);
}

int sandbox_claim(struct store *s, const struct claim *want, struct sandbox_row *row,
		  enum claim_result *how, struct err *err)
{
	struct sandbox_row found;
	enum claim_result result;
	bool there, settled;
	/* Nearly every request finds its sandbox running: that must not cost the write lock. */
	if (look(s, want, &found, &there, &settled, &result, err) < 0)
		return -1;
	if (!settled && (store_begin(s, err) < 0 ||
			 store_end(s, claim_locked(s, want, &found, &result, err), err) < 0))
		return -1;
	*row = found;
	*how = result;
	return 0;
}

int sandbox_claim_longer(struct store *s, int64_t id, const char *nonce, int64_t deadline,
			 struct err *err)
{
	return db_expect(s, SQL_SANDBOX_CLAIM_LONGER,
			 ARGS(NUMBER(id), NAME(nonce), NUMBER(deadline)),
			 "the sandbox is not starting any more", err);
}

int sandbox_started(struct store *s, int64_t id, const char *nonce,
		    const struct sandbox_facts *facts, struct err *err)
{
	struct args args =
		ARGS(NUMBER(id), NAME(nonce), TEXT(facts->sandbox_id, STORE_ID_MAX),
		     TEXT(facts->envd_token, STORE_TOKEN_MAX),
		     TEXT(facts->traffic_token, STORE_TOKEN_MAX),
		     TEXT(facts->domain, STORE_DOMAIN_MAX), NUMBER(facts->provider_end_at),
		     NUMBER(facts->lifetime_at), NUMBER(clock_real_us()), NUMBER(facts->idle_us));
	return db_expect(s, SQL_SANDBOX_STARTED, args, "the sandbox is not starting any more", err);
}

#define NOT_OURS "the sandbox is not this process's to start"

int sandbox_failed(struct store *s, int64_t id, const char *nonce, struct err *err)
{
	struct args args = ARGS(NUMBER(id), NAME(nonce), NUMBER(s->self.pid), NUMBER(s->self.start),
				NUMBER(clock_real_us()));
	return db_expect(s, SQL_SANDBOX_FAILED, args, NOT_OURS, err);
}

int sandbox_given_up(struct store *s, int64_t id, const char *nonce, struct err *err)
{
	struct args args =
		ARGS(NUMBER(id), NAME(nonce), NUMBER(s->self.pid), NUMBER(s->self.start));
	return db_expect(s, SQL_SANDBOX_GIVEN_UP, args, NOT_OURS, err);
}
