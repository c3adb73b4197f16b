#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "wire/sse.h"

static void our_ids_are_read(void **state)
{
	(void)state;
	static const struct {
		const char *field;
		uint64_t want;
	} rows[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "10", 10 },
		{ "9223372036854775808", 9223372036854775808u },
		{ "18446744073709551615", UINT64_MAX },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		uint64_t seq = 7;
		if (sse_id_parse(rows[i].field, &seq))
			fail_msg("'%s' was refused", rows[i].field);
		assert_true(seq == rows[i].want);
	}
}

static void other_ids_are_refused(void **state)
{
	(void)state;
	static const char *const rows[] = {
		"",
		"-1",
		"+1",
		" 1",
		"1 ",
		"1\n",
		"00",
		"01",
		"1.0",
		"1e3",
		"0x10",
		"a",
		"1:2",
		"\xd9\xa1",
		"18446744073709551616",
		"18446744073709551620",
		"99999999999999999999",
		"184467440737095516150",
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		uint64_t seq = 7;
		if (!sse_id_parse(rows[i], &seq))
			fail_msg("'%s' was accepted", rows[i]);
		assert_true(seq == 7);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(our_ids_are_read),
		cmocka_unit_test(other_ids_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
