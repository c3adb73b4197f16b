/* Executions over the real engine: their rows, their logs and every way they end. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "store/leases.h"
#include "fake_server.h"
#include "live_run.h"

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

static void a_client_that_leaves_interrupts_its_code(void **state)
{
	(void)state;
	int fd;
	ensure("leaves");
	run("x = 1", 20, -1);
	pid_t client = client_for(700, &fd);
	int64_t from = clock_mono_us();
	struct run_report r = run("x = 2\nimport time\ntime.sleep(30)\nx = 3", 60, fd);
	assert_true(clock_mono_us() - from < 15 * SECOND_US);
	assert_int_equal(r.end, RUN_LEFT);
	assert_int_equal(r.state, EXECUTION_CANCELLED);
	r = run("x", 20, -1);
	assert_non_null(strstr(log_text(r.id), "\"text\":\"2\"")); /* interrupted, not run on */
	waitpid(client, NULL, 0);
	close(fd);
	stop("leaves");
}

static void stop_it(struct core *c)
{
	session_stop(c, "ann", "stopped", &err);
}

static void a_stop_ends_what_runs(void **state)
{
	(void)state;
	ensure("stopped");
	run("0", 60, -1); /* the kernel is there */
	pid_t other = later(stop_it);
	struct run_report r = run("print('go')\nimport time\ntime.sleep(30)", 60, -1);
	waitpid(other, NULL, 0);
	assert_int_equal(r.end, RUN_STOPPED);
	assert_int_equal(r.state, EXECUTION_FAILED);
	assert_string_equal(row_of(r.id).error_name, "sandbox_stopped");
	assert_non_null(strstr(log_text(r.id), "o:go\n"));
}

/* It waits for the one that will not end, and then takes its own time. */
static void run_next(struct core *c)
{
	struct run_report r;
	const char code[] = "import time\ntime.sleep(6)\ny = x";
	const struct run_request req = { .row = &row,
					 .code = code,
					 .ncode = strlen(code),
					 .limit_secs = 60,
					 .client_fd = -1,
					 .wake_fd = -1 };
	run_execution(c, &req, &r, &err);
}

static void code_that_waited_is_not_taken_for_a_stuck_context(void **state)
{
	(void)state;
	ensure("next");
	run("x = 7", 20, -1);
	pid_t other = later(run_next);
	struct run_report r = run("import time\ntime.sleep(60)", 3, -1);
	assert_int_equal(r.end, RUN_TIMED_OUT);
	waitpid(other, NULL, 0);
	r = run("y", 20, -1);
	assert_non_null(strstr(log_text(r.id), "\"text\":\"7\""));
	stop("next");
}

static void kill_at_the_provider(struct core *c)
{
	e2b_kill(c->e2b, row.sandbox_id, NULL, NULL, &err);
}

