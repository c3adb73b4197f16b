/* ExecutionResult from an event log. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/eventlog.h"
#include "core/result.h"

static char dir[64];
static struct eventlog *events;
static struct run_report report;
static const struct result_limits limits = { 1000, 200 };
static struct err err;

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof dir, "/tmp/sandgate-result-XXXXXX");
	report = (struct run_report){ .id = "x_1", .state = EXECUTION_SUCCEEDED, .ms = 12 };
	return mkdtemp(dir) ? eventlog_create(&events, dir, "x_1", &err) : -1;
}

static int tear_down(void **state)
{
	(void)state;
	eventlog_free(events);
	eventlog_remove(dir, "x_1", NULL);
	return rmdir(dir);
}

static void add(enum event_type type, const char *p, size_t n)
{
	if (type == EVENT_STDOUT)
		report.stdout_bytes += (int64_t)n;
	if (type == EVENT_STDERR)
		report.stderr_bytes += (int64_t)n;
	assert_int_equal(eventlog_add(events, type, p, n, NULL, &err), 0);
}

static void adds(enum event_type type, const char *s)
{
	add(type, s, strlen(s));
}

static struct json_object *result;

static struct json_object *get(const char *key)
{
	struct json_object *v = NULL;
	assert_true(json_object_object_get_ex(result, key, &v));
	return v;
}

static const char *text(const char *key)
{
	return json_object_get_string(get(key));
}

static void read_result(void)
{
	result = result_read(dir, &report, &limits);
}

static void plain_output(void **state)
{
	(void)state;
	adds(EVENT_STDOUT, "Hello, ");
	adds(EVENT_STDERR, "oops\n");
	adds(EVENT_STDOUT, "World!\n");
	adds(EVENT_DONE, "{}");
	read_result();
	assert_true(json_object_get_boolean(get("success")));
	assert_string_equal(text("output"), "Hello, World!\n");
	assert_string_equal(text("stdout"), "Hello, World!\n");
	assert_string_equal(text("stderr"), "oops\n");
	assert_null(get("error")); /* stderr alone is no error */
	assert_null(get("text"));
	assert_int_equal(json_object_get_int64(get("execution_time_ms")), 12);
	assert_string_equal(text("execution_id"), "x_1");
	assert_string_equal(text("state"), "succeeded");
	assert_false(json_object_get_boolean(get("truncated")));
	json_object_put(result);
}

static void the_main_result_follows_the_output(void **state)
{
	(void)state;
	adds(EVENT_STDOUT, "no newline");
	adds(EVENT_RESULT, "{\"text\":\"shown\",\"is_main_result\":false,\"extra\":{}}");
	adds(EVENT_RESULT, "{\"text\":\"2\",\"png\":\"QUJD\",\"is_main_result\":true}");
	read_result();
	assert_string_equal(text("output"), "no newline\n2\n");
	assert_string_equal(text("text"), "2");
	assert_int_equal(json_object_array_length(get("results")), 2);
	assert_string_equal(json_object_get_string(json_object_array_get_idx(get("artifacts"), 0)),
			    "data:image/png;base64,QUJD");
	json_object_put(result);
	adds(EVENT_RESULT, "{\"svg\":\"<svg/>\",\"is_main_result\":false}");
	read_result();
	assert_string_equal(json_object_get_string(json_object_array_get_idx(get("artifacts"), 1)),
			    "data:image/svg+xml;base64,PHN2Zy8+");
	json_object_put(result);
}

static void nothing_but_a_value(void **state)
{
	(void)state;
	adds(EVENT_RESULT, "{\"text\":\"2\",\"is_main_result\":true}");
	read_result();
	assert_string_equal(text("output"), "2\n");
	assert_string_equal(text("stdout"), "");
	json_object_put(result);
}

static void an_error(void **state)
{
	(void)state;
	report.state = EXECUTION_FAILED;
	adds(EVENT_ERROR, "{\"name\":\"ValueError\",\"value\":\"b\\u00e4d\",\"traceback\":"
			  "\"\\u001b[0;31mline\\u001b[0m 1\"}");
	read_result();
	assert_false(json_object_get_boolean(get("success")));
	assert_string_equal(text("error"), "ValueError: b\xc3\xa4"
					   "d\nline 1");
	struct json_object *v;
	assert_true(json_object_object_get_ex(get("error_detail"), "name", &v));
	assert_string_equal(json_object_get_string(v), "ValueError");
	json_object_put(result);
}

