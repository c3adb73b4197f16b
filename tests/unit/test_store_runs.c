/* Leases, executions, tokens and the audit trail. */
#include "store_fixture.h"

#include "base/sha256.h"
#include "store/audit.h"
#include "base/clock.h"
#include "store/executions.h"
#include "store/leases.h"
#include "store/sql.h"
#include "store/tokens.h"

static bool live(struct place *p, int64_t sandbox)
{
	bool yes = false;
	assert_ok(lease_live(p->s, sandbox, &yes, &err));
	return yes;
}

static void a_lease_lives_as_its_process_and_its_time(void **state)
{
	struct place *p = *state;
	struct sandbox_row row = running(p, "ann", "s1"), out;
	assert_false(live(p, row.id));
	assert_ok(lease_take(p->s, "x_1", row.id, &err));
	assert_err(lease_take(p->s, "x_1", row.id, &err), ERR_EXISTS, "");
	assert_true(live(p, row.id));
	shell_run(p, "UPDATE leases SET until = 1000");
	assert_false(live(p, row.id));
	assert_ok(lease_renew(p->s, "x_1", row.id, &err));
	assert_true(live(p, row.id));
	/* Pruned under one that lives, after the clock was set: it protects again. */
	shell_run(p, "UPDATE leases SET until = 1000");
	assert_ok(lease_prune(p->s, &err));
	assert_false(live(p, row.id));
	assert_ok(lease_renew(p->s, "x_1", row.id, &err));
	assert_true(live(p, row.id));
	shell_run(p, "UPDATE leases SET start = start + 1");
	assert_false(live(p, row.id));
	assert_err(lease_renew(p->s, "x_1", row.id, &err), ERR_EXISTS, "");

	/* Pruning takes the dead process's and the late one, and leaves the good one. */
	assert_ok(lease_take(p->s, "x_2", row.id, &err));
	assert_ok(lease_take(p->s, "x_3", row.id, &err));
	shell_run(p, "UPDATE leases SET until = 1000 WHERE id = 'x_3'");
	assert_ok(lease_prune(p->s, &err));
	assert_int_equal(shell_number(p, "SELECT count(*) FROM leases"), 1);
	assert_true(live(p, row.id));
	assert_ok(lease_release(p->s, "x_2", &err));
	assert_ok(lease_release(p->s, "x_2", &err));
	assert_false(live(p, row.id));

	assert_ok(lease_take(p->s, "x_4", row.id, &err));
	assert_ok(lease_take(p->s, "x_5", row.id, &err));
	struct procid me, other;
	assert_int_equal(procid_of(getpid(), &me), 0);
	other = (struct procid){ me.pid, me.start + 1 };
	assert_ok(lease_release_all_of(p->s, other, &err));
	assert_true(live(p, row.id));
	assert_ok(lease_release_all_of(p->s, me, &err));
	assert_false(live(p, row.id));

	assert_ok(sandbox_stop(p->s, row.id, END_STOPPED, &out, &err));
	assert_err(lease_take(p->s, "x_6", row.id, &err), ERR_CONFLICT, "not running");
}

static void begin(struct place *p, int64_t sandbox, const char *input, char id[EXECUTION_ID])
{
	char hash[SHA256_HEX];
	sha256_hex(hash, input, strlen(input));
	execution_new_id(id);
	struct execution_start start = { .id = id,
					 .sandbox = sandbox,
					 .input = input,
					 .input_bytes = strlen(input),
					 .request_hash = hash,
					 .idle_us = HOUR_US / 2 };
	assert_ok(execution_begin(p->s, &start, NULL, &err));
}

