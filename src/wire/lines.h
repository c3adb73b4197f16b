/* Lines out of a byte stream (NDJSON, kernel frames). The decoder does no I/O. */
#ifndef WIRE_LINES_H
#define WIRE_LINES_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Called with each line, without its '\n', NUL-terminated; -1 with *err set stops the decoder. */
typedef int line_fn(void *ctx, const char *line, size_t n, struct err *err);

struct lines {
	struct buf in; /* the line that is not whole yet */
};

void lines_init(struct lines *l, size_t max_line);
void lines_free(struct lines *l);

/* 0, or -1: a line over the maximum (ERR_LIMIT), or fn refused. */
int lines_feed(struct lines *l, const char *p, size_t n, line_fn *fn, void *ctx, struct err *err);

#endif
