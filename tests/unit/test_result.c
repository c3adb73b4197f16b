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
	assert_int_equal(result_read(&result, dir, &report, &limits, &err), 0);
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
	adds(EVENT_RESULT,
	     "{\"type\":\"result\",\"text\":\"shown\",\"is_main_result\":false,\"extra\":{}}");
	adds(EVENT_RESULT,
	     "{\"type\":\"result\",\"text\":\"2\",\"png\":\"QUJD\",\"is_main_result\":true}");
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
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
