/* Percent-encoding and query strings. Nothing here accepts an encoded NUL: a C string could not
 * carry it. */
#ifndef WIRE_URI_H
#define WIRE_URI_H

#include <stdbool.h>
#include <stddef.h>

struct buf;

/* Decode n bytes of `in` once into out, NUL-terminated; with plus, '+' is a space. 0, or -1 for a
 * broken escape, an encoded or raw NUL, or a result that does not fit in cap. */
int uri_decode(char *out, size_t cap, const char *in, size_t n, bool plus);

/* Append s with all but the unreserved characters (A-Z a-z 0-9 - . _ ~) escaped. */
int uri_encode(struct buf *out, const char *s, size_t n);

/* The first value of key in a query string ("a=1&b=2", without '?'), decoded into out. 1 when
 * found, 0 when absent, -1 when it is there but malformed or too long. */
int query_get(const char *query, const char *key, char *out, size_t cap);

#endif
