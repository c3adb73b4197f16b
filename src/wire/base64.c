#include "wire/base64.h"

#include <stdint.h>

#include "base/buf.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_put(struct buf *out, const void *p, size_t n)
{
	const unsigned char *in = p;
	size_t need = n / 3 * 4 + (n % 3 ? 4 : 0);
	char *to = buf_room(out, need);
	if (!to)
		return -1;
	for (; n >= 3; n -= 3, in += 3) {
		uint32_t v = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];
		*to++ = letters[v >> 18];
		*to++ = letters[v >> 12 & 63];
		*to++ = letters[v >> 6 & 63];
		*to++ = letters[v & 63];
	}
	if (n) {
		uint32_t v = (uint32_t)in[0] << 16 | (n == 2 ? (uint32_t)in[1] << 8 : 0);
		*to++ = letters[v >> 18];
		*to++ = letters[v >> 12 & 63];
		*to++ = n == 2 ? letters[v >> 6 & 63] : '=';
		*to++ = '=';
	}
	*to = '\0';
	out->len += need;
	return 0;
}

/* The six bits of a letter of either alphabet, or -1. */
static int bits(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

/* The length of s without its padding. Padding that does not fill the last group of four stays, and
 * is no letter. */
static size_t unpadded(const char *s, size_t n)
{
	if (!n || n % 4 || s[n - 1] != '=')
		return n;
	return s[n - 2] == '=' ? n - 2 : n - 1;
}

static int decode(unsigned char *to, const char *s, size_t n)
{
	uint32_t v = 0;
	int have = 0;
	for (size_t i = 0; i < n; i++) {
		int six = bits(s[i]);
		if (six < 0)
			return -1;
		v = v << 6 | (uint32_t)six;
		have += 6;
		if (have >= 8) {
			have -= 8;
			*to++ = (unsigned char)(v >> have);
		}
	}
	return 0;
}

int base64_get(struct buf *out, const char *s, size_t n)
{
	n = unpadded(s, n);
	/* A single letter behind the last whole group has too few bits for a byte. */
	if (n % 4 == 1)
		return -1;
	size_t need = n / 4 * 3 + n % 4 * 6 / 8;
	char *to = buf_room(out, need);
	if (!to)
		return -1;
	int rc = decode((unsigned char *)to, s, n);
	if (!rc)
		out->len += need;
	out->p[out->len] = '\0';
	return rc;
}
