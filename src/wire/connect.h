/* Envelopes of the Connect protocol: one byte of flags, four bytes of length (big endian), the
 * payload. The decoder does no I/O: feed it bytes in pieces of any size, get whole envelopes. */
#ifndef WIRE_CONNECT_H
#define WIRE_CONNECT_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define CONNECT_COMPRESSED 0x01u
#define CONNECT_END        0x02u

/* Called for each whole envelope; -1 with *err set stops the decoder. */
typedef int connect_fn(void *ctx, unsigned flags, const char *payload, size_t n, struct err *err);

struct connect_dec {
	struct buf in; /* bytes of an envelope that is not whole yet */
	size_t max;    /* the largest payload accepted */
};

void connect_init(struct connect_dec *d, size_t max_payload);
void connect_free(struct connect_dec *d);

/* 0, or -1: payload over the maximum, unknown flags, or fn refused. */
int connect_feed(struct connect_dec *d, const char *p, size_t n, connect_fn *fn, void *ctx,
		 struct err *err);

/* At the end of the input: -1 with ERR_INVALID when an envelope was cut off. */
int connect_finish(const struct connect_dec *d, struct err *err);

/* Append one envelope. 0, or -1 when out is full. */
int connect_put(struct buf *out, unsigned flags, const char *payload, size_t n);

#endif
