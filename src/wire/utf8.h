/* Making text of bytes that only claim to be UTF-8. */
#ifndef WIRE_UTF8_H
#define WIRE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

/* A sequence that a cut between two chunks left unfinished. Zero it to begin. */
struct utf8 {
	unsigned char held[4];
	size_t nheld;
};

/* Append p to out as valid UTF-8: each maximal invalid run of a sequence becomes U+FFFD, an
 * unfinished sequence at the end is held for the next call. 0, or -1 when out is full. */
int utf8_feed(struct utf8 *u, const char *p, size_t n, struct buf *out);

/* At the end of the stream: an unfinished sequence becomes U+FFFD. */
int utf8_finish(struct utf8 *u, struct buf *out);

/* Whether all of p is valid UTF-8 (no surrogates, nothing past U+10FFFF, no overlong forms). */
bool utf8_valid(const char *p, size_t n);

/* How many bytes at the end of p begin a sequence and do not end it; at most 3. */
size_t utf8_cut_tail(const char *p, size_t n);

#define UTF8_LAST 0x10ffffu   /* the last code point */
#define UTF8_BAD  0xfffffffeu /* not a sequence: its maximal run that is to become one U+FFFD */
#define UTF8_CUT  0xffffffffu /* the text ends inside a sequence that fits so far */

/* How many bytes (at least 1) the first sequence of p has, n > 0; *code is its code point, or one
 * of the two above. */
size_t utf8_next(const char *p, size_t n, uint32_t *code);

#endif
