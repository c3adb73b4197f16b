/* Settings: defaults, file, environment, and what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"

static char path[] = "/tmp/sandgate-settings-XXXXXX";

static void clear(void)
{
	extern char **environ;
	for (char **e = environ; *e;) {
		char name[128];
		snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
		if (!strncmp(name, "E2B_", 4) || !strncmp(name, "SANDGATE_", 9))
			unsetenv(name); /* the list closes up behind it */
		else
			e++;
	}
}

static int set_up(void **state)
{
	(void)state;
	clear();
	memcpy(path + sizeof path - 7, "XXXXXX", 6);
	int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
	(void)state;
	clear();
	return unlink(path);
}

static int load(struct settings *s, const char *text, struct err *err)
{
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
	return settings_load(s, path, err);
}

static void defaults(void **state)
{
	(void)state;
	struct settings s;
	struct err err;
	setenv("E2B_API_KEY", "e2b_secret", 1);
	assert_int_equal(settings_load(&s, NULL, &err), 0);
	assert_string_equal(s.domain, "e2b.app");
	assert_string_equal(s.default_type, "code_interpreter");
	assert_string_equal(s.code_template, "code-interpreter-v1");
	assert_null(s.custom_template);
	assert_null(s.api_url);
	assert_int_equal(s.execution_timeout, 300);
	assert_int_equal(s.max_lifetime, 3600);
	assert_int_equal(s.upload_max, 5368709120);
	assert_string_equal(s.db, "/var/lib/sandgate/sandgate.db");
	settings_free(&s);
	settings_free(&s); /* twice is fine */
}

static void the_environment_wins_over_the_file(void **state)
{
	(void)state;
	struct settings s;
	struct err err;
	setenv("SANDGATE_QUICK_WORKERS", "7", 1);
	assert_int_equal(
		load(&s,
		     "# comment\n; another\n\nE2B_API_KEY = \"e2b_1\"\nSANDGATE_QUICK_WORKERS=9\n"
		     "SANDGATE_EXEC_WORKERS_MAX=10\r\nSANDGATE_STATE_DIR='/x y'\n"
		     "SANDGATE_INIT_ENVS=A=1,B=2\n",
		     &err),
		0);
	assert_int_equal(s.quick_workers, 7);
	assert_int_equal(s.exec_workers, 10);
	assert_string_equal(s.api_key, "e2b_1");
	assert_string_equal(s.db, "/x y/sandgate.db");
	assert_string_equal(s.init_envs, "A=1,B=2");
	settings_free(&s);
}

static void a_domain_is_stripped(void **state)
{
	(void)state;
	static const char *const forms[] = { "x.dev", "https://x.dev", "https://x.dev/",
					     "x.dev/path" };
	setenv("E2B_API_KEY", "e2b_1", 1);
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		struct settings s;
		setenv("E2B_DOMAIN", forms[i], 1);
		assert_int_equal(settings_load(&s, NULL, NULL), 0);
		assert_string_equal(s.domain, "x.dev");
		settings_free(&s);
	}
}

static void the_key_is_required_unless_there_is_a_url(void **state)
{
	(void)state;
	struct settings s;
	struct err err;
	assert_int_equal(settings_load(&s, NULL, &err), -1);
	assert_string_equal(err.text, "E2B_API_KEY is required");
	setenv("E2B_API_URL", "http://127.0.0.1:1", 1);
	assert_int_equal(settings_load(&s, NULL, &err), 0);
	settings_free(&s);
}

static void bad_values_are_named(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "SANDGATE_QUICK_WORKERS=0", "SANDGATE_QUICK_WORKERS" },
		{ "SANDGATE_QUICK_WORKERS=four", "SANDGATE_QUICK_WORKERS" },
		{ "SANDGATE_EXECUTION_TIMEOUT_SECS=3601", "3600" },
		{ "SANDGATE_UPLOAD_MAX_BYTES=99999999999999999999", "UPLOAD" },
		{ "SANDGATE_DEFAULT_SANDBOX_TYPE=cust", "code_interpreter|custom" },
		{ "SANDGATE_LOG_LEVEL=loud", "loud" },
		{ "SANDGATE_QUICK_WORKER=4", "line 1" },
		{ "nonsense", "line 1" },
		{ "E2B_DOMAIN=https://", "E2B_DOMAIN" },
	};
	setenv("E2B_API_KEY", "e2b_verysecret", 1);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct settings s;
		struct err err;
		if (load(&s, rows[i][0], &err) == 0)
			fail_msg("'%s' was accepted", rows[i][0]);
		if (!strstr(err.text, rows[i][1]))
			fail_msg("'%s' does not name '%s'", err.text, rows[i][1]);
		assert_null(strstr(err.text, "verysecret"));
	}
	struct settings s;
	assert_int_equal(settings_load(&s, "/nonexistent/file", NULL), -1);
}

