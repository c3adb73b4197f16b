/* SHA-256 against the vectors of FIPS 180-2. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"

static void vectors(void **state)
{
	(void)state;
	char hex[SHA256_HEX];
	sha256_hex(hex, "abc", 3);
	assert_string_equal(hex,
			    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	sha256_hex(hex, "", 0);
	assert_string_equal(hex,
			    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* The million letters of the standard, in pieces of every size, nothing included. */
static void pieces_give_the_same(void **state)
{
	(void)state;
	enum { N = 1000000 };
	char *text = malloc(N), hex[SHA256_HEX];
	assert_non_null(text);
	memset(text, 'a', N);
	for (size_t step = 1; step <= N; step *= 7) {
		struct sha256 *s = sha256_new();
		assert_non_null(s);
		for (size_t at = 0, n = 0; at < N; at += n) {
			n = N - at < step ? N - at : step;
			sha256_add(s, text + at, n);
			sha256_add(s, NULL, 0);
		}
		sha256_finish(s, hex);
		sha256_free(s);
		assert_string_equal(
			hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	}
	free(text);
}

static void nothing_at_all(void **state)
{
	(void)state;
	char hex[SHA256_HEX], want[SHA256_HEX];
	struct sha256 *s = sha256_new();
	assert_non_null(s);
	sha256_finish(s, hex);
	sha256_free(s);
	sha256_hex(want, "", 0);
	assert_string_equal(hex, want);
	sha256_free(NULL);
	sha256_free(sha256_new()); /* given up half way */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vectors),
		cmocka_unit_test(pieces_give_the_same),
		cmocka_unit_test(nothing_at_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
