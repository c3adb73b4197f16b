#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "wire/path.h"

static const char *resolve(const char *path)
{
	static char out[PATH_TEXT];
	struct err err = { 0 };
	if (path_resolve(out, path, "/home/user", "/code", &err))
		fail_msg("'%s' was refused: %s", path, err.text);
	return out;
}

static void paths_are_resolved(void **state)
{
	(void)state;
	static const struct {
		const char *path, *out;
	} rows[] = {
		{ "", "/code" },
		{ ".", "/home/user" },
		{ "~", "/home/user" },
		{ "~/", "/home/user" },
		{ "~/x", "/home/user/x" },
		{ "~//x", "/home/user/x" },
		{ "~/../x", "/home/x" },
		{ "a~", "/home/user/a~" },
		{ "./~", "/home/user/~" },
		{ "x", "/home/user/x" },
		{ "x/y/", "/home/user/x/y" },
		{ "..", "/home" },
		{ "../..", "/" },
		{ "../../../../etc/passwd", "/etc/passwd" },
		{ "/", "/" },
		{ "//", "/" },
		{ "///a//b///", "/a/b" },
		{ "/.", "/" },
		{ "/..", "/" },
		{ "/../../a", "/a" },
		{ "/a/./b/.", "/a/b" },
		{ "/a/b/..", "/a" },
		{ "/a/..", "/" },
		{ "/a/../..//../b", "/b" },
		{ "/a/b/../../c", "/c" },
		{ "/...", "/..." },
		{ "/..a/.b/c..", "/..a/.b/c.." },
		{ "/~other", "/~other" },
		{ "/a b/\xff\n", "/a b/\xff\n" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(resolve(rows[i].path), rows[i].out);
}

static void the_start_is_cleaned_too(void **state)
{
	(void)state;
	char out[PATH_TEXT];
	assert_int_equal(path_resolve(out, "", "/h/", "/a/../b//", NULL), 0);
	assert_string_equal(out, "/b");
	assert_int_equal(path_resolve(out, "x", "/h/", "/b", NULL), 0);
	assert_string_equal(out, "/h/x");
	assert_int_equal(path_resolve(out, "x", "/", "/b", NULL), 0);
	assert_string_equal(out, "/x");
	assert_int_equal(path_resolve(out, "", "/h", NULL, NULL), 0);
	assert_string_equal(out, "/h");
	assert_int_equal(path_resolve(out, "", "/h", "", NULL), 0);
	assert_string_equal(out, "/h");
}

static void other_homes_are_refused(void **state)
{
	(void)state;
	static const char *const rows[] = { "~other", "~other/x", "~~", "~.", "~user" };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[PATH_TEXT] = "before";
		struct err err = { 0 };
		assert_int_equal(path_resolve(out, rows[i], "/home/user", "/code", &err), -1);
		assert_int_equal(err.code, ERR_INVALID);
		assert_string_equal(err.text, "cannot expand user-specific home dir");
		assert_string_equal(out, "before");
	}
}

/* "/xxx.../xxx..." of n bytes, with no name longer than 100. */
static char *long_path(size_t n)
{
	char *p = malloc(n + 1);
	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		p[i] = i % 100 ? 'x' : '/';
	p[n] = '\0';
	return p;
}

static int try(const char *path, const char *home)
{
	char *out = malloc(PATH_TEXT);
	assert_non_null(out);
	strncpy(out, "before", PATH_TEXT);
	struct err err = { 0 };
	int rc = path_resolve(out, path, home, "/code", &err);
	assert_int_equal(err.code, rc ? ERR_INVALID : ERR_NONE);
	if (rc)
		assert_string_equal(out, "before");
	else
		assert_true(strlen(out) < PATH_TEXT);
	free(out);
	return rc;
}

static void length_has_a_limit(void **state)
{
	(void)state;
	for (size_t n = PATH_TEXT - 4; n < PATH_TEXT + 4; n++) {
		char *p = long_path(n);
		assert_int_equal(try(p, "/home"), n < PATH_TEXT ? 0 : -1);
		/* The same behind a home: "/home", then the path with its own '/'. */
		assert_int_equal(try(p + 1, "/home"), -1);
		free(p);
	}
	for (size_t n = PATH_TEXT - 9; n < PATH_TEXT; n++) {
		char *p = long_path(n);
		assert_int_equal(try(p + 1, "/home"), n + 5 < PATH_TEXT ? 0 : -1);
		free(p);
	}
	char *huge = long_path(10 << 20);
	assert_int_equal(try(huge, "/home"), -1);
	assert_int_equal(try(huge + 1, "/home"), -1);
	assert_int_equal(try("x", huge), -1);
	memset(huge, '/', 10 << 20);
	assert_int_equal(try(huge, "/home"), -1);
	free(huge);
}

static void a_name_has_a_limit(void **state)
{
	(void)state;
	char p[300];
	for (size_t n = 250; n < 260; n++) {
		memset(p, 'x', sizeof p);
		p[0] = '/';
		p[n + 1] = '\0';
		assert_int_equal(try(p, "/home"), n <= 255 ? 0 : -1);
		assert_int_equal(try(p + 1, "/home"), n <= 255 ? 0 : -1);
		/* Also when the name would be gone from the result. */
		memcpy(p + n + 1, "/..", 4);
		assert_int_equal(try(p, "/home"), n <= 255 ? 0 : -1);
	}
}

static void strict_paths_are_cleaned(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "/", "/" },
		{ "//", "/" },
		{ "/.", "/" },
		{ "/a/..", "/" },
		{ "/a/../", "/" },
		{ "///a//./b///", "/a/b" },
		{ "/a/b/../../c", "/c" },
		{ "/a/../b/../c/..", "/" },
		{ "/...", "/..." },
		{ "/..a/.b/c..", "/..a/.b/c.." },
		{ "/~", "/~" },
		{ "/a b/\xc3\xbc\n\"", "/a b/\xc3\xbc\n\"" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[PATH_TEXT];
		assert_int_equal(path_strict(out, rows[i][0], NULL), 0);
		assert_string_equal(out, rows[i][1]);
	}
}

