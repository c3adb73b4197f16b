#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "wire/jsontext.h"
#include "cuts.h"

static int put_piece(void *ctx, const char *p, size_t n)
{
	return json_put_string(ctx, p, n);
}

static void strings_are_written_in_ascii(void **state)
{
	(void)state;
	static const struct {
		const char *in;
		size_t n;
		const char *out;
	} rows[] = {
		{ LIT(""), "\"\"" },
		{ LIT("abc /~"), "\"abc /~\"" },
		{ LIT("\"\\/"), "\"\\\"\\\\/\"" },
		{ LIT("\b\f\n\r\t"), "\"\\b\\f\\n\\r\\t\"" },
		{ LIT("\0\x01\x1f\x7f"), "\"\\u0000\\u0001\\u001f\x7f\"" },
		{ LIT("\xc3\xbc"), "\"\\u00fc\"" },
		{ LIT("\xe2\x82\xac"
		      "x"),
		  "\"\\u20acx\"" },
		{ LIT("\xef\xbf\xbf"), "\"\\uffff\"" },
		{ LIT("\xf0\x90\x80\x80"), "\"\\ud800\\udc00\"" },
		{ LIT("\xf0\x9f\x98\x80"), "\"\\ud83d\\ude00\"" },
		{ LIT("\xf4\x8f\xbf\xbf"), "\"\\udbff\\udfff\"" },
		{ LIT("a\xff"
		      "b"),
		  "\"a\\ufffdb\"" },
		{ LIT("\xc0\xaf"), "\"\\ufffd\\ufffd\"" },
		{ LIT("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"" },
		{ LIT("\xf0\x9f\x98"), "\"\\ufffd\"" },
		{ LIT("\xe2\x82\""), "\"\\ufffd\\\"\"" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf out = BUF(100);
		assert_int_equal(feed_piece(rows[i].in, rows[i].n, put_piece, &out), 0);
		assert_string_equal(out.p, rows[i].out);
		buf_free(&out);
	}
}

static void strings_are_written_in_utf8(void **state)
{
	(void)state;
	static const char in[] = "a\"\n\x01\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\xff\xed\xa0\x80";
	struct buf out = BUF(100);
	assert_int_equal(json_put_utf8(&out, in, sizeof in - 1), 0);
	assert_string_equal(out.p, "\"a\\\"\\n\\u0001\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"
				   "\\ufffd\\ufffd\\ufffd\\ufffd\"");
	buf_free(&out);
}

static void every_byte_gives_valid_json(void **state)
{
	(void)state;
	for (int a = 0; a < 256; a++) {
		for (int b = 0; b < 256; b++) {
			struct buf out = BUF(100);
			const char in[2] = { (char)a, (char)b };
			buf_adds(&out, "{");
			assert_int_equal(json_put_string(&out, in, 2), 0);
			buf_adds(&out, ":1}");
			if (!json_is_ascii_object(out.p, out.len))
				fail_msg("%s is no JSON", out.p);
			buf_free(&out);
		}
	}
}

static void a_string_past_the_maximum_adds_nothing(void **state)
{
	(void)state;
	static const char in[] = "a\n\xc3\xbc\xf0\x9f\x98\x80";
	static const char want[] = "<\"a\\n\\u00fc\\ud83d\\ude00\"";
	for (size_t max = 1; max <= sizeof want - 1; max++) {
		struct buf out = BUF(max);
		buf_adds(&out, "<");
		bool fits = max == sizeof want - 1;
		assert_int_equal(json_put_string(&out, in, sizeof in - 1), fits ? 0 : -1);
		assert_string_equal(out.p, fits ? want : "<");
		assert_int_equal(out.len, strlen(out.p));
		buf_free(&out);
	}
	struct buf none = BUF(0);
	assert_int_equal(json_put_string(&none, "", 0), -1);
	assert_int_equal(none.len, 0);
	buf_free(&none);
}

static int check_piece(void *ctx, const char *p, size_t n)
{
	(void)ctx;
	return json_is_ascii_object(p, n);
}

static bool is_object(const char *p, size_t n)
{
	return feed_piece(p, n, check_piece, NULL);
}

static void objects_are_recognised(void **state)
{
	(void)state;
	static const char *const rows[] = {
		"{}",
		" \t\r\n{ \t\r\n} \t\r\n",
		"{\"a\":1}",
		"{ \"a\" : 1 , \"b\" : [ ] , \"c\" : { } }",
		"{\"\":\"\"}",
		"{\"a\":1,\"a\":2}",
		"{\"a\":[true,false,null,\"x\",-0,0.5,-1.25e+10,1E5,1e-5,10]}",
		"{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00fC\\ud83d\\ude00\"}",
		"{\"a\":[[],[[]],{\"b\":[{}]}]}",
		"{\"a\":123456789012345678901234567890e999}",
		"{\"a\":\"\x7f\"}",
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i]);
		if (!is_object(rows[i], n))
			fail_msg("%s was refused", rows[i]);
	}
}

static void anything_else_is_refused(void **state)
{
	(void)state;
	static const char *const rows[] = {
		"",
		" ",
		"{",
		"}",
		"[]",
		"[{}]",
		"1",
		"\"a\"",
		"null",
		"true",
		"{}{}",
		"{} {}",
		"{},",
		"{}x",
		"x{}",
		"\xef\xbb\xbf{}",
		"{a:1}",
		"{'a':1}",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\" 1}",
		"{\"a\":1,}",
		"{,\"a\":1}",
		"{,}",
		"{\"a\":1 \"b\":2}",
		"{\"a\":1,,\"b\":2}",
		"{1:1}",
		"{\"a\":[1,]}",
		"{\"a\":[,1]}",
		"{\"a\":[1 2]}",
		"{\"a\":[}",
		"{\"a\":[1}",
		"{\"a\":{]}",
		"{\"a\":01}",
		"{\"a\":-}",
		"{\"a\":+1}",
		"{\"a\":.5}",
		"{\"a\":1.}",
		"{\"a\":1e}",
		"{\"a\":1e+}",
		"{\"a\":-01}",
		"{\"a\":0x10}",
		"{\"a\":1.e5}",
		"{\"a\":NaN}",
		"{\"a\":Infinity}",
		"{\"a\":-Infinity}",
		"{\"a\":tru}",
		"{\"a\":True}",
		"{\"a\":nul}",
		"{\"a\":truefalse}",
		"{\"a\":\"}",
		"{\"a\":\"\\\"}",
		"{\"a\":\"\\x41\"}",
		"{\"a\":\"\\u12\"}",
		"{\"a\":\"\\u12g4\"}",
		"{\"a\":\"\\U0041\"}",
		"{\"a\":\"\n\"}",
		"{\"a\":\"\t\"}",
		"{\"a\":\"\x1f\"}",
		"{\"a\":\"\xc3\xbc\"}",
		"{\"\xc3\xbc\":1}",
		"{\"a\":\"\xff\"}",
		"{\"a\":\x80}",
		"{\"a\":1}/**/",
		"{\"a\":1/**/}",
		"{\v}",
		"{\f}",
		"{\xc2\xa0}",
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i]);
		if (is_object(rows[i], n))
			fail_msg("%s was accepted", rows[i]);
	}
	assert_false(json_is_ascii_object(NULL, 0));
}

