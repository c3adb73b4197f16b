/* Sandboxes in the store: claims, generations, limits, and every way from start to end. */
#include "store_fixture.h"

#include "store/leases.h"

static void one_session_one_row(void **state)
{
	struct place *p = *state;
	struct sandbox_row row = running(p, "ann", "s1"), again;
	enum claim_result how;
	assert_ok(claim(p->s, "ann", "s1", &again, &how, &err));
	assert_int_equal(how, CLAIM_HAVE);
	assert_int_equal(again.id, row.id);
	assert_string_equal(again.envd_token, "envd-secret");
	assert_int_equal(again.claim_slot, 7);
	/* Another user's session of the same name is another session. */
	struct sandbox_row other = running(p, "bob", "s1");
	assert_int_not_equal(other.id, row.id);
	/* The index holds even against SQL from outside. */
	char sql[] = "INSERT INTO sandboxes (owner, session_id, generation, type, status, "
		     "created_at, last_activity, nonce, claim_deadline, claim_slot, claim_pid, "
		     "claim_start) VALUES ('ann', 's1', 2, 'custom', 'starting', 1, 1, 'n', 1, 1, "
		     "1, 1)";
	assert_int_equal(shell(p->path, sql, NULL), SQLITE_CONSTRAINT);
	assert_int_equal(shell(p->path, "UPDATE sandboxes SET status = 'lost'", NULL),
			 SQLITE_CONSTRAINT);
	assert_int_equal(shell(p->path, "UPDATE sandboxes SET sandbox_id = ''", NULL),
			 SQLITE_CONSTRAINT);
	assert_int_equal(shell(p->path, "UPDATE sandboxes SET expires_at = lifetime_at + 1", NULL),
			 SQLITE_CONSTRAINT);
	assert_int_equal(shell(p->path, "UPDATE sandboxes SET generation = 'x'", NULL),
			 SQLITE_CONSTRAINT);
	assert_int_equal(shell(p->path, "UPDATE sandboxes SET end_reason = 'stopped'", NULL),
			 SQLITE_CONSTRAINT);
}

static void bad_values(void **state)
{
	struct place *p = *state;
	struct sandbox_row row;
	enum claim_result how;
	char longname[200];
	memset(longname, 'a', sizeof longname);
	longname[129] = '\0';
	assert_err(claim(p->s, longname, "s", &row, &how, &err), ERR_INVALID, "129");
	assert_err(claim(p->s, "ann", "", &row, &how, &err), ERR_INVALID, "session_id");
	longname[128] = '\0';
	assert_ok(claim(p->s, longname, longname, &row, &how, &err));
	assert_string_equal(row.owner, longname);
}

static void finding(void **state)
{
	struct place *p = *state;
	struct sandbox_row row = running(p, "ann", "s1"), found;
	assert_ok(sandbox_find(p->s, "ann", "s1", &found, &err));
	assert_int_equal(found.id, row.id);
	assert_err(sandbox_find(p->s, "bob", "s1", &found, &err), ERR_NOT_FOUND, "");
	assert_err(sandbox_find_by_id(p->s, "", &found, &err), ERR_NOT_FOUND, "");
	assert_ok(sandbox_lost(p->s, row.id, END_UNKNOWN, &err));
	assert_err(sandbox_find(p->s, "ann", "s1", &found, &err), ERR_NOT_FOUND, "");
	assert_ok(sandbox_find_by_id(p->s, row.sandbox_id, &found, &err));
	assert_int_equal(found.status, SANDBOX_ENDED);
	assert_int_equal(found.end_reason, END_UNKNOWN);
	assert_string_equal(found.envd_token, "");
	assert_string_equal(found.traffic_token, "");
	assert_ok(sandbox_find_by_nonce(p->s, row.nonce, &found, &err));
	assert_int_equal(found.id, row.id);
}

