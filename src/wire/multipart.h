/* multipart/form-data, decoded as it streams by. The decoder does no I/O and holds at most one part
 * header (8 KiB) and one boundary's worth of data. */
#ifndef WIRE_MULTIPART_H
#define WIRE_MULTIPART_H

#include <stddef.h>

#include "base/err.h"

/* Each returns 0, or -1 with *err set to stop the decoder. */
struct multipart_ops {
	/* name and filename as sent (quoted-string escapes \" and \\ undone, also the %22 %0A %0D
	 * that browsers write); filename is NULL when the part has none. */
	int (*begin)(void *ctx, const char *name, const char *filename, struct err *err);
	int (*data)(void *ctx, const char *p, size_t n, struct err *err);
	int (*end)(void *ctx, struct err *err);
};

struct multipart;

/* boundary from the Content-Type field. ERR_INVALID when there is none or it is longer than 70
 * characters. */
int multipart_new(struct multipart **out, const char *content_type, const struct multipart_ops *ops,
		  void *ctx, struct err *err);
void multipart_free(struct multipart *m); /* NULL is fine */

/* Feed pieces of any size. ERR_INVALID for broken syntax: a part header over 8 KiB, with a NUL, or
 * without a name. Bytes after the closing boundary are ignored. */
int multipart_feed(struct multipart *m, const char *p, size_t n, struct err *err);

/* At the end of the input: -1 with ERR_INVALID when the closing boundary was never seen. */
int multipart_finish(struct multipart *m, struct err *err);

#endif
