/* Base64, in both alphabets. */
#include "fuzz.h"

#include "wire/base64.h"

#define MAX (1u << 20)

/* Any bytes come back from their encoding. */
static void check_encoding(const char *p, size_t n)
{
	struct buf text = BUF(MAX), bytes = BUF(MAX), full = BUF(n / 3 * 4);
	CHECK(base64_put(&text, p, n) == 0 && text.len == (n + 2) / 3 * 4);
	CHECK(is_printable(text.p, text.len) && !strpbrk(text.p, " \"\\-_"));
	CHECK(base64_get(&bytes, text.p, text.len) == 0);
	CHECK(bytes.len == n && (!n || !memcmp(bytes.p, p, n)));
	CHECK((base64_put(&full, p, n) == 0) == (n % 3 == 0));
	buf_free(&text);
	buf_free(&bytes);
	buf_free(&full);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *given = copy_text(data, n);
	struct buf bytes = BUF(MAX);
	if (base64_get(&bytes, given, n) == 0) {
		/* Each letter has six bits, and fewer than a byte's at the end say nothing. */
		size_t letters = strcspn(given, "=");
		CHECK(letters % 4 != 1 && bytes.len == letters * 6 / 8);
		CHECK(bytes.p[bytes.len] == '\0');
		check_encoding(bytes.p, bytes.len);
	} else {
		CHECK(bytes.len == 0);
	}
	check_encoding(given, n);
	buf_free(&bytes);
	return 0;
}
