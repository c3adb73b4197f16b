#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "wire/base64.h"
#include "cuts.h"

static int get_piece(void *ctx, const char *p, size_t n)
{
	return base64_get(ctx, p, n);
}

static int put_piece(void *ctx, const char *p, size_t n)
{
	return base64_put(ctx, p, n);
}

static const struct {
	const char *plain;
	size_t n;
	const char *text;
} rows[] = {
	{ LIT(""), "" },
	{ LIT("f"), "Zg==" },
	{ LIT("fo"), "Zm8=" },
	{ LIT("foo"), "Zm9v" },
	{ LIT("foob"), "Zm9vYg==" },
	{ LIT("fooba"), "Zm9vYmE=" },
	{ LIT("foobar"), "Zm9vYmFy" },
	{ LIT("root:"), "cm9vdDo=" },
	{ LIT("\0"), "AA==" },
	{ LIT("\0\0\0\0"), "AAAAAA==" },
	{ LIT("\xff\xff\xff"), "////" },
	{ LIT("\xfb\xef\xbe"), "++++" },
	{ LIT("\xff\xef\xbf\xff"), "/++//w==" },
};

static void vectors_go_both_ways(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf out = BUF(100);
		assert_int_equal(feed_piece(rows[i].plain, rows[i].n, put_piece, &out), 0);
		assert_string_equal(out.p, rows[i].text);
		assert_int_equal(out.len, strlen(rows[i].text));
		struct buf back = BUF(100);
		assert_int_equal(feed_piece(out.p, out.len, get_piece, &back), 0);
		assert_int_equal(back.len, rows[i].n);
		assert_memory_equal(back.p, rows[i].plain, rows[i].n);
		assert_int_equal(back.p[back.len], '\0');
		buf_free(&back);
		/* The same without its padding. */
		assert_int_equal(feed_piece(out.p, strcspn(out.p, "="), get_piece, &back), 0);
		assert_int_equal(back.len, rows[i].n);
		assert_memory_equal(back.p, rows[i].plain, rows[i].n);
		buf_free(&back);
		buf_free(&out);
	}
}

static void url_alphabet_is_read(void **state)
{
	(void)state;
	struct buf out = BUF(10);
	assert_int_equal(base64_get(&out, "_--__w==", 8), 0);
	assert_int_equal(base64_get(&out, "_--__w", 6), 0);
	assert_int_equal(out.len, 8);
	assert_memory_equal(out.p, "\xff\xef\xbf\xff\xff\xef\xbf\xff", 9);
	buf_free(&out);
}

static void what_is_no_base64_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *in;
		size_t n;
	} bad[] = {
		{ LIT("A") },          { LIT("AAAAA") },  { LIT("=") },        { LIT("==") },
		{ LIT("===") },        { LIT("====") },   { LIT("A=") },       { LIT("A==") },
		{ LIT("A===") },       { LIT("AA=") },    { LIT("AA===") },    { LIT("AAA==") },
		{ LIT("AAAA=") },      { LIT("AAAA==") }, { LIT("AAAA====") }, { LIT("AA==AA==") },
		{ LIT("A=AA") },       { LIT("=AAA") },   { LIT("AA=A") },     { LIT("AA A") },
		{ LIT("AAAA\n") },     { LIT("AAA\n") },  { LIT(" AAA") },     { LIT("AA\0A") },
		{ LIT("AAA\0") },      { LIT("AAA*") },   { LIT("AAA\xff") },  { LIT("AAA.") },
		{ LIT("AAAAAA\0\0") }, { LIT("%41AA") },
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct buf out = BUF(100);
		buf_adds(&out, "kept");
		if (!feed_piece(bad[i].in, bad[i].n, get_piece, &out))
			fail_msg("'%s' was accepted", bad[i].in);
		assert_string_equal(out.p, "kept");
		assert_int_equal(out.len, 4);
		buf_free(&out);
		assert_int_equal(base64_get(&out, bad[i].in, bad[i].n), -1);
		assert_int_equal(out.len, 0);
		assert_string_equal(out.p ? out.p : "", "");
		buf_free(&out);
	}
}

static void past_the_maximum_nothing_is_added(void **state)
{
	(void)state;
	struct buf out = BUF(5);
	buf_adds(&out, "ab");
	assert_int_equal(base64_put(&out, "x", 1), -1);
	assert_int_equal(base64_get(&out, "AAAAAA", 6), -1);
	assert_string_equal(out.p, "ab");
	assert_int_equal(base64_get(&out, "Zm9v", 4), 0);
	assert_string_equal(out.p, "abfoo");
	buf_free(&out);
	out.max = 4;
	assert_int_equal(base64_put(&out, "foob", 4), -1);
	assert_int_equal(base64_put(&out, "foo", 3), 0);
	assert_string_equal(out.p, "Zm9v");
	buf_free(&out);
}

static void all_bytes_of_all_lengths_return(void **state)
{
	(void)state;
	char in[1024];
	for (size_t i = 0; i < sizeof in; i++)
		in[i] = (char)(i * 7 + i / 256);
	for (size_t n = 0; n <= sizeof in; n++) {
		struct buf text = BUF(2000), back = BUF(2000);
		assert_int_equal(base64_put(&text, in, n), 0);
		assert_int_equal(text.len, (n + 2) / 3 * 4);
		assert_int_equal(base64_get(&back, text.p, text.len), 0);
		assert_int_equal(back.len, n);
		assert_memory_equal(back.p, in, n);
		buf_free(&text);
		buf_free(&back);
	}
	struct buf none = BUF(0);
	assert_int_equal(base64_put(&none, NULL, 0), 0);
	assert_int_equal(base64_get(&none, NULL, 0), 0);
	assert_string_equal(none.p, "");
	buf_free(&none);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vectors_go_both_ways),
		cmocka_unit_test(url_alphabet_is_read),
		cmocka_unit_test(what_is_no_base64_is_refused),
		cmocka_unit_test(past_the_maximum_nothing_is_added),
		cmocka_unit_test(all_bytes_of_all_lengths_return),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
