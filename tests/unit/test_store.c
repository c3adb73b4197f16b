/* Opening the database: modes, migrations, transactions, deadlines, and everything that can be
 * wrong with a file. */
#include "store_fixture.h"

#include <fcntl.h>
#include <glob.h>

#include "store/audit.h"

static int note(struct store *s, const char *action, struct err *err)
{
	struct audit_entry entry = { .action = action, .outcome = "ok" };
	return audit_append(s, &entry, err);
}

static mode_t mode_of(const char *folder, const char *name)
{
	char path[160];
	struct stat st;
	snprintf(path, sizeof path, "%s/%s", folder, name);
	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 0777;
}

static void nobody_else_may_read_it(void **state)
{
	struct place *p = *state;
	mode_t before = umask(0);
	assert_ok(open_path(&p->s, p->path, 0, &err));
	assert_ok(note(p->s, "a", &err));
	umask(before);
	assert_int_equal(mode_of(p->folder, "db"), 0700);
	assert_int_equal(mode_of(p->folder, "db/sandgate.db"), 0600);
	assert_int_equal(mode_of(p->folder, "db/sandgate.db-wal"), 0600);
	assert_int_equal(mode_of(p->folder, "db/sandgate.db-shm"), 0600);

	close_store(p);
	assert_int_equal(chmod(p->path, 0664), 0);
	reopen(p);
	assert_int_equal(mode_of(p->folder, "db/sandgate.db"), 0600);

	char folder[80];
	snprintf(folder, sizeof folder, "%s/db", p->folder);
	assert_int_equal(chmod(folder, 0770), 0);
	struct store *other;
	assert_err(open_path(&other, p->path, 0, &err), ERR_DENIED, "others can write");
}

static void settings_hold(void **state)
{
	struct place *p = *state;
	char path[160];
	struct stat st;
	snprintf(path, sizeof path, "%s-wal", p->path);
	/* Far more than the 1000 pages at which a checkpoint would come by itself. */
	for (int i = 0; i < 2500; i++)
		assert_ok(note(p->s, "a", &err));
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > 6 << 20);
	/* Closing leaves the WAL to the one checkpointer as well. */
	reopen(p);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > 6 << 20);
	bool whole = false;
	assert_ok(store_checkpoint(p->s, &whole, &err));
	assert_true(whole);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit"), 2500);
}

static void a_reader_does_not_hold_a_checkpoint_up(void **state)
{
	struct place *p = *state;
	bool whole = true;
	sqlite3 *db;
	assert_ok(note(p->s, "a", &err));
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT * FROM audit", NULL, NULL, NULL),
			 SQLITE_OK);
	assert_ok(note(p->s, "b", &err));
	int64_t t = clock_mono_us();
	assert_ok(store_checkpoint(p->s, &whole, &err));
	assert_false(whole);
	assert_true(clock_mono_us() - t < 3 * SECOND_US);
	sqlite3_close(db);
	assert_ok(store_checkpoint(p->s, &whole, &err));
	assert_true(whole);
}

static void it_has_the_version_of_sql(void **state)
{
	struct place *p = *state;
	glob_t found;
	assert_int_equal(glob("sql/[0-9][0-9][0-9]_*.sql", 0, NULL, &found), 0);
	assert_int_equal(shell_number(p, "PRAGMA user_version"), found.gl_pathc);
	globfree(&found);
	/* Opening again changes nothing. */
	int64_t before = shell_number(p, "PRAGMA schema_version");
	assert_ok(note(p->s, "kept", &err));
	reopen(p);
	assert_int_equal(shell_number(p, "PRAGMA schema_version"), before);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit"), 1);
}

static void transactions_nest(void **state)
{
	struct place *p = *state;
	assert_ok(store_begin(p->s, &err));
	assert_ok(note(p->s, "one", &err));
	assert_ok(note(p->s, "two", &err));
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit"), 0);
	assert_ok(store_end(p->s, 0, &err));
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit"), 2);

	assert_ok(store_begin(p->s, &err));
	assert_ok(note(p->s, "three", &err));
	assert_int_equal(store_end(p->s, -1, NULL), -1);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit"), 2);

	/* A failure inside undoes what came before it, even if it is not passed on. */
	assert_ok(store_begin(p->s, &err));
	assert_ok(note(p->s, "four", &err));
	assert_err(note(p->s, "", &err), ERR_INVALID, "CHECK");
	assert_err(store_end(p->s, 0, &err), ERR_INTERNAL, "failed");
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit"), 2);
	assert_ok(note(p->s, "five", &err));
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit"), 3);
}

