#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"

static void adds_and_terminates(void **state)
{
	(void)state;
	struct buf b = BUF(100);
	assert_null(b.p);
	assert_int_equal(buf_add(&b, "ab\0c", 4), 0);
	assert_int_equal(buf_adds(&b, "de"), 0);
	assert_int_equal(buf_addf(&b, "%d-%s", 42, "x"), 0);
	assert_int_equal(b.len, 10);
	assert_memory_equal(b.p, "ab\0cde42-x", 11);
	buf_free(&b);
}

static void adding_nothing_makes_an_empty_string(void **state)
{
	(void)state;
	struct buf b = BUF(0);
	assert_int_equal(buf_add(&b, NULL, 0), 0);
	assert_non_null(b.p);
	assert_string_equal(b.p, "");
	assert_int_equal(buf_adds(&b, "x"), -1);
	assert_int_equal(b.len, 0);
	buf_free(&b);
}

static void holds_exactly_its_maximum(void **state)
{
	(void)state;
	struct buf b = BUF(5);
	assert_int_equal(buf_adds(&b, "abc"), 0);
	assert_int_equal(buf_adds(&b, "def"), -1);
	assert_int_equal(buf_addf(&b, "%s", "def"), -1);
	assert_null(buf_room(&b, 3));
	assert_string_equal(b.p, "abc");
	assert_int_equal(b.len, 3);
	assert_int_equal(buf_addf(&b, "%s", "de"), 0);
	assert_string_equal(b.p, "abcde");
	assert_int_equal(buf_add(&b, "f", 1), -1);
	assert_null(buf_room(&b, SIZE_MAX));
	assert_string_equal(b.p, "abcde");
	buf_free(&b);
}

static void grows_over_many_additions(void **state)
{
	(void)state;
	struct buf b = BUF(1 << 20);
	for (int i = 0; i < 1 << 20; i++) {
		char c = (char)('a' + i % 26);
		assert_int_equal(buf_add(&b, &c, 1), 0);
	}
	assert_int_equal(b.len, 1 << 20);
	for (int i = 0; i < 1 << 20; i++)
		if (b.p[i] != 'a' + i % 26)
			fail_msg("byte %d is wrong", i);
	assert_int_equal(buf_adds(&b, "x"), -1);
	buf_free(&b);
}

static void room_is_writable(void **state)
{
	(void)state;
	struct buf b = BUF(1000);
	buf_adds(&b, "<");
	char *p = buf_room(&b, 500);
	assert_non_null(p);
	memset(p, 'x', 500);
	b.len += 500;
	assert_int_equal(buf_adds(&b, ">"), 0);
	assert_int_equal(b.len, 502);
	assert_int_equal(b.p[0], '<');
	assert_int_equal(b.p[500], 'x');
	assert_string_equal(b.p + 501, ">");
	buf_free(&b);
}

static void drops_from_the_front(void **state)
{
	(void)state;
	struct buf b = BUF(10);
	buf_drop(&b, 5);
	assert_int_equal(b.len, 0);
	buf_adds(&b, "abcdef");
	buf_drop(&b, 0);
	assert_string_equal(b.p, "abcdef");
	buf_drop(&b, 2);
	assert_string_equal(b.p, "cdef");
	assert_int_equal(b.len, 4);
	buf_drop(&b, 99);
	assert_string_equal(b.p, "");
	assert_int_equal(b.len, 0);
	assert_int_equal(buf_adds(&b, "0123456789"), 0);
	buf_free(&b);
}

static void steals_and_is_usable_again(void **state)
{
	(void)state;
	struct buf b = BUF(10);
	char *s = buf_steal(&b);
	assert_string_equal(s, "");
	free(s);
	buf_adds(&b, "abc");
	s = buf_steal(&b);
	assert_string_equal(s, "abc");
	free(s);
	assert_null(b.p);
	assert_int_equal(b.len, 0);
	assert_int_equal(buf_adds(&b, "0123456789"), 0);
	assert_int_equal(buf_adds(&b, "x"), -1);
	buf_free(&b);
	assert_null(b.p);
	assert_int_equal(buf_adds(&b, "again"), 0);
	assert_string_equal(b.p, "again");
	buf_free(&b);
	buf_free(&b);
}

static void error_is_set(void **state)
{
	(void)state;
	struct err err = { 0 };
	assert_int_equal(err_set(&err, ERR_LIMIT, "over %d", 7), -1);
	assert_int_equal(err.code, ERR_LIMIT);
	assert_string_equal(err.text, "over 7");
	assert_int_equal(err_set(NULL, ERR_LIMIT, "nobody asked"), -1);
	assert_int_equal(err_errno(NULL, "nobody asked"), -1);
}

static void error_text_is_cut_not_overrun(void **state)
{
	(void)state;
	struct err err;
	char big[2000];
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	assert_int_equal(err_set(&err, ERR_INVALID, "%s", big), -1);
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
	errno = ENOENT;
	assert_int_equal(err_errno(&err, "%s", big), -1);
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void errno_follows_the_message(void **state)
{
	(void)state;
	struct err err = { 0 };
	errno = ENOENT;
	assert_int_equal(err_errno(&err, "open %s", "x"), -1);
	assert_int_equal(err.code, ERR_INTERNAL);
	char want[200];
	snprintf(want, sizeof want, "open x: %s", strerror(ENOENT));
	assert_string_equal(err.text, want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adds_and_terminates),
		cmocka_unit_test(adding_nothing_makes_an_empty_string),
		cmocka_unit_test(holds_exactly_its_maximum),
		cmocka_unit_test(grows_over_many_additions),
		cmocka_unit_test(room_is_writable),
		cmocka_unit_test(drops_from_the_front),
		cmocka_unit_test(steals_and_is_usable_again),
		cmocka_unit_test(error_is_set),
		cmocka_unit_test(error_text_is_cut_not_overrun),
		cmocka_unit_test(errno_follows_the_message),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
