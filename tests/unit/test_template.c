/* Template files: what they may say, and how a template is found. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "engine/template.h"

static int parse(struct template **out, const char *text, struct err *err)
{
	char copy[4096];
	snprintf(copy, sizeof copy, "%s", text);
	return template_parse(out, "mine", copy, err);
}

static void a_whole_file(void **state)
{
	(void)state;
	struct template *t;
	struct err err;
	assert_int_equal(
		parse(&t,
		      "# a comment\n\n aliases = one , two\nenv = A=1\nenv=B=x = y\n"
		      "start = echo hi = ho\ncpu=4\nmemory = 512\r\ndisk = 64\ninterpreter = yes",
		      &err),
		0);
	assert_string_equal(t->name, "mine");
	assert_int_equal(t->naliases, 2);
	assert_string_equal(t->aliases[0], "one");
	assert_string_equal(t->aliases[1], "two");
	assert_int_equal(t->nenvs, 2);
	assert_string_equal(t->envs[1], "B=x = y");
	assert_string_equal(t->start, "echo hi = ho");
	assert_int_equal(t->cpu, 4);
	assert_int_equal(t->memory_mb, 512);
	assert_int_equal(t->disk_mb, 64);
	assert_true(t->interpreter);
	assert_int_equal(strlen(t->id), 20);
	templates_free(t);
}

static void an_empty_file_is_the_default(void **state)
{
	(void)state;
	struct template *t, *again;
	assert_int_equal(parse(&t, "", NULL), 0);
	assert_int_equal(parse(&again, "cpu = 1", NULL), 0);
	assert_false(t->interpreter);
	assert_true(t->cpu > 0 && t->memory_mb > 0 && t->disk_mb > 0);
	assert_string_equal(t->id, again->id); /* the name alone makes the id */
	templates_free(t);
	templates_free(again);
}

static void bad_lines_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *text, *word;
	} rows[] = {
		{ "cpu = 1\nnonsense", "line 2" },
		{ "cpu = many", "cpu" },
		{ "cpu = 0", "cpu" },
		{ "cpu = 65", "cpu" },
		{ "memory = -1", "memory" },
		{ "disk = 1x", "disk" },
		{ "colour = red", "colour" },
		{ "env = novalue", "env" },
		{ "env = =x", "env" },
		{ "interpreter = maybe", "interpreter" },
		{ "aliases = a b", "alias" },
		{ "aliases = a,,b", "alias" },
		{ "= x", "unknown" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct template *t;
		struct err err;
		if (parse(&t, rows[i].text, &err) == 0)
			fail_msg("'%s' was accepted", rows[i].text);
		assert_int_equal(err.code, ERR_INVALID);
		if (!strstr(err.text, rows[i].word))
			fail_msg("'%s' does not name '%s'", err.text, rows[i].word);
	}
}

static void too_many_of_a_kind(void **state)
{
	(void)state;
	char text[4096] = "";
	size_t n = 0;
	struct template *t;
	struct err err;
	for (int i = 0; i <= TEMPLATE_ENVS_MAX; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "env = V%d=1\n", i);
	assert_int_equal(parse(&t, text, &err), -1);
	assert_int_equal(parse(&t, "aliases = a,b,c,d,e,f,g,h,i", &err), -1);
}

static void references(void **state)
{
	(void)state;
	struct template *all;
	const struct template *found;
	struct err err;
	assert_int_equal(templates_load(&all, NULL, &err), 0);
	static const char *const same[] = { "base", "rki5dems9wqfm4r03t7g", "team/base",
					    "base:default" };
	for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
		assert_int_equal(template_find(all, same[i], &found, &err), 0);
		assert_string_equal(found->name, "base");
	}
	assert_int_equal(template_find(all, "code-interpreter-v1", &found, &err), 0);
	assert_true(found->interpreter);
	static const struct {
		const char *ref;
		enum err_code code;
	} rows[] = {
		{ "nobody", ERR_NOT_FOUND }, { "base:other", ERR_NOT_FOUND },
		{ "", ERR_INVALID },         { "a/", ERR_INVALID },
		{ "base:", ERR_INVALID },    { "../x y", ERR_INVALID },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(template_find(all, rows[i].ref, &found, &err), -1);
		if (err.code != rows[i].code)
			fail_msg("'%s': %s", rows[i].ref, err.text);
	}
	templates_free(all);
}

static void a_missing_folder(void **state)
{
	(void)state;
	struct template *all;
	struct err err;
	assert_int_equal(templates_load(&all, "/nonexistent", &err), -1);
	assert_non_null(strstr(err.text, "/nonexistent"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_whole_file),
		cmocka_unit_test(an_empty_file_is_the_default),
		cmocka_unit_test(bad_lines_are_named),
		cmocka_unit_test(too_many_of_a_kind),
		cmocka_unit_test(references),
		cmocka_unit_test(a_missing_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
