#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/ids.h"

static void alnum_has_its_length_and_letters(void **state)
{
	(void)state;
	for (size_t n = 0; n < 200; n++) {
		char *out = malloc(n + 1);
		assert_non_null(out);
		memset(out, '!', n + 1);
		id_alnum(out, n);
		assert_int_equal(strlen(out), n);
		assert_int_equal(strspn(out, "abcdefghijklmnopqrstuvwxyz0123456789"), n);
		free(out);
	}
}

static void alnum_uses_every_letter_evenly(void **state)
{
	(void)state;
	enum { N = 36000 };
	static char out[N + 1];
	int seen[256] = { 0 };
	id_alnum(out, N);
	for (int i = 0; i < N; i++)
		seen[(unsigned char)out[i]]++;
	/* 1000 of each are expected, with a deviation of 31: ten deviations away is no accident. */
	for (const char *c = "abcdefghijklmnopqrstuvwxyz0123456789"; *c; c++)
		if (seen[(unsigned char)*c] < 690 || seen[(unsigned char)*c] > 1310)
			fail_msg("'%c' came %d times", *c, seen[(unsigned char)*c]);
}

static void ids_differ(void **state)
{
	(void)state;
	char ids[100][21], uuids[100][ID_UUID];
	for (int i = 0; i < 100; i++) {
		id_alnum(ids[i], 20);
		id_uuid(uuids[i]);
		for (int k = 0; k < i; k++) {
			assert_string_not_equal(ids[i], ids[k]);
			assert_string_not_equal(uuids[i], uuids[k]);
		}
	}
}

static void uuid_has_its_shape(void **state)
{
	(void)state;
	for (int i = 0; i < 200; i++) {
		char u[ID_UUID];
		memset(u, '!', sizeof u);
		id_uuid(u);
		assert_int_equal(u[ID_UUID - 1], '\0');
		for (int k = 0; k < ID_UUID - 1; k++) {
			if (k == 8 || k == 13 || k == 18 || k == 23)
				assert_int_equal(u[k], '-');
			else
				assert_true(u[k] && strchr("0123456789abcdef", u[k]));
		}
		assert_int_equal(u[14], '4');
		assert_non_null(strchr("89ab", u[19]));
	}
}

static void secrets_are_compared_whole(void **state)
{
	(void)state;
	assert_true(secret_equal("", ""));
	assert_true(secret_equal("token", "token"));
	assert_true(secret_equal("\xff\x80", "\xff\x80"));
	assert_false(secret_equal("token", "tokem"));
	assert_false(secret_equal("token", "Token"));
	assert_false(secret_equal("token", "toke"));
	assert_false(secret_equal("toke", "token"));
	assert_false(secret_equal("", "t"));
	assert_false(secret_equal("t", ""));
	assert_false(secret_equal("\x01", ""));
	/* A secret that repeats is not the same as its repetition. */
	assert_false(secret_equal("abab", "ab"));
	assert_false(secret_equal("ab", "abab"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alnum_has_its_length_and_letters),
		cmocka_unit_test(alnum_uses_every_letter_evenly),
		cmocka_unit_test(ids_differ),
		cmocka_unit_test(uuid_has_its_shape),
		cmocka_unit_test(secrets_are_compared_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
