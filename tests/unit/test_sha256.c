/* SHA-256 against the vectors of FIPS 180-2. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(vectors) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
