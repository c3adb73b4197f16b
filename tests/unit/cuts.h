/* Feeding a decoder its input in pieces. Each piece is a block of memory of its own, so that a read
 * past its end is an error that the sanitizers and valgrind see. */
#ifndef TESTS_CUTS_H
#define TESTS_CUTS_H

#include <stdlib.h>
#include <string.h>

typedef int piece_fn(void *ctx, const char *p, size_t n);

static inline int feed_piece(const char *p, size_t n, piece_fn *feed, void *ctx)
{
	char *piece = malloc(n ? n : 1);
	assert_non_null(piece);
	memcpy(piece, p, n);
	int rc = feed(ctx, piece, n);
	free(piece);
	return rc;
}

/* Feed in[0, cut) and in[cut, n); a cut past the end means byte by byte, so that cuts from 0 to
 * n + 1 are all of them. Stops at the first refusal. */
static inline int feed_cut(const char *in, size_t n, size_t cut, piece_fn *feed, void *ctx)
{
	if (cut <= n) {
		int rc = feed_piece(in, cut, feed, ctx);
		return rc ? rc : feed_piece(in + cut, n - cut, feed, ctx);
	}
	for (size_t i = 0; i < n; i++)
		if (feed_piece(in + i, 1, feed, ctx))
			return -1;
	return 0;
}

/* A literal that may hold NULs, and its length. */
#define LIT(s) (s), sizeof(s) - 1

#endif