static void an_execution_from_start_to_end(void **state)
{
	struct place *p = *state;
	struct sandbox_row sandbox = running(p, "ann", "s1"), touched;
	char id[EXECUTION_ID];
	shell_run(p, "UPDATE sandboxes SET last_activity = last_activity - 1000000");
	begin(p, sandbox.id, "print(1)", id);
	assert_ok(sandbox_get(p->s, sandbox.id, &touched, &err));
	assert_true(touched.last_activity >= sandbox.last_activity);

	struct execution_row row;
	assert_err(execution_find(p->s, "bob", id, &row, &err), ERR_NOT_FOUND, "");
	assert_ok(execution_find(p->s, "ann", id, &row, &err));
	assert_int_equal(row.state, EXECUTION_RUNNING);
	assert_string_equal(row.input, "print(1)");
	assert_string_equal(row.session_id, "s1");
	assert_int_equal(row.generation, 1);
	assert_int_equal(row.runner.pid, getpid());
	assert_false(row.has_exit_code);

	struct execution_end end = { .id = id,
				     .state = EXECUTION_FAILED,
				     .has_exit_code = true,
				     .exit_code = -7,
				     .stdout_bytes = 1LL << 40,
				     .stderr_bytes = 3,
				     .error_name = "ValueError",
				     .idle_us = HOUR_US / 2 };
	assert_ok(execution_finish(p->s, &end, &err));
	assert_err(execution_finish(p->s, &end, &err), ERR_CONFLICT, id);
	assert_ok(execution_find(p->s, "ann", id, &row, &err));
	assert_int_equal(row.state, EXECUTION_FAILED);
	assert_true(row.has_exit_code);
	assert_int_equal(row.exit_code, -7);
	assert_int_equal(row.stdout_bytes, 1LL << 40);
	assert_string_equal(row.error_name, "ValueError");
	assert_true(row.ended_at >= row.started_at);

	assert_ok(sandbox_stop(p->s, sandbox.id, END_STOPPED, &touched, &err));
	struct execution_start late = { .id = "x_late", .sandbox = sandbox.id };
	assert_err(execution_begin(p->s, &late, NULL, &err), ERR_CONFLICT, "not running");
	assert_int_equal(shell(p->path, "UPDATE executions SET state = 'running'", NULL),
			 SQLITE_CONSTRAINT);
}

static void a_long_input_is_cut_between_characters(void **state)
{
	struct place *p = *state;
	struct sandbox_row sandbox = running(p, "ann", "s1");
	static char input[10001];
	struct execution_row row;
	char id[EXECUTION_ID];
	for (size_t i = 0; i < sizeof input - 2; i += 2)
		memcpy(input + 1 + i, "\xc3\xa9", 2);
	input[0] = 'a';
	input[sizeof input - 1] = '\0';
	begin(p, sandbox.id, input, id);
	assert_ok(execution_find(p->s, "ann", id, &row, &err));
	assert_int_equal(strlen(row.input), 4095);
	assert_int_equal(row.input_bytes, strlen(input));
	begin(p, sandbox.id, input + 1, id);
	assert_ok(execution_find(p->s, "ann", id, &row, &err));
	assert_int_equal(strlen(row.input), 4096);
}

static void a_request_that_timed_out_is_known_again(void **state)
{
	struct place *p = *state;
	struct sandbox_row sandbox = running(p, "ann", "s1");
	struct execution_row row;
	char id[EXECUTION_ID], hash[SHA256_HEX];
	int64_t since = clock_real_us() - 10 * SECOND_US;
	sha256_hex(hash, "while True: pass", 16);
	begin(p, sandbox.id, "while True: pass", id);
	assert_err(execution_repeated(p->s, "ann", "s1", hash, since, &row, &err), ERR_NOT_FOUND,
		   "");
	struct execution_end end = { .id = id, .state = EXECUTION_TIMED_OUT };
	assert_ok(execution_finish(p->s, &end, &err));
	assert_ok(execution_repeated(p->s, "ann", "s1", hash, since, &row, &err));
	assert_string_equal(row.id, id);
	assert_err(execution_repeated(p->s, "bob", "s1", hash, since, &row, &err), ERR_NOT_FOUND,
		   "");
	assert_err(execution_repeated(p->s, "ann", "s2", hash, since, &row, &err), ERR_NOT_FOUND,
		   "");
	assert_err(execution_repeated(p->s, "ann", "s1", hash, clock_real_us(), &row, &err),
		   ERR_NOT_FOUND, "");
	assert_err(execution_repeated(p->s, "ann", "s1", "", since, &row, &err), ERR_NOT_FOUND, "");
}

static void expect_plan(struct place *p, enum sql id, const char *expected)
{
	sqlite3 *db;
	sqlite3_stmt *st;
	char sql[2048];
	bool found = false;
	snprintf(sql, sizeof sql, "EXPLAIN QUERY PLAN %s", sql_text[id]);
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	while (sqlite3_step(st) == SQLITE_ROW)
		found |= strstr((const char *)sqlite3_column_text(st, 3), expected) != NULL;
	sqlite3_finalize(st);
	sqlite3_close(db);
	assert_true(found);
}

static void a_run_does_not_walk_through_its_session_s_history(void **state)
{
	struct place *p = *state;
	expect_plan(p, SQL_EXECUTION_BEGIN, "executions_going_on (sandbox=?)");
	expect_plan(p, SQL_EXECUTION_REPEATED,
		    "executions_timed_out (owner=? AND session_id=? AND ended_at>?)");
	expect_plan(p, SQL_EXECUTION_BEGAN_SINCE,
		    "executions_by_sandbox (sandbox=? AND started_at>?)");
}

