/* What a slow consumer has not taken yet. Decoders hand over every item of a piece of input at
 * once; a consumer that says "not now" in the middle of it finds the rest here, in order. The
 * transfer is paused while anything is held, so it never holds more than one piece and one item. */
#ifndef E2B_BACKLOG_H
#define E2B_BACKLOG_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/* 0 taken, 1 not now, -1 with *err set. p is not NUL-terminated. */
typedef int backlog_fn(void *ctx, unsigned flags, const char *p, size_t n, struct err *err);

struct backlog {
	struct buf held;
	backlog_fn *fn;
	void *ctx;
};

void backlog_init(struct backlog *b, size_t max, backlog_fn *fn, void *ctx);
void backlog_free(struct backlog *b);
bool backlog_waits(const struct backlog *b);

/* Give an item to fn, or hold it behind those that wait. 0, or -1 with *err set. */
int backlog_put(struct backlog *b, unsigned flags, const char *p, size_t n, struct err *err);

/* Offer again what is held: 0 when all is taken, 1 when something still waits, -1. */
int backlog_again(struct backlog *b, struct err *err);

#endif
