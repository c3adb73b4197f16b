/* What the modules of this folder share: running a prepared statement and reading its rows. */
#ifndef STORE_DB_H
#define STORE_DB_H

#include <stddef.h>
#include <sqlite3.h>

#include "base/cleanup.h"
#include "base/procid.h"
#include "store/sandboxes.h"
#include "store/sql.h"
#include "store/store.h"

struct store {
	sqlite3 *db;                       /* the connection */
	sqlite3_stmt *prepared[SQL_COUNT]; /* made at first use */
	struct procid self;                /* the process that may use this handle */
	int slot;                          /* what claims and leases carry */
	int64_t busy_us;                   /* how long one call may wait for locks */
	int64_t give_up; /* CLOCK_MONOTONIC: when the current call stops waiting */
	int depth;       /* nested store_begin calls */
	bool undo;       /* something inside the transaction failed */
	int wal_pages;   /* of the WAL, at the last change of this handle */
};

/* A value for a statement. */
struct arg {
	enum { ARG_NUMBER, ARG_TEXT, ARG_NULL } type;
	int64_t number;   /* of ARG_NUMBER */
	const char *text; /* of ARG_TEXT; NULL is "" */
	size_t max;       /* longest text in bytes; more is ERR_INVALID */
};

struct args {
	const struct arg *v;
	size_t n;
};

#define NUMBER(value)       ((struct arg){ .type = ARG_NUMBER, .number = (value) })
#define TEXT(value, atmost) ((struct arg){ .type = ARG_TEXT, .text = (value), .max = (atmost) })
#define NAME(value)         TEXT(value, STORE_NAME_MAX)
#define ARGS(...)                                                                                  \
	((struct args){ (const struct arg[]){ __VA_ARGS__ },                                       \
			sizeof((const struct arg[]){ __VA_ARGS__ }) / sizeof(struct arg) })
#define NO_ARGS ((struct args){ NULL, 0 })

/* Start a statement; db_row then gives one row after the other. Release it by _query_. */
int db_query(struct store *s, enum sql id, struct args args, sqlite3_stmt **out, struct err *err);
int db_row(struct store *s, sqlite3_stmt *st, bool *there, struct err *err);
void db_query_end(sqlite3_stmt **st);
#define _query_ _cleanup_(db_query_end)

/* A statement that changes rows, in a transaction of its own or in the one that is open. */
int db_write(struct store *s, enum sql id, struct args args, int *changed, struct err *err);

/* The same where it must change a row: ERR_CONFLICT with the text when it does not. */
int db_expect(struct store *s, enum sql id, struct args args, const char *otherwise,
	      struct err *err);

/* Translates what SQLite said last. Returns -1. */
int db_error(struct store *s, const char *doing, struct err *err);
int db_damaged(struct store *s, const char *how, struct err *err);

/* Columns of the current row, from left to right. */
struct reader {
	sqlite3_stmt *st;
	int column; /* the next one */
	bool bad;   /* one of them did not fit; read_end tells */
};

#define READER(statement) ((struct reader){ .st = (statement) })
int64_t read_number(struct reader *r);
bool read_is_null(struct reader *r); /* looks only; the column is still the next one */
void read_text(struct reader *r, char *out, size_t size);
int read_word(struct reader *r, const char *const words[], size_t n); /* the index of one */
struct procid read_procid(struct reader *r);                          /* two columns */
int read_end(const struct reader *r, struct err *err);

/* The processes in a table, one after the other: *p is the last one and becomes the next. */
int db_next_process(struct store *s, enum sql id, struct procid *p, bool *there, struct err *err);

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The index of a word, or -1. */
int word_find(const char *const words[], size_t n, const char *word);

/* Of sandboxes.c, for claims.c. SQL_SANDBOX_...; *there is false when nothing was found. */
int sandbox_read_one(struct store *s, enum sql id, struct args args, struct sandbox_row *out,
		     bool *there, struct err *err);

/* Of sandboxes.c, for executions.c: a touch that is written at all events. */
int sandbox_touch_now(struct store *s, int64_t id, int64_t idle_us, struct err *err);

/* Of migrate.c: brings the file to this program's version. folder is where the file is. */
int store_migrate(struct store *s, const char *path, const char *folder, struct err *err);

#endif