static void what_goes_on_is_found_without_what_has_ended(void **state)
{
	struct place *p = *state;
	const char *index = "SCAN executions USING INDEX executions_going_on";
	expect_plan(p, SQL_EXECUTION_PROCESSES, index);
	expect_plan(p, SQL_EXECUTION_END_DEAD, index);
	expect_plan(p, SQL_EXECUTION_END_UNLEASED, index);
}

static void history_in_pages(void **state)
{
	struct place *p = *state;
	struct sandbox_row a = running(p, "ann", "s1"), b = running(p, "ann", "s2");
	static struct execution_row page[3];
	char id[EXECUTION_ID];
	size_t n, seen = 0;
	for (int i = 0; i < 7; i++) {
		begin(p, a.id, "a", id);
		begin(p, b.id, "b", id);
	}
	int64_t before = 0;
	do {
		assert_ok(execution_list(p->s, "ann", "s1", before, page, 3, &n, &err));
		for (size_t i = 0; i < n; i++) {
			assert_string_equal(page[i].input, "a");
			assert_true(before == 0 || page[i].seq < before);
			before = page[i].seq;
		}
		seen += n;
	} while (n == 3);
	assert_int_equal(seen, 7);
}

static void what_a_dead_process_left(void **state)
{
	struct place *p = *state;
	struct sandbox_row sandbox = running(p, "ann", "s1");
	char dead[EXECUTION_ID], alive[EXECUTION_ID], other[EXECUTION_ID];
	struct execution_row row;
	size_t n;
	begin(p, sandbox.id, "a", dead);
	begin(p, sandbox.id, "b", other);
	shell_run(p, "UPDATE executions SET start = start + 1 WHERE input = 'a'");
	shell_run(p, "UPDATE executions SET pid = 4194305 WHERE input = 'b'");
	begin(p, sandbox.id, "c", alive);
	assert_ok(execution_end_dead(p->s, &n, &err));
	assert_int_equal(n, 2);
	assert_ok(execution_find(p->s, "ann", dead, &row, &err));
	assert_int_equal(row.state, EXECUTION_COMPLETION_UNKNOWN);
	assert_true(row.ended_at > 0);
	assert_ok(execution_find(p->s, "ann", alive, &row, &err));
	assert_int_equal(row.state, EXECUTION_QUEUED);
	struct execution_end end = { .id = dead, .state = EXECUTION_SUCCEEDED };
	assert_err(execution_finish(p->s, &end, &err), ERR_CONFLICT, "");
}

static void what_a_living_process_could_not_write(void **state)
{
	struct place *p = *state;
	struct sandbox_row sandbox = running(p, "ann", "s1");
	char lost[EXECUTION_ID], runs[EXECUTION_ID], new[EXECUTION_ID];
	struct execution_row row;
	size_t n;
	begin(p, sandbox.id, "a", lost);
	begin(p, sandbox.id, "b", runs);
	assert_ok(lease_take(p->s, runs, sandbox.id, &err));
	shell_run(p, "UPDATE executions SET started_at = 1000");
	begin(p, sandbox.id, "c", new);
	assert_ok(execution_end_dead(p->s, &n, &err));
	assert_int_equal(n, 1);
	assert_ok(execution_find(p->s, "ann", lost, &row, &err));
	assert_int_equal(row.state, EXECUTION_COMPLETION_UNKNOWN);
	assert_ok(execution_find(p->s, "ann", runs, &row, &err));
	assert_int_equal(row.ended_at, 0);
	assert_ok(execution_find(p->s, "ann", new, &row, &err));
	assert_int_equal(row.ended_at, 0);
}

static void whose_turn_it_is(void **state)
{
	struct place *p = *state;
	struct sandbox_row sandbox = running(p, "ann", "s1"), else_where = running(p, "ann", "s2");
	char first[EXECUTION_ID], second[EXECUTION_ID], third[EXECUTION_ID];
	struct execution_row row;
	bool began;
	begin(p, sandbox.id, "a", first);
	begin(p, sandbox.id, "b", second);
	int64_t since = clock_real_us();
	begin(p, else_where.id, "c", third);
	assert_ok(execution_find(p->s, "ann", first, &row, &err));
	assert_int_equal(row.state, EXECUTION_RUNNING);
	assert_ok(execution_find(p->s, "ann", second, &row, &err));
	assert_int_equal(row.state, EXECUTION_QUEUED);
	assert_ok(execution_find(p->s, "ann", third, &row, &err));
	assert_int_equal(row.state, EXECUTION_RUNNING);
	assert_ok(execution_began_since(p->s, sandbox.id, NULL, first, since, &began, &err));
	assert_false(began);
	assert_ok(execution_started(p->s, second, &err));
	assert_ok(execution_began_since(p->s, sandbox.id, NULL, first, since, &began, &err));
	assert_true(began);
	assert_ok(execution_began_since(p->s, sandbox.id, NULL, second, since, &began, &err));
	assert_false(began);
	assert_ok(execution_find(p->s, "ann", second, &row, &err));
	assert_int_equal(row.state, EXECUTION_RUNNING);
	assert_true(row.started_at >= since);
	assert_err(execution_started(p->s, "x_none", &err), ERR_CONFLICT, "");
}