static void printing_masks_secrets(void **state)
{
	(void)state;
	struct settings s;
	char text[8192] = "";
	setenv("E2B_API_KEY", "e2b_verysecret", 1);
	assert_int_equal(settings_load(&s, NULL, NULL), 0);
	FILE *f = fmemopen(text, sizeof text, "w");
	settings_print(&s, f);
	fclose(f);
	assert_non_null(strstr(text, "E2B_API_KEY=****\n"));
	assert_non_null(strstr(text, "SANDGATE_QUICK_WORKERS=4\n"));
	assert_null(strstr(text, "verysecret"));
	f = fmemopen(text, sizeof text, "w");
	settings_describe(f);
	fclose(f);
	assert_non_null(strstr(text, "SANDGATE_DRAIN_SECS\t30\t0-3600\t"));
	assert_non_null(strstr(text, "SANDGATE_UPLOAD_MAX_BYTES\t5368709120\t1-\t"));
	assert_non_null(strstr(text, "SANDGATE_LOG_LEVEL\tinfo\terror|warn|info|debug\t"));
	assert_non_null(strstr(text, "SANDGATE_DB\t\t\t"));
	settings_free(&s);
}

static void write_key_file(const char *bytes, size_t n)
{
	FILE *f = fopen(path, "w");
	fwrite(bytes, 1, n, f);
	fclose(f);
	setenv("E2B_API_KEY_FILE", path, 1);
}

static void the_key_may_come_from_a_file(void **state)
{
	(void)state;
	static const char *const forms[] = { "e2b_filed", "e2b_filed\n", "e2b_filed \t\r\n",
					     "e2b_filed\nsecond line\n" };
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		struct settings s;
		char text[8192] = "", expected[128];
		write_key_file(forms[i], strlen(forms[i]));
		assert_int_equal(settings_load(&s, NULL, NULL), 0);
		assert_string_equal(s.api_key, "e2b_filed");
		FILE *f = fmemopen(text, sizeof text, "w");
		settings_print(&s, f);
		fclose(f);
		snprintf(expected, sizeof expected, "E2B_API_KEY=****\nE2B_API_KEY_FILE=%s\n",
			 path);
		assert_non_null(strstr(text, expected));
		assert_null(strstr(text, "filed"));
		settings_free(&s);
	}
}

static void the_key_itself_wins_over_its_file(void **state)
{
	(void)state;
	struct settings s;
	setenv("E2B_API_KEY", "e2b_direct", 1);
	setenv("E2B_API_KEY_FILE", "/nonexistent/file", 1);
	assert_int_equal(settings_load(&s, NULL, NULL), 0);
	assert_string_equal(s.api_key, "e2b_direct");
	settings_free(&s);
}

static void a_bad_key_file_is_named_and_the_key_is_not(void **state)
{
	(void)state;
	char longest[1026];
	memset(longest, 'k', sizeof longest);
	const struct {
		const char *bytes;
		size_t n;
		const char *complaint;
	} rows[] = {
		{ "", 0, "is empty" },
		{ "\n", 1, "is empty" },
		{ " \t\r\nverysecret\n", 16, "is empty" },
		{ "verysecret\001\n", 12, "control character" },
		{ "verysecret\0more\n", 16, "control character" },
		{ "very\tsecret", 11, "control character" },
		{ longest, 1025, "longer than 1024" },
		{ longest, 1026, "longer than 1024" },
	};
	struct settings s;
	struct err err;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		write_key_file(rows[i].bytes, rows[i].n);
		assert_int_equal(settings_load(&s, NULL, &err), -1);
		if (!strstr(err.text, rows[i].complaint) || !strstr(err.text, path))
			fail_msg("row %zu: '%s' does not name '%s'", i, err.text,
				 rows[i].complaint);
		assert_null(strstr(err.text, "secret"));
		assert_null(strstr(err.text, "kkk"));
	}
	write_key_file(longest, 1024);
	assert_int_equal(settings_load(&s, NULL, &err), 0);
	assert_int_equal(strlen(s.api_key), 1024);
	settings_free(&s);
	static const char *const unreadable[] = { "/nonexistent/file", "/tmp" };
	for (size_t i = 0; i < 2; i++) {
		setenv("E2B_API_KEY_FILE", unreadable[i], 1);
		assert_int_equal(settings_load(&s, NULL, &err), -1);
		assert_non_null(strstr(err.text, "E2B_API_KEY_FILE"));
		assert_non_null(strstr(err.text, unreadable[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(defaults, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_environment_wins_over_the_file, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_domain_is_stripped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_key_is_required_unless_there_is_a_url, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(bad_values_are_named, set_up, tear_down),
		cmocka_unit_test_setup_teardown(printing_masks_secrets, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_key_may_come_from_a_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_key_itself_wins_over_its_file, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_bad_key_file_is_named_and_the_key_is_not, set_up,
						tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
