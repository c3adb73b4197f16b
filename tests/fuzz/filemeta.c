/* Metadata out of the headers of an upload: each line is a key, '=' and a value. */
#include "fuzz.h"

#include <ctype.h>

#include "wire/filemeta.h"

/* Whatever was added keeps the promises of the header. */
static void check_pairs(const struct buf *pairs)
{
	size_t total = 0;
	for (size_t at = 0; at < pairs->len;) {
		const char *key = pairs->p + at, *value = key + strlen(key) + 1;
		CHECK(*key && strlen(key) <= FILEMETA_KEY_MAX);
		for (const char *c = key; *c; c++)
			CHECK(*c >= ' ' && *c <= '~' && !isupper((unsigned char)*c));
		for (const char *c = value; *c; c++)
			CHECK(*c >= ' ' && *c <= '~');
		total += strlen(FILEMETA_NAMESPACE) + strlen(key) + strlen(value);
		at += strlen(key) + strlen(value) + 2;
		CHECK(at <= pairs->len);
		for (size_t next = at; next < pairs->len;) {
			const char *other = pairs->p + next;
			CHECK(strcmp(key, other) != 0);
			next += strlen(other) + 1;
			next += strlen(pairs->p + next) + 1;
		}
	}
	CHECK(total <= FILEMETA_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf pairs = BUF(2 * FILEMETA_MAX);
	const char *p = (const char *)data;
	while (n) {
		_free_ char *line = take_line(&p, &n);
		char *eq = strchr(line, '=');
		struct err err = { 0 };
		size_t before = pairs.len;
		if (eq)
			*eq = '\0';
		if (filemeta_add(&pairs, line, eq ? eq + 1 : "", &err) < 0)
			CHECK(err.code == ERR_INVALID && pairs.len == before);
	}
	check_pairs(&pairs);
	buf_free(&pairs);
	return 0;
}
