#include "wire/utf8.h"

#include <string.h>

#include "base/buf.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* How many bytes a sequence that starts with c has; 0 when none can start with it. */
static size_t sequence(unsigned char c)
{
	if (c < 0x80)
		return 1;
	if (c < 0xc2)
		return 0;
	if (c < 0xe0)
		return 2;
	if (c < 0xf0)
		return 3;
	return c < 0xf5 ? 4 : 0;
}

/* Table 3-7 of the Unicode standard: overlong forms, surrogates and what lies past U+10FFFF all
 * show in the second byte. */
static bool second_fits(unsigned char lead, unsigned char c)
{
	switch (lead) {
	case 0xe0:
		return c >= 0xa0 && c <= 0xbf;
	case 0xed:
		return c >= 0x80 && c <= 0x9f;
	case 0xf0:
		return c >= 0x90 && c <= 0xbf;
	case 0xf4:
		return c >= 0x80 && c <= 0x8f;
	default:
		return c >= 0x80 && c <= 0xbf;
	}
}

size_t utf8_next(const char *text, size_t n, uint32_t *code)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t want = sequence(p[0]);
	*code = want == 1 ? p[0] : UTF8_BAD;
	if (want <= 1)
		return 1;
	uint32_t c = p[0] & (0x7fu >> want);
	for (size_t i = 1; i < want; i++) {
		if (i == n) {
			*code = UTF8_CUT;
			return i;
		}
		if (i == 1 ? !second_fits(p[0], p[1]) : (p[i] & 0xc0) != 0x80)
			return i;
		c = c << 6 | (p[i] & 0x3fu);
	}
	*code = c;
	return want;
}

/* ASCII is most of what passes here, so it is skipped eight bytes at a time. */
static size_t ascii_run(const char *p, size_t n)
{
	size_t i = 0;
	for (uint64_t word; n - i >= sizeof word; i += sizeof word) {
		memcpy(&word, p + i, sizeof word);
		if (word & 0x8080808080808080u)
			break;
	}
	while (i < n && (unsigned char)p[i] < 0x80)
		i++;
	return i;
}

static size_t valid_run(const char *p, size_t n)
{
	for (size_t i = 0;;) {
		i += ascii_run(p + i, n - i);
		if (i == n)
			return i;
		uint32_t code;
		size_t len = utf8_next(p + i, n - i, &code);
		if (code > UTF8_LAST)
			return i;
		i += len;
	}
}

/* Carry on with the held sequence; *used says how many bytes of p went into it. */
static int feed_held(struct utf8 *u, const char *p, size_t n, struct buf *out, size_t *used)
{
	char seq[sizeof u->held];
	size_t take = n < sizeof seq - u->nheld ? n : sizeof seq - u->nheld;
	memcpy(seq, u->held, u->nheld);
	memcpy(seq + u->nheld, p, take);
	uint32_t code;
	size_t len = utf8_next(seq, u->nheld + take, &code);
	/* What is held fits so far, hence len is never less than nheld. */
	*used = len - u->nheld;
	if (code == UTF8_CUT) {
		memcpy(u->held, seq, len);
		u->nheld = len;
		return 0;
	}
	u->nheld = 0;
	return code == UTF8_BAD ? buf_adds(out, REPLACEMENT) : buf_add(out, seq, len);
}

int utf8_feed(struct utf8 *u, const char *p, size_t n, struct buf *out)
{
	size_t used = 0;
	if (n && u->nheld && feed_held(u, p, n, out, &used))
		return -1;
	for (size_t i = used; i < n;) {
		size_t run = valid_run(p + i, n - i);
		if (buf_add(out, p + i, run))
			return -1;
		i += run;
		if (i == n)
			break;
		uint32_t code;
		size_t len = utf8_next(p + i, n - i, &code);
		if (code == UTF8_CUT) {
			memcpy(u->held, p + i, len);
			u->nheld = len;
		} else if (buf_adds(out, REPLACEMENT)) {
			return -1;
		}
		i += len;
	}
	return 0;
}

int utf8_finish(struct utf8 *u, struct buf *out)
{
	bool held = u->nheld;
	u->nheld = 0;
	return held ? buf_adds(out, REPLACEMENT) : 0;
}

bool utf8_valid(const char *p, size_t n)
{
	return !n || valid_run(p, n) == n;
}

size_t utf8_cut_tail(const char *p, size_t n)
{
	for (size_t back = 1; back <= 3 && back <= n; back++) {
		uint32_t code;
		if ((p[n - back] & 0xc0) == 0x80)
			continue;
		utf8_next(p + n - back, back, &code);
		return code == UTF8_CUT ? back : 0;
	}
	return 0;
}