static void a_claim_is_waited_for_then_adopted(void **state)
{
	struct place *p = *state;
	struct sandbox_row mine, row;
	enum claim_result how;
	assert_ok(claim(p->s, "ann", "s1", &mine, &how, &err));
	assert_int_equal(how, CLAIM_MINE);
	assert_ok(claim(p->s, "ann", "s1", &row, &how, &err));
	assert_int_equal(how, CLAIM_WAIT);
	assert_string_equal(row.nonce, mine.nonce);
	shell_run(p, "UPDATE sandboxes SET claim_deadline = 1000");
	assert_ok(claim(p->s, "ann", "s1", &row, &how, &err));
	assert_int_equal(how, CLAIM_ADOPT);
	assert_string_equal(row.nonce, mine.nonce);
	assert_int_equal(row.generation, 1);
	assert_true(row.claim_deadline > clock_real_us());
	assert_ok(claim(p->s, "ann", "s1", &row, &how, &err));
	assert_int_equal(how, CLAIM_WAIT);
	/* A process of the same number that started at another time is another process. */
	shell_run(p, "UPDATE sandboxes SET claim_start = claim_start + 1");
	assert_err(sandbox_failed(p->s, mine.id, mine.nonce, &err), ERR_CONFLICT, "process");
	assert_ok(claim(p->s, "ann", "s1", &row, &how, &err));
	assert_int_equal(how, CLAIM_ADOPT);
	assert_err(sandbox_started(p->s, mine.id, "other",
				   &(struct sandbox_facts){ .sandbox_id = "x" }, &err),
		   ERR_CONFLICT, "starting");
	assert_ok(started(p->s, &row, &err));
	assert_err(started(p->s, &row, &err), ERR_CONFLICT, "starting");
	assert_err(sandbox_failed(p->s, row.id, row.nonce, &err), ERR_CONFLICT, "");
}

static void next_one(struct place *p, const char *session, struct sandbox_row *row,
		     int64_t generation, bool lost, enum end_reason why)
{
	enum claim_result how;
	assert_ok(claim(p->s, "ann", session, row, &how, &err));
	assert_int_equal(how, CLAIM_MINE);
	assert_int_equal(row->generation, generation);
	assert_int_equal(row->state_lost, lost);
	assert_int_equal(row->lost_reason, why);
}

static void generations(void **state)
{
	struct place *p = *state;
	struct sandbox_row row;
	next_one(p, "s", &row, 1, false, END_NONE);
	/* What never started is no generation. */
	assert_ok(sandbox_failed(p->s, row.id, row.nonce, &err));
	next_one(p, "s", &row, 1, false, END_NONE);
	assert_ok(started(p->s, &row, &err));
	assert_ok(sandbox_lost(p->s, row.id, END_KILLED_BY_PROVIDER, &err));
	assert_ok(sandbox_lost(p->s, row.id, END_UNKNOWN, &err)); /* the first reason stands */
	next_one(p, "s", &row, 2, true, END_KILLED_BY_PROVIDER);
	/* Nor does a failed start swallow the news. */
	assert_ok(sandbox_failed(p->s, row.id, row.nonce, &err));
	next_one(p, "s", &row, 2, true, END_KILLED_BY_PROVIDER);
	assert_ok(started(p->s, &row, &err));

	bool lost = false;
	enum end_reason why = END_NONE;
	assert_ok(sandbox_take_state_lost(p->s, row.id, &lost, &why, &err));
	assert_true(lost);
	assert_int_equal(why, END_KILLED_BY_PROVIDER);
	assert_ok(sandbox_take_state_lost(p->s, row.id, &lost, &why, &err));
	assert_false(lost);

	/* After the user's own stop nothing was lost, confirmed or not. */
	assert_ok(sandbox_stop(p->s, row.id, END_STOPPED, &row, &err));
	next_one(p, "s", &row, 3, false, END_NONE);
	assert_ok(started(p->s, &row, &err));
	assert_ok(sandbox_stop(p->s, row.id, END_KILLED_BY_ADMIN, &row, &err));
	next_one(p, "s", &row, 4, true, END_KILLED_BY_ADMIN);
	next_one(p, "another", &row, 1, false, END_NONE);
}