static void waiting_has_a_deadline(void **state)
{
	struct place *p = *state;
	sqlite3 *db;
	close_store(p);
	assert_ok(open_path(&p->s, p->path, 300, &err));
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	int64_t t = clock_mono_us();
	assert_err(note(p->s, "a", &err), ERR_UNAVAILABLE, "locked for 300 ms");
	t = clock_mono_us() - t;
	assert_true(t >= 290000);
	assert_true(t < 3 * SECOND_US);
	/* Readers do not wait, and the next writer finds everything in order. */
	struct sandbox_row row;
	t = clock_mono_us();
	assert_err(sandbox_get(p->s, 1, &row, &err), ERR_NOT_FOUND, "no such sandbox");
	assert_true(clock_mono_us() - t < 250000);
	sqlite3_close(db);
	assert_ok(note(p->s, "a", &err));
}

static void spoil(const char *path, long at, const char *bytes, size_t n)
{
	FILE *f = fopen(path, "r+");
	assert_non_null(f);
	assert_int_equal(fseek(f, at, SEEK_SET), 0);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void a_damaged_file(void **state)
{
	struct place *p = *state;
	bool whole;
	static char junk[4096];
	memset(junk, 0xa5, sizeof junk);
	assert_ok(store_checkpoint(p->s, &whole, &err));
	close_store(p);
	/* A page in the middle: found when it is read, not before. */
	int64_t page = shell_number(p, "SELECT rootpage FROM sqlite_schema WHERE name = 'audit'");
	shell_run(p, "PRAGMA wal_checkpoint(TRUNCATE)");
	spoil(p->path, (long)(page - 1) * 4096, junk, sizeof junk);
	assert_ok(open_path(&p->s, p->path, 0, &err));
	assert_err(note(p->s, "a", &err), ERR_INTERNAL, "damaged");
	close_store(p);
	/* The schema, then the head of the file. */
	spoil(p->path, 100, junk, 3996);
	assert_err(open_path(&p->s, p->path, 0, &err), ERR_INTERNAL, "damaged");
	spoil(p->path, 0, junk, 100);
	assert_err(open_path(&p->s, p->path, 0, &err), ERR_INTERNAL, "damaged");
	assert_null(p->s);
}

static void a_newer_or_foreign_file(void **state)
{
	struct place *p = *state;
	close_store(p);
	shell_run(p, "PRAGMA user_version = 99");
	assert_err(open_path(&p->s, p->path, 0, &err), ERR_CONFLICT, "version 99");
	assert_int_equal(shell_number(p, "PRAGMA user_version"), 99);
	shell_run(p, "PRAGMA user_version = 1; PRAGMA application_id = 5");
	assert_err(open_path(&p->s, p->path, 0, &err), ERR_CONFLICT, "other program");

	char path[160];
	snprintf(path, sizeof path, "%s-other", p->path);
	assert_int_equal(shell(path, "CREATE TABLE mine (x)", NULL), SQLITE_OK);
	assert_err(open_path(&p->s, path, 0, &err), ERR_CONFLICT, "other program");
	int64_t n;
	assert_int_equal(shell(path, "SELECT count(*) FROM sqlite_schema", &n), SQLITE_OK);
	assert_int_equal(n, 1);
}

static void hopeless_paths(void **state)
{
	struct place *p = *state;
	char path[160];
	assert_err(open_path(&p->s, "", 0, &err), ERR_INVALID, "named");
	assert_err(open_path(&p->s, NULL, 0, &err), ERR_INVALID, "named");
	snprintf(path, sizeof path, "%s/no/such/folder.db", p->folder);
	assert_err(open_path(&p->s, path, 0, &err), ERR_INTERNAL, "folder");
	assert_err(open_path(&p->s, p->folder, 0, &err), ERR_DENIED, "/tmp");
	snprintf(path, sizeof path, "%s/sub", p->folder);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_err(open_path(&p->s, path, 0, &err), ERR_INVALID, "no file");
	static char endless[5000];
	memset(endless, 'a', sizeof endless - 1);
	assert_err(open_path(&p->s, endless, 0, &err), ERR_INVALID, "too long");
}

/* In a process of its own, because root may write everything and has to become somebody else. */
static int open_as_nobody(struct place *p, int i, void *ctx)
{
	struct store *s = NULL;
	struct err err = { 0 };
	(void)i;
	if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
		return 2;
	if (open_path(&s, p->path, 0, &err) == 0)
		return 3;
	if (strstr(err.text, ctx))
		return 0;
	fprintf(stderr, "%s\n", err.text);
	return 1;
}

static void a_read_only_file(void **state)
{
	struct place *p = *state;
	char folder[80];
	close_store(p);
	snprintf(folder, sizeof folder, "%s/db", p->folder);
	if (geteuid() == 0) {
		assert_int_equal(chown(p->folder, 65534, 65534), 0);
		assert_int_equal(chown(folder, 65534, 65534), 0);
		assert_int_equal(chown(p->path, 65534, 65534), 0);
	}
	shell_run(p, "PRAGMA wal_checkpoint(TRUNCATE)");
	assert_int_equal(chmod(p->path, 0400), 0);
	in_processes(1, open_as_nobody, p, "read-only");
	assert_int_equal(chmod(p->path, 0), 0);
	in_processes(1, open_as_nobody, p, "cannot be opened");
	/* A file that may be written in a folder that may not: there is no place for the WAL. */
	assert_int_equal(chmod(p->path, 0600), 0);
	assert_int_equal(chmod(folder, 0500), 0);
	in_processes(1, open_as_nobody, p, "read-only");
	assert_int_equal(chmod(folder, 0700), 0);
	assert_ok(open_path(&p->s, p->path, 0, &err));
}

static void a_name_of_sqlite_is_a_file(void **state)
{
	struct place *p = *state;
	int here = open(".", O_RDONLY | O_DIRECTORY);
	assert_int_equal(chdir(p->folder), 0);
	struct store *s = NULL;
	struct err err = { 0 };
	int rc = open_path(&s, ":memory:", 0, &err);
	store_free(s);
	int there = access(":memory:", F_OK);
	assert_int_equal(fchdir(here), 0);
	close(here);
	assert_int_equal(rc, 0);
	assert_int_equal(there, 0);
}

/* Neither the parent's handle nor a new one works in a child of a holder. */
static void a_handle_does_not_survive_fork(void **state)
{
	struct place *p = *state;
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		struct err err = { 0 };
		struct store *s;
		bool whole;
		struct sandbox_row row;
		int bad = note(p->s, "a", &err) == 0 || !strstr(err.text, "another process");
		bad |= (sandbox_get(p->s, 1, &row, &err) == 0 || err.code != ERR_INTERNAL) << 1;
		bad |= (store_checkpoint(p->s, &whole, &err) == 0) << 2;
		bad |= (open_path(&s, p->path, 0, &err) == 0 || !strstr(err.text, "forked")) << 3;
		store_free(p->s);
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_ok(note(p->s, "still open here", &err));
}

static off_t wal_size(const struct place *p)
{
	char path[160];
	struct stat st;
	snprintf(path, sizeof path, "%s-wal", p->path);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static void a_tidied_wal_stays_short(void **state)
{
	struct place *p = *state;
	off_t longest = 0;
	for (int i = 0; i < 8000; i++) {
		assert_ok(note(p->s, "a", &err));
		store_tidy(p->s);
		if (wal_size(p) > longest)
			longest = wal_size(p);
	}
	/* Not before it is worth it, and not much later. */
	assert_true(longest > 12 << 20);
	assert_true(longest < 24 << 20);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit"), 8000);
}

static void resting_gives_memory_back(void **state)
{
	struct place *p = *state;
	struct sandbox_row row = running(p, "ann", "s1");
	for (int i = 0; i < 100; i++)
		assert_ok(note(p->s, "a", &err));
	int64_t before = sqlite3_memory_used();
	store_rest(p->s);
	assert_true(sqlite3_memory_used() < before - 64 * 1024);
	assert_ok(sandbox_get(p->s, row.id, &row, &err));

	/* What is under way is not disturbed. */
	assert_ok(store_begin(p->s, &err));
	assert_ok(note(p->s, "b", &err));
	store_rest(p->s);
	assert_ok(note(p->s, "b", &err));
	assert_ok(store_end(p->s, 0, &err));
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit WHERE action = 'b'"), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_folder(nobody_else_may_read_it),
		with_store(settings_hold),
		with_store(a_reader_does_not_hold_a_checkpoint_up),
		with_store(a_tidied_wal_stays_short),
		with_store(resting_gives_memory_back),
		with_store(it_has_the_version_of_sql),
		with_store(transactions_nest),
		with_store(waiting_has_a_deadline),
		with_store(a_damaged_file),
		with_store(a_newer_or_foreign_file),
		with_folder(hopeless_paths),
		with_store(a_read_only_file),
		with_folder(a_name_of_sqlite_is_a_file),
		with_store(a_handle_does_not_survive_fork),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
