#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "wire/uri.h"
#include "cuts.h"

/* Decode a piece of memory that ends where the input ends. */
static int decode(char *out, size_t cap, const char *in, size_t n, bool plus)
{
	char *piece = malloc(n ? n : 1);
	assert_non_null(piece);
	memcpy(piece, in, n);
	int rc = uri_decode(out, cap, piece, n, plus);
	free(piece);
	return rc;
}

static void decodes_once(void **state)
{
	(void)state;
	static const struct {
		const char *in, *out;
		bool plus;
	} rows[] = {
		{ "", "", false },
		{ "abc", "abc", false },
		{ "a%20b", "a b", false },
		{ "a+b", "a+b", false },
		{ "a+b%2B", "a b+", true },
		{ "%2525", "%25", false },
		{ "%2f%2F%c3%BC", "//\xc3\xbc", false },
		{ "%ff%01", "\xff\x01", false },
		{ "%aA%Fa%90", "\xaa\xfa\x90", false },
		{ "\xff%7e", "\xff~", false },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[64];
		assert_int_equal(
			decode(out, sizeof out, rows[i].in, strlen(rows[i].in), rows[i].plus), 0);
		assert_string_equal(out, rows[i].out);
	}
}

static void broken_escapes_and_nul_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *in;
		size_t n;
	} rows[] = {
		{ LIT("%") },     { LIT("%4") },   { LIT("a%") },   { LIT("%4g") }, { LIT("%g4") },
		{ LIT("%%41") },  { LIT("% 41") }, { LIT("%-1") },  { LIT("%00") }, { LIT("a\0b") },
		{ LIT("ab%00") }, { LIT("\0") },   { LIT("%4\0") }, { LIT("%0x") },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[16] = "before";
		assert_int_equal(decode(out, sizeof out, rows[i].in, rows[i].n, true), -1);
		assert_string_equal(out, "");
	}
}

static void an_escape_stops_at_the_length(void **state)
{
	(void)state;
	char out[8];
	/* The digits are in memory, but not in the n bytes given. */
	assert_int_equal(uri_decode(out, sizeof out, "%41", 2, false), -1);
	assert_int_equal(uri_decode(out, sizeof out, "%41", 1, false), -1);
	assert_int_equal(uri_decode(out, sizeof out, "%4142", 3, false), 0);
	assert_string_equal(out, "A");
}

static void result_must_fit_with_its_nul(void **state)
{
	(void)state;
	for (size_t cap = 0; cap < 8; cap++) {
		char *out = malloc(cap ? cap : 1);
		assert_non_null(out);
		int want = cap >= 5 ? 0 : -1;
		assert_int_equal(uri_decode(out, cap, "a%62cd", 6, false), want);
		if (!want)
			assert_string_equal(out, "abcd");
		free(out);
	}
	char one[1] = { 'x' };
	assert_int_equal(uri_decode(one, 1, NULL, 0, false), 0);
	assert_int_equal(one[0], '\0');
}

static void encodes_all_but_unreserved(void **state)
{
	(void)state;
	char all[256], back[257];
	for (int i = 0; i < 256; i++)
		all[i] = (char)i;
	struct buf out = BUF(1000);
	assert_int_equal(uri_encode(&out, all + 1, 255), 0);
	assert_int_equal(out.len, 66 + 3 * (255 - 66));
	assert_int_equal(strlen(out.p), out.len);
	assert_int_equal(strspn(out.p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				       "0123456789-._~%"),
			 out.len);
	assert_int_equal(uri_decode(back, sizeof back, out.p, out.len, true), 0);
	assert_memory_equal(back, all + 1, 255);
	buf_free(&out);

	assert_int_equal(uri_encode(&out, "\0/\xc3\xbc", 4), 0);
	assert_string_equal(out.p, "%00%2F%C3%BC");
	assert_int_equal(uri_encode(&out, NULL, 0), 0);
	assert_string_equal(out.p, "%00%2F%C3%BC");
	buf_free(&out);
}