static void a_long_error_is_cut_between_characters(void **state)
{
	(void)state;
	char json[2048] = "{\"name\":\"E\",\"value\":\"";
	for (int i = 0; i < 300; i++)
		strncat(json, "\xc3\xa4", 3);
	strncat(json, "\",\"traceback\":\"\"}", 32);
	adds(EVENT_ERROR, json);
	read_result();
	const char *e = text("error");
	assert_in_range(strlen(e), 198, 200);
	assert_int_equal((unsigned char)e[strlen(e) - 1], 0xa4);
	json_object_put(result);
}

static void long_output_keeps_both_ends_and_counts(void **state)
{
	(void)state;
	char line[101];
	for (int i = 0; i < 1000; i++) {
		snprintf(line, sizeof line, "%099d\n", i);
		add(EVENT_STDOUT, line, 100);
	}
	read_result();
	const char *out = text("stdout");
	assert_true(json_object_get_boolean(get("truncated")));
	assert_int_equal(json_object_get_int64(get("stdout_bytes")), 100000);
	assert_non_null(strstr(out, "[... 99000 bytes are missing here ...]"));
	assert_memory_equal(out, "000", 3);
	assert_non_null(strstr(out, "0999\n"));
	assert_int_equal(strncmp(out + strlen(out) - 4, "999\n", 4), 0);
	json_object_put(result);
}

/* Pieces of any size give the same as one. */
static void the_cut_does_not_depend_on_the_pieces(void **state)
{
	(void)state;
	char all[5000];
	for (size_t i = 0; i < sizeof all; i++)
		all[i] = (char)('a' + i * i % 26);
	for (size_t at = 0, k = 1; at < sizeof all; k = k * 3 % 701 + 1) {
		size_t n = k < sizeof all - at ? k : sizeof all - at;
		add(EVENT_STDOUT, all + at, n);
		at += n;
	}
	read_result();
	const char *out = text("stdout");
	assert_memory_equal(out, all, 500);
	assert_memory_equal(out + strlen(out) - 500, all + sizeof all - 500, 500);
	json_object_put(result);
}

static void bytes_that_are_no_text(void **state)
{
	(void)state;
	add(EVENT_STDOUT, "a\xff\xc3", 3);
	add(EVENT_STDOUT, "\xa4z\xe2\x82", 4);
	read_result();
	assert_string_equal(text("stdout"), "a\xef\xbf\xbd\xc3\xa4z\xef\xbf\xbd");
	json_object_put(result);
}

static void a_log_that_is_not_there(void **state)
{
	(void)state;
	snprintf(report.id, sizeof report.id, "x_none");
	report.stdout_bytes = 7;
	read_result();
	assert_true(json_object_get_boolean(get("truncated")));
	assert_int_equal(json_object_get_int64(get("stdout_bytes")), 7);
	json_object_put(result);
}

/* ---- commands ---- */

static void exited(int code, const char *name)
{
	report.has_exit_code = true;
	report.exit_code = code;
	report.state = code ? EXECUTION_FAILED : EXECUTION_SUCCEEDED;
	snprintf(report.error_name, sizeof report.error_name, "%s", name);
}

static void a_command_that_succeeds(void **state)
{
	(void)state;
	adds(EVENT_STDOUT, "out\n");
	adds(EVENT_STDERR, "warning\n");
	exited(0, "");
	read_result();
	assert_true(json_object_get_boolean(get("success")));
	assert_int_equal(json_object_get_int(get("exit_code")), 0);
	assert_null(get("error"));
	assert_false(json_object_object_get_ex(result, "error_detail", NULL));
	json_object_put(result);
}

