#include "wire/jsontext.h"

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "wire/utf8.h"

#define MAX_DEPTH 64

static bool plain(char c)
{
	return c >= ' ' && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

static char short_escape(uint32_t code)
{
	switch (code) {
	case '"':
		return '"';
	case '\\':
		return '\\';
	case '\b':
		return 'b';
	case '\f':
		return 'f';
	case '\n':
		return 'n';
	case '\r':
		return 'r';
	case '\t':
		return 't';
	default:
		return '\0';
	}
}

static void unit(char to[6], uint32_t u)
{
	static const char digits[] = "0123456789abcdef";
	to[0] = '\\';
	to[1] = 'u';
	for (int i = 0; i < 4; i++)
		to[2 + i] = digits[u >> (12 - 4 * i) & 15];
}

static int put_escaped(struct buf *out, uint32_t code)
{
	char text[12];
	char letter = short_escape(code);
	if (letter) {
		text[0] = '\\';
		text[1] = letter;
		return buf_add(out, text, 2);
	}
	if (code <= 0xffff) {
		unit(text, code);
		return buf_add(out, text, 6);
	}
	unit(text, 0xd800 + ((code - 0x10000) >> 10));
	unit(text + 6, 0xdc00 + ((code - 0x10000) & 0x3ff));
	return buf_add(out, text, 12);
}

static int put_text(struct buf *out, const char *p, size_t n, bool ascii)
{
	for (size_t i = 0; i < n;) {
		size_t run = i;
		while (run < n && plain(p[run]))
			run++;
		if (buf_add(out, p + i, run - i))
			return -1;
		i = run;
		if (i == n)
			break;
		uint32_t code;
		size_t len = utf8_next(p + i, n - i, &code);
		bool as_it_is = !ascii && code > 0x7f && code <= UTF8_LAST;
		if (as_it_is ? buf_add(out, p + i, len)
			     : put_escaped(out, code > UTF8_LAST ? 0xfffd : code))
			return -1;
		i += len;
	}
	return 0;
}

static int put_string(struct buf *out, const char *p, size_t n, bool ascii)
{
	size_t before = out->len;
	if (!buf_adds(out, "\"") && !put_text(out, p, n, ascii) && !buf_adds(out, "\""))
		return 0;
	/* Half a string would spoil the JSON around it. */
	out->len = before;
	if (out->p)
		out->p[before] = '\0';
	return -1;
}

int json_put_string(struct buf *out, const char *p, size_t n)
{
	return put_string(out, p, n, true);
}

int json_put_utf8(struct buf *out, const char *p, size_t n)
{
	return put_string(out, p, n, false);
}

/* Whether "\\uXXXX" stands at p, and which unit of UTF-16 that is. */
static bool unit_at(const char *p, size_t n, uint32_t *out)
{
	static const char digits[] = "0123456789abcdef0123456789ABCDEF";
	if (n < 6 || p[0] != '\\' || p[1] != 'u')
		return false;
	*out = 0;
	for (int i = 2; i < 6; i++) {
		const char *digit = p[i] ? strchr(digits, p[i]) : NULL;
		if (!digit)
			return false;
		*out = *out << 4 | ((uint32_t)(digit - digits) & 15);
	}
	return true;
}

static bool mistaken_pair_at(const char *p, size_t n, uint32_t *code)
{
	uint32_t high, low;
	if (!unit_at(p, n, &high) || (high & 0xfc00) != 0xd800 || !unit_at(p + 6, n - 6, &low) ||
	    (low & 0xfc00) != 0xdc00)
		return false;
	*code = 0x10000 + ((high & 0x3ff) << 10 | (low & 0x3ff));
	return (*code & 0xf800) == 0xd800;
}

static int put_code(struct buf *out, uint32_t code)
{
	const char text[] = { (char)(0xf0 | code >> 18), (char)(0x80 | (code >> 12 & 0x3f)),
			      (char)(0x80 | (code >> 6 & 0x3f)), (char)(0x80 | (code & 0x3f)) };
	return buf_add(out, text, sizeof text);
}

int json_mend_pairs(const char **p, size_t *n, struct buf *mended)
{
	if (!*n)
		return 0;
	const char *from = *p, *end = *p + *n, *at = from;
	while (at < end && (at = memchr(at, '\\', (size_t)(end - at)))) {
		uint32_t code;
		if (!mistaken_pair_at(at, (size_t)(end - at), &code)) {
			at += end - at > 1 ? 2 : 1; /* what is escaped is no backslash */
			continue;
		}
		if (buf_add(mended, from, (size_t)(at - from)) || put_code(mended, code))
			return -1;
		from = at += 12;
	}
	if (from == *p)
		return 0;
	if (buf_add(mended, from, (size_t)(end - from)))
		return -1;
	*p = mended->p;
	*n = mended->len;
	return 0;
}

struct cursor {
	const char *p, *end;
};

static bool take(struct cursor *c, char want)
{
	if (c->p == c->end || *c->p != want)
		return false;
	c->p++;
	return true;
}

static bool take_one_of(struct cursor *c, const char *set)
{
	if (c->p == c->end || !*c->p || !strchr(set, *c->p))
		return false;
	c->p++;
	return true;
}

static void space(struct cursor *c)
{
	while (take_one_of(c, " \t\r\n"))
		;
}

static bool word(struct cursor *c, const char *want)
{
	size_t n = strlen(want);
	if ((size_t)(c->end - c->p) < n || memcmp(c->p, want, n))
		return false;
	c->p += n;
	return true;
}

static bool digits(struct cursor *c)
{
	const char *start = c->p;
	while (c->p < c->end && *c->p >= '0' && *c->p <= '9')
		c->p++;
	return c->p > start;
}

static bool number(struct cursor *c)
{
	take(c, '-');
	if (!take(c, '0') && !digits(c))
		return false;
	if (take(c, '.') && !digits(c))
		return false;
	if (take_one_of(c, "eE")) {
		take_one_of(c, "+-");
		return digits(c);
	}
	return true;
}

static bool escape(struct cursor *c)
{
	if (!take(c, 'u'))
		return take_one_of(c, "\"\\/bfnrt");
	for (int i = 0; i < 4; i++)
		if (!take_one_of(c, "0123456789abcdefABCDEF"))
			return false;
	return true;
}

static bool string(struct cursor *c)
{
	if (!take(c, '"'))
		return false;
	for (;;) {
		while (c->p < c->end && plain(*c->p))
			c->p++;
		if (take(c, '"'))
			return true;
		if (!take(c, '\\') || !escape(c))
			return false;
	}
}

static bool value(struct cursor *c, int depth);

static bool member(struct cursor *c, int depth)
{
	space(c);
	if (!string(c))
		return false;
	space(c);
	return take(c, ':') && value(c, depth);
}

/* What follows '{' or '[': nothing, or items with commas between them, then close. depth is how
 * many more levels may be opened inside. */
static bool items(struct cursor *c, char close, int depth)
{
	if (depth < 0)
		return false;
	space(c);
	if (take(c, close))
		return true;
	do {
		if (!(close == '}' ? member(c, depth) : value(c, depth)))
			return false;
	} while (take(c, ','));
	return take(c, close);
}

static bool bare_value(struct cursor *c, int depth)
{
	if (take(c, '{'))
		return items(c, '}', depth - 1);
	if (take(c, '['))
		return items(c, ']', depth - 1);
	if (c->p < c->end && *c->p == '"')
		return string(c);
	return word(c, "true") || word(c, "false") || word(c, "null") || number(c);
}

static bool value(struct cursor *c, int depth)
{
	space(c);
	bool ok = bare_value(c, depth);
	space(c);
	return ok;
}

bool json_is_ascii_object(const char *p, size_t n)
{
	if (!n)
		return false;
	struct cursor c = { p, p + n };
	space(&c);
	if (c.p == c.end || *c.p != '{')
		return false;
	return value(&c, MAX_DEPTH) && c.p == c.end;
}
