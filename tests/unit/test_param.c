#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "wire/param.h"

/* All parameters of a field as text, "!" for a malformed one. */
static void list(const char *field, struct buf *out)
{
	char *copy = strdup(field);
	assert_non_null(copy);
	const char *p = copy;
	struct param param;
	int rc;
	assert_int_equal(buf_adds(out, ""), 0);
	while ((rc = param_next(&p, &param)) == 1) {
		char value[100];
		size_t n = param_unescape(value, &param);
		assert_true(n <= param.nvalue);
		buf_addf(out, "[%.*s=%.*s%s]", (int)param.nname, param.name, (int)n, value,
			 param.quoted ? "\"" : "");
	}
	if (rc < 0)
		buf_adds(out, "!");
	free(copy);
}

static void parameters_are_read(void **state)
{
	(void)state;
	static const struct {
		const char *field, *out;
	} rows[] = {
		{ "", "" },
		{ "  ", "" },
		{ ";", "" },
		{ " ; ; ", "" },
		{ "; a=b", "[a=b]" },
		{ ";a=b;c=d", "[a=b][c=d]" },
		{ " ;\ta=b ; c=\"d\" ;", "[a=b][c=d\"]" },
		{ ";a=\"\"", "[a=\"]" },
		{ ";a=\"x;y=z\"", "[a=x;y=z\"]" },
		{ ";a=\"\\\"\\\\\"", "[a=\"\\\"]" },
		{ ";a=\"C:\\dir\\f.txt\"", "[a=C:\\dir\\f.txt\"]" },
		{ ";a=C:\\\\x", "[a=C:\\\\x]" },
		{ ";a=/tmp/x=y", "[a=/tmp/x=y]" },
		{ ";a*=UTF-8''x", "[a*=UTF-8''x]" },
		{ "a=b", "!" },
		{ ";a", "!" },
		{ ";a=", "!" },
		{ ";a=;b=c", "!" },
		{ ";=b", "!" },
		{ ";a =b", "!" },
		{ ";a= b", "!" },
		{ ";a=b c=d", "[a=b]!" },
		{ ";a=\"b", "!" },
		{ ";a=\"b\\\"", "!" },
		{ ";a=\"b\\", "!" },
		{ ";a=\"", "!" },
		{ ";a=\"b\"c", "[a=b\"]!" },
		{ ";a=b\"c\"", "[a=b]!" },
		{ ";\"a\"=b", "!" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf out = BUF(1000);
		list(rows[i].field, &out);
		assert_string_equal(out.p, rows[i].out);
		buf_free(&out);
	}
}

static void names_are_compared_whole(void **state)
{
	(void)state;
	const char *p = ";FileName=x";
	struct param param;
	assert_int_equal(param_next(&p, &param), 1);
	assert_true(param_is(&param, "filename"));
	assert_false(param_is(&param, "name"));
	assert_false(param_is(&param, "file"));
	assert_false(param_is(&param, "filename*"));
}

static void a_value_is_unescaped_in_its_place(void **state)
{
	(void)state;
	char field[] = ";a=\"\\\\\\\"x\\y\\\\\"";
	const char *p = field;
	struct param param;
	assert_int_equal(param_next(&p, &param), 1);
	assert_int_equal(param_unescape(field + 4, &param), 6);
	assert_memory_equal(field + 4, "\\\"x\\y\\", 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters_are_read),
		cmocka_unit_test(names_are_compared_whole),
		cmocka_unit_test(a_value_is_unescaped_in_its_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
