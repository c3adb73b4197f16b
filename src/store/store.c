#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "store/db.h"

#define LONG_WAL 4096 /* pages of 4 KiB: what one block of the WAL's index can tell */

/* Who has handles open, and how many: what lets store_open see that it is in a child of a holder,
 * where SQLite would take the parent's locks for its own. */
static struct {
	pid_t pid;
	int handles;
} holder;

/* Waits a little longer each time, at random, so that waiters do not meet again; never past the
 * deadline of the whole call. SQLite asks again when this returns other than 0. */
static int busy(void *ctx, int tries)
{
	const struct store *s = ctx;
	int64_t now = clock_mono_us(), left = s->give_up - now;
	if (left <= 0)
		return 0;
	int64_t pause = 100LL << (tries < 6 ? tries : 6);
	pause = pause / 2 +
		(int64_t)(((uint64_t)now * 31 + (uint64_t)s->self.pid) % (uint64_t)pause);
	usleep((useconds_t)(pause < left ? pause : left));
	return 1;
}

/* The folder of path, into out; SQLite gets a path that no name can turn into one of its own
 * specials, like ":memory:". */
static int split_path(const char *path, char full[PATH_MAX], char folder[PATH_MAX], struct err *err)
{
	if (!path || !*path)
		return err_set(err, ERR_INVALID, "no database is named");
	int n = snprintf(full, PATH_MAX, "%s%s", *path == '/' ? "" : "./", path);
	if (n < 0 || n >= PATH_MAX - 16)
		return err_set(err, ERR_INVALID, "the name of the database is too long");
	memcpy(folder, full, (size_t)n + 1);
	char *slash = strrchr(folder, '/');
	slash[slash == folder] = '\0';
	return 0;
}

/* The database has secrets: nobody else may read it, or put another file in its place. SQLite gives
 * its side files the mode of the main one. */
static int make_private(const char *path, const char *folder, struct err *err)
{
	struct stat st;
	if (mkdir(folder, 0700) < 0 && errno != EEXIST)
		return err_errno(err, "the folder %s cannot be made", folder);
	if (stat(folder, &st) < 0)
		return err_errno(err, "the folder %s", folder);
	if (st.st_mode & 022)
		return err_set(err, ERR_DENIED, "others can write to the folder %s of the database",
			       folder);
	/* Never opens a file that exists: closing it again would drop the locks that another handle
	 * of this process has on it. */
	_close_ int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0) {
		/* Root's tools may come before the gateway, whose folder it is. The side files
		 * follow the main one. */
		if (geteuid() == 0 && fchown(fd, st.st_uid, st.st_gid) < 0)
			return err_errno(err, "the database %s cannot be given away", path);
		return 0;
	}
	if (errno != EEXIST)
		return err_errno(err, "the database %s cannot be made", path);
	if (stat(path, &st) < 0)
		return err_errno(err, "the database %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "the database %s is no file", path);
	if ((st.st_mode & 077) && chmod(path, st.st_mode & 0700) < 0)
		return err_errno(err, "the database %s is open to others", path);
	return 0;
}

static int note_wal(void *ctx, sqlite3 *db, const char *name, int pages)
{
	struct store *s = ctx;
	(void)db;
	(void)name;
	s->wal_pages = pages;
	return SQLITE_OK;
}

/* Settings of a connection. Checkpoints are left to store_checkpoint; the cache is small because
 * there are hundreds of workers and the pages are in the kernel's cache anyway. */
static const char settings[] = "PRAGMA synchronous = NORMAL;"
			       "PRAGMA foreign_keys = ON;"
			       "PRAGMA trusted_schema = OFF;"
			       "PRAGMA temp_store = MEMORY;"
			       "PRAGMA cache_size = -256;"
			       "PRAGMA wal_autocheckpoint = 0;"
			       "PRAGMA journal_size_limit = 16777216;";

/* SQLite would take 20 pages at once for each handle, of which most need five. For the process, and
 * before its first handle. */
static void spare_pages(void)
{
	if (!holder.handles)
		sqlite3_config(SQLITE_CONFIG_PAGECACHE, NULL, 0, 0);
}

static int connect_to(struct store *s, const char *path, struct err *err)
{
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
	int rc = sqlite3_open_v2(path, &s->db, flags, NULL);
	if (!s->db)
		return err_set(err, ERR_INTERNAL, "no memory for a database handle");
	if (rc != SQLITE_OK)
		return err_set(err, ERR_INTERNAL, "the database %s cannot be opened: %s", path,
			       sqlite3_errmsg(s->db));
	if (sqlite3_db_readonly(s->db, "main"))
		return err_set(err, ERR_INTERNAL, "the database %s cannot be written: read-only",
			       path);
	sqlite3_extended_result_codes(s->db, 1);
	sqlite3_busy_handler(s->db, busy, s);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	s->give_up = clock_mono_us() + s->busy_us;
	if (sqlite3_exec(s->db, settings, NULL, NULL, NULL) != SQLITE_OK)
		return db_error(s, path, err);
	sqlite3_wal_hook(s->db, note_wal, s); /* after the settings, which take it away */
	return 0;
}

