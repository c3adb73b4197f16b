#include "store/sandboxes.h"

#include "base/clock.h"
#include "store/db.h"

#define NO_SANDBOX "there is no such sandbox"

static const char *const types[] = {
	[SANDBOX_CODE_INTERPRETER] = "code_interpreter",
	[SANDBOX_CUSTOM] = "custom",
};

static const char *const statuses[] = {
	[SANDBOX_STARTING] = "starting", [SANDBOX_RUNNING] = "running", [SANDBOX_PAUSED] = "paused",
	[SANDBOX_STOPPING] = "stopping", [SANDBOX_ENDED] = "ended",
};

static const char *const reasons[] = {
	[END_NONE] = "",
	[END_STOPPED] = "stopped",
	[END_EXPIRED_IDLE] = "expired_idle",
	[END_EXPIRED_LIFETIME] = "expired_lifetime",
	[END_KILLED_BY_PROVIDER] = "killed_by_provider",
	[END_KILLED_BY_ADMIN] = "killed_by_admin",
	[END_CANCEL_KILL] = "cancel_kill",
	[END_START_FAILED] = "start_failed",
	[END_UNKNOWN] = "unknown",
};

const char *sandbox_type_name(enum sandbox_type type)
{
	return types[type];
}

int sandbox_type_parse(const char *name, enum sandbox_type *out)
{
	int i = word_find(types, COUNT(types), name);
	if (i < 0)
		return -1;
	*out = (enum sandbox_type)i;
	return 0;
}

const char *sandbox_status_name(enum sandbox_status status)
{
	return statuses[status];
}

const char *end_reason_name(enum end_reason reason)
{
	return reasons[reason];
}

static int sandbox_read(sqlite3_stmt *st, struct sandbox_row *out, struct err *err)
{
	struct reader r = READER(st);
	out->id = read_number(&r);
	read_text(&r, out->owner, sizeof out->owner);
	read_text(&r, out->session_id, sizeof out->session_id);
	out->generation = read_number(&r);
	read_text(&r, out->sandbox_id, sizeof out->sandbox_id);
	out->type = (enum sandbox_type)read_word(&r, types, COUNT(types));
	read_text(&r, out->template, sizeof out->template);
	out->status = (enum sandbox_status)read_word(&r, statuses, COUNT(statuses));
	out->created_at = read_number(&r);
	out->last_activity = read_number(&r);
	out->expires_at = read_number(&r);
	out->lifetime_at = read_number(&r);
	out->provider_end_at = read_number(&r);
	read_text(&r, out->nonce, sizeof out->nonce);
	out->claim_deadline = read_number(&r);
	out->claim_slot = (int)read_number(&r);
	out->claimer = read_procid(&r);
	read_text(&r, out->envd_token, sizeof out->envd_token);
	read_text(&r, out->traffic_token, sizeof out->traffic_token);
	read_text(&r, out->domain, sizeof out->domain);
	read_text(&r, out->agent_id, sizeof out->agent_id);
	read_text(&r, out->task_id, sizeof out->task_id);
	out->end_reason = (enum end_reason)read_word(&r, reasons, COUNT(reasons));
	out->destroyed_at = read_number(&r);
	out->state_lost = read_number(&r) != 0;
	out->lost_reason = (enum end_reason)read_word(&r, reasons, COUNT(reasons));
	return read_end(&r, err);
}

int sandbox_read_one(struct store *s, enum sql id, struct args args, struct sandbox_row *out,
		     bool *there, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	struct sandbox_row row;
	if (db_query(s, id, args, &st, err) < 0 || db_row(s, st, there, err) < 0)
		return -1;
	if (!*there)
		return 0;
	if (sandbox_read(st, &row, err) < 0)
		return -1;
	*out = row;
	return 0;
}

static int read_existing(struct store *s, enum sql id, struct args args, struct sandbox_row *out,
			 struct err *err)
{
	bool there;
	if (sandbox_read_one(s, id, args, out, &there, err) < 0)
		return -1;
	return there ? 0 : err_set(err, ERR_NOT_FOUND, NO_SANDBOX);
}

int sandbox_find(struct store *s, const char *owner, const char *session_id,
		 struct sandbox_row *out, struct err *err)
{
	return read_existing(s, SQL_SANDBOX_FIND, ARGS(NAME(owner), NAME(session_id)), out, err);
}