static void a_sandbox_lost_in_the_middle(void **state)
{
	(void)state;
	ensure("gone");
	run("0", 60, -1);
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

/* ---- commands ---- */

static void a_command_and_its_exit_status(void **state)
{
	(void)state;
	ensure("command");
	struct run_report r = COMMAND(20, -1, "printf", "%s|", "$HOME", "a b", "*");
	assert_int_equal(r.end, RUN_ENDED);
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
	assert_true(r.has_exit_code);
	assert_int_equal(r.exit_code, 0);
	assert_string_equal(log_text(r.id), "o:$HOME|a b|*|."); /* no shell was there */
	struct execution_row e = row_of(r.id);
	assert_int_equal(e.kind, EXECUTION_COMMAND);
	assert_string_equal(e.input, "printf %s| $HOME a b *");
	assert_true(e.has_exit_code);
	r = COMMAND(20, -1, "sh", "-c", "echo out; echo err >&2; exit 3");
	assert_int_equal(r.end, RUN_ENDED);
	assert_int_equal(r.state, EXECUTION_FAILED);
	assert_int_equal(r.exit_code, 3);
	e = row_of(r.id);
	assert_int_equal(e.exit_code, 3);
	assert_string_equal(e.error_name, "exit status 3");
	assert_int_equal(r.stdout_bytes, 4);
	assert_int_equal(r.stderr_bytes, 4);
	r = COMMAND(20, -1, "sh", "-c", "kill -9 $$");
	assert_int_equal(r.state, EXECUTION_FAILED);
	assert_int_equal(r.exit_code, -1);
	assert_non_null(strstr(r.error_name, "signal"));
	r = run("1", 20, -1);
	assert_false(r.has_exit_code);
	assert_false(row_of(r.id).has_exit_code);
	stop("command");
}

static void a_command_that_is_not_there(void **state)
{
	(void)state;
	ensure("nowhere");
	struct run_report r = COMMAND(20, -1, "/no/such/program");
	assert_int_equal(r.state, EXECUTION_FAILED);
	if (r.end == RUN_ENDED)
		assert_int_not_equal(r.exit_code, 0);
	else
		assert_int_equal(r.end, RUN_REFUSED);
	assert_false(r.no_interpreter);
	stop("nowhere");
}

static void bytes_of_a_command_cut_inside_characters(void **state)
{
	(void)state;
	ensure("bytes");
	struct run_report r =
		COMMAND(30, -1, "python3", "-c",
			"import os, time\nfor b in 'a\u00e4\u20ac\U0001f600z'.encode():\n"
			"    os.write(1, bytes([b]))\n    time.sleep(0.1)\nos.write(1, b'\\xff')");
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
	assert_int_equal(r.stdout_bytes, 12);
	assert_member(&r, "stdout", "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z\xef\xbf\xbd");
	stop("bytes");
}

static void the_limit_ends_a_command(void **state)
{
	(void)state;
	ensure("climit");
	run("x = 'kept'", 20, -1);
	int64_t from = clock_mono_us();
	struct run_report r =
		COMMAND(2, -1, "python3", "-c",
			"print('go', flush=True)\nimport time\ntime.sleep(300)", "limited");
	assert_true(clock_mono_us() - from >= 2 * SECOND_US);
	assert_int_equal(r.end, RUN_TIMED_OUT);
	assert_int_equal(r.state, EXECUTION_TIMED_OUT);
	assert_false(r.has_exit_code);
	assert_string_equal(row_of(r.id).error_name, "execution_timeout");
	assert_string_equal(log_text(r.id), "o:go\n.");
	assert_no_process("limited");
	r = run("x", 20, -1);
	assert_non_null(strstr(log_text(r.id), "\"text\":\"kept\""));
	stop("climit");
}

static void a_client_that_leaves_ends_its_command(void **state)
{
	(void)state;
	int fd;
	ensure("cleaves");
	pid_t client = client_for(700, &fd);
	int64_t from = clock_mono_us();
	struct run_report r =
		COMMAND(60, fd, "python3", "-c", "import time\ntime.sleep(300)", "left");
	assert_true(clock_mono_us() - from < 15 * SECOND_US);
	assert_int_equal(r.end, RUN_LEFT);
	assert_int_equal(r.state, EXECUTION_CANCELLED);
	assert_no_process("left");
	/* One that had left before is no reason to leave its command running either. */
	r = COMMAND(60, fd, "python3", "-c", "import time\ntime.sleep(300)", "left");
	assert_int_equal(r.end, RUN_LEFT);
	assert_no_process("left");
	waitpid(client, NULL, 0);
	close(fd);
	stop("cleaves");
}

static void a_stop_ends_a_command(void **state)
{
	(void)state;
	ensure("stopped");
	run("0", 60, -1); /* the kernel is there */
	pid_t other = later(stop_it);
	struct run_report r = COMMAND(60, -1, "sleep", "300");
	waitpid(other, NULL, 0);
	assert_int_equal(r.end, RUN_STOPPED);
	assert_int_equal(r.state, EXECUTION_FAILED);
	assert_string_equal(row_of(r.id).error_name, "sandbox_stopped");
}

static void a_command_in_a_sandbox_that_was_gone(void **state)
{
	(void)state;
	ensure("cbefore");
	WORKS(e2b_kill(core.e2b, row.sandbox_id, NULL, NULL, &err));
	struct run_report r = COMMAND(20, -1, "true");
	assert_int_equal(r.end, RUN_LOST);
	assert_true(r.not_run);
	stop("cbefore");
}

/* ---- no interpreter ---- */

static struct run_report run_patiently(int ms, int client_fd)
{
	struct run_report report;
	const struct run_request req = { .row = &row,
					 .code = "print(1)",
					 .ncode = 8,
					 .limit_secs = 20,
					 .port_wait_ms = ms,
					 .client_fd = client_fd,
					 .wake_fd = -1 };
	WORKS(run_execution(&core, &req, &report, &err));
	return report;
}

static void code_without_an_interpreter(void **state)
{
	(void)state;
	ensure_custom("base");
	int64_t from = clock_mono_us();
	struct run_report r = run_patiently(1200, -1), again;
	assert_true(clock_mono_us() - from >= 1200000);
	assert_int_equal(r.end, RUN_REFUSED);
	assert_true(r.no_interpreter);
	assert_int_equal(r.state, EXECUTION_FAILED);
	assert_false(r.not_run);
	struct execution_row e = row_of(r.id);
	assert_string_equal(e.error_name, "no_interpreter");
	assert_int_equal(report_of_row(&e, &again), 0);
	assert_true(again.no_interpreter);
	r = COMMAND(20, -1, "echo", "hi"); /* which is the way to use it */
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
	assert_string_equal(log_text(r.id), "o:hi\n.");
	stop("base");
}

static void a_client_that_leaves_while_nothing_listens(void **state)
{
	(void)state;
	int fd;
	ensure_custom("bleaves");
	pid_t client = client_for(700, &fd);
	int64_t from = clock_mono_us();
	struct run_report r = run_patiently(60000, fd);
	assert_true(clock_mono_us() - from < 20 * SECOND_US);
	assert_int_equal(r.end, RUN_LEFT);
	assert_false(r.no_interpreter);
	waitpid(client, NULL, 0);
	close(fd);
	stop("bleaves");
}

static void a_stop_while_nothing_listens(void **state)
{
	(void)state;
	ensure_custom("stopped");
	pid_t other = later(stop_it);
	struct run_report r = run_patiently(60000, -1);
	waitpid(other, NULL, 0);
	assert_int_equal(r.end, RUN_STOPPED);
	assert_false(r.no_interpreter);
}

/* The engine's port is open at once or never, so this one is played. */
static void an_interpreter_that_listens_later(void **state)
{
	(void)state;
#define CLOSED                                                                                     \
	"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n"                                    \
	"{\"message\":\"The sandbox is running but port is not open\"}"
	static const struct fake_reply replies[] = {
		{ CLOSED, FAKE_CLOSE },
		{ CLOSED, FAKE_CLOSE },
		{ "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
		  "{\"type\":\"number_of_executions\",\"execution_count\":1}\n"
		  "{\"type\":\"stdout\",\"text\":\"late\\n\"}\n"
		  "{\"type\":\"end_of_execution\"}\n",
		  FAKE_CLOSE },
	};
	struct fake fake;
	char url[64];
	ensure("late");
	fake_start(&fake, replies, sizeof replies / sizeof *replies, NULL);
	snprintf(url, sizeof url, "http://127.0.0.1:%d", fake.port);
	const struct e2b_config config = { .api_key = LIVE_KEY,
					   .api_url = engine.url,
					   .sandbox_url = url };
	struct e2b *real = core.e2b;
	WORKS(e2b_new(&core.e2b, &config, &err));
	struct run_report r = run("print(1)", 20, -1);
	e2b_free(core.e2b);
	core.e2b = real;
	assert_int_equal(atomic_load(&fake.requests), 3);
	fake_stop(&fake);
	assert_int_equal(r.end, RUN_ENDED);
	assert_int_equal(r.state, EXECUTION_SUCCEEDED);
	assert_string_equal(log_text(r.id), "o:late\n.");
	stop("late");
}

int main(void)
{
	setenv("SANDGATE_CUSTOM_TEMPLATE_ID", "base", 1);
	if (live_core_start("code-interpreter-v1") < 0)
		return 1;
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(code_that_works),
		T(code_that_fails_and_state_that_stays),
		T(the_limit_interrupts_and_keeps_the_state),
		T(a_client_that_leaves_interrupts_its_code),
		T(a_stop_ends_what_runs),
		T(code_that_waited_is_not_taken_for_a_stuck_context),
		T(a_sandbox_lost_in_the_middle),
		T(a_sandbox_that_was_gone_before),
		T(much_output_is_counted_exactly),
		T(a_log_that_cannot_be_written_is_said),
		T(a_command_and_its_exit_status),
		T(a_command_that_is_not_there),
		T(bytes_of_a_command_cut_inside_characters),
		T(the_limit_ends_a_command),
		T(a_client_that_leaves_ends_its_command),
		T(a_stop_ends_a_command),
		T(a_command_in_a_sandbox_that_was_gone),
		T(code_without_an_interpreter),
		T(a_client_that_leaves_while_nothing_listens),
		T(a_stop_while_nothing_listens),
		T(an_interpreter_that_listens_later),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	live_core_stop();
	return failed;
}
