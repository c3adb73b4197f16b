/* What one pass of the cleanup leaves for the next. */
#include "store/passes.h"

#include "store_fixture.h"

static void the_last_mark_of_the_clocks_stays(void **state)
{
	struct place *p = *state;
	struct clock_mark mark;
	bool there = true;
	assert_ok(clock_mark_read(p->s, &mark, &there, &err));
	assert_false(there);
	const struct clock_mark first = { "b1", 5, -7 }, second = { "", 6, 8 };
	assert_ok(clock_mark_write(p->s, &first, &err));
	assert_ok(clock_mark_write(p->s, &second, &err));
	reopen(p);
	assert_ok(clock_mark_read(p->s, &mark, &there, &err));
	assert_true(there);
	assert_string_equal(mark.boot_id, "");
	assert_int_equal(mark.boot, 6);
	assert_int_equal(mark.real, 8);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM clock_mark"), 1);
}

static int64_t first_seen(struct place *p, const char *id)
{
	int64_t first = -1;
	bool known = false;
	assert_ok(orphan_find(p->s, id, &first, &known, &err));
	return known ? first : -1;
}

static void an_orphan_is_remembered_while_it_is_seen(void **state)
{
	struct place *p = *state;
	assert_int_equal(first_seen(p, "a"), -1);
	assert_ok(orphan_seen(p->s, "a", 100, &err));
	assert_ok(orphan_seen(p->s, "b", 100, &err));
	assert_int_equal(first_seen(p, "a"), 100);
	assert_ok(orphan_seen(p->s, "a", 200, &err));
	assert_int_equal(first_seen(p, "a"), 100); /* of the first, not of the last time */
	assert_ok(orphan_forget_others(p->s, 200, &err));
	assert_int_equal(first_seen(p, "a"), 100);
	assert_int_equal(first_seen(p, "b"), -1);
	assert_ok(orphan_forget_others(p->s, 0, &err));
	assert_int_equal(first_seen(p, "a"), -1);
	assert_err(orphan_seen(p->s, "", 1, &err), ERR_INVALID, "");
}

/* The text of a file of sql/, and what marks a database that has seen it and nothing later. */
static void lay_first_version(const struct place *p)
{
	char sql[32768], folder[128];
	FILE *f = fopen("sql/001_init.sql", "re");
	assert_non_null(f);
	size_t n = fread(sql, 1, sizeof sql - 128, f);
	fclose(f);
	snprintf(sql + n, 128, "PRAGMA application_id = %d; PRAGMA user_version = 1", 0x53414e44);
	snprintf(folder, sizeof folder, "%s/db", p->folder);
	assert_int_equal(mkdir(folder, 0700), 0);
	shell_run(p, sql);
}

/* A database of the first version gets all that came later and keeps its rows. */
static void the_first_version_is_migrated(void **state)
{
	struct place *p = *state;
	struct sandbox_row row;
	lay_first_version(p);
	shell_run(p, "INSERT INTO sandboxes (owner, session_id, generation, sandbox_id, type, "
		     "status, created_at, last_activity, nonce, claim_deadline, claim_slot, "
		     "claim_pid, claim_start) VALUES ('ann', 's1', 3, 'i1', 'custom', 'running', "
		     "1, 1, 'n1', 1, 1, 1, 1)");
	assert_ok(open_path(&p->s, p->path, 0, &err));
	assert_ok(orphan_seen(p->s, "a", 1, &err));
	assert_ok(sandbox_find(p->s, "ann", "s1", &row, &err));
	assert_int_equal(row.generation, 3);
	assert_string_equal(row.sandbox_id, "i1");
}

struct walk {
	struct store *s;
	int n;
	int64_t last;
};

/* Rows are changed on the way. */
static int stop_each(void *ctx, struct sandbox_row *row, struct err *err)
{
	struct walk *w = ctx;
	struct sandbox_row out;
	assert_true(!w->last || row->id < w->last);
	w->last = row->id;
	w->n++;
	if (w->n == 100)
		return err_set(err, ERR_LIMIT, "enough");
	return sandbox_stop(w->s, row->id, END_STOPPED, &out, err);
}

static void all_rows_are_walked_page_by_page(void **state)
{
	struct place *p = *state;
	struct walk walk = { .s = p->s };
	char name[16];
	for (int i = 0; i < 150; i++) {
		snprintf(name, sizeof name, "s%d", i);
		running(p, "ann", name);
	}
	const struct sandbox_query live = { .set = SANDBOXES_LIVE };
	assert_err(sandbox_each(p->s, live, stop_each, &walk, &err), ERR_LIMIT, "enough");
	assert_int_equal(walk.n, 100);
	walk = (struct walk){ .s = p->s };
	assert_ok(sandbox_each(p->s, live, stop_each, &walk, &err));
	assert_int_equal(walk.n, 51); /* the hundredth was not stopped */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_store(the_last_mark_of_the_clocks_stays),
		with_store(an_orphan_is_remembered_while_it_is_seen),
		with_folder(the_first_version_is_migrated),
		with_store(all_rows_are_walked_page_by_page),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
