#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static void monotonic_moves_forward(void **state)
{
	(void)state;
	int64_t a = clock_mono_us();
	usleep(2000);
	int64_t b = clock_mono_us();
	assert_true(b - a >= 2000);
	assert_true(b - a < 60 * SECOND_US);
}

static void real_is_the_time_of_day(void **state)
{
	(void)state;
	int64_t diff = clock_real_us() / SECOND_US - (int64_t)time(NULL);
	assert_true(diff >= -2 && diff <= 2);
}

static void is_written(void **state)
{
	(void)state;
	static const struct {
		int64_t us;
		const char *text;
	} rows[] = {
		{ 0, "1970-01-01T00:00:00.000000Z" },
		{ 1, "1970-01-01T00:00:00.000001Z" },
		{ -1, "1969-12-31T23:59:59.999999Z" },
		{ 1769094371971102, "2026-01-22T15:06:11.971102Z" },
		{ 951827696 * SECOND_US, "2000-02-29T12:34:56.000000Z" },
		{ -62135596800 * SECOND_US, "0001-01-01T00:00:00.000000Z" }, /* Go's zero */
		{ -30641760001 * SECOND_US, "0998-12-31T23:59:59.000000Z" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[CLOCK_TEXT];
		assert_ptr_equal(clock_rfc3339(out, rows[i].us), out);
		assert_string_equal(out, rows[i].text);
		int64_t back = 7;
		assert_int_equal(clock_parse_rfc3339(out, &back), 0);
		assert_int_equal(back, rows[i].us);
	}
}

static void extreme_values_become_the_nearest_that_can_be_written(void **state)
{
	(void)state;
	static const int64_t first = -62167219200 * SECOND_US, last = 253402300800 * SECOND_US - 1;
	char out[CLOCK_TEXT];
	assert_string_equal(clock_rfc3339(out, first), "0000-01-01T00:00:00.000000Z");
	assert_string_equal(clock_rfc3339(out, first - 1), "0000-01-01T00:00:00.000000Z");
	assert_string_equal(clock_rfc3339(out, INT64_MIN), "0000-01-01T00:00:00.000000Z");
	assert_string_equal(clock_rfc3339(out, last), "9999-12-31T23:59:59.999999Z");
	assert_string_equal(clock_rfc3339(out, last + 1), "9999-12-31T23:59:59.999999Z");
	assert_string_equal(clock_rfc3339(out, INT64_MAX), "9999-12-31T23:59:59.999999Z");
}

static void is_read(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int64_t us;
	} rows[] = {
		{ "2026-01-22T15:06:11Z", 1769094371 * SECOND_US },
		{ "2026-01-22t15:06:11z", 1769094371 * SECOND_US },
		{ "2026-01-22T15:06:11.5Z", 1769094371 * SECOND_US + 500000 },
		{ "2026-01-22T15:06:11.971102345Z", 1769094371971102 },
		{ "2026-01-22T15:06:11.00000000000000000000000000001Z", 1769094371 * SECOND_US },
		{ "2026-01-22T16:36:11+01:30", 1769094371 * SECOND_US },
		{ "2026-01-22T13:36:11.25-01:30", 1769094371 * SECOND_US + 250000 },
		{ "2026-01-22T15:06:11-00:00", 1769094371 * SECOND_US },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int64_t us = 7;
		if (clock_parse_rfc3339(rows[i].text, &us))
			fail_msg("%s was refused", rows[i].text);
		assert_int_equal(us, rows[i].us);
	}
}

static void nonsense_is_refused(void **state)
{
	(void)state;
	static const char *const rows[] = {
		"0000-01-01T00:00:00+00:01", /* in UTC outside of the four digits */
		"9999-12-31T23:59:60Z",
		"",
		"now",
		"2026",
		"2026-01-22",
		"2026-01-22T",
		"2026-01-22 15:06:11Z",
		"2026-01-22T15:06Z",
		"2026-01-22T15:06:11",
		"2026-01-22T15:06:11.Z",
		"2026-01-22T15:06:11.5",
		"2026-01-22T15:06:11ZZ",
		"2026-01-22T15:06:11Z ",
		"2026-01-22T15:06:11+01",
		"2026-01-22T15:06:11+0130",
		"2026-01-22T15:06:11+01:3",
		"2026-01-22T15:06:11+01:30x",
		"2026-13-22T15:06:11Z",
		"2026-01-32T15:06:11Z",
		"2026-01-22T24:06:11Z",
		"2026-01-22T15:60:11Z",
		"2026-01-22T15:06:62Z",
		" 2026-1-2T 3:4:5Z",
		"2026-02-31T00:00:00Z",
		"2026-01-01T00:00:00+-1:00",
		"2026-01-01T00:00:00+ 1: 2",
		"2026-01-01T00:00:00+99:99",
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int64_t us = 7;
		if (!clock_parse_rfc3339(rows[i], &us))
			fail_msg("'%s' was accepted", rows[i]);
		assert_int_equal(us, 7);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(monotonic_moves_forward),
		cmocka_unit_test(real_is_the_time_of_day),
		cmocka_unit_test(is_written),
		cmocka_unit_test(extreme_values_become_the_nearest_that_can_be_written),
		cmocka_unit_test(is_read),
		cmocka_unit_test(nonsense_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