static void its_fate_can_be_asked_alone(void **state)
{
	struct place *p = *state;
	struct sandbox_row row = running(p, "ann", "s1");
	struct sandbox_fate fate;
	assert_ok(sandbox_fate(p->s, row.id, &fate, &err));
	assert_int_equal(fate.status, SANDBOX_RUNNING);
	assert_int_equal(fate.end_reason, END_NONE);
	assert_int_equal(fate.lifetime_at, row.lifetime_at);
	assert_ok(sandbox_stop(p->s, row.id, END_KILLED_BY_ADMIN, &row, &err));
	assert_ok(sandbox_fate(p->s, row.id, &fate, &err));
	assert_int_equal(fate.status, SANDBOX_STOPPING);
	assert_int_equal(fate.end_reason, END_KILLED_BY_ADMIN);
	assert_err(sandbox_fate(p->s, row.id + 1, &fate, &err), ERR_NOT_FOUND, "no such sandbox");
}

static void stopping(void **state)
{
	struct place *p = *state;
	struct sandbox_row row, out;
	enum claim_result how;
	assert_ok(claim(p->s, "ann", "s1", &row, &how, &err));
	assert_err(sandbox_stop(p->s, row.id, END_STOPPED, &out, &err), ERR_CONFLICT, "starting");
	/* Nobody works on it any more: what may exist is to be found by its nonce. */
	shell_run(p, "UPDATE sandboxes SET claim_pid = 4194305");
	assert_ok(sandbox_stop(p->s, row.id, END_STOPPED, &out, &err));
	assert_string_equal(out.sandbox_id, "");
	assert_string_equal(out.nonce, row.nonce);
	assert_err(started(p->s, &row, &err), ERR_CONFLICT, "");

	row = running(p, "ann", "s1");
	assert_err(sandbox_killed(p->s, row.id, &err), ERR_CONFLICT, "");
	assert_ok(sandbox_stop(p->s, row.id, END_STOPPED, &out, &err));
	assert_int_equal(out.status, SANDBOX_STOPPING);
	assert_string_equal(out.sandbox_id, row.sandbox_id);
	assert_err(sandbox_find(p->s, "ann", "s1", &out, &err), ERR_NOT_FOUND, "");
	assert_err(sandbox_stop(p->s, row.id, END_STOPPED, &out, &err), ERR_CONFLICT, "already");
	assert_err(sandbox_extend(p->s, row.id, 1, 1, &err), ERR_CONFLICT, "");
	assert_ok(sandbox_lost(p->s, row.id, END_UNKNOWN, &err));
	assert_ok(sandbox_get(p->s, row.id, &out, &err));
	assert_int_equal(out.status, SANDBOX_STOPPING);
	assert_ok(sandbox_killed(p->s, row.id, &err));
	assert_err(sandbox_killed(p->s, row.id, &err), ERR_CONFLICT, "");
	assert_ok(sandbox_get(p->s, row.id, &out, &err));
	assert_int_equal(out.status, SANDBOX_ENDED);
	assert_int_equal(out.end_reason, END_STOPPED);
	assert_true(out.destroyed_at > 0);
	assert_int_equal(
		shell(p->path, "UPDATE sandboxes SET status = 'running', end_reason = ''", NULL),
		SQLITE_CONSTRAINT);
}