static void a_command_that_fails(void **state)
{
	(void)state;
	adds(EVENT_STDERR, " \n\x1b[31mERROR\x1b[0m: no\n such thing \n\n");
	exited(3, "exit status 3");
	read_result();
	assert_false(json_object_get_boolean(get("success")));
	assert_int_equal(json_object_get_int(get("exit_code")), 3);
	assert_string_equal(text("error"), "ERROR: no\n such thing");
	assert_string_equal(text("state"), "failed");
	json_object_put(result);
}

static void a_command_that_fails_without_a_word(void **state)
{
	(void)state;
	adds(EVENT_STDERR, "\n \n");
	exited(7, "exit status 7");
	read_result();
	assert_string_equal(text("error"), "exit status 7");
	json_object_put(result);
	exited(-1, "signal: killed");
	read_result();
	assert_string_equal(text("error"), "signal: killed");
	json_object_put(result);
	exited(9, "");
	read_result();
	assert_string_equal(text("error"), "exit status 9");
	json_object_put(result);
}

/* 200 bytes of two-byte characters, from either parity: the first one is whole. */
static void the_tail_of_stderr_begins_with_a_character(void **state)
{
	(void)state;
	for (int i = 0; i < 150; i++)
		adds(EVENT_STDERR, "\xc3\xa4");
	exited(1, "exit status 1");
	read_result();
	assert_int_equal(strlen(text("error")), 200);
	json_object_put(result);
	adds(EVENT_STDERR, "z");
	read_result();
	assert_int_equal(strlen(text("error")), 199);
	assert_int_equal((unsigned char)text("error")[0], 0xc3);
	json_object_put(result);
}

/* What was added to the log after pip's own success. */
static void an_error_of_its_own_comes_first(void **state)
{
	(void)state;
	adds(EVENT_STDERR, "warning\n");
	adds(EVENT_ERROR, "{\"name\":\"\",\"value\":\"cannot see: x\",\"traceback\":\"\"}");
	exited(0, "Error");
	report.state = EXECUTION_FAILED;
	read_result();
	assert_false(json_object_get_boolean(get("success")));
	assert_int_equal(json_object_get_int(get("exit_code")), 0);
	assert_string_equal(text("error"), "cannot see: x");
	json_object_put(result);
}

