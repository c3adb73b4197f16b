#include "store/executions.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "store/db.h"
#include "store/leases.h"

static const char *const kinds[] = {
	[EXECUTION_CODE] = "code",
	[EXECUTION_COMMAND] = "command",
	[EXECUTION_INSTALL] = "install",
};

static const char *const states[] = {
	[EXECUTION_QUEUED] = "queued",
	[EXECUTION_RUNNING] = "running",
	[EXECUTION_SUCCEEDED] = "succeeded",
	[EXECUTION_FAILED] = "failed",
	[EXECUTION_TIMED_OUT] = "timed_out",
	[EXECUTION_CANCELLED] = "cancelled",
	[EXECUTION_COMPLETION_UNKNOWN] = "completion_unknown",
};

static const char *const cancellers[] = {
	[CANCELLED_BY_NONE] = "",
	[CANCELLED_BY_INTERRUPT] = "interrupt",
	[CANCELLED_BY_RESTART] = "restart",
	[CANCELLED_BY_KILL] = "kill",
};

const char *cancelled_by_name(enum cancelled_by by)
{
	return cancellers[by];
}

const char *execution_kind_name(enum execution_kind kind)
{
	return kinds[kind];
}

const char *execution_state_name(enum execution_state state)
{
	return states[state];
}

void execution_new_id(char out[EXECUTION_ID])
{
	memcpy(out, "x_", 2);
	id_alnum(out + 2, EXECUTION_ID - 3);
}

