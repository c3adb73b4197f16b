#include "store/passes.h"

#include "store/db.h"

int clock_mark_read(struct store *s, struct clock_mark *out, bool *there, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	struct clock_mark mark;
	if (db_query(s, SQL_CLOCK_MARK_READ, NO_ARGS, &st, err) < 0 ||
	    db_row(s, st, there, err) < 0)
		return -1;
	if (!*there)
		return 0;
	struct reader r = READER(st);
	read_text(&r, mark.boot_id, sizeof mark.boot_id);
	mark.boot = read_number(&r);
	mark.real = read_number(&r);
	if (read_end(&r, err) < 0)
		return -1;
	*out = mark;
	return 0;
}

int clock_mark_write(struct store *s, const struct clock_mark *mark, struct err *err)
{
	struct args args = ARGS(NAME(mark->boot_id), NUMBER(mark->boot), NUMBER(mark->real));
	return db_write(s, SQL_CLOCK_MARK_WRITE, args, NULL, err);
}

int orphan_seen(struct store *s, const char *sandbox_id, int64_t pass, struct err *err)
{
	return db_write(s, SQL_ORPHAN_SEEN, ARGS(TEXT(sandbox_id, STORE_ID_MAX), NUMBER(pass)),
			NULL, err);
}

int orphan_find(struct store *s, const char *sandbox_id, int64_t *first_seen, bool *known,
		struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	if (db_query(s, SQL_ORPHAN_FIND, ARGS(TEXT(sandbox_id, STORE_ID_MAX)), &st, err) < 0 ||
	    db_row(s, st, known, err) < 0)
		return -1;
	if (*known) {
		struct reader r = READER(st);
		*first_seen = read_number(&r);
	}
	return 0;
}

int orphan_forget_others(struct store *s, int64_t pass, struct err *err)
{
	return db_write(s, SQL_ORPHAN_FORGET_OTHERS, ARGS(NUMBER(pass)), NULL, err);
}
