#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/answer.h"
#include "cuts.h"

static int on_body(void *ctx, const char *p, size_t n)
{
	return field_root(ctx, p, n, NULL);
}

static void one_object_is_read(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		size_t n;
	} rows[] = {
		{ LIT("{}") },
		{ LIT(" {\"path\": \"a\"}\r\n\t ") },
		/* A client's next envelope begins right behind its first. */
		{ "{\"path\":\"a\"}\2\0\0\0\0", 12 },
		{ "{} x", 2 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct json_object *o = NULL;
		if (field_root(&o, rows[i].text, rows[i].n, NULL))
			fail_msg("'%s' was refused", rows[i].text);
		assert_true(json_object_is_type(o, json_type_object));
		json_object_put(o);
	}
}

static void all_else_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		size_t n;
	} rows[] = {
		{ LIT("") },
		{ LIT(" ") },
		{ LIT("{") },
		{ LIT("{\"path") },
		{ LIT("{\"path\":\"a\"") },
		{ LIT("{} x") },
		{ LIT("{}{}") },
		{ LIT("{}/**/") },
		{ LIT("{}\0") },
		{ LIT("{\"a\":\"\0\"}") },
		{ LIT("{\"a\":\"\xff\"}") },
		{ LIT("{\"a\":1,}") },
		{ LIT("[]") },
		{ LIT("1") },
		{ LIT("null") },
		{ LIT("{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}") },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct json_object *o = NULL;
		if (!feed_piece(rows[i].text, rows[i].n, on_body, &o))
			fail_msg("'%s' was accepted", rows[i].text);
		assert_null(o);
	}
}

static void escaped_pairs_are_characters(void **state)
{
	(void)state;
	struct json_object *o = NULL;
	const char *path = NULL;
	assert_int_equal(field_root(&o, LIT("{\"path\":\"\\ud836\\ude00\"}"), NULL), 0);
	assert_int_equal(field_string(o, "path", &path, NULL), 1);
	assert_string_equal(path, "\xf0\x9d\xa8\x80");
	json_object_put(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_object_is_read),
		cmocka_unit_test(all_else_is_refused),
		cmocka_unit_test(escaped_pairs_are_characters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
