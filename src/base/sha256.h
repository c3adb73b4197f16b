/* SHA-256 of bytes that are in memory, as lower-case hex. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>

#define SHA256_HEX 65 /* with the NUL */

void sha256_hex(char out[SHA256_HEX], const void *p, size_t n);

#endif