static void tokens(void **state)
{
	struct place *p = *state;
	struct token_new new = { .user = "ann",
				 .role = ROLE_ADMIN,
				 .scopes = SCOPE_READ | SCOPE_ADMIN,
				 .session_id = "s1",
				 .expires_at = 77 };
	char secret[TOKEN_SECRET], second[TOKEN_SECRET], sql[200];
	struct token_row made, row, rows[3];
	size_t n;
	assert_ok(token_create(p->s, &new, secret, &made, &err));
	assert_int_equal(strlen(secret), TOKEN_SECRET - 1);
	assert_memory_equal(secret, "sg_", 3);
	assert_ok(token_find(p->s, secret, &row, &err));
	assert_string_equal(row.id, made.id);
	assert_string_equal(row.user, "ann");
	assert_int_equal(row.role, ROLE_ADMIN);
	assert_int_equal(row.scopes, SCOPE_READ | SCOPE_ADMIN);
	assert_string_equal(row.session_id, "s1");
	assert_int_equal(row.expires_at, 77);
	assert_int_equal(row.revoked_at, 0);
	assert_err(token_find(p->s, "sg_no", &row, &err), ERR_NOT_FOUND, "");
	assert_err(token_find(p->s, "", &row, &err), ERR_NOT_FOUND, "");
	snprintf(sql, sizeof sql, "SELECT count(*) FROM tokens WHERE hash = '%s'", secret);
	assert_int_equal(shell_number(p, sql), 0);

	new.session_id = NULL;
	assert_ok(token_create(p->s, &new, second, &row, &err));
	assert_string_not_equal(second, secret);
	assert_ok(token_list(p->s, 0, rows, 3, &n, &err));
	assert_int_equal(n, 2);
	assert_string_equal(rows[0].id, made.id);
	assert_ok(token_list(p->s, rows[0].seq, rows, 3, &n, &err));
	assert_int_equal(n, 1);

	assert_ok(token_revoke(p->s, made.id, &err));
	assert_ok(token_find(p->s, secret, &row, &err));
	int64_t when = row.revoked_at;
	assert_true(when > 0);
	assert_ok(token_revoke(p->s, made.id, &err));
	assert_ok(token_get(p->s, made.id, &row, &err));
	assert_int_equal(row.revoked_at, when);
	assert_err(token_revoke(p->s, "t_no", &err), ERR_NOT_FOUND, "t_no");
	assert_ok(token_find(p->s, second, &row, &err));
	assert_int_equal(row.revoked_at, 0);
	new.scopes = 16;
	assert_err(token_create(p->s, &new, second, &row, &err), ERR_INVALID, "scopes");
	new.scopes = 1;
	new.user = "";
	assert_err(token_create(p->s, &new, second, &row, &err), ERR_INVALID, "user");
}

static void the_audit_trail(void **state)
{
	struct place *p = *state;
	static char target[3000];
	memset(target, 'x', sizeof target - 1);
	struct audit_entry entry = { "r1", "ann", "execute", target, "ok" };
	assert_ok(audit_append(p->s, &entry, &err));
	entry = (struct audit_entry){ .action = "login", .outcome = "unauthorized" };
	assert_ok(audit_append(p->s, &entry, &err));
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit WHERE at > 0 AND user = 'ann' "
					 "AND request_id = 'r1' AND length(target) = 255"),
			 1);
	assert_int_equal(shell_number(p, "SELECT count(*) FROM audit WHERE user = ''"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_store(a_lease_lives_as_its_process_and_its_time),
		with_store(an_execution_from_start_to_end),
		with_store(a_long_input_is_cut_between_characters),
		with_store(a_request_that_timed_out_is_known_again),
		with_store(a_run_does_not_walk_through_its_session_s_history),
		with_store(what_goes_on_is_found_without_what_has_ended),
		with_store(history_in_pages),
		with_store(what_a_dead_process_left),
		with_store(what_a_living_process_could_not_write),
		with_store(whose_turn_it_is),
		with_store(tokens),
		with_store(the_audit_trail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