static void encoding_past_the_maximum_adds_nothing(void **state)
{
	(void)state;
	struct buf out = BUF(5);
	buf_adds(&out, "ab");
	assert_int_equal(uri_encode(&out, "c/", 2), -1);
	assert_string_equal(out.p, "ab");
	assert_int_equal(uri_encode(&out, "/", 1), 0);
	assert_string_equal(out.p, "ab%2F");
	buf_free(&out);
}

static void finds_the_first_value(void **state)
{
	(void)state;
	static const struct {
		const char *query, *key, *value;
	} rows[] = {
		{ "a=1&b=2", "a", "1" },
		{ "a=1&b=2", "b", "2" },
		{ "a=1&a=2", "a", "1" },
		{ "aa=1&a=2", "a", "2" },
		{ "a=1&aa=2", "aa", "2" },
		{ "path=a%20b%2F%C3%BC.txt&username=root", "path", "a b/\xc3\xbc.txt" },
		{ "p=a+b", "p", "a b" },
		{ "p=a=b", "p", "a=b" },
		{ "p=", "p", "" },
		{ "p", "p", "" },
		{ "p&q=1", "p", "" },
		{ "&&p=1&", "p", "1" },
		{ "p%61th=x", "path", "x" },
		{ "a+b=x", "a b", "x" },
		{ "%zz=1&b=2", "b", "2" },
		{ "m=a%252520b%3Dc", "m", "a%2520b=c" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[64] = "before";
		assert_int_equal(query_get(rows[i].query, rows[i].key, out, sizeof out), 1);
		assert_string_equal(out, rows[i].value);
	}
}

static void absent_is_not_malformed(void **state)
{
	(void)state;
	char out[8] = "before";
	assert_int_equal(query_get(NULL, "a", out, sizeof out), 0);
	assert_int_equal(query_get("", "a", out, sizeof out), 0);
	assert_int_equal(query_get("&", "a", out, sizeof out), 0);
	assert_int_equal(query_get("&", "", out, sizeof out), 0);
	assert_int_equal(query_get("b=a", "a", out, sizeof out), 0);
	assert_int_equal(query_get("A=1", "a", out, sizeof out), 0);
	assert_int_equal(query_get("ab=1", "a", out, sizeof out), 0);
	assert_int_equal(query_get("a%00=1", "a", out, sizeof out), 0);
	assert_int_equal(query_get("=a&b=%zz", "a", out, sizeof out), 0);
	assert_string_equal(out, "before");

	assert_int_equal(query_get("a=%", "a", out, sizeof out), -1);
	assert_int_equal(query_get("a=%4&b", "a", out, sizeof out), -1);
	assert_int_equal(query_get("a=x%00", "a", out, sizeof out), -1);
	/* The first value counts, also when a later one would do. */
	assert_int_equal(query_get("a=%zz&a=1", "a", out, sizeof out), -1);
	assert_int_equal(query_get("a=1234567", "a", out, sizeof out), 1);
	assert_int_equal(query_get("a=12345678", "a", out, sizeof out), -1);
}

static void a_huge_query_is_walked(void **state)
{
	(void)state;
	enum { N = 4 << 20 };
	char *query = malloc(N + 5);
	assert_non_null(query);
	memset(query, '&', N);
	memcpy(query + N, "&a=1", 5);
	char out[8];
	assert_int_equal(query_get(query, "a", out, sizeof out), 1);
	memset(query, 'a', N);
	assert_int_equal(query_get(query, "b", out, sizeof out), 0);
	free(query);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decodes_once),
		cmocka_unit_test(broken_escapes_and_nul_are_refused),
		cmocka_unit_test(an_escape_stops_at_the_length),
		cmocka_unit_test(result_must_fit_with_its_nul),
		cmocka_unit_test(encodes_all_but_unreserved),
		cmocka_unit_test(encoding_past_the_maximum_adds_nothing),
		cmocka_unit_test(finds_the_first_value),
		cmocka_unit_test(absent_is_not_malformed),
		cmocka_unit_test(a_huge_query_is_walked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