int sandbox_find_by_id(struct store *s, const char *sandbox_id, struct sandbox_row *out,
		       struct err *err)
{
	return read_existing(s, SQL_SANDBOX_BY_ID, ARGS(NAME(sandbox_id)), out, err);
}

int sandbox_find_by_nonce(struct store *s, const char *nonce, struct sandbox_row *out,
			  struct err *err)
{
	return read_existing(s, SQL_SANDBOX_BY_NONCE, ARGS(NAME(nonce)), out, err);
}

int sandbox_get(struct store *s, int64_t id, struct sandbox_row *out, struct err *err)
{
	return read_existing(s, SQL_SANDBOX_GET, ARGS(NUMBER(id)), out, err);
}

int sandbox_fate(struct store *s, int64_t id, struct sandbox_fate *out, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	bool there;
	if (db_query(s, SQL_SANDBOX_FATE, ARGS(NUMBER(id)), &st, err) < 0 ||
	    db_row(s, st, &there, err) < 0)
		return -1;
	if (!there)
		return err_set(err, ERR_NOT_FOUND, NO_SANDBOX);
	struct reader r = READER(st);
	struct sandbox_fate fate = { .status = (enum sandbox_status)read_word(&r, statuses,
									      COUNT(statuses)) };
	fate.end_reason = (enum end_reason)read_word(&r, reasons, COUNT(reasons));
	fate.lifetime_at = read_number(&r);
	if (read_end(&r, err) < 0)
		return -1;
	*out = fate;
	return 0;
}

int sandbox_list(struct store *s, const struct sandbox_query *query, struct sandbox_row *rows,
		 size_t max, size_t *n, struct err *err)
{
	static const enum sql statement[] = {
		[SANDBOXES_OF_OWNER] = SQL_SANDBOXES_OF_OWNER,
		[SANDBOXES_EVERY] = SQL_SANDBOXES_EVERY,
		[SANDBOXES_LIVE] = SQL_SANDBOXES_LIVE,
		[SANDBOXES_STOPPING] = SQL_SANDBOXES_STOPPING,
		[SANDBOXES_EXPIRED] = SQL_SANDBOXES_EXPIRED,
	};
	_query_ sqlite3_stmt *st = NULL;
	size_t count = 0;
	struct args args = ARGS(NUMBER(query->before ? query->before : INT64_MAX),
				NUMBER((int64_t)max), NAME(query->owner));
	struct args until = ARGS(args.v[0], args.v[1], NUMBER(clock_real_us()));
	if (query->set == SANDBOXES_EXPIRED)
		args = until;
	else if (query->set != SANDBOXES_OF_OWNER)
		args.n = 2;
	if (db_query(s, statement[query->set], args, &st, err) < 0)
		return -1;
	while (count < max) {
		bool there;
		if (db_row(s, st, &there, err) < 0)
			return -1;
		if (!there)
			break;
		if (sandbox_read(st, &rows[count++], err) < 0)
			return -1;
	}
	*n = count;
	return 0;
}

#define PAGE 64

int sandbox_each(struct store *s, struct sandbox_query query, sandbox_fn *fn, void *ctx,
		 struct err *err)
{
	_free_ struct sandbox_row *rows = calloc(PAGE, sizeof *rows);
	if (!rows)
		return err_set(err, ERR_INTERNAL, "no memory");
	for (size_t n = PAGE; n == PAGE;) {
		if (sandbox_list(s, &query, rows, PAGE, &n, err) < 0)
			return -1;
		for (size_t i = 0; i < n; i++) {
			query.before = rows[i].id;
			if (fn(ctx, &rows[i], err) < 0)
				return -1;
		}
	}
	return 0;
}

int sandbox_count(struct store *s, const char *owner, struct sandbox_counts *out, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	struct sandbox_counts counts = { 0 };
	enum sql id = owner ? SQL_SANDBOX_COUNT_OF : SQL_SANDBOX_COUNT;
	if (db_query(s, id, owner ? ARGS(NAME(owner)) : NO_ARGS, &st, err) < 0)
		return -1;
	for (;;) {
		bool there;
		if (db_row(s, st, &there, err) < 0)
			return -1;
		if (!there)
			break;
		struct reader r = READER(st);
		int status = read_word(&r, statuses, SANDBOX_ENDED);
		counts.of[status] = read_number(&r);
		if (read_end(&r, err) < 0)
			return -1;
	}
	*out = counts;
	return 0;
}
