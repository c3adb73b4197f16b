/* The versions of the database. Each file of sql/ leads from one version to the next and is part of
 * the program, so that a program and the schema it expects cannot be apart. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/clock.h"
#include "store/db.h"

/* The text of a file, and the NUL behind it, under a name of C. */
#define EMBED(name, file)                                                                          \
	extern const char name[];                                                                  \
	__asm__(".section .rodata\n"                                                               \
		".type " #name ", @object\n" #name ":\n"                                           \
		".incbin \"" file "\"\n"                                                           \
		".byte 0\n"                                                                        \
		".size " #name ", . - " #name "\n"                                                 \
		".previous\n")

EMBED(migration_001, "sql/001_init.sql");
EMBED(migration_002, "sql/002_cleanup.sql");
EMBED(migration_003, "sql/003_history.sql");

/* migrations[n] makes version n + 1. Released ones never change. */
static const char *const migrations[] = { migration_001, migration_002, migration_003 };

#define APPLICATION_ID 0x53414e44 /* "SAND": says that the file is ours */

struct version {
	int64_t application; /* 0 in a new file */
	int64_t user;        /* how many migrations it has seen */
	int64_t objects;     /* tables and the like */
	bool wal;            /* whether it is in WAL mode */
};

static int ask(struct store *s, const char *sql, int64_t *number, bool *wal, struct err *err)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(st, 0);
		*number = sqlite3_column_int64(st, 0);
		*wal = text && strcmp(text, "wal") == 0;
	}
	sqlite3_finalize(st);
	return rc == SQLITE_ROW ? 0 : db_error(s, "reading the database's version", err);
}

static int read_version(struct store *s, struct version *v, struct err *err)
{
	bool no;
	int64_t none;
	return ask(s, "SELECT count(*) FROM sqlite_schema", &v->objects, &no, err) < 0 ||
			       ask(s, "PRAGMA application_id", &v->application, &no, err) < 0 ||
			       ask(s, "PRAGMA user_version", &v->user, &no, err) < 0 ||
			       ask(s, "PRAGMA journal_mode", &none, &v->wal, err) < 0
		       ? -1
		       : 0;
}

static int judge(const struct version *v, const char *path, struct err *err)
{
	if (v->application != APPLICATION_ID && (v->application || v->user || v->objects))
		return err_set(err, ERR_CONFLICT, "%s is a database of some other program", path);
	if (v->user > (int64_t)COUNT(migrations))
		return err_set(
			err, ERR_CONFLICT,
			"the database %s has version %lld, but this program knows versions up "
			"to %zu only: it needs a newer program",
			path, (long long)v->user, COUNT(migrations));
	return 0;
}

static bool is_current(const struct version *v)
{
	return v->wal && v->user == (int64_t)COUNT(migrations);
}

/* The lock is on the folder: a lock file would be litter, and SQLite's own locks on the database do
 * not cover the change to WAL. */
static int lock_folder(struct store *s, const char *folder, int *out, struct err *err)
{
	_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, "the folder %s", folder);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_errno(err, "the folder %s cannot be locked", folder);
		if (clock_mono_us() > s->give_up)
			return err_set(err, ERR_UNAVAILABLE, "the folder %s stayed locked", folder);
		usleep(2000);
	}
	*out = steal_fd(&fd);
	return 0;
}

/* SQLite does not call the busy handler here, and any reader is in the way. */
static int switch_to_wal(struct store *s, struct err *err)
{
	int64_t number;
	bool wal = false;
	struct err why = { 0 };
	while (ask(s, "PRAGMA journal_mode = WAL", &number, &wal, &why) < 0) {
		if (why.code != ERR_UNAVAILABLE || clock_mono_us() > s->give_up)
			return err_set(err, why.code, "%s", why.text);
		usleep(2000);
	}
	return wal ? 0
		   : err_set(err, ERR_INTERNAL,
			     "the file system of the database has no shared memory for WAL mode");
}

static int run(struct store *s, const char *sql, const char *doing, struct err *err)
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0
								       : db_error(s, doing, err);
}

static int apply(struct store *s, const char *path, struct err *err)
{
	struct version v;
	/* Read again: another process may have done it before the lock was ours. */
	if (read_version(s, &v, err) < 0 || judge(&v, path, err) < 0)
		return -1;
	for (size_t n = (size_t)v.user; n < COUNT(migrations); n++) {
		char mark[96];
		snprintf(mark, sizeof mark, "PRAGMA application_id = %d; PRAGMA user_version = %zu",
			 APPLICATION_ID, n + 1);
		if (run(s, migrations[n], "migrating the database", err) < 0 ||
		    run(s, mark, "migrating the database", err) < 0)
			return -1;
	}
	return 0;
}

int store_migrate(struct store *s, const char *path, const char *folder, struct err *err)
{
	struct version v;
	_close_ int lock = -1;
	if (read_version(s, &v, err) < 0 || judge(&v, path, err) < 0)
		return -1;
	if (is_current(&v))
		return 0;
	if (lock_folder(s, folder, &lock, err) < 0 || switch_to_wal(s, err) < 0 ||
	    store_begin(s, err) < 0)
		return -1;
	return store_end(s, apply(s, path, err), err);
}
