#include "wire/uri.h"

#include <string.h>

#include "base/buf.h"

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The byte that starts at in[*i], decoded, with *i moved past it; -1 for what must not be there. */
static int next_byte(const char *in, size_t n, size_t *i, bool plus)
{
	int c = (unsigned char)in[(*i)++];
	if (c == '+' && plus)
		return ' ';
	if (c == '%') {
		if (n - *i < 2)
			return -1;
		int high = hex(in[*i]), low = hex(in[*i + 1]);
		if (high < 0 || low < 0)
			return -1;
		*i += 2;
		c = high << 4 | low;
	}
	return c ? c : -1;
}

int uri_decode(char *out, size_t cap, const char *in, size_t n, bool plus)
{
	if (!cap)
		return -1;
	size_t len = 0;
	for (size_t i = 0; i < n;) {
		int c = next_byte(in, n, &i, plus);
		if (c < 0 || len + 1 >= cap) {
			/* A caller that forgot to look finds no text rather than half of it. */
			out[0] = '\0';
			return -1;
		}
		out[len++] = (char)c;
	}
	out[len] = '\0';
	return 0;
}

static bool unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

int uri_encode(struct buf *out, const char *s, size_t n)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t need = 0;
	for (size_t i = 0; i < n; i++)
		need += unreserved(s[i]) ? 1 : 3;
	char *to = buf_room(out, need);
	if (!to)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (unreserved(s[i])) {
			*to++ = s[i];
		} else {
			*to++ = '%';
			*to++ = digits[(unsigned char)s[i] >> 4];
			*to++ = digits[(unsigned char)s[i] & 15];
		}
	}
	*to = '\0';
	out->len += need;
	return 0;
}

/* Names are compared decoded: "p%61th=x" sets path for every other reader of the same query. */
static bool name_is(const char *name, size_t n, const char *key)
{
	for (size_t i = 0; i < n; key++) {
		int c = next_byte(name, n, &i, true);
		if (c < 0 || c != (unsigned char)*key)
			return false;
	}
	return !*key;
}

int query_get(const char *query, const char *key, char *out, size_t cap)
{
	for (const char *p = query; p && *p;) {
		const char *end = strchrnul(p, '&');
		const char *eq = memchr(p, '=', (size_t)(end - p));
		const char *name_end = eq ? eq : end;
		if (p < end && name_is(p, (size_t)(name_end - p), key)) {
			const char *value = eq ? eq + 1 : end;
			return uri_decode(out, cap, value, (size_t)(end - value), true) ? -1 : 1;
		}
		p = *end ? end + 1 : end;
	}
	return 0;
}
