/* Executions over the real engine: their rows, their logs and every way they end. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "core/eventlog.h"
#include "core/run.h"
#include "store/leases.h"
#include "live_core.h"

static struct sandbox_row row;

/* A sandbox for the test, and a run in it. */
static void ensure(const char *id)
{
	const struct session s = { .owner = "ann", .id = id };
	WORKS(session_ensure(&core, &s, &row, NULL, &err));
}

static void stop(const char *id)
{
	WORKS(session_stop(&core, "ann", id, &err));
}

static struct run_report run(const char *code, int limit, int client_fd)
{
	struct run_report report;
	const struct run_request req = { .row = &row,
					 .code = code,
					 .ncode = strlen(code),
					 .limit_secs = limit,
					 .client_fd = client_fd,
					 .wake_fd = -1 };
	WORKS(run_code(&core, &req, &report, &err));
	return report;
}

/* The log as text: "o:" stdout, "e:" stderr, "r:" result, "x:" error, "." its end. */
static const char *log_text(const char *id)
{
	static struct buf text = { .max = 1 << 20 };
	char dir[512];
	struct eventreader *r;
	text.len = 0;
	WORKS(run_events_dir(&settings, dir, sizeof dir, &err));
	WORKS(eventreader_open(&r, dir, id, 0, &err));
	for (;;) {
		enum event_answer answer;
		struct event e;
		struct event_gap gap;
		WORKS(eventreader_next(r, &answer, &e, &gap, &err));
		if (answer != EVENT_NEXT)
			break;
		static const char *const marks[] = { "", "o:", "e:", "r:", "x:", "." };
		buf_adds(&text, marks[e.type]);
		if (e.type != EVENT_DONE)
			buf_add(&text, e.p, e.n);
	}
	eventreader_free(r);
	return text.p;
}

static struct execution_row row_of(const char *id)
{
	struct execution_row e;
	WORKS(execution_find(core.store, "ann", id, &e, &err));
	return e;
}

static void code_that_works(void **state)
{
	(void)state;
	ensure("works");
	struct run_report r =
		run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n1+1", 20, -1);
	assert_int_equal(r.end, RUN_ENDED);
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
	assert_int_equal(r.stdout_bytes, 4);
	assert_int_equal(r.stderr_bytes, 4);
	assert_false(r.log_lost);
	const char *text = log_text(r.id);
	assert_non_null(strstr(text, "o:out\ne:err\nr:{"));
	assert_non_null(strstr(text, "\"text\":\"2\""));
	assert_int_equal(text[strlen(text) - 1], '.');
	struct execution_row e = row_of(r.id);
	assert_int_equal(e.state, EXECUTION_SUCCEEDED);
	assert_int_equal(e.stdout_bytes, 4);
	assert_true(e.ended_at >= e.started_at);
	bool leased = true;
	WORKS(lease_live(core.store, row.id, &leased, &err));
	assert_false(leased); /* given back */
	stop("works");
}

static void code_that_fails_and_state_that_stays(void **state)
{
	(void)state;
	ensure("fails");
	run("x = 41", 20, -1);
	struct run_report r = run("1/0", 20, -1);
	assert_int_equal(r.end, RUN_ENDED);
	assert_int_equal(r.state, EXECUTION_FAILED);
	assert_string_equal(r.error_name, "ZeroDivisionError");
	assert_non_null(strstr(log_text(r.id),
			       "x:{\"name\":\"ZeroDivisionError\",\"value\":\"division by zero\""));
	assert_string_equal(row_of(r.id).error_name, "ZeroDivisionError");
	r = run("x + 1", 20, -1);
	assert_non_null(strstr(log_text(r.id), "\"text\":\"42\""));
	r = run("", 20, -1); /* nothing is valid, too */
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
	stop("fails");
}

static void the_limit_interrupts_and_keeps_the_state(void **state)
{
	(void)state;
	ensure("limit");
	run("x = 'kept'", 20, -1);
	int64_t from = clock_mono_us();
	struct run_report r = run("print('go')\nimport time\nwhile True: time.sleep(0.1)", 2, -1);
	int64_t took = clock_mono_us() - from;
	assert_int_equal(r.end, RUN_TIMED_OUT);
	assert_int_equal(r.state, EXECUTION_TIMED_OUT);
	assert_true(took >= 2 * SECOND_US);
	assert_non_null(strstr(log_text(r.id), "o:go\n"));
	r = run("x", 20, -1);
	assert_non_null(strstr(log_text(r.id), "\"text\":\"kept\""));
	stop("limit");
}