static void nul_is_never_part_of_it(void **state)
{
	(void)state;
	assert_false(is_object(LIT("{}\0")));
	assert_false(is_object(LIT("\0{}")));
	assert_false(is_object(LIT("{\0}")));
	assert_false(is_object(LIT("{\"a\0\":1}")));
	assert_false(is_object(LIT("{\"a\":\"\\\0\"}")));
	assert_false(is_object(LIT("{\"a\":1\0}")));
	assert_false(is_object(LIT("{\"a\":\"\\u00\0\0\"}")));
}

static void every_beginning_is_refused(void **state)
{
	(void)state;
	static const char in[] = "{\"a\\u00fc\\n\": [true, false, null, -1.5e+3, {\"b\": \"c\"}]}";
	for (size_t n = 0; n < sizeof in - 1; n++)
		if (is_object(in, n))
			fail_msg("%.*s was accepted", (int)n, in);
	assert_true(is_object(in, sizeof in - 1));
}

/* {"a":{"a":...}} or {"a":[[...]]}, depth levels in all. */
static bool nested(size_t depth, bool arrays)
{
	struct buf b = BUF(1 << 24);
	assert_int_equal(buf_adds(&b, "{\"a\":"), 0);
	for (size_t i = 1; i < depth; i++)
		assert_int_equal(buf_adds(&b, arrays ? "[" : "{\"a\":"), 0);
	assert_int_equal(buf_adds(&b, "1"), 0);
	for (size_t i = 1; i < depth; i++)
		assert_int_equal(buf_adds(&b, arrays ? "]" : "}"), 0);
	assert_int_equal(buf_adds(&b, "}"), 0);
	bool ok = is_object(b.p, b.len);
	buf_free(&b);
	return ok;
}

