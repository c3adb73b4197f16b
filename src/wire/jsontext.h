/* JSON as text: writing strings, and checking that bytes are one JSON value, without building a
 * tree. */
#ifndef WIRE_JSONTEXT_H
#define WIRE_JSONTEXT_H

#include <stdbool.h>
#include <stddef.h>

struct buf;

/* Append p as a JSON string in quotes, ASCII only: everything else as \uXXXX (surrogate pairs past
 * the BMP). Bytes that are not UTF-8 become \ufffd. 0, or -1 when out is full. */
int json_put_string(struct buf *out, const char *p, size_t n);

/* The same in UTF-8, which is half as long or less where the text is not English. */
int json_put_utf8(struct buf *out, const char *p, size_t n);

/* Before p is given to json-c: its version 0.16 takes a character past the BMP that is escaped for
 * a lone surrogate if its last 16 bits look like one (U+1D800 to U+1DFFF, and so in every plane),
 * and loses it. If there is one, *p and *n become a text in mended that has such characters in
 * UTF-8; else they stay. 0, or -1 when mended, which needs no more room than *n, is full. */
int json_mend_pairs(const char **p, size_t *n, struct buf *mended);

/* Whether p is exactly one JSON object (RFC 8259), in ASCII only and nested at most 64 deep. Used
 * for lines that come out of a sandbox before they are passed on. */
bool json_is_ascii_object(const char *p, size_t n);

#endif