/* The beginning of text, cut between two UTF-8 characters and at a NUL. */
static void cut(char *out, size_t size, const char *text, size_t n)
{
	n = text ? strnlen(text, n) : 0;
	if (n >= size)
		for (n = size - 1; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
			n--;
	if (n)
		memcpy(out, text, n);
	out[n] = '\0';
}

/* The first column of the statement's first row; 0 when it has none. */
static int first_number(struct store *s, enum sql id, struct args args, int64_t *n, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	bool there;
	if (db_query(s, id, args, &st, err) < 0 || db_row(s, st, &there, err) < 0)
		return -1;
	struct reader r = READER(st);
	*n = there ? read_number(&r) : 0;
	return 0;
}

static int is_there(struct store *s, enum sql id, struct args args, bool *yes, struct err *err)
{
	int64_t n;
	if (first_number(s, id, args, &n, err) < 0)
		return -1;
	*yes = n != 0;
	return 0;
}

static int begin(struct store *s, const struct execution_start *start, bool *queued,
		 struct err *err)
{
	char input[EXECUTION_INPUT_MAX + 1];
	cut(input, sizeof input, start->input, start->input_bytes);
	struct args args =
		ARGS(NAME(start->id), NUMBER(start->sandbox), NAME(kinds[start->kind]),
		     TEXT(input, EXECUTION_INPUT_MAX), NUMBER((int64_t)start->input_bytes),
		     TEXT(start->request_hash, SHA256_HEX - 1), NUMBER(s->self.pid),
		     NUMBER(s->self.start), NUMBER(clock_real_us()), NAME(start->context_id),
		     NAME(end_reason_name(start->lost_reason)));
	if (db_expect(s, SQL_EXECUTION_BEGIN, args, "the sandbox is not running", err) < 0)
		return -1;
	if (queued && is_there(s, SQL_EXECUTION_IS_QUEUED, ARGS(NAME(start->id)), queued, err) < 0)
		return -1;
	return sandbox_touch_now(s, start->sandbox, start->idle_us, err);
}

int execution_begin(struct store *s, const struct execution_start *start, bool *queued,
		    struct err *err)
{
	if (store_begin(s, err) < 0)
		return -1;
	return store_end(s, begin(s, start, queued, err), err);
}

static int take_watch(struct store *s, const char *id, int64_t sandbox, struct execution_watch *out,
		      struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	struct execution_watch watch = { .shared = false };
	bool there;
	int changed;
	if (db_write(s, SQL_WATCH_TAKE, ARGS(NUMBER(sandbox), NAME(id)), &changed, err) < 0 ||
	    db_query(s, SQL_WATCH_GET, ARGS(NUMBER(sandbox)), &st, err) < 0 ||
	    db_row(s, st, &there, err) < 0)
		return -1;
	struct reader r = READER(st);
	watch.shared = changed > 0;
	if (there) {
		read_text(&r, watch.id, sizeof watch.id);
		watch.read_at = read_number(&r);
	}
	*out = watch;
	return read_end(&r, err);
}

int execution_watch(struct store *s, const char *id, int64_t sandbox, struct execution_watch *out,
		    struct err *err)
{
	if (store_begin(s, err) < 0)
		return -1;
	return store_end(s, take_watch(s, id, sandbox, out, err), err);
}

int execution_spoil_watch(struct store *s, int64_t sandbox, struct err *err)
{
	return db_write(s, SQL_WATCH_SPOIL, ARGS(NUMBER(sandbox)), NULL, err);
}

int execution_set_watcher(struct store *s, const char *id, int64_t sandbox, const char *watcher,
			  struct err *err)
{
	return db_write(s, SQL_WATCH_SET,
			ARGS(NUMBER(sandbox), NAME(id), TEXT(watcher, EXECUTION_WATCHER - 1)), NULL,
			err);
}

int execution_started(struct store *s, const char *id, struct err *err)
{
	return db_expect(s, SQL_EXECUTION_STARTED, ARGS(NAME(id), NUMBER(clock_real_us())),
			 "there is no such unfinished execution", err);
}

int execution_ahead(struct store *s, const char *id, int64_t *n, struct err *err)
{
	return first_number(s, SQL_EXECUTION_AHEAD, ARGS(NAME(id)), n, err);
}

int execution_count(struct store *s, int64_t sandbox, int64_t *n, struct err *err)
{
	return first_number(s, SQL_EXECUTION_COUNT, ARGS(NUMBER(sandbox)), n, err);
}

int execution_cancel(struct store *s, const char *id, struct err *err)
{
	return db_write(s, SQL_EXECUTION_CANCEL, ARGS(NAME(id), NUMBER(clock_real_us())), NULL,
			err);
}

int execution_is_cancelled(struct store *s, const char *id, bool *cancelled, struct err *err)
{
	return is_there(s, SQL_EXECUTION_IS_CANCELLED, ARGS(NAME(id)), cancelled, err);
}

int execution_began_since(struct store *s, int64_t sandbox, const char *context_id,
			  const char *except, int64_t since, bool *began, struct err *err)
{
	struct args args = ARGS(NUMBER(sandbox), NAME(except), NUMBER(since), NAME(context_id));
	return is_there(s, SQL_EXECUTION_BEGAN_SINCE, args, began, err);
}

int execution_unfinished(struct store *s, const char *id, bool *unfinished, struct err *err)
{
	return is_there(s, SQL_EXECUTION_IS_UNFINISHED, ARGS(NAME(id)), unfinished, err);
}

static int finish_row(struct store *s, const struct execution_end *end, int64_t *sandbox,
		      struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	char name[EXECUTION_ERROR_MAX + 1];
	bool there, more;
	cut(name, sizeof name, end->error_name, EXECUTION_INPUT_MAX);
	struct arg code = { .type = end->has_exit_code ? ARG_NUMBER : ARG_NULL,
			    .number = end->exit_code };
	struct args args =
		ARGS(NAME(end->id), NAME(states[end->state]), NUMBER(clock_real_us()), code,
		     NUMBER(end->stdout_bytes), NUMBER(end->stderr_bytes),
		     TEXT(name, EXECUTION_ERROR_MAX), NAME(cancellers[end->cancelled_by]),
		     NUMBER(end->events), NUMBER(end->event_bytes));
	if (db_query(s, SQL_EXECUTION_FINISH, args, &st, err) < 0 || db_row(s, st, &there, err) < 0)
		return -1;
	if (!there)
		return err_set(err, ERR_CONFLICT, "there is no unfinished execution '%.64s'",
			       end->id);
	struct reader r = READER(st);
	*sandbox = read_number(&r);
	return db_row(s, st, &more, err);
}

static int finish(struct store *s, const struct execution_end *end, struct err *err)
{
	int64_t sandbox = 0;
	if (finish_row(s, end, &sandbox, err) < 0 ||
	    db_write(s, SQL_WATCH_RELEASE,
		     ARGS(NAME(end->id), NUMBER(sandbox), NUMBER(clock_real_us())), NULL, err) < 0)
		return -1;
	return end->idle_us ? sandbox_touch_now(s, sandbox, end->idle_us, err) : 0;
}

int execution_finish(struct store *s, const struct execution_end *end, struct err *err)
{
	if (store_begin(s, err) < 0)
		return -1;
	return store_end(s, finish(s, end, err), err);
}

static int execution_read(sqlite3_stmt *st, struct execution_row *out, struct err *err)
{
	struct reader r = READER(st);
	out->seq = read_number(&r);
	read_text(&r, out->id, sizeof out->id);
	out->sandbox = read_number(&r);
	read_text(&r, out->owner, sizeof out->owner);
	read_text(&r, out->session_id, sizeof out->session_id);
	out->generation = read_number(&r);
	out->kind = (enum execution_kind)read_word(&r, kinds, COUNT(kinds));
	out->state = (enum execution_state)read_word(&r, states, COUNT(states));
	read_text(&r, out->input, sizeof out->input);
	out->input_bytes = read_number(&r);
	read_text(&r, out->request_hash, sizeof out->request_hash);
	out->runner = read_procid(&r);
	out->started_at = read_number(&r);
	out->ended_at = read_number(&r);
	out->has_exit_code = !read_is_null(&r);
	out->exit_code = (int)read_number(&r);
	out->stdout_bytes = read_number(&r);
	out->stderr_bytes = read_number(&r);
	read_text(&r, out->error_name, sizeof out->error_name);
	read_text(&r, out->context_id, sizeof out->context_id);
	out->cancel_at = read_number(&r);
	out->cancelled_by = (enum cancelled_by)read_word(&r, cancellers, COUNT(cancellers));
	out->lost_reason = end_reason_read(&r);
	out->events = read_number(&r);
	out->event_bytes = read_number(&r);
	return read_end(&r, err);
}

static int read_many(struct store *s, enum sql id, struct args args, struct execution_row *rows,
		     size_t max, size_t *n, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	size_t count = 0;
	if (db_query(s, id, args, &st, err) < 0)
		return -1;
	while (count < max) {
		bool there;
		if (db_row(s, st, &there, err) < 0)
			return -1;
		if (!there)
			break;
		if (execution_read(st, &rows[count++], err) < 0)
			return -1;
	}
	*n = count;
	return 0;
}

static int read_one(struct store *s, enum sql id, struct args args, struct execution_row *out,
		    struct err *err)
{
	struct execution_row row;
	size_t n;
	if (read_many(s, id, args, &row, 1, &n, err) < 0)
		return -1;
	if (n == 0)
		return err_set(err, ERR_NOT_FOUND, "there is no such execution");
	*out = row;
	return 0;
}

int execution_find(struct store *s, const char *owner, const char *id, struct execution_row *out,
		   struct err *err)
{
	return read_one(s, SQL_EXECUTION_FIND, ARGS(NAME(owner), NAME(id)), out, err);
}

int execution_repeated(struct store *s, const char *owner, const char *session_id,
		       const char *request_hash, int64_t since, struct execution_row *out,
		       struct err *err)
{
	return read_one(s, SQL_EXECUTION_REPEATED,
			ARGS(NAME(owner), NAME(session_id), NAME(request_hash), NUMBER(since)), out,
			err);
}

int execution_list(struct store *s, const char *owner, const char *session_id, int64_t before,
		   struct execution_row *rows, size_t max, size_t *n, struct err *err)
{
	return read_many(s, SQL_EXECUTION_LIST,
			 ARGS(NAME(owner), NAME(session_id), NUMBER(before ? before : INT64_MAX),
			      NUMBER((int64_t)max)),
			 rows, max, n, err);
}

static int end_dead(struct store *s, size_t *n, struct err *err)
{
	const int64_t now = clock_real_us();
	struct procid p = { 0 };
	int changed;
	if (db_write(s, SQL_EXECUTION_END_UNLEASED, ARGS(NUMBER(now), NUMBER(now - LEASE_US)),
		     &changed, err) < 0)
		return -1;
	for (*n = (size_t)changed;;) {
		bool there;
		changed = 0;
		if (db_next_process(s, SQL_EXECUTION_PROCESSES, &p, &there, err) < 0)
			return -1;
		if (!there)
			return 0;
		struct args args = ARGS(NUMBER(p.pid), NUMBER(p.start), NUMBER(now));
		if (!procid_alive(p) &&
		    db_write(s, SQL_EXECUTION_END_DEAD, args, &changed, err) < 0)
			return -1;
		*n += (size_t)changed;
	}
}

int execution_end_dead(struct store *s, size_t *n, struct err *err)
{
	size_t count = 0;
	if (store_begin(s, err) < 0 || store_end(s, end_dead(s, &count, err), err) < 0)
		return -1;
	*n = count;
	return 0;
}
