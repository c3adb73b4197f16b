/* Requirements: what is taken, what is refused, and with which words. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/packages.h"
#include "cuts.h"

/* From a block of its own length, so that a read past its end is seen. */
static int parse(const char *p, size_t n, struct package *out, struct err *err)
{
	char *block = malloc(n ? n : 1);
	assert_non_null(block);
	memcpy(block, p, n);
	int rc = package_parse(block, n, out, err);
	free(block);
	return rc;
}

static const struct {
	const char *in, *requirement, *name;
} taken[] = {
	{ "requests", "requests", "requests" },
	{ "pandas>=2", "pandas>=2", "pandas" },
	{ "numpy==1.26.*", "numpy==1.26.*", "numpy" },
	{ "a[b,c]~=1.0,!=1.3", "a[b,c]~=1.0,!=1.3", "a" },
	{ "x===foo", "x===foo", "x" },
	{ "A", "A", "A" },
	{ "7z", "7z", "7z" },
	{ "zope.interface", "zope.interface", "zope.interface" },
	{ "ruamel.yaml-clib_x", "ruamel.yaml-clib_x", "ruamel.yaml-clib_x" },
	{ "a--b__c..d", "a--b__c..d", "a--b__c..d" },
	{ "  requests\t", "requests", "requests" },
	{ "name [ fred , bar ] >= 1 , < 2", "name[fred,bar]>=1,<2", "name" },
	{ "name\t<=\t1", "name<=1", "name" },
	{ "name (>=1, !=1.5)", "name>=1,!=1.5", "name" },
	{ "name( == 1 )", "name==1", "name" },
	{ "name[]", "name", "name" },
	{ "name[ ]>1", "name>1", "name" },
	{ "name[a.b-c_d]", "name[a.b-c_d]", "name" },
	{ "torch==2.1.0+cpu", "torch==2.1.0+cpu", "torch" },
	{ "x>=1!2.0", "x>=1!2.0", "x" },
	{ "x<2.0a1", "x<2.0a1", "x" },
	{ "x>1.0-1", "x>1.0-1", "x" },
	{ "x>y", "x>y", "x" }, /* so says the grammar; it is for pip to refuse it */
	{ "zip", "zip", "zip" },
	{ "tar.gz2", "tar.gz2", "tar.gz2" },
};

static void what_is_taken(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
		struct package p;
		struct err err = { 0 };
		if (parse(taken[i].in, strlen(taken[i].in), &p, &err) < 0)
			fail_msg("%s: %s", taken[i].in, err.text);
		assert_string_equal(p.requirement, taken[i].requirement);
		assert_string_equal(p.name, taken[i].name);
	}
}

#define NAME   "a name is letters"
#define EXTRAS "its extras are not"
#define WRONG  "a version is not written"
#define CHARS  "it has characters that"
#define ASCII  "not printable ASCII"

static const struct {
	const char *in;
	size_t n;
	const char *why;
} refused[] = {
	{ LIT(""), "it is empty" },
	{ LIT(" \t "), "it is empty" },
	{ LIT("-r x"), "options" },
	{ LIT("-e"), "options" },
	{ LIT(" --index-url=x"), "options" },
	{ LIT("--index-url=https://example.test"), "URLs" },
	{ LIT("git+https://example.test/x"), "URLs" },
	{ LIT("name @ https://example.test/x.whl"), "URLs" },
	{ LIT("name@file:x"), "URLs" },
	{ LIT("name[a] @ x"), "URLs" },
	{ LIT("https://example.test"), "URLs" },
	{ LIT("../x"), "paths" },
	{ LIT("./x"), "paths" },
	{ LIT("."), "paths" },
	{ LIT("~/x"), "paths" },
	{ LIT("x/y"), "paths" },
	{ LIT("x==1/2"), "paths" },
	{ LIT("/abs"), "paths" },
	{ LIT("a\\b"), "paths" },
	{ LIT("x.whl"), "files" },
	{ LIT("x-1.0-py3-none-any.WHL"), "files" },
	{ LIT("x.tar.gz"), "files" },
	{ LIT("x.zip[a]"), "files" },
	{ LIT("x==1.zip"), "files" },
	{ LIT("x;python_version<'3'"), "markers" },
	{ LIT("x>=1 ; extra == 'a'"), "markers" },
	{ LIT("x; rm -rf /"), "markers" },
	{ LIT("$(id)"), NAME },
	{ LIT("x$(id)"), CHARS },
	{ LIT("`id`"), NAME },
	{ LIT("x`id`"), CHARS },
	{ LIT("x|y"), CHARS },
	{ LIT("x&y"), CHARS },
	{ LIT("x>>y"), WRONG },
	{ LIT("x'"), CHARS },
	{ LIT("x\""), CHARS },
	{ LIT("x*"), CHARS },
	{ LIT("x y"), CHARS },
	{ LIT("x -r y"), CHARS },
	{ LIT("x --pre"), CHARS },
	{ LIT("x#egg"), CHARS },
	{ LIT("x\ny"), ASCII },
	{ LIT("x\n"), ASCII },
	{ LIT("x\r"), ASCII },
	{ LIT("x\0"), ASCII },
	{ LIT("x\0y"), ASCII },
	{ LIT("x\x7f"), ASCII },
	{ LIT("\xc3\xa4"), ASCII },
	{ LIT("x\xff"), ASCII },
	{ LIT("_x"), NAME },
	{ LIT("x-"), NAME },
	{ LIT("x."), NAME },
	{ LIT("x_ >1"), NAME },
	{ LIT(">=1"), NAME },
	{ LIT("[a]"), NAME },
	{ LIT("x["), EXTRAS },
	{ LIT("x[a"), EXTRAS },
	{ LIT("x[a,"), EXTRAS },
	{ LIT("x[a,]"), EXTRAS },
	{ LIT("x[,a]"), EXTRAS },
	{ LIT("x[a b]"), EXTRAS },
	{ LIT("x[-a]"), EXTRAS },
	{ LIT("x[a-]"), EXTRAS },
	{ LIT("x]"), CHARS },
	{ LIT("x[a][b]"), CHARS },
	{ LIT("x="), WRONG },
	{ LIT("x=1"), WRONG },
	{ LIT("x=="), WRONG },
	{ LIT("x==,"), WRONG },
	{ LIT("x==1,"), WRONG },
	{ LIT("x==1,,==2"), WRONG },
	{ LIT("x==1,2"), WRONG },
	{ LIT("x!1"), WRONG },
	{ LIT("x~1"), WRONG },
	{ LIT("x== -1"), WRONG },
	{ LIT("x==$HOME"), WRONG },
	{ LIT("x==1 2"), CHARS },
	{ LIT("x(==1"), WRONG },
	{ LIT("x()"), WRONG },
	{ LIT("x==1)"), CHARS },
	{ LIT("x 1.0"), CHARS },
};

