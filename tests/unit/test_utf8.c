#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "wire/utf8.h"
#include "cuts.h"

#define R "\xef\xbf\xbd"

struct run {
	struct utf8 utf8;
	struct buf out;
};

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct run *r = ctx;
	return utf8_feed(&r->utf8, p, n, &r->out);
}

/* What is no UTF-8, and what it becomes. The first rows are from the Unicode standard, tables 3-8
 * to 3-11. */
static const struct {
	const char *in;
	size_t n;
	const char *out;
	bool valid;
} rows[] = {
	{ LIT("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), R R R R R R R R "A", false },
	{ LIT("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), R R R R R R R R "A", false },
	{ LIT("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), R R R R R "A" R R "B", false },
	{ LIT("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), R R R R "A", false },
	{ LIT(""), "", true },
	{ LIT("plain"), "plain", true },
	{ LIT("\xc2\x80\xdf\xbf"), "\xc2\x80\xdf\xbf", true },
	{ LIT("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"),
	  "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf", true },
	{ LIT("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"), "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", true },
	{ LIT("a\xc3\xbc"
	      "b\xe2\x82\xac"
	      "c\xf0\x9f\x98\x80"
	      "d"),
	  "a\xc3\xbc"
	  "b\xe2\x82\xac"
	  "c\xf0\x9f\x98\x80"
	  "d",
	  true },
	{ LIT("\xc1\xbf"), R R, false },
	{ LIT("\xe0\x9f\xbf"), R R R, false },
	{ LIT("\xf0\x8f\xbf\xbf"), R R R R, false },
	{ LIT("\xf4\x90\x80\x80"), R R R R, false },
	{ LIT("\xf5\x80\x80\x80"), R R R R, false },
	{ LIT("\xf8\x88\x80\x80\x80"), R R R R R, false },
	{ LIT("\xfe\xff"), R R, false },
	{ LIT("\x80"), R, false },
	{ LIT("x\xc3"), "x" R, false },
	{ LIT("x\xe2\x82"), "x" R, false },
	{ LIT("x\xf0\x9f\x98"), "x" R, false },
	{ LIT("\xf0\x9f\x98\xf0\x9f\x98\x80"), R "\xf0\x9f\x98\x80", false },
	{ LIT("\xe2\xe2\x82\xac"), R "\xe2\x82\xac", false },
	{ LIT("\xf0\x9f\x98\n12345678\xc3("), R "\n12345678" R "(", false },
	{ LIT("12345678\xc3\xbc"
	      "12345678\xff"
	      "1234567"),
	  "12345678\xc3\xbc"
	  "12345678" R "1234567",
	  false },
};

static void every_cut_gives_the_same_text(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		for (size_t cut = 0; cut <= rows[i].n + 1; cut++) {
			struct run r = { .out = BUF(1000) };
			assert_int_equal(feed_cut(rows[i].in, rows[i].n, cut, on_piece, &r), 0);
			assert_int_equal(utf8_finish(&r.utf8, &r.out), 0);
			assert_int_equal(r.utf8.nheld, 0);
			assert_int_equal(utf8_finish(&r.utf8, &r.out), 0);
			assert_string_equal(r.out.p ? r.out.p : "", rows[i].out);
			assert_true(utf8_valid(r.out.p, r.out.len));
			buf_free(&r.out);
		}
	}
}

static int is_valid(void *ctx, const char *p, size_t n)
{
	(void)ctx;
	return utf8_valid(p, n);
}

static void validity_is_told(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (feed_piece(rows[i].in, rows[i].n, is_valid, NULL) != rows[i].valid)
			fail_msg("row %zu is judged wrongly", i);
	assert_true(utf8_valid("a\0b", 3));
	assert_true(utf8_valid(NULL, 0));
	/* The rest of the sequence is in memory, but not in the n bytes given. */
	assert_false(utf8_valid("\xc3\xbc", 1));
}

static void nul_passes(void **state)
{
	(void)state;
	struct run r = { .out = BUF(10) };
	assert_int_equal(on_piece(&r, "\0\xe2\0", 3), 0);
	assert_int_equal(r.out.len, 5);
	assert_memory_equal(r.out.p, "\0" R "\0", 5);
	buf_free(&r.out);
}

static void only_what_may_continue_is_held(void **state)
{
	(void)state;
	struct run r = { .out = BUF(100) };
	assert_int_equal(on_piece(&r, "a\xf0\x9f", 3), 0);
	assert_string_equal(r.out.p, "a");
	assert_int_equal(r.utf8.nheld, 2);
	assert_int_equal(utf8_feed(&r.utf8, NULL, 0, &r.out), 0);
	assert_int_equal(r.utf8.nheld, 2);
	assert_int_equal(on_piece(&r, "\x98", 1), 0);
	assert_int_equal(r.utf8.nheld, 3);
	assert_int_equal(on_piece(&r, "\x80\xc3", 2), 0);
	assert_string_equal(r.out.p, "a\xf0\x9f\x98\x80");
	assert_int_equal(r.utf8.nheld, 1);
	/* A surrogate is known for one at its second byte. */
	assert_int_equal(on_piece(&r, "\xbc\xed\xa0", 3), 0);
	assert_string_equal(r.out.p, "a\xf0\x9f\x98\x80\xc3\xbc" R R);
	assert_int_equal(r.utf8.nheld, 0);
	buf_free(&r.out);
}

static void full_is_reported(void **state)
{
	(void)state;
	struct run r = { .out = BUF(4) };
	assert_int_equal(on_piece(&r, "abcd", 4), 0);
	assert_int_equal(on_piece(&r, "\xe2", 1), 0);
	assert_int_equal(utf8_finish(&r.utf8, &r.out), -1);
	assert_int_equal(on_piece(&r, "e", 1), -1);
	assert_int_equal(on_piece(&r, "\xff", 1), -1);
	assert_int_equal(on_piece(&r, "\xc3", 1), 0);
	assert_int_equal(on_piece(&r, "\xbc", 1), -1);
	assert_string_equal(r.out.p, "abcd");
	buf_free(&r.out);
}

static void every_code_point_is_read(void **state)
{
	(void)state;
	for (uint32_t c = 0; c <= 0x10ffff; c++) {
		char s[4];
		size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
		static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
		s[0] = (char)(lead[n] | c >> (6 * (n - 1)));
		for (size_t i = 1; i < n; i++)
			s[i] = (char)(0x80 | (c >> (6 * (n - 1 - i)) & 0x3f));
		uint32_t got;
		size_t len = utf8_next(s, n, &got);
		bool surrogate = c >= 0xd800 && c <= 0xdfff;
		if (len != (surrogate ? 1 : n) || got != (surrogate ? UTF8_BAD : c))
			fail_msg("U+%04X is read as U+%04X", c, got);
		if (utf8_valid(s, n) == surrogate)
			fail_msg("U+%04X is judged wrongly", c);
	}
}

/* Judge the whole by the definition, one sequence after the other, without any shortcut. */
static bool valid_by_table(const unsigned char *p, size_t n)
{
	while (n) {
		size_t len = p[0] < 0x80                    ? 1
			     : p[0] >= 0xc2 && p[0] <= 0xdf ? 2
			     : p[0] >= 0xe0 && p[0] <= 0xef ? 3
			     : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
							    : 0;
		if (!len || len > n)
			return false;
		uint32_t c = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));
		for (size_t i = 1; i < len; i++) {
			if (p[i] >> 6 != 2)
				return false;
			c = c << 6 | (p[i] & 0x3fu);
		}
		static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
		if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
			return false;
		p += len;
		n -= len;
	}
	return true;
}

static void random_bytes_agree_with_the_table(void **state)
{
	(void)state;
	/* Bytes at the edges of the ranges, so that sequences form often. */
	static const unsigned char edges[] = { 'a',  0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0,
					       0xbf, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed,
					       0xee, 0xef, 0xf0, 0xf1, 0xf4, 0xf5 };
	uint32_t seed = 12345;
	for (int round = 0; round < 200000; round++) {
		unsigned char s[6];
		for (size_t i = 0; i < sizeof s; i++) {
			seed = seed * 1664525u + 1013904223u;
			s[i] = edges[(seed >> 16) % sizeof edges];
		}
		size_t n = 1 + (seed >> 8) % sizeof s;
		if (utf8_valid((char *)s, n) != valid_by_table(s, n))
			fail_msg("round %d is judged wrongly", round);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_gives_the_same_text),
		cmocka_unit_test(validity_is_told),
		cmocka_unit_test(nul_passes),
		cmocka_unit_test(only_what_may_continue_is_held),
		cmocka_unit_test(full_is_reported),
		cmocka_unit_test(every_code_point_is_read),
		cmocka_unit_test(random_bytes_agree_with_the_table),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