static void pairs_that_are_mistaken_are_mended(void **state)
{
	(void)state;
	static const struct {
		const char *in, *out; /* out is NULL where nothing changes */
	} rows[] = {
		{ "", NULL },
		{ "\"\\n\\ud83d\\ude42\\", NULL },
		{ "\"\\ud836\\ude00\"", "\"\xf0\x9d\xa8\x80\"" },
		{ "\"\\uD836\\uDC00\"", "\"\xf0\x9d\xa0\x80\"" },
		{ "\"\\uda36\\udfffx\\uDBF7\\udfff\"", "\"\xf2\x9d\xaf\xbfx\xf4\x8d\xbf\xbf\"" },
		{ "\\ud836\\ude00\\ud836\\ude00", "\xf0\x9d\xa8\x80\xf0\x9d\xa8\x80" },
		{ "\"\\\\\\ud836\\ude00\"", "\"\\\\\xf0\x9d\xa8\x80\"" },
		/* A backslash that is escaped, and what is no pair. */
		{ "\"\\\\ud836\\\\ude00\"", NULL },
		{ "\"\\\\ud836\\ude00\"", NULL },
		{ "\"\\ud836\"", NULL },
		{ "\"\\ude00\\ud836\"", NULL },
		{ "\"\\ud836\\u0041\"", NULL },
		{ "\"\\ud836\\ude0", NULL },
		{ "\"\\ud836\\ude0g\"", NULL },
		{ "\\ud836", NULL },
		{ "\\", NULL },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i].in);
		struct buf mended = BUF(n);
		const char *p = rows[i].in;
		assert_int_equal(json_mend_pairs(&p, &n, &mended), 0);
		if (!rows[i].out)
			assert_ptr_equal(p, rows[i].in);
		assert_string_equal(p, rows[i].out ? rows[i].out : rows[i].in);
		assert_int_equal(n, strlen(p));
		buf_free(&mended);
	}
}

static void nesting_has_a_limit(void **state)
{
	(void)state;
	for (int arrays = 0; arrays < 2; arrays++) {
		assert_true(nested(1, arrays));
		assert_true(nested(63, arrays));
		assert_true(nested(64, arrays));
		assert_false(nested(65, arrays));
		assert_false(nested(1000000, arrays));
	}
	/* Siblings are not nesting. */
	struct buf b = BUF(1 << 20);
	buf_adds(&b, "{\"a\":[");
	for (int i = 0; i < 10000; i++)
		buf_adds(&b, "[[{}]],");
	buf_adds(&b, "[]]}");
	assert_true(is_object(b.p, b.len));
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_are_written_in_ascii),
		cmocka_unit_test(strings_are_written_in_utf8),
		cmocka_unit_test(every_byte_gives_valid_json),
		cmocka_unit_test(a_string_past_the_maximum_adds_nothing),
		cmocka_unit_test(objects_are_recognised),
		cmocka_unit_test(anything_else_is_refused),
		cmocka_unit_test(nul_is_never_part_of_it),
		cmocka_unit_test(every_beginning_is_refused),
		cmocka_unit_test(pairs_that_are_mistaken_are_mended),
		cmocka_unit_test(nesting_has_a_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
