/* The route table: complete, and found by what stands in the request, not by what it could mean. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "api/routes.h"

#define A "/api/v1/session/"
#define B "/api/v1/sessions/"

static struct route_match match;

static enum route_answer find(const char *method, const char *uri)
{
	return routes_find(method, uri, &match);
}

static void every_row_says_who_may(void **state)
{
	(void)state;
	struct err err = { 0 };
	assert_int_equal(routes_check(&err), 0);
	for (size_t i = 0; routes_at(i); i++)
		assert_in_range(routes_at(i)->who, WHO_ANYONE, WHO_NGINX);
}

static void each_row_is_found_by_its_own_path(void **state)
{
	(void)state;
	for (size_t i = 0; routes_at(i); i++) {
		assert_int_equal(find(routes_at(i)->method, routes_at(i)->path), ROUTE_FOUND);
		assert_ptr_equal(match.route, routes_at(i));
	}
}

static void the_session_is_the_raw_segment(void **state)
{
	(void)state;
	assert_int_equal(find("GET", A "a%2Fb/sandbox/status?x=/y"), ROUTE_FOUND);
	assert_string_equal(match.session, "a%2Fb");
	assert_int_equal(match.route->dialect, DIALECT_A);
	assert_int_equal(find("POST", B "s1/sandbox/start"), ROUTE_FOUND);
	assert_string_equal(match.session, "s1");
	assert_int_equal(match.route->dialect, DIALECT_B);
	assert_int_equal(find("GET", A "/sandbox/status"), ROUTE_FOUND);
	assert_string_equal(match.session, "");
	assert_int_equal(find("GET", "/healthz"), ROUTE_FOUND);
	assert_string_equal(match.session, "");
}

static void the_second_segment_is_another_id(void **state)
{
	(void)state;
	assert_int_equal(find("GET", A "s1/sandbox/executions/x_1/events?after=2"), ROUTE_FOUND);
	assert_string_equal(match.session, "s1");
	assert_string_equal(match.id, "x_1");
	assert_int_equal(find("GET", A "s1/sandbox/executions/a%2Fb"), ROUTE_FOUND);
	assert_string_equal(match.id, "a%2Fb");
	assert_int_equal(find("GET", A "s1/sandbox/executions"), ROUTE_FOUND);
	assert_string_equal(match.id, "");
	assert_int_equal(find("POST", A "s1/sandbox/executions/x_1"), ROUTE_OTHER_METHOD);
	assert_string_equal(match.allow, "GET, HEAD, DELETE");
	assert_int_equal(find("POST", B "s1/sandbox/contexts/c-1/restart"), ROUTE_FOUND);
	assert_string_equal(match.id, "c-1");
	assert_int_equal(match.route->dialect, DIALECT_B);
	assert_int_equal(find("DELETE", A "s1/sandbox/contexts//restart"), ROUTE_OTHER_METHOD);
	assert_int_equal(find("DELETE", A "s1/sandbox/contexts/"), ROUTE_FOUND);
	assert_string_equal(match.id, "");
	assert_int_equal(find("PUT", A "s1/sandbox/contexts"), ROUTE_OTHER_METHOD);
	assert_string_equal(match.allow, "GET, HEAD, POST");
}

static void what_only_resembles_a_route_is_none(void **state)
{
	(void)state;
	static const char *const uris[] = {
		"",
		"/",
		"/healthz/",
		"/healthzz",
		"//healthz",
		A "s/sandbox",
		A "s/sandbox/",
		A "s/sandbox/status/",
		A "s/sandbox/statu",
		A "s/sandbox/statuss",
		A "s/t/sandbox/status",
		A "s/sandbox/st%61tus",
		"/api/v1/session/s/../s/sandbox/status",
		"/API/v1/session/s/sandbox/status",
	};
	for (size_t i = 0; i < sizeof uris / sizeof *uris; i++)
		assert_int_equal(find("GET", uris[i]), ROUTE_UNKNOWN);
}

static void another_method_is_told_which(void **state)
{
	(void)state;
	assert_int_equal(find("GET", A "s/sandbox/start"), ROUTE_OTHER_METHOD);
	assert_string_equal(match.allow, "POST");
	assert_int_equal(find("DELETE", A "s/sandbox/status"), ROUTE_OTHER_METHOD);
	assert_string_equal(match.allow, "GET, HEAD");
	assert_int_equal(find("HEAD", A "s/sandbox/status"), ROUTE_FOUND);
	assert_int_equal(find("get", A "s/sandbox/status"), ROUTE_OTHER_METHOD);
}

static void a_long_segment_is_cut_not_written_past_its_end(void **state)
{
	(void)state;
	char uri[1024] = A;
	memset(uri + strlen(A), 'x', 600);
	memcpy(uri + strlen(A) + 600, "/sandbox/status", sizeof "/sandbox/status");
	assert_int_equal(find("GET", uri), ROUTE_FOUND);
	assert_int_equal(strlen(match.session), sizeof match.session - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_says_who_may),
		cmocka_unit_test(each_row_is_found_by_its_own_path),
		cmocka_unit_test(the_session_is_the_raw_segment),
		cmocka_unit_test(the_second_segment_is_another_id),
		cmocka_unit_test(what_only_resembles_a_route_is_none),
		cmocka_unit_test(another_method_is_told_which),
		cmocka_unit_test(a_long_segment_is_cut_not_written_past_its_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