/* The client's end of a pipe is closed while the code runs. */
static void a_client_that_leaves_interrupts_its_code(void **state)
{
	(void)state;
	int p[2];
	assert_int_equal(pipe(p), 0);
	ensure("leaves");
	run("x = 1", 20, -1);
	store_free(core.store); /* no handle may be open while we fork */
	pid_t client = fork();
	if (client == 0) {
		close(p[0]);
		usleep(700000);
		_exit(0); /* which closes p[1] */
	}
	close(p[1]);
	const struct store_config again = { .path = db, .slot = -1 };
	WORKS(store_open(&core.store, &again, &err));
	int64_t from = clock_mono_us();
	struct run_report r = run("x = 2\nimport time\ntime.sleep(30)\nx = 3", 60, p[0]);
	assert_true(clock_mono_us() - from < 15 * SECOND_US);
	assert_int_equal(r.end, RUN_LEFT);
	assert_int_equal(r.state, EXECUTION_CANCELLED);
	r = run("x", 20, -1);
	assert_non_null(strstr(log_text(r.id), "\"text\":\"2\"")); /* interrupted, not run on */
	waitpid(client, NULL, 0);
	close(p[0]);
	stop("leaves");
}

/* Does something to the sandbox from another process after a moment. */
static pid_t later(void (*fn)(struct core *c))
{
	store_free(core.store);
	pid_t pid = fork();
	if (pid == 0) {
		struct core c;
		usleep(1000000);
		open_core(&c);
		fn(&c);
		_exit(0);
	}
	const struct store_config again = { .path = db, .slot = -1 };
	WORKS(store_open(&core.store, &again, &err));
	return pid;
}

static void stop_it(struct core *c)
{
	session_stop(c, "ann", "stopped", &err);
}

static void a_stop_ends_what_runs(void **state)
{
	(void)state;
	ensure("stopped");
	pid_t other = later(stop_it);
	struct run_report r = run("print('go')\nimport time\ntime.sleep(30)", 60, -1);
	waitpid(other, NULL, 0);
	assert_int_equal(r.end, RUN_STOPPED);
	assert_int_equal(r.state, EXECUTION_FAILED);
	assert_string_equal(row_of(r.id).error_name, "sandbox_stopped");
	assert_non_null(strstr(log_text(r.id), "o:go\n"));
}

static void kill_at_the_provider(struct core *c)
{
	e2b_kill(c->e2b, row.sandbox_id, NULL, NULL, &err);
}

static void a_sandbox_lost_in_the_middle(void **state)
{
	(void)state;
	ensure("gone");
	pid_t other = later(kill_at_the_provider);
	struct run_report r = run("print('go')\nimport time\ntime.sleep(30)", 60, -1);
	waitpid(other, NULL, 0);
	assert_int_equal(r.end, RUN_LOST);
	assert_false(r.not_run);
	struct sandbox_row next;
	const struct session s = { .owner = "ann", .id = "gone" };
	WORKS(session_ensure(&core, &s, &next, NULL, &err));
	assert_true(next.state_lost);
	stop("gone");
}

static void a_sandbox_that_was_gone_before(void **state)
{
	(void)state;
	ensure("before");
	WORKS(e2b_kill(core.e2b, row.sandbox_id, NULL, NULL, &err));
	struct run_report r = run("print(1)", 20, -1);
	assert_int_equal(r.end, RUN_LOST);
	assert_true(r.not_run); /* so another sandbox may be tried */
	ensure("before");
	assert_int_equal(row.generation, 2);
	r = run("print(1)", 20, -1);
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
	stop("before");
}

static void much_output_is_counted_exactly(void **state)
{
	(void)state;
	ensure("much");
	struct run_report r = run("for i in range(300000): print('x' * 99)", 60, -1);
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
	assert_int_equal(r.stdout_bytes, 30000000);
	assert_false(r.log_lost);
	stop("much");
}

static void a_log_that_cannot_be_written_is_said(void **state)
{
	(void)state;
	char dir[512];
	ensure("nolog");
	WORKS(run_events_dir(&settings, dir, sizeof dir, &err));
	char *good = settings.state_dir;
	settings.state_dir = "/proc/nowhere";
	struct run_report r = run("print(1)", 20, -1);
	settings.state_dir = good;
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
	assert_true(r.log_lost);
	stop("nolog");
}

int main(void)
{
	if (live_core_start("code-interpreter-v1") < 0)
		return 1;
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(code_that_works),
		T(code_that_fails_and_state_that_stays),
		T(the_limit_interrupts_and_keeps_the_state),
		T(a_client_that_leaves_interrupts_its_code),
		T(a_stop_ends_what_runs),
		T(a_sandbox_lost_in_the_middle),
		T(a_sandbox_that_was_gone_before),
		T(much_output_is_counted_exactly),
		T(a_log_that_cannot_be_written_is_said),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	live_core_stop();
	return failed;
}
