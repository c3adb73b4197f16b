/* Sessions over the real database and the real engine: one sandbox each, whatever happens. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/ids.h"
#include "core/deadman.h"
#include "live_core.h"

#define CALLERS 60

static int count_one(void *ctx, const struct e2b_info *info)
{
	(void)info;
	++*(int *)ctx;
	return 0;
}

/* What the provider has of ours. */
static int alive(void)
{
	int n = 0;
	const struct e2b_pair label = { LABEL_INSTANCE, settings.instance };
	const struct e2b_filter filter = { .metadata = &label, .nmetadata = 1 };
	WORKS(e2b_list(core.e2b, &filter, count_one, &n, NULL, &err));
	return n;
}

static struct session session(const char *id)
{
	return (struct session){ .owner = "ann", .id = id };
}

static void made_once_found_again_and_stopped(void **state)
{
	(void)state;
	struct sandbox_row first, again, third;
	const struct session s = session("one");
	bool created;
	int before = alive();
	WORKS(session_ensure(&core, &s, &first, &created, &err));
	assert_true(created);
	assert_int_equal(first.generation, 1);
	assert_false(first.state_lost);
	assert_true(first.provider_end_at > clock_real_us());
	assert_true(first.envd_token[0]);
	WORKS(session_ensure(&core, &s, &again, &created, &err));
	assert_false(created);
	assert_string_equal(first.sandbox_id, again.sandbox_id);
	assert_int_equal(alive(), before + 1);
	WORKS(session_stop(&core, "ann", "one", &err));
	WORKS(session_stop(&core, "ann", "one", &err)); /* again is fine */
	assert_int_equal(alive(), before);
	assert_int_equal(sandbox_find(core.store, "ann", "one", &again, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	WORKS(session_ensure(&core, &s, &third, NULL, &err));
	assert_string_not_equal(first.sandbox_id, third.sandbox_id);
	assert_false(third.state_lost); /* the user's own stop loses nothing */
	WORKS(session_stop(&core, "ann", "one", &err));
}

static void another_owner_has_another_sandbox(void **state)
{
	(void)state;
	struct sandbox_row mine, theirs;
	const struct session a = { .owner = "ann", .id = "same" },
			     b = { .owner = "bob", .id = "same" };
	WORKS(session_ensure(&core, &a, &mine, NULL, &err));
	WORKS(session_ensure(&core, &b, &theirs, NULL, &err));
	assert_string_not_equal(mine.sandbox_id, theirs.sandbox_id);
	WORKS(session_stop(&core, "ann", "same", &err));
	WORKS(session_stop(&core, "bob", "same", &err));
}

/* Runs fn in a process of its own, as a worker would; 0 when it says so. */
static pid_t in_child(int (*fn)(struct core *c, int out), int out)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct core c;
		open_core(&c);
		_exit(fn(&c, out));
	}
	return pid;
}

