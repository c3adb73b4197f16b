#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "wire/disposition.h"
#include "wire/uri.h"

static void names_are_written(void **state)
{
	(void)state;
	static const struct {
		const char *name, *out;
	} rows[] = {
		{ "a.txt", "attachment; filename=\"a.txt\"" },
		{ "a b;c=d,'e'.txt", "attachment; filename=\"a b;c=d,'e'.txt\"" },
		{ "", "attachment; filename=\"\"" },
		{ "100%.txt", "attachment; filename=\"100%.txt\"" },
		{ "%4g%", "attachment; filename=\"%4g%\"" },
		{ "a%41", "attachment; filename=\"a_41\"; filename*=UTF-8''a%2541" },
		{ "a\"b", "attachment; filename=\"a_b\"; filename*=UTF-8''a%22b" },
		{ "a\\", "attachment; filename=\"a_\"; filename*=UTF-8''a%5C" },
		{ "a\r\nX: y",
		  "attachment; filename=\"a__X: y\"; filename*=UTF-8''a%0D%0AX%3A%20y" },
		{ "a\x7f", "attachment; filename=\"a_\"; filename*=UTF-8''a%7F" },
		{ "\xc3\xbc.txt", "attachment; filename=\"_.txt\"; filename*=UTF-8''%C3%BC.txt" },
		{ "\xf0\x9f\x90\x8d", "attachment; filename=\"_\"; filename*=UTF-8''%F0%9F%90%8D" },
		/* Not UTF-8, and a sequence that the end cuts off. */
		{ "a\xff"
		  "b\xc3",
		  "attachment; filename=\"a_b_\"; filename*=UTF-8''a%EF%BF%BDb%EF%BF%BD" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf out = BUF(1000);
		assert_int_equal(disposition_attachment(&out, rows[i].name), 0);
		assert_string_equal(out.p, rows[i].out);
		assert_int_equal(out.len, strlen(rows[i].out));
		buf_free(&out);
	}
}

/* Every byte there is, alone and in company: the field stays one line of ASCII with one pair of
 * quotes, and the name can be read back from it. */
static void no_byte_breaks_out(void **state)
{
	(void)state;
	for (int c = 1; c < 256; c++) {
		char name[] = { 'a', (char)c, 'b', '\0' }, back[64];
		struct buf out = BUF(1000);
		assert_int_equal(disposition_attachment(&out, name), 0);
		int quotes = 0;
		for (size_t i = 0; i < out.len; i++) {
			assert_true(out.p[i] >= ' ' && out.p[i] <= '~');
			quotes += out.p[i] == '"';
		}
		assert_int_equal(quotes, 2);
		const char *star = strstr(out.p, "''");
		if (star && c < 0x80) {
			assert_int_equal(
				uri_decode(back, sizeof back, star + 2, strlen(star + 2), false),
				0);
			assert_string_equal(back, name);
		}
		buf_free(&out);
	}
}

static void a_full_buffer_stays_as_it_was(void **state)
{
	(void)state;
	for (size_t max = 1; max < 50; max++) {
		struct buf out = BUF(max);
		assert_int_equal(buf_adds(&out, "x"), 0);
		assert_int_equal(disposition_attachment(&out, "\xc3\xbc"), -1);
		assert_string_equal(out.p, "x");
		assert_int_equal(out.len, 1);
		buf_free(&out);
	}
	struct buf none = BUF(0);
	assert_int_equal(disposition_attachment(&none, "a"), -1);
	buf_free(&none);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_written),
		cmocka_unit_test(no_byte_breaks_out),
		cmocka_unit_test(a_full_buffer_stays_as_it_was),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
