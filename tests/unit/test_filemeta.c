/* Metadata of files out of an upload's headers. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "wire/filemeta.h"

/* The pairs, each NUL shown as '|'. */
static void assert_pairs(const struct buf *pairs, const char *want)
{
	char shown[512] = "";
	assert_true(pairs->len < sizeof shown);
	for (size_t i = 0; i < pairs->len; i++)
		shown[i] = pairs->p[i] ? pairs->p[i] : '|';
	assert_string_equal(shown, want);
}

static void refuse(struct buf *pairs, const char *key, const char *value)
{
	struct err err = { 0 };
	size_t before = pairs->len;
	assert_int_equal(filemeta_add(pairs, key, value, &err), -1);
	assert_int_equal(err.code, ERR_INVALID);
	assert_int_equal(pairs->len, before);
}

static void keys_are_lowered_and_the_first_counts(void **state)
{
	struct buf pairs = BUF(2 * FILEMETA_MAX);
	struct err err;
	(void)state;
	assert_int_equal(filemeta_add(&pairs, "Colour", "Blue", &err), 0);
	assert_int_equal(filemeta_add(&pairs, "a-b", "", &err), 0);
	assert_int_equal(filemeta_add(&pairs, "COLOUR", "red", &err), 0);
	assert_int_equal(filemeta_add(&pairs, "col", " x ~", &err), 0);
	assert_pairs(&pairs, "colour|Blue|a-b||col| x ~|");
	buf_free(&pairs);
}

static void only_printable_ascii(void **state)
{
	static const char *const bad[] = { "\n", "\t", "a\x1f", "\x7f", "\xc3\xa9", "\xff" };
	struct buf pairs = BUF(2 * FILEMETA_MAX);
	(void)state;
	refuse(&pairs, "", "v");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		refuse(&pairs, bad[i], "v");
		refuse(&pairs, "k", bad[i]);
	}
	buf_free(&pairs);
}

static void the_limits(void **state)
{
	char key[FILEMETA_KEY_MAX + 2], value[FILEMETA_MAX + 1];
	struct buf pairs = BUF(2 * FILEMETA_MAX);
	struct err err;
	(void)state;
	memset(key, 'k', sizeof key);
	key[FILEMETA_KEY_MAX + 1] = '\0';
	refuse(&pairs, key, "v");
	key[FILEMETA_KEY_MAX] = '\0';
	memset(value, 'v', sizeof value);
	size_t room = FILEMETA_MAX - strlen(FILEMETA_NAMESPACE) - FILEMETA_KEY_MAX;
	value[room + 1] = '\0';
	refuse(&pairs, key, value);
	value[room] = '\0';
	assert_int_equal(filemeta_add(&pairs, key, value, &err), 0);
	refuse(&pairs, "x", "");
	assert_int_equal(filemeta_add(&pairs, key, "another", &err), 0);
	buf_free(&pairs);
	/* All that fits as pairs of one byte each fits the buffer. */
	int n = 0;
	for (; n < 1000; n++) {
		snprintf(key, sizeof key, "%d", n);
		if (filemeta_add(&pairs, key, "", &err) < 0)
			break;
	}
	assert_int_equal(err.code, ERR_INVALID);
	assert_true(n > 300 && n < 1000);
	buf_free(&pairs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_lowered_and_the_first_counts),
		cmocka_unit_test(only_printable_ascii),
		cmocka_unit_test(the_limits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