static int first_call(struct core *c, int out)
{
	struct sandbox_row row;
	const struct session s = session("crowd");
	if (session_ensure(c, &s, &row, NULL, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	return write(out, row.sandbox_id, 21) == 21 ? 0 : 1;
}

static void many_first_calls_make_one_sandbox(void **state)
{
	(void)state;
	int p[2], status;
	char first[22] = "", id[22] = "";
	close_core(&core); /* no handle may be open while we fork */
	assert_int_equal(pipe(p), 0);
	pid_t pids[CALLERS];
	for (int i = 0; i < CALLERS; i++)
		pids[i] = in_child(first_call, p[1]);
	for (int i = 0; i < CALLERS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	open_core(&core);
	for (int i = 0; i < CALLERS; i++) {
		assert_int_equal(read(p[0], id, 21), 21);
		if (!*first)
			memcpy(first, id, sizeof first);
		assert_string_equal(first, id);
	}
	close(p[0]);
	close(p[1]);
	assert_int_equal(alive(), 1);
	WORKS(session_stop(&core, "ann", "crowd", &err));
}

static void claim_for(struct core *c, const char *id, struct sandbox_row *row)
{
	char nonce[25];
	enum claim_result how;
	id_alnum(nonce, 24);
	const struct claim wish = { .owner = "ann",
				    .session_id = id,
				    .template = "base",
				    .nonce = nonce,
				    .deadline = clock_real_us() + 60 * SECOND_US };
	if (sandbox_claim(c->store, &wish, row, &how, &err) < 0 || how != CLAIM_MINE)
		abort();
}

static int die_before_the_create(struct core *c, int out)
{
	struct sandbox_row row;
	(void)out;
	claim_for(c, "crash1", &row);
	raise(SIGKILL);
	return 1;
}

static int die_after_the_create(struct core *c, int out)
{
	struct sandbox_row row;
	struct e2b_sandbox sb;
	claim_for(c, "crash2", &row);
	const struct e2b_pair labels[] = { { LABEL_NONCE, row.nonce },
					   { LABEL_INSTANCE, settings.instance } };
	const struct e2b_create what = {
		.template_id = "base", .timeout_secs = 60, .metadata = labels, .nmetadata = 2
	};
	if (e2b_create(c->e2b, &what, &sb, NULL, &err) < 0 || write(out, sb.id, 21) != 21)
		return 1;
	raise(SIGKILL);
	return 1;
}

static void a_worker_that_dies_in_the_middle_leaves_no_second_sandbox(void **state)
{
	(void)state;
	int p[2], status;
	char id[22] = "";
	close_core(&core);
	assert_int_equal(pipe(p), 0);
	pid_t one = in_child(die_before_the_create, p[1]),
	      two = in_child(die_after_the_create, p[1]);
	waitpid(one, &status, 0);
	waitpid(two, &status, 0);
	assert_int_equal(read(p[0], id, 21), 21);
	open_core(&core);
	struct sandbox_row row;
	struct session s = session("crash1");
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
	assert_int_equal(row.generation, 1);
	s = session("crash2");
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
	assert_string_equal(row.sandbox_id, id); /* adopted, not made again */
	assert_true(row.envd_token[0]);
	assert_int_equal(alive(), 2);
	WORKS(session_stop(&core, "ann", "crash1", &err));
	WORKS(session_stop(&core, "ann", "crash2", &err));
	close(p[0]);
	close(p[1]);
}

static void a_lost_sandbox_is_noticed_and_replaced(void **state)
{
	(void)state;
	struct sandbox_row row, next;
	const struct session s = session("lost");
	bool lost = true;
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
	WORKS(session_check(&core, &row, &lost, &err));
	assert_false(lost);
	WORKS(e2b_kill(core.e2b, row.sandbox_id, NULL, NULL, &err));
	WORKS(session_check(&core, &row, &lost, &err));
	assert_true(lost);
	WORKS(session_check(&core, &row, &lost, &err)); /* a second caller hears the same */
	assert_true(lost);
	WORKS(session_ensure(&core, &s, &next, NULL, &err));
	assert_int_equal(next.generation, 2);
	assert_true(next.state_lost);
	assert_int_equal(next.lost_reason, END_KILLED_BY_PROVIDER);
	WORKS(session_stop(&core, "ann", "lost", &err));
}

static void limits_and_types(void **state)
{
	(void)state;
	struct sandbox_row row;
	settings.max_per_user = 1;
	struct session s = session("first");
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
	s = session("second");
	assert_int_equal(session_ensure(&core, &s, &row, NULL, &err), -1);
	assert_int_equal(err.code, ERR_LIMIT);
	settings.max_per_user = 5;
	s.type = SANDBOX_CUSTOM;
	assert_int_equal(session_ensure(&core, &s, &row, NULL, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	WORKS(session_stop(&core, "ann", "first", &err));
}

/* A template that the provider does not know: the claim must not stay behind. */
static void a_failed_start_can_be_tried_again(void **state)
{
	(void)state;
	struct sandbox_row row;
	const struct session s = session("retry");
	char *good = settings.code_template;
	settings.code_template = "nobody";
	assert_int_equal(session_ensure(&core, &s, &row, NULL, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	settings.code_template = good;
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
	assert_int_equal(row.generation, 1);
	assert_false(row.state_lost);
	WORKS(session_stop(&core, "ann", "retry", &err));
}

static void the_switch_is_moved_by_use(void **state)
{
	(void)state;
	struct sandbox_row row;
	const struct session s = session("renew");
	settings.idle_timeout = 100; /* the switch is at 220 s, the lifetime at 3600 */
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
	int64_t left = (row.provider_end_at - clock_real_us()) / SECOND_US;
	assert_in_range(left, 210, 221);
	WORKS(deadman_renew(&core, &row, 0, &err));
	assert_in_range((row.provider_end_at - clock_real_us()) / SECOND_US, 210, 221);
	WORKS(deadman_renew(&core, &row, 240, &err)); /* no slack in what a run needs */
	assert_in_range((row.provider_end_at - clock_real_us()) / SECOND_US, 230, 241);
	WORKS(deadman_renew(&core, &row, 1000, &err));
	assert_in_range((row.provider_end_at - clock_real_us()) / SECOND_US, 990, 1001);
	WORKS(deadman_renew(&core, &row, 100000, &err)); /* never past the lifetime */
	assert_in_range((row.provider_end_at - clock_real_us()) / SECOND_US, 3500, 3601);
	settings.idle_timeout = 1800;
	WORKS(session_stop(&core, "ann", "renew", &err));
}

int main(void)
{
	if (live_core_start("base") < 0)
		return 1;
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(made_once_found_again_and_stopped),
		T(another_owner_has_another_sandbox),
		T(many_first_calls_make_one_sandbox),
		T(a_worker_that_dies_in_the_middle_leaves_no_second_sandbox),
		T(a_lost_sandbox_is_noticed_and_replaced),
		T(limits_and_types),
		T(a_failed_start_can_be_tried_again),
		T(the_switch_is_moved_by_use),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	live_core_stop();
	return failed;
}