static void limits(void **state)
{
	struct place *p = *state;
	struct sandbox_row row, out;
	enum claim_result how;
	row = running(p, "ann", "1");
	assert_ok(claim_limited(p->s, "ann", "2", 3, 2, &out, &how, &err));
	assert_err(claim_limited(p->s, "ann", "3", 3, 2, &out, &how, &err), ERR_LIMIT,
		   "2 sandboxes per user");
	assert_ok(claim_limited(p->s, "bob", "1", 3, 2, &out, &how, &err));
	assert_err(claim_limited(p->s, "bob", "2", 3, 2, &out, &how, &err), ERR_LIMIT,
		   "3 sandboxes in total");
	/* What exists is no new one, and what is being stopped does not count. */
	assert_ok(claim_limited(p->s, "ann", "1", 1, 1, &out, &how, &err));
	assert_int_equal(how, CLAIM_HAVE);
	assert_ok(sandbox_stop(p->s, row.id, END_STOPPED, &out, &err));
	assert_ok(claim_limited(p->s, "ann", "3", 3, 2, &out, &how, &err));
	struct sandbox_counts all, own;
	assert_ok(sandbox_count(p->s, NULL, &all, &err));
	assert_ok(sandbox_count(p->s, "bob", &own, &err));
	assert_int_equal(all.of[SANDBOX_STARTING], 3);
	assert_int_equal(all.of[SANDBOX_STOPPING], 1);
	assert_int_equal(all.of[SANDBOX_RUNNING], 0);
	assert_int_equal(own.of[SANDBOX_STARTING], 1);
	assert_int_equal(own.of[SANDBOX_STOPPING], 0);
}

static void touching(void **state)
{
	struct place *p = *state;
	struct sandbox_row row = running(p, "ann", "s1"), out;
	const int64_t idle = HOUR_US / 2;
	assert_ok(sandbox_touch(p->s, row.id, idle, &err));
	assert_ok(sandbox_get(p->s, row.id, &out, &err));
	assert_int_equal(out.last_activity, row.last_activity);
	shell_run(p, "UPDATE sandboxes SET last_activity = last_activity - 59000000");
	assert_ok(sandbox_touch(p->s, row.id, idle, &err));
	assert_ok(sandbox_get(p->s, row.id, &out, &err));
	assert_int_equal(out.last_activity, row.last_activity - 59 * SECOND_US);
	shell_run(p, "UPDATE sandboxes SET last_activity = last_activity - 2000000");
	assert_ok(sandbox_touch(p->s, row.id, idle, &err));
	assert_ok(sandbox_get(p->s, row.id, &out, &err));
	assert_true(out.last_activity > row.last_activity);
	assert_int_equal(out.expires_at, out.last_activity + idle);
	/* The lifetime limit holds, and an idle limit of seconds is not undone by the throttle. */
	assert_int_equal(out.lifetime_at, row.lifetime_at);
	shell_run(p, "UPDATE sandboxes SET last_activity = last_activity - 1000000");
	assert_ok(sandbox_touch(p->s, row.id, 5 * SECOND_US, &err));
	struct sandbox_row later;
	assert_ok(sandbox_get(p->s, row.id, &later, &err));
	assert_true(later.last_activity >= out.last_activity);
	assert_int_equal(later.expires_at, out.expires_at); /* never moves back */
	shell_run(p, "UPDATE sandboxes SET last_activity = 1");
	assert_ok(sandbox_touch(p->s, row.id, 9 * HOUR_US, &err));
	assert_ok(sandbox_get(p->s, row.id, &out, &err));
	assert_int_equal(out.expires_at, row.lifetime_at);

	assert_ok(sandbox_extend(p->s, row.id, 12345, 9 * HOUR_US + clock_real_us(), &err));
	assert_ok(sandbox_get(p->s, row.id, &out, &err));
	assert_int_equal(out.provider_end_at, 12345);
	assert_int_equal(out.expires_at, row.lifetime_at);
	assert_ok(sandbox_extend(p->s, row.id, 0, 0, &err));
	assert_ok(sandbox_get(p->s, row.id, &out, &err));
	assert_int_equal(out.provider_end_at, 12345);

	assert_err(sandbox_resume(p->s, row.id, &err), ERR_CONFLICT, "");
	assert_ok(sandbox_pause(p->s, row.id, &err));
	assert_err(sandbox_pause(p->s, row.id, &err), ERR_CONFLICT, "");
	assert_ok(sandbox_resume(p->s, row.id, &err));
}

