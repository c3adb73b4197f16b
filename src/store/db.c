#include "store/db.h"

#include <string.h>

#include "base/clock.h"

/* What an operator can do about it belongs to the message: nothing works until it is done. */
int db_damaged(struct store *s, const char *how, struct err *err)
{
	return err_set(err, ERR_INTERNAL,
		       "the database %s is damaged (%s): stop what uses it, move it and its -wal "
		       "and -shm away, and put a backup in its place",
		       sqlite3_db_filename(s->db, "main"), how);
}

int db_error(struct store *s, const char *doing, struct err *err)
{
	int rc = sqlite3_extended_errcode(s->db);
	const char *text = sqlite3_errmsg(s->db);
	switch (rc) {
	case SQLITE_CONSTRAINT_UNIQUE:
	case SQLITE_CONSTRAINT_PRIMARYKEY:
	case SQLITE_CONSTRAINT_ROWID:
		return err_set(err, ERR_EXISTS, "%s: %s", doing, text);
	case SQLITE_CONSTRAINT_FOREIGNKEY:
		return err_set(err, ERR_NOT_FOUND, "%s: %s", doing, text);
	case SQLITE_CONSTRAINT_TRIGGER:
		return err_set(err, ERR_CONFLICT, "%s: %s", doing, text);
	}
	switch (rc & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_PROTOCOL:
		return err_set(err, ERR_UNAVAILABLE, "%s: the database stayed locked for %lld ms",
			       doing, (long long)(s->busy_us / 1000));
	case SQLITE_CONSTRAINT:
		return err_set(err, ERR_INVALID, "%s: %s", doing, text);
	case SQLITE_FULL:
		return err_set(err, ERR_NO_SPACE, "%s: %s", doing, text);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return db_damaged(s, text, err);
	case SQLITE_READONLY:
		return err_set(err, ERR_INTERNAL, "%s: the database is read-only: %s", doing, text);
	}
	return err_set(err, ERR_INTERNAL, "%s: %s (SQLite %d)", doing, text, rc);
}

static int prepare(struct store *s, enum sql id, sqlite3_stmt **out, struct err *err)
{
	sqlite3_stmt **st = &s->prepared[id];
	if (!*st && sqlite3_prepare_v3(s->db, sql_text[id], -1, SQLITE_PREPARE_PERSISTENT, st,
				       NULL) != SQLITE_OK)
		return db_error(s, "preparing a statement", err);
	*out = *st;
	return 0;
}

static int bind(struct store *s, sqlite3_stmt *st, struct args args, struct err *err)
{
	if ((size_t)sqlite3_bind_parameter_count(st) != args.n)
		return err_set(err, ERR_INTERNAL, "%zu values for: %s", args.n, sqlite3_sql(st));
	for (size_t i = 0; i < args.n; i++) {
		const struct arg *a = &args.v[i];
		const char *text = a->text ? a->text : "";
		int rc = SQLITE_OK, at = (int)i + 1;
		if (a->type == ARG_TEXT && strlen(text) > a->max)
			return err_set(err, ERR_INVALID,
				       "a value of %zu bytes; at most %zu are allowed",
				       strlen(text), a->max);
		if (a->type == ARG_NUMBER)
			rc = sqlite3_bind_int64(st, at, a->number);
		else if (a->type == ARG_TEXT)
			rc = sqlite3_bind_text(st, at, text, -1, SQLITE_TRANSIENT);
		else
			rc = sqlite3_bind_null(st, at);
		if (rc != SQLITE_OK)
			return db_error(s, "binding a value", err);
	}
	return 0;
}

int db_query(struct store *s, enum sql id, struct args args, sqlite3_stmt **out, struct err *err)
{
	sqlite3_stmt *st = NULL;
	if (getpid() != s->self.pid)
		return err_set(err, ERR_INTERNAL, "the database was opened by another process");
	if (s->depth == 0)
		s->give_up = clock_mono_us() + s->busy_us;
	if (prepare(s, id, &st, err) < 0)
		return -1;
	if (bind(s, st, args, err) < 0) {
		db_query_end(&st);
		return -1;
	}
	*out = st;
	return 0;
}

int db_row(struct store *s, sqlite3_stmt *st, bool *there, struct err *err)
{
	int rc = sqlite3_step(st);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return db_error(s, "database", err);
	*there = rc == SQLITE_ROW;
	return 0;
}

void db_query_end(sqlite3_stmt **st)
{
	if (!*st)
		return;
	sqlite3_reset(*st); /* gives the read lock back; its result was seen by db_row */
	sqlite3_clear_bindings(*st);
}

static int write_one(struct store *s, enum sql id, struct args args, int *changed, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	bool there;
	if (db_query(s, id, args, &st, err) < 0 || db_row(s, st, &there, err) < 0)
		return -1;
	*changed = sqlite3_changes(s->db);
	return 0;
}

int db_write(struct store *s, enum sql id, struct args args, int *changed, struct err *err)
{
	int n;
	if (store_begin(s, err) < 0)
		return -1;
	if (store_end(s, write_one(s, id, args, &n, err), err) < 0)
		return -1;
	if (changed)
		*changed = n;
	return 0;
}

int db_expect(struct store *s, enum sql id, struct args args, const char *otherwise,
	      struct err *err)
{
	int n;
	if (store_begin(s, err) < 0)
		return -1;
	int rc = write_one(s, id, args, &n, err);
	if (rc == 0 && n == 0)
		rc = err_set(err, ERR_CONFLICT, "%s", otherwise);
	return store_end(s, rc, err);
}

int64_t read_number(struct reader *r)
{
	return sqlite3_column_int64(r->st, r->column++);
}

bool read_is_null(struct reader *r)
{
	return sqlite3_column_type(r->st, r->column) == SQLITE_NULL;
}

void read_text(struct reader *r, char *out, size_t size)
{
	const void *text = sqlite3_column_text(r->st, r->column);
	size_t n = (size_t)sqlite3_column_bytes(r->st, r->column++);
	if (!text || n >= size) {
		r->bad = true;
		n = 0;
	}
	memcpy(out, text ? text : "", n);
	out[n] = '\0';
}

int read_word(struct reader *r, const char *const words[], size_t n)
{
	int i = word_find(words, n, (const char *)sqlite3_column_text(r->st, r->column++));
	r->bad = r->bad || i < 0;
	return i < 0 ? 0 : i;
}

struct procid read_procid(struct reader *r)
{
	struct procid p = { .pid = (pid_t)read_number(r) };
	p.start = read_number(r);
	return p;
}

int read_end(const struct reader *r, struct err *err)
{
	return r->bad ? err_set(err, ERR_INTERNAL, "the database has a value that cannot be there")
		      : 0;
}

int db_next_process(struct store *s, enum sql id, struct procid *p, bool *there, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	if (db_query(s, id, ARGS(NUMBER(p->pid), NUMBER(p->start)), &st, err) < 0 ||
	    db_row(s, st, there, err) < 0)
		return -1;
	if (*there) {
		struct reader r = READER(st);
		*p = read_procid(&r);
	}
	return 0;
}

int word_find(const char *const words[], size_t n, const char *word)
{
	for (size_t i = 0; word && i < n; i++)
		if (strcmp(words[i], word) == 0)
			return (int)i;
	return -1;
}
