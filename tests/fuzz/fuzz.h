/* What the fuzz targets have in common with each other. A target reads its input as the program
 * would, and says by CHECK what must hold whatever the input is. It is fed only what comes from its
 * input: the same input always does the same. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#define assert_non_null(p) CHECK(p)
#include "../unit/cuts.h"

/* What libFuzzer calls with each input; 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A copy with a NUL behind it in a block of just that size; free() it. */
static inline char *copy_text(const void *p, size_t n)
{
	char *s = malloc(n + 1);
	CHECK(s);
	if (n)
		memcpy(s, p, n);
	s[n] = '\0';
	return s;
}

/* The first line of the input as a text of its own, and *p and *n moved behind it. */
static inline char *take_line(const char **p, size_t *n)
{
	const char *end = *n ? memchr(*p, '\n', *n) : NULL;
	size_t len = end ? (size_t)(end - *p) : *n, used = end ? len + 1 : len;
	char *line = copy_text(*p, len);
	*p += used;
	*n -= used;
	return line;
}

/* The ways to cut an input. The places of CUT_ANYWHERE depend on the input alone. */
enum cut { CUT_NOWHERE, CUT_ANYWHERE, CUT_EVERYWHERE, CUTS };

static inline int feed_pieces(const char *p, size_t n, enum cut cut, piece_fn *feed, void *ctx)
{
	if (!n)
		p = ""; /* libFuzzer's first input is NULL */
	if (cut != CUT_ANYWHERE)
		return feed_cut(p, n, cut == CUT_NOWHERE ? n : n + 1, feed, ctx);
	uint32_t seed = (uint32_t)n;
	for (size_t i = 0; i < n; i++)
		seed = seed * 31 + (unsigned char)p[i];
	while (n) {
		seed = seed * 1664525 + 1013904223;
		size_t piece = (seed >> 16) % 24;
		if (piece > n)
			piece = n;
		if (feed_piece(p, piece, feed, ctx))
			return -1;
		p += piece;
		n -= piece;
	}
	return 0;
}

static inline bool same(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && (!a->len || !memcmp(a->p, b->p, a->len));
}

static inline bool is_printable(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] < ' ' || s[i] > '~')
			return false;
	return true;
}

#endif