int store_open(struct store **out, const struct store_config *config, struct err *err)
{
	char path[PATH_MAX], folder[PATH_MAX];
	if (holder.handles && holder.pid != getpid())
		return err_set(err, ERR_INTERNAL,
			       "the database was open when this process was forked");
	if (split_path(config->path, path, folder, err) < 0 || make_private(path, folder, err) < 0)
		return -1;
	struct store *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(err, ERR_INTERNAL, "no memory for a database handle");
	spare_pages();
	holder.pid = getpid();
	holder.handles++;
	s->slot = config->slot;
	s->busy_us = (config->busy_ms ? config->busy_ms : 5000) * 1000LL;
	s->self.pid = getpid();
	int rc = procid_of(s->self.pid, &s->self);
	if (rc < 0)
		err_set(err, ERR_INTERNAL, "/proc does not show this process");
	if (rc == 0)
		rc = connect_to(s, path, err);
	if (rc == 0)
		rc = store_migrate(s, path, folder, err);
	if (rc < 0) {
		store_free(s);
		return -1;
	}
	*out = s;
	return 0;
}

static void forget_statements(struct store *s)
{
	for (size_t i = 0; i < SQL_COUNT; i++) {
		sqlite3_finalize(s->prepared[i]);
		s->prepared[i] = NULL;
	}
}

void store_rest(struct store *s)
{
	if (s->depth || s->self.pid != getpid())
		return;
	forget_statements(s);
	sqlite3_db_release_memory(s->db);
}

void store_free(struct store *s)
{
	/* A forked child leaves it alone: closing it would act on the parent's files. */
	if (!s || s->self.pid != getpid())
		return;
	forget_statements(s);
	sqlite3_close(s->db);
	holder.handles--;
	free(s);
}

/* The first line of a finding names the file only, and more lines may follow. */
static int found_damage(struct store *s, const char *found, struct err *err)
{
	const char *line = strchr(found, '\n');
	char how[160];
	line = line ? line + 1 : found;
	snprintf(how, sizeof how, "%.*s", (int)strcspn(line, "\n"), line);
	return db_damaged(s, how, err);
}

int store_verify(struct store *s, struct err *err)
{
	sqlite3_stmt *st = NULL;
	s->give_up = clock_mono_us() + s->busy_us;
	int rc = sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &st, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	const char *found = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL;
	if (!found)
		rc = db_error(s, "checking the database", err);
	else
		rc = strcmp(found, "ok") == 0 ? 0 : found_damage(s, found, err);
	sqlite3_finalize(st);
	return rc;
}

static int control(struct store *s, enum sql id, struct err *err)
{
	_query_ sqlite3_stmt *st = NULL;
	bool there;
	return db_query(s, id, NO_ARGS, &st, err) < 0 || db_row(s, st, &there, err) < 0 ? -1 : 0;
}

int store_begin(struct store *s, struct err *err)
{
	if (s->depth == 0) {
		if (control(s, SQL_BEGIN, err) < 0)
			return -1;
		s->undo = false;
	}
	s->depth++;
	return 0;
}

int store_end(struct store *s, int result, struct err *err)
{
	if (result < 0)
		s->undo = true;
	else if (s->undo)
		result = err_set(err, ERR_INTERNAL, "a part of this change had failed");
	if (s->depth > 1) {
		s->depth--;
		return result;
	}
	if (!s->undo)
		result = control(s, SQL_COMMIT, err);
	/* After some errors SQLite has already rolled back by itself. */
	if (result < 0 && !sqlite3_get_autocommit(s->db))
		control(s, SQL_ROLLBACK, NULL);
	s->depth = 0;
	return result;
}

void store_tidy(struct store *s)
{
	if (s->wal_pages < LONG_WAL || s->self.pid != getpid())
		return;
	s->wal_pages = 0;
	sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

int store_checkpoint(struct store *s, bool *whole, struct err *err)
{
	int frames = 0, moved = 0;
	if (getpid() != s->self.pid)
		return err_set(err, ERR_INTERNAL, "the database was opened by another process");
	s->give_up = clock_mono_us() + s->busy_us;
	int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &frames, &moved);
	if (rc == SQLITE_OK && frames == moved) {
		/* Almost nothing is left, so this is short; writers wait meanwhile, therefore it
		 * does not wait long for readers. */
		s->give_up = clock_mono_us() + 200000;
		rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	}
	if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY)
		return db_error(s, "checkpoint", err);
	*whole = rc == SQLITE_OK && frames == moved;
	return 0;
}
