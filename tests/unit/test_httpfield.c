#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "wire/httpfield.h"

static void dates_go_both_ways(void **state)
{
	(void)state;
	static const struct {
		int64_t secs;
		const char *text;
	} rows[] = {
		{ 784111777, "Sun, 06 Nov 1994 08:49:37 GMT" },
		{ 0, "Thu, 01 Jan 1970 00:00:00 GMT" },
		{ -1, "Wed, 31 Dec 1969 23:59:59 GMT" },
		{ 951827696, "Tue, 29 Feb 2000 12:34:56 GMT" },
		{ 4102444799, "Thu, 31 Dec 2099 23:59:59 GMT" },
		{ 253402300799, "Fri, 31 Dec 9999 23:59:59 GMT" },
		{ -62135596800, "Mon, 01 Jan 0001 00:00:00 GMT" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[HTTP_DATE];
		assert_ptr_equal(http_date(out, rows[i].secs), out);
		assert_string_equal(out, rows[i].text);
		int64_t back = 7;
		assert_int_equal(http_date_parse(out, &back), 0);
		assert_int_equal(back, rows[i].secs);
	}
}

static void dates_past_four_digits_stay_at_the_edge(void **state)
{
	(void)state;
	char out[HTTP_DATE];
	assert_string_equal(http_date(out, INT64_MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
	assert_string_equal(http_date(out, INT64_MIN), "Mon, 01 Jan 0001 00:00:00 GMT");
}

static void other_dates_are_refused(void **state)
{
	(void)state;
	static const char *const rows[] = {
		"",
		"Sun, 06 Nov 1994 08:49:37",
		"Sun, 06 Nov 1994 08:49:37 GMT ",
		" Sun, 06 Nov 1994 08:49:37 GM",
		"Sun, 06 Nov 1994 08:49:37 UTC",
		"Sun, 06 Nov 1994 08:49:37 gmt",
		"sun, 06 Nov 1994 08:49:37 GMT",
		"Mon, 06 Nov 1994 08:49:37 GMT",
		"Sun, 06 nov 1994 08:49:37 GMT",
		"Sun, 06 Nob 1994 08:49:37 GMT",
		"Sun, 6 Nov 1994 08:49:37 GMT",
		"Sun,  6 Nov 1994 08:49:37 GMT",
		"Sun, 06-Nov-1994 08:49:37 GMT",
		"Sun, 06 Nov 1994 24:49:37 GMT",
		"Sun, 06 Nov 1994 08:60:37 GMT",
		"Sun, 06 Nov 1994 08:49:60 GMT",
		"Tue, 31 Feb 2000 12:34:56 GMT",
		"Thu, 00 Jan 1970 00:00:00 GMT",
		"Thu, 0: Jan 1970 00:00:00 GMT",
		"Thu, 01 Jan 1970 00:00:0\xff GMT",
		"Thu, 01 Jan -970 00:00:00 GMT",
		"Sat, 01 Jan 0000 00:00:00 GMT",
		"Sunday, 06-Nov-94 08:49:37 GMT",
		"Sun Nov  6 08:49:37 1994",
		"\xff\xff\xff, 06 Nov 1994 08:49:\xff\xff GMT",
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int64_t secs = 7;
		if (!http_date_parse(rows[i], &secs))
			fail_msg("'%s' was accepted", rows[i]);
		assert_int_equal(secs, 7);
	}
}

static void ranges_are_read(void **state)
{
	(void)state;
	static const struct {
		const char *field;
		uint64_t size;
		enum range_answer answer;
		uint64_t off, len;
	} rows[] = {
		{ "bytes=0-99", 1000, RANGE_PART, 0, 100 },
		{ "bytes=0-99", 50, RANGE_PART, 0, 50 },
		{ "bytes=0-0", 1, RANGE_PART, 0, 1 },
		{ "bytes=2-10", 10, RANGE_PART, 2, 8 },
		{ "bytes=5-", 10, RANGE_PART, 5, 5 },
		{ "bytes=9-9", 10, RANGE_PART, 9, 1 },
		{ "bytes=-3", 10, RANGE_PART, 7, 3 },
		{ "bytes=-10", 10, RANGE_PART, 0, 10 },
		{ "bytes=-11", 10, RANGE_PART, 0, 10 },
		{ "BYTES=0-1", 10, RANGE_PART, 0, 2 },
		{ "bytes= 0-1 ", 10, RANGE_PART, 0, 2 },
		{ "bytes=1-18446744073709551615", 10, RANGE_PART, 1, 9 },
		{ "bytes=1-99999999999999999999999", 10, RANGE_PART, 1, 9 },
		{ "bytes=-99999999999999999999999", 10, RANGE_PART, 0, 10 },
		{ "bytes=0-", UINT64_MAX, RANGE_PART, 0, UINT64_MAX },
		{ "bytes=18446744073709551614-", UINT64_MAX, RANGE_PART, UINT64_MAX - 1, 1 },
		{ "bytes=10-", 10, RANGE_BAD, 7, 7 },
		{ "bytes=10-20", 10, RANGE_BAD, 7, 7 },
		{ "bytes=99999999999999999999999-", 10, RANGE_BAD, 7, 7 },
		{ "bytes=18446744073709551616-", 10, RANGE_BAD, 7, 7 },
		{ "bytes=18446744073709551615-", UINT64_MAX, RANGE_BAD, 7, 7 },
		{ "bytes=-0", 10, RANGE_BAD, 7, 7 },
		{ "bytes=0-", 0, RANGE_BAD, 7, 7 },
		{ "bytes=-5", 0, RANGE_BAD, 7, 7 },
		{ NULL, 10, RANGE_NONE, 7, 7 },
		{ "", 10, RANGE_NONE, 7, 7 },
		{ "bytes", 10, RANGE_NONE, 7, 7 },
		{ "bytes=", 10, RANGE_NONE, 7, 7 },
		{ "bytes=-", 10, RANGE_NONE, 7, 7 },
		{ "bytes=--1", 10, RANGE_NONE, 7, 7 },
		{ "bytes=1", 10, RANGE_NONE, 7, 7 },
		{ "bytes=5-4", 10, RANGE_NONE, 7, 7 },
		{ "bytes=0-1,3-4", 10, RANGE_NONE, 7, 7 },
		{ "bytes=0-1,", 10, RANGE_NONE, 7, 7 },
		{ "bytes=,0-1", 10, RANGE_NONE, 7, 7 },
		{ "bytes=0 - 1", 10, RANGE_NONE, 7, 7 },
		{ "bytes=+0-1", 10, RANGE_NONE, 7, 7 },
		{ "bytes=0-1x", 10, RANGE_NONE, 7, 7 },
		{ "bytes=0x0-1", 10, RANGE_NONE, 7, 7 },
		{ "bytes=a-b", 10, RANGE_NONE, 7, 7 },
		{ "items=0-1", 10, RANGE_NONE, 7, 7 },
		{ "bytes 0-1/10", 10, RANGE_NONE, 7, 7 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		uint64_t off = 7, len = 7;
		if (http_range(rows[i].field, rows[i].size, &off, &len) != rows[i].answer)
			fail_msg("%s is judged wrongly", rows[i].field);
		assert_int_equal(off, rows[i].off);
		assert_int_equal(len, rows[i].len);
	}
}

static void encodings_are_weighed(void **state)
{
	(void)state;
	static const struct {
		const char *field;
		bool gzip, identity;
	} rows[] = {
		{ NULL, false, true },
		{ "", false, true },
		{ "gzip", true, true },
		{ "GZip", true, true },
		{ "gzip, deflate", true, true },
		{ "deflate,gzip", true, true },
		{ "deflate , gzip ;q=0.5", true, true },
		{ "deflate", false, true },
		{ "gzipped", false, true },
		{ "x-gzip", false, true },
		{ "zip", false, true },
		{ "gzip;q=0", false, true },
		{ "gzip;q=0.000", false, true },
		{ "gzip; q=0.", false, true },
		{ "gzip ; Q=0 , deflate", false, true },
		{ "gzip;q=0.001", true, true },
		{ "gzip;q=1", true, true },
		{ "gzip;x=0;q=0", false, true },
		{ "gzip;x=0", true, true },
		{ "deflate;q=0, gzip", true, true },
		{ "*", true, true },
		{ "*;q=0", false, false },
		{ "*;q=0, gzip", true, false },
		{ "gzip;q=0, *", false, true },
		{ "*, gzip;q=0", false, true },
		{ "identity", false, true },
		{ "identity;q=0", false, false },
		{ "identity;q=0.5, *;q=0", false, true },
		{ "*;q=0, identity", false, true },
		{ "gzip, identity;q=0", true, false },
		{ "gzip, identity; q=0.0", true, false },
		{ ",,gzip,,", true, true },
		{ ";q=0,gzip", true, true },
		{ "gzip;q=", true, true },
		{ "gzip;", true, true },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (http_accepts_gzip(rows[i].field) != rows[i].gzip)
			fail_msg("gzip of '%s' is judged wrongly", rows[i].field);
		if (http_accepts_identity(rows[i].field) != rows[i].identity)
			fail_msg("identity of '%s' is judged wrongly", rows[i].field);
	}
}

static void a_type_is_accepted_only_by_name(void **state)
{
	(void)state;
	static const struct {
		const char *field;
		bool accepted;
	} rows[] = {
		{ NULL, false },
		{ "", false },
		{ "*/*", false },
		{ "text/*", false },
		{ "text/event-stream", true },
		{ "Text/Event-Stream", true },
		{ "application/json, text/event-stream", true },
		{ "text/event-stream;charset=utf-8 , */*;q=0", true },
		{ "text/event-stream;q=0.1, application/json", true },
		{ "text/event-stream;q=0", false },
		{ "text/event-stream; q=0.00, */*", false },
		{ "x-text/event-stream", false },
		{ "text/event-streams", false },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (http_accepts_type(rows[i].field, "text/event-stream") != rows[i].accepted)
			fail_msg("'%s' is judged wrongly", rows[i].field);
}

static void basic_user_is_read(void **state)
{
	(void)state;
	static const struct {
		const char *field, *user;
	} rows[] = {
		{ "Basic cm9vdDo=", "root" },
		{ "Basic cm9vdDo", "root" },
		{ "basic  dXNlcjo= ", "user" },
		{ "BASIC dXNlcjpwYXNzOndvcmQ=", "user" }, /* user:pass:word */
		{ "Basic Og==", "" },
		{ "Basic w7w6", "\xc3\xbc" },
		{ "Basic MTIzNDU2Nzo=", "1234567" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[8] = "before";
		if (http_basic_user(rows[i].field, out, sizeof out))
			fail_msg("%s was refused", rows[i].field);
		assert_string_equal(out, rows[i].user);
	}
}

static void other_credentials_are_refused(void **state)
{
	(void)state;
	static const char *const rows[] = {
		NULL,
		"",
		"Basic",
		"Basic ",
		"Basiccm9vdDo=",
		"Bearer cm9vdDo=",
		"cm9vdDo=",
		"Basic cm9vdA==",   /* no colon */
		"Basic cm9v*Do=",   /* no base64 */
		"Basic cm9vdDo= x", /* something behind */
		"Basic cm9 vdDo=",
		"Basic cm8AdDo=",     /* ro\0t: */
		"Basic cm9vdAo6",     /* root\n: */
		"Basic f2E6",         /* DEL a: */
		"Basic MTIzNDU2Nzg6", /* eight characters */
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[8] = "before";
		if (!http_basic_user(rows[i], out, sizeof out))
			fail_msg("%s was accepted", rows[i]);
		assert_string_equal(out, "before");
	}
	char *huge = malloc(1 << 20);
	assert_non_null(huge);
	memset(huge, 'A', 1 << 20);
	memcpy(huge, "Basic Ojoo", 10);
	huge[(1 << 20) - 1] = '\0';
	char out[8] = "before";
	assert_int_equal(http_basic_user(huge, out, sizeof out), -1);
	assert_int_equal(http_basic_user("Basic Og==", out, 0), -1);
	assert_string_equal(out, "before");
	free(huge);
}

static void entity_tags_are_compared(void **state)
{
	(void)state;
	static const struct {
		const char *field, *etag;
		bool match;
	} rows[] = {
		{ "\"a\"", "\"a\"", true },
		{ "W/\"a\"", "\"a\"", true },
		{ "\"a\"", "W/\"a\"", true },
		{ "W/\"a\"", "W/\"a\"", true },
		{ "\"b\", \"a\"", "\"a\"", true },
		{ "\"b\",W/\"a\"", "\"a\"", true },
		{ " , \"b\" ,, \"a\" ", "\"a\"", true },
		{ "*", "\"a\"", true },
		{ " * ", "\"a\"", true },
		{ "\"a,b\"", "\"a,b\"", true },
		{ "\"\"", "\"\"", true },
		{ "\"a,b\"", "\"b\"", false },
		{ "\"x\\\"a\"", "\"a\"", false },
		{ "\"A\"", "\"a\"", false },
		{ "\"aa\"", "\"a\"", false },
		{ "\"a\"", "\"aa\"", false },
		{ "a", "\"a\"", false },
		{ "\"a", "\"a\"", false },
		{ "w/\"a\"", "\"a\"", false },
		{ "*a", "\"a\"", false },
		{ "\"b\", *", "\"a\"", false },
		{ "", "\"a\"", false },
		{ ",", "\"a\"", false },
		{ NULL, "\"a\"", false },
		{ "*", NULL, false },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (http_etag_match(rows[i].field, rows[i].etag) != rows[i].match)
			fail_msg("'%s' is judged wrongly", rows[i].field);
}

static void media_types_are_compared(void **state)
{
	(void)state;
	assert_true(http_type_is("application/json", "application/json"));
	assert_true(http_type_is("Application/JSON; charset=utf-8", "application/json"));
	assert_true(http_type_is(" application/json ;x", "application/json"));
	assert_true(http_type_is("application/json;", "application/json"));
	assert_false(http_type_is("application/json5", "application/json"));
	assert_false(http_type_is("application/jso", "application/json"));
	assert_false(http_type_is("application/json, text/html", "application/json"));
	assert_false(http_type_is("application/json text", "application/json"));
	assert_false(http_type_is("text/html; application/json", "application/json"));
	assert_false(http_type_is("", "application/json"));
	assert_false(http_type_is(NULL, "application/json"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dates_go_both_ways),
		cmocka_unit_test(dates_past_four_digits_stay_at_the_edge),
		cmocka_unit_test(other_dates_are_refused),
		cmocka_unit_test(ranges_are_read),
		cmocka_unit_test(encodings_are_weighed),
		cmocka_unit_test(a_type_is_accepted_only_by_name),
		cmocka_unit_test(basic_user_is_read),
		cmocka_unit_test(other_credentials_are_refused),
		cmocka_unit_test(entity_tags_are_compared),
		cmocka_unit_test(media_types_are_compared),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
