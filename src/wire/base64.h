/* Base64, standard alphabet. */
#ifndef WIRE_BASE64_H
#define WIRE_BASE64_H

#include <stddef.h>

struct buf;

/* Append the encoding of p, padded with '='. 0, or -1 when out is full. */
int base64_put(struct buf *out, const void *p, size_t n);

/* Append the bytes that s encodes (padding optional, URL alphabet accepted too, as protojson does;
 * no white space). 0, or -1 when s is no base64 or out is full. */
int base64_get(struct buf *out, const char *s, size_t n);

#endif
