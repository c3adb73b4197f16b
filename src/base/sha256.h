/* SHA-256 as lower-case hex, of bytes that are in memory or that come by as a stream. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>

#define SHA256_HEX 65 /* with the NUL */

void sha256_hex(char out[SHA256_HEX], const void *p, size_t n);

/* The same in pieces of any size. */
struct sha256;
struct sha256 *sha256_new(void); /* NULL: no memory */
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_finish(struct sha256 *s, char out[SHA256_HEX]); /* once; then only sha256_free */
void sha256_free(struct sha256 *s);                         /* NULL is fine */

#endif