static void strict_paths_are_refused(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "", "absolute" },
		{ "a", "absolute" },
		{ "./a", "absolute" },
		{ "../a", "absolute" },
		{ "~/a", "absolute" },
		{ "\\a", "absolute" },
		{ "/..", "root" },
		{ "/../", "root" },
		{ "/../a", "root" },
		{ "/./..//a", "root" },
		{ "/a/../..", "root" },
		{ "/a/../../a", "root" }, /* also where it comes back */
		{ "/a/b/../../../etc/passwd", "root" },
		{ "/a\xff", "UTF-8" },
		{ "/\xc3", "UTF-8" },
		{ "/\xc3/..", "UTF-8" },  /* also when the name would be gone */
		{ "/\xc0\xaf", "UTF-8" }, /* an overlong '/' */
		{ "/\xed\xa0\x80", "UTF-8" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[PATH_TEXT] = "before";
		struct err err = { 0 };
		assert_int_equal(path_strict(out, rows[i][0], &err), -1);
		assert_int_equal(err.code, ERR_INVALID);
		assert_non_null(strstr(err.text, rows[i][1]));
		assert_string_equal(out, "before");
	}
}

static void strict_paths_have_the_same_limits(void **state)
{
	(void)state;
	char out[PATH_TEXT];
	for (size_t n = PATH_TEXT - 4; n < PATH_TEXT + 4; n++) {
		char *p = long_path(n);
		assert_int_equal(path_strict(out, p, NULL), n < PATH_TEXT ? 0 : -1);
		if (n < PATH_TEXT)
			assert_string_equal(out, p);
		free(p);
	}
	char *huge = long_path(10 << 20);
	assert_int_equal(path_strict(out, huge, NULL), -1);
	huge[300] = '\0';
	memset(huge + 1, 'x', 256);
	assert_int_equal(path_strict(out, huge, NULL), -1);
	huge[256] = '/';
	assert_int_equal(path_strict(out, huge, NULL), 0);
	free(huge);
}

static void uploads_keep_their_name_alone(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "a.txt", "a.txt" },
		{ "../../etc/passwd", "passwd" },
		{ "/etc/passwd", "passwd" },
		{ "C:\\fakepath\\x y.csv", "x y.csv" },
		{ "..\\../a\\b", "b" },
		{ "a/b\\c", "c" },
		{ "...", "..." },
		{ ".bashrc", ".bashrc" },
		{ "~", "~" },
		{ "a\"b'c\n\r\t$(d)", "a\"b'c\n\r\t$(d)" },
		{ "\xc3\xbc\xf0\x9f\x90\x8d", "\xc3\xbc\xf0\x9f\x90\x8d" },
		{ "\xff/a", "a" }, /* what is not kept need not be text */
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[PATH_NAME];
		assert_int_equal(path_upload_name(out, rows[i][0], NULL), 0);
		assert_string_equal(out, rows[i][1]);
	}
}

static void uploads_without_a_name_are_refused(void **state)
{
	(void)state;
	static const char *const rows[] = { "",     ".",     "..",      "/",    "a/",    "a\\",
					    "a/..", "a\\..", "../../.", "\xff", "a/\xc3" };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char out[PATH_NAME] = "before";
		struct err err = { 0 };
		assert_int_equal(path_upload_name(out, rows[i], &err), -1);
		assert_int_equal(err.code, ERR_INVALID);
		assert_non_null(strstr(err.text, "give it"));
		assert_string_equal(out, "before");
	}
	for (size_t n = 250; n < 260; n++) {
		char *out = malloc(PATH_NAME), name[300] = "/tmp/";
		assert_non_null(out);
		memset(name + 5, 'x', n);
		name[5 + n] = '\0';
		assert_int_equal(path_upload_name(out, name, NULL), n <= 255 ? 0 : -1);
		free(out);
	}
}

static void the_last_name_is_found(void **state)
{
	(void)state;
	assert_string_equal(path_name("/"), "/");
	assert_string_equal(path_name("/a"), "a");
	assert_string_equal(path_name("/a/b.txt"), "b.txt");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_are_resolved),
		cmocka_unit_test(the_start_is_cleaned_too),
		cmocka_unit_test(other_homes_are_refused),
		cmocka_unit_test(length_has_a_limit),
		cmocka_unit_test(a_name_has_a_limit),
		cmocka_unit_test(strict_paths_are_cleaned),
		cmocka_unit_test(strict_paths_are_refused),
		cmocka_unit_test(strict_paths_have_the_same_limits),
		cmocka_unit_test(uploads_keep_their_name_alone),
		cmocka_unit_test(uploads_without_a_name_are_refused),
		cmocka_unit_test(the_last_name_is_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
