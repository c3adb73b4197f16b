/* Query strings and percent-encoding. The first line is a name to look for, the rest the query. */
#include "fuzz.h"

#include "wire/uri.h"

/* Any text comes back from its encoding, which is made of safe characters only. */
static void check_encoding(const char *text)
{
	struct buf out = BUF(64u << 10);
	size_t n = strlen(text);
	_free_ char *back = malloc(n + 1);
	CHECK(back && uri_encode(&out, text, n) == 0);
	CHECK(is_printable(out.p, out.len) && !strpbrk(out.p, " /?&=+#\"'<>\\"));
	CHECK(uri_decode(back, n + 1, out.p, out.len, true) == 0 && !strcmp(back, text));
	CHECK(uri_decode(back, n + 1, out.p, out.len, false) == 0 && !strcmp(back, text));
	CHECK(uri_decode(back, n, out.p, out.len, true) < 0);
	buf_free(&out);
}

/* What is asked for is found behind something else, whatever it is called. */
static void check_lookup(const char *key, const char *value)
{
	struct buf query = BUF(64u << 10);
	size_t n = strlen(value);
	_free_ char *back = malloc(n + 1);
	CHECK(back);
	CHECK(buf_adds(&query, "&&?=x&") == 0 && uri_encode(&query, key, strlen(key)) == 0 &&
	      buf_adds(&query, "=") == 0 && uri_encode(&query, value, n) == 0 &&
	      buf_adds(&query, "&y") == 0);
	CHECK(query_get(query.p, key, back, n + 1) == 1 && !strcmp(back, value));
	CHECK(query_get(query.p, key, back, n) == -1);
	buf_free(&query);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data;
	_free_ char *key = take_line(&p, &n), *query = copy_text(p, n);
	char value[256];
	int rc = query_get(query, key, value, sizeof value);
	CHECK(rc >= -1 && rc <= 1);
	if (rc == 1) {
		CHECK(strlen(value) < sizeof value && strlen(value) <= strlen(query));
		check_encoding(value);
	}
	check_encoding(query);
	if (*key && strcmp(key, "?") != 0 && strcmp(key, "y") != 0)
		check_lookup(key, query);
	return 0;
}
