/* Many processes and one database: what must be exact stays exact, and nothing gets stuck. */
#include "store_fixture.h"

#include "store/audit.h"

static int open_only(struct place *p, int i, void *ctx)
{
	struct store *s;
	struct err err = { 0 };
	(void)i, (void)ctx;
	if (open_path(&s, p->path, 20000, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	store_free(s);
	return 0;
}

static void a_new_file_is_migrated_once(void **state)
{
	struct place *p = *state;
	in_processes(8, open_only, p, NULL); /* a second CREATE TABLE would fail one of them */
	assert_int_equal(shell_number(p, "SELECT count(*) FROM sqlite_schema WHERE name = 'audit'"),
			 1);
	assert_ok(open_path(&p->s, p->path, 0, &err));
}

#define CLAIMERS 16
#define TURNS    25

/* Counts by result. */
struct tally {
	int how[4];  /* by claim_result */
	int limited; /* refused by a limit */
	int told;    /* heard of a loss */
	int waiting; /* how often one came to a meeting point */
};

/* Waits until all have come here for the nth time, so that they go on at the same moment. Nobody
 * leaves early either: the claim of a process that is gone would be adopted. */
static void meet(struct tally *tally, int n)
{
	__atomic_add_fetch(&tally->waiting, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 60000000; i++) {
		if (__atomic_load_n(&tally->waiting, __ATOMIC_SEQ_CST) >= n * CLAIMERS)
			return;
		if (i > 100)
			usleep(100);
	}
}

static int claim_together(struct place *p, int i, void *ctx)
{
	struct tally *tally = ctx;
	struct store *s;
	struct sandbox_row row;
	struct err err = { 0 };
	enum claim_result how;
	(void)i;
	if (open_path(&s, p->path, 30000, &err) < 0)
		return 1;
	for (int turn = 1; turn <= TURNS; turn++) {
		char session[16];
		snprintf(session, sizeof session, "s%d", turn);
		meet(tally, turn);
		if (claim(s, "ann", session, &row, &how, &err) < 0) {
			fprintf(stderr, "%s\n", err.text);
			return 2;
		}
		__atomic_add_fetch(&tally->how[how], 1, __ATOMIC_SEQ_CST);
	}
	meet(tally, TURNS + 1);
	store_free(s);
	return 0;
}

static void one_of_sixteen_makes_it(void **state)
{
	struct place *p = *state;
	close_store(p);
	struct tally *tally = shared_memory(sizeof *tally);
	in_processes(CLAIMERS, claim_together, p, tally);
	assert_int_equal(tally->how[CLAIM_MINE], TURNS);
	assert_int_equal(tally->how[CLAIM_WAIT], TURNS * (CLAIMERS - 1));
	assert_int_equal(shell_number(p, "SELECT count(*) FROM sandboxes"), TURNS);

	/* All of them are gone now: one of the next ones takes each over, with its nonce. */
	shell_run(p, "CREATE TABLE before AS SELECT id, nonce FROM sandboxes");
	*tally = (struct tally){ 0 };
	in_processes(CLAIMERS, claim_together, p, tally);
	assert_int_equal(tally->how[CLAIM_ADOPT], TURNS);
	assert_int_equal(tally->how[CLAIM_WAIT], TURNS * (CLAIMERS - 1));
	assert_int_equal(shell_number(p, "SELECT count(*) FROM sandboxes NATURAL JOIN before"),
			 TURNS);
	munmap(tally, sizeof *tally);
}

static int claim_limits(struct place *p, int i, void *ctx)
{
	struct tally *tally = ctx;
	struct store *s;
	struct sandbox_row row;
	struct err err = { 0 };
	enum claim_result how;
	char session[16];
	snprintf(session, sizeof session, "s%d", i);
	if (open_path(&s, p->path, 30000, &err) < 0)
		return 1;
	meet(tally, 1);
	if (claim_limited(s, i % 2 ? "ann" : "bob", session, 7, 5, &row, &how, &err) == 0)
		__atomic_add_fetch(&tally->how[how], 1, __ATOMIC_SEQ_CST);
	else if (err.code == ERR_LIMIT)
		__atomic_add_fetch(&tally->limited, 1, __ATOMIC_SEQ_CST);
	else
		return 2;
	store_free(s);
	return 0;
}

static void limits_are_exact(void **state)
{
	struct place *p = *state;
	close_store(p);
	struct tally *tally = shared_memory(sizeof *tally);
	in_processes(CLAIMERS, claim_limits, p, tally);
	assert_int_equal(tally->how[CLAIM_MINE], 7);
	assert_int_equal(tally->limited, CLAIMERS - 7);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM sandboxes"), 7);
	assert_true(shell_number(p, "SELECT max(n) FROM (SELECT count(*) AS n FROM sandboxes "
				    "GROUP BY owner)") <= 5);
	munmap(tally, sizeof *tally);
}

static int take_the_news(struct place *p, int i, void *ctx)
{
	struct tally *tally = ctx;
	struct store *s;
	struct err err = { 0 };
	bool lost;
	enum end_reason why;
	(void)i;
	if (open_path(&s, p->path, 30000, &err) < 0)
		return 1;
	for (int turn = 1; turn <= TURNS; turn++) {
		meet(tally, turn);
		if (sandbox_take_state_lost(s, 2 * turn, &lost, &why, &err) < 0)
			return 2;
		if (lost)
			__atomic_add_fetch(&tally->told, 1, __ATOMIC_SEQ_CST);
	}
	store_free(s);
	return 0;
}

static void a_loss_is_told_once(void **state)
{
	struct place *p = *state;
	for (int turn = 1; turn <= TURNS; turn++) {
		char session[16];
		snprintf(session, sizeof session, "s%d", turn);
		struct sandbox_row row = running(p, "ann", session);
		assert_ok(sandbox_lost(p->s, row.id, END_KILLED_BY_PROVIDER, &err));
		row = running(p, "ann", session);
		assert_int_equal(row.id, 2 * turn);
	}
	close_store(p);
	struct tally *tally = shared_memory(sizeof *tally);
	in_processes(CLAIMERS, take_the_news, p, tally);
	assert_int_equal(tally->told, TURNS);
	munmap(tally, sizeof *tally);
}

#define ROUNDS 150

/* 0 and 1 write, 2 reads, 3 checkpoints, 4 is SQLite's own shell writing and checking. */
static int everybody(struct place *p, int i, void *ctx)
{
	struct store *s;
	struct err err = { 0 };
	char command[400];
	(void)ctx;
	if (i == 4) {
		snprintf(command, sizeof command,
			 "for i in 1 2 3 4 5 6 7 8; do sqlite3 -cmd '.timeout 20000' '%s' "
			 "\"INSERT INTO audit (at, request_id, user, action, target, outcome) "
			 "VALUES (1, '', '', 'shell', '', 'ok'); PRAGMA quick_check\" "
			 "| grep -qx ok || exit 1; done",
			 p->path);
		execl("/bin/sh", "sh", "-c", command, NULL);
		return 9;
	}
	if (open_path(&s, p->path, 20000, &err) < 0)
		return 1;
	for (int n = 0; n < ROUNDS; n++) {
		struct audit_entry entry = { "r", "ann", "write", "", "ok" };
		struct sandbox_row row;
		bool whole;
		int rc = 0;
		if (i < 2)
			rc = audit_append(s, &entry, &err);
		else if (i == 2)
			rc = sandbox_find(s, "ann", "s", &row, &err);
		else if (n % 10 == 0)
			rc = store_checkpoint(s, &whole, &err);
		if (rc < 0) {
			fprintf(stderr, "%s\n", err.text);
			return 2;
		}
	}
	store_free(s);
	return 0;
}

static void all_at_once(void **state)
{
	struct place *p = *state;
	bool have_shell = access("/usr/bin/sqlite3", X_OK) == 0;
	running(p, "ann", "s");
	close_store(p);
	in_processes(have_shell ? 5 : 4, everybody, p, NULL);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit WHERE action = 'write'"),
			 2 * ROUNDS);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit WHERE action = 'shell'"),
			 have_shell ? 8 : 0);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM pragma_integrity_check() "
					 "WHERE integrity_check = 'ok'"),
			 1);
}

static int write_until_killed(struct place *p, int i, void *ctx)
{
	struct store *s;
	struct err err = { 0 };
	struct audit_entry entry = { "r", "ann", "write", "", "ok" };
	(void)i, (void)ctx;
	if (open_path(&s, p->path, 20000, &err) < 0)
		return 1;
	while (audit_append(s, &entry, &err) == 0)
		;
	return 1;
}

static void a_killed_writer_leaves_no_lock(void **state)
{
	struct place *p = *state;
	close_store(p);
	for (int n = 0; n < 5; n++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(write_until_killed(p, 0, NULL));
		usleep((useconds_t)(20000 + n * 3333));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		assert_ok(open_path(&p->s, p->path, 0, &err));
		struct audit_entry entry = { "r", "ann", "after", "", "ok" };
		assert_ok(audit_append(p->s, &entry, &err));
		close_store(p);
	}
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit WHERE action = 'after'"), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_folder(a_new_file_is_migrated_once),
		with_store(one_of_sixteen_makes_it),
		with_store(limits_are_exact),
		with_store(a_loss_is_told_once),
		with_store(all_at_once),
		with_store(a_killed_writer_leaves_no_lock),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
