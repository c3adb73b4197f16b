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

/* A database of the version before gets the new tables and keeps its rows. */
static void the_version_before_is_migrated(void **state)
{
	struct place *p = *state;
	struct sandbox_row row = running(p, "ann", "s1");
	close_store(p);
	shell_run(p, "DROP TABLE orphans; DROP TABLE clock_mark; "
		     "DROP INDEX executions_going_on; DROP INDEX executions_timed_out; "
		     "PRAGMA user_version = 1");
	assert_ok(open_path(&p->s, p->path, 0, &err));
	assert_ok(orphan_seen(p->s, "a", 1, &err));
	assert_ok(sandbox_get(p->s, row.id, &row, &err));
	assert_string_equal(row.session_id, "s1");
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
		with_store(the_version_before_is_migrated),
		with_store(all_rows_are_walked_page_by_page),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