static void what_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		struct package p, before;
		struct err err = { 0 };
		memset(&p, 'z', sizeof p);
		before = p;
		int rc = parse(refused[i].in, refused[i].n, &p, &err);
		if (rc == 0)
			fail_msg("taken: '%s'", refused[i].in);
		assert_int_equal(err.code, ERR_INVALID);
		if (!strstr(err.text, refused[i].why))
			fail_msg("'%s': %s", refused[i].in, err.text);
		assert_non_null(strstr(err.text, "allowed is a name"));
		assert_memory_equal(&p, &before, sizeof p);
		for (const char *c = err.text; *c; c++)
			assert_in_range((unsigned char)*c, ' ', '~');
	}
}

static void the_longest(void **state)
{
	(void)state;
	char text[PACKAGE_MAX + 2];
	struct package p;
	struct err err;
	memset(text, 'x', sizeof text);
	assert_int_equal(parse(text, PACKAGE_MAX, &p, &err), 0);
	assert_int_equal(strlen(p.requirement), PACKAGE_MAX);
	assert_int_equal(strlen(p.name), PACKAGE_MAX);
	assert_int_equal(parse(text, PACKAGE_MAX + 1, &p, &err), -1);
	assert_non_null(strstr(err.text, "longer than 200 bytes"));
	assert_int_equal(parse(text, PACKAGE_MAX + 1, &p, NULL), -1);
}

/* Whatever is cut off or changed: what is taken holds nothing but what a requirement may hold. */
static void check_any(const char *in, size_t n)
{
	struct package p;
	struct err err;
	if (parse(in, n, &p, &err) < 0)
		return;
	assert_true(strlen(p.requirement) <= n && strlen(p.name) <= strlen(p.requirement));
	assert_int_equal(strspn(p.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					"0123456789-_."),
			 strlen(p.name));
	assert_int_equal(strspn(p.requirement,
				"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				"0123456789-_.[],<>=!~*+"),
			 strlen(p.requirement));
	assert_true(p.requirement[0] != '-' && p.requirement[0] != '.');
	struct package again; /* what came out goes in */
	assert_int_equal(package_parse(p.requirement, strlen(p.requirement), &again, &err), 0);
	assert_string_equal(again.requirement, p.requirement);
	assert_string_equal(again.name, p.name);
}

static void cut_and_changed_at_every_byte(void **state)
{
	(void)state;
	char text[PACKAGE_MAX];
	for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
		const size_t n = strlen(taken[i].in);
		for (size_t k = 0; k <= n; k++) {
			check_any(taken[i].in, k);
			check_any(taken[i].in + k, n - k);
			for (int c = 0; k < n && c < 256; c++) {
				memcpy(text, taken[i].in, n);
				text[k] = (char)c;
				check_any(text, n);
			}
		}
	}
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		for (size_t k = 0; k <= refused[i].n; k++)
			check_any(refused[i].in, k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_taken),
		cmocka_unit_test(what_is_refused),
		cmocka_unit_test(the_longest),
		cmocka_unit_test(cut_and_changed_at_every_byte),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
