/* A growing byte buffer that is born with its maximum. Adding past it fails and leaves the contents
 * as they were, so a caller that forgets to look loses data visibly, never memory. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>

struct buf {
	char *p;    /* contents; NUL-terminated whenever it is not NULL */
	size_t len; /* bytes in use */
	size_t cap; /* bytes allocated */
	size_t max; /* len never passes this */
};

#define BUF(maximum) ((struct buf){ .max = (maximum) })

/* All adders return 0, or -1 when the maximum or memory is reached. */
int buf_add(struct buf *b, const void *p, size_t n);
int buf_adds(struct buf *b, const char *s);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *buf_room(struct buf *b, size_t n); /* n writable bytes at the end, then set len; or NULL */

void buf_drop(struct buf *b, size_t n); /* forget the first n bytes */
char *buf_steal(struct buf *b); /* the contents, never NULL but for lack of memory; free() it */
void buf_free(struct buf *b);   /* b is empty and usable afterwards */

#endif