static void expiring(void **state)
{
	struct place *p = *state;
	struct sandbox_row row = running(p, "ann", "s1"), out;
	assert_err(sandbox_expire(p->s, row.id, &out, &err), ERR_CONFLICT, "time left");
	shell_run(p, "UPDATE sandboxes SET expires_at = 1000");
	assert_ok(lease_take(p->s, "x_1", row.id, &err));
	assert_err(sandbox_expire(p->s, row.id, &out, &err), ERR_CONFLICT, "in use");
	assert_ok(lease_release(p->s, "x_1", &err));
	assert_ok(sandbox_expire(p->s, row.id, &out, &err));
	assert_int_equal(out.end_reason, END_EXPIRED_IDLE);
	assert_int_equal(out.status, SANDBOX_STOPPING);
	assert_err(sandbox_expire(p->s, row.id, &out, &err), ERR_CONFLICT, "not running");
	/* A lease does not help against the lifetime limit. */
	row = running(p, "ann", "s1");
	assert_ok(lease_take(p->s, "x_2", row.id, &err));
	shell_run(p, "UPDATE sandboxes SET expires_at = 1000, lifetime_at = 1000");
	assert_ok(sandbox_expire(p->s, row.id, &out, &err));
	assert_int_equal(out.end_reason, END_EXPIRED_LIFETIME);
}

static size_t count_of(struct place *p, enum sandbox_set set, const char *owner)
{
	static struct sandbox_row rows[16];
	struct sandbox_query query = { .set = set, .owner = owner };
	size_t n;
	assert_ok(sandbox_list(p->s, &query, rows, 16, &n, &err));
	return n;
}

static void lists(void **state)
{
	struct place *p = *state;
	struct sandbox_row row, first = running(p, "ann", "1");
	running(p, "ann", "2");
	row = running(p, "ann", "3");
	assert_ok(sandbox_lost(p->s, row.id, END_UNKNOWN, &err));
	row = running(p, "bob", "4");
	assert_ok(sandbox_stop(p->s, row.id, END_STOPPED, &row, &err));
	shell_run(p, "UPDATE sandboxes SET expires_at = 1000 WHERE session_id IN ('1', '3', '4')");
	assert_int_equal(count_of(p, SANDBOXES_OF_OWNER, "ann"), 3);
	assert_int_equal(count_of(p, SANDBOXES_OF_OWNER, "eve"), 0);
	assert_int_equal(count_of(p, SANDBOXES_EVERY, NULL), 4);
	assert_int_equal(count_of(p, SANDBOXES_LIVE, NULL), 2);
	assert_int_equal(count_of(p, SANDBOXES_STOPPING, NULL), 1);
	assert_int_equal(count_of(p, SANDBOXES_EXPIRED, NULL), 1);
	/* Pages: newest first, each row once. */
	struct sandbox_query query = { .set = SANDBOXES_EVERY };
	struct sandbox_row page[3];
	size_t n;
	assert_ok(sandbox_list(p->s, &query, page, 3, &n, &err));
	assert_int_equal(n, 3);
	assert_string_equal(page[0].session_id, "4");
	query.before = page[2].id;
	assert_ok(sandbox_list(p->s, &query, page, 3, &n, &err));
	assert_int_equal(n, 1);
	assert_int_equal(page[0].id, first.id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_store(one_session_one_row),
		with_store(bad_values),
		with_store(finding),
		with_store(a_claim_is_waited_for_then_adopted),
		with_store(generations),
		with_store(its_fate_can_be_asked_alone),
		with_store(stopping),
		with_store(limits),
		with_store(touching),
		with_store(expiring),
		with_store(lists),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