/* A character that two pieces share comes out whole, wherever it is cut. */
static void bytes_cut_inside_characters(void **state)
{
	(void)state;
	static const char all[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z";
	for (size_t cut = 0; cut < sizeof all; cut++) {
		add(EVENT_STDOUT, all, cut);
		add(EVENT_STDERR, "|", 1);
		add(EVENT_STDOUT, all + cut, sizeof all - 1 - cut);
	}
	read_result();
	assert_int_equal(strlen(text("stdout")), sizeof all * (sizeof all - 1));
	assert_null(strstr(text("stdout"), "\xef\xbf\xbd"));
	json_object_put(result);
}

static void the_cut_in_the_middle_is_between_characters(void **state)
{
	(void)state;
	add(EVENT_STDOUT, "x", 1); /* so that 500 bytes end in the middle of one */
	for (int i = 0; i < 1000; i++)
		adds(EVENT_STDOUT, "\xe2\x82\xac");
	read_result();
	const char *out = text("stdout");
	assert_null(strstr(out, "\xef\xbf\xbd"));
	/* 1 + 166 * 3 = 499 bytes at the beginning and 166 * 3 = 498 at the end are whole. */
	assert_non_null(strstr(out, "\n[... 2004 bytes are missing here ...]\n"));
	assert_int_equal(json_object_get_int64(get("stdout_bytes")), 3001);
	json_object_put(result);
}

static void results_that_are_not_as_they_should_be(void **state)
{
	(void)state;
	adds(EVENT_RESULT, "{\"text\":null,\"is_main_result\":true}");
	adds(EVENT_RESULT, "{\"text\":7,\"is_main_result\":true}");
	adds(EVENT_RESULT, "[]");
	adds(EVENT_RESULT, "{");
	adds(EVENT_ERROR, "[]");
	read_result();
	assert_null(get("text"));
	assert_null(get("error"));
	assert_string_equal(text("output"), "");
	assert_int_equal(json_object_array_length(get("results")), 2);
	json_object_put(result);
	adds(EVENT_ERROR, "{\"name\":null,\"value\":\"v\"}");
	read_result();
	assert_string_equal(text("error"), "v");
	json_object_put(result);
}

static void a_long_main_result_is_cut_between_characters(void **state)
{
	(void)state;
	char json[4096] = "{\"is_main_result\":true,\"text\":\"x";
	for (int i = 0; i < 1000; i++)
		strncat(json, "\xc3\xa4", 3);
	strncat(json, "\"}", 3);
	adds(EVENT_RESULT, json);
	read_result();
	assert_int_equal(strlen(text("output")), 999 + 1);
	assert_true(json_object_get_boolean(get("truncated")));
	assert_int_equal(strlen(text("text")), 2001);
	json_object_put(result);
}

/* ---- from the row ---- */

static struct execution_row row_with(enum execution_state state, const char *error_name)
{
	struct execution_row row = { .id = "x_1",
				     .state = state,
				     .started_at = 5000000,
				     .ended_at = 7500999,
				     .stdout_bytes = 11,
				     .stderr_bytes = 22 };
	snprintf(row.error_name, sizeof row.error_name, "%s", error_name);
	return row;
}

/* What finish writes into the row is what comes back. */
static void every_end_comes_back_from_its_row(void **state)
{
	(void)state;
	for (enum run_end end = RUN_ENDED; end <= RUN_REFUSED; end++)
		for (int own = 0; own < 3; own++) {
			struct run_report was = { .id = "x_1", .end = end }, now;
			if (own == 1)
				snprintf(was.error_name, sizeof was.error_name, "ValueError");
			if (own == 2 && end != RUN_REFUSED)
				continue;
			was.no_interpreter = own == 2;
			was.state = report_state(&was);
			struct execution_row row = row_with(was.state, report_error_name(&was));
			assert_int_equal(report_of_row(&row, &now), 0);
			assert_string_equal(now.id, "x_1");
			assert_int_equal(now.end, was.end);
			assert_int_equal(now.state, was.state);
			assert_int_equal(now.no_interpreter, was.no_interpreter);
			/* The end hides its own error, if it ever comes to both. */
			assert_string_equal(now.error_name, end ? "" : was.error_name);
			assert_int_equal(now.ms, 2500);
			assert_int_equal(now.stdout_bytes, 11);
			assert_int_equal(now.stderr_bytes, 22);
			assert_false(now.has_exit_code);
		}
	struct run_report untouched = { .ms = 77 };
	struct execution_row row = row_with(EXECUTION_RUNNING, "");
	assert_int_equal(report_of_row(&row, &untouched), -1);
	assert_int_equal(untouched.ms, 77);
}

static void a_result_again_from_the_row(void **state)
{
	(void)state;
	adds(EVENT_STDOUT, "hello");
	struct execution_row row = row_with(EXECUTION_FAILED, "exit status 4");
	row.stdout_bytes = 5;
	row.stderr_bytes = 0;
	row.has_exit_code = true;
	row.exit_code = 4;
	assert_int_equal(report_of_row(&row, &report), 0);
	read_result();
	assert_string_equal(text("error"), "exit status 4");
	assert_int_equal(json_object_get_int(get("exit_code")), 4);
	assert_int_equal(json_object_get_int64(get("execution_time_ms")), 2500);
	assert_false(json_object_get_boolean(get("truncated")));
	json_object_put(result);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(plain_output),
		T(the_main_result_follows_the_output),
		T(nothing_but_a_value),
		T(an_error),
		T(a_long_error_is_cut_between_characters),
		T(long_output_keeps_both_ends_and_counts),
		T(the_cut_does_not_depend_on_the_pieces),
		T(bytes_that_are_no_text),
		T(a_log_that_is_not_there),
		T(a_command_that_succeeds),
		T(a_command_that_fails),
		T(a_command_that_fails_without_a_word),
		T(the_tail_of_stderr_begins_with_a_character),
		T(an_error_of_its_own_comes_first),
		T(bytes_cut_inside_characters),
		T(the_cut_in_the_middle_is_between_characters),
		T(results_that_are_not_as_they_should_be),
		T(a_long_main_result_is_cut_between_characters),
		T(every_end_comes_back_from_its_row),
		T(a_result_again_from_the_row),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
