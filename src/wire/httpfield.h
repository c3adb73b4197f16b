/* Values of HTTP header fields: dates, ranges, encodings, Basic credentials, entity tags. Pure
 * functions. */
#ifndef WIRE_HTTPFIELD_H
#define WIRE_HTTPFIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "Sun, 06 Nov 1994 08:49:37 GMT". */
#define HTTP_DATE 32
const char *http_date(char out[HTTP_DATE], int64_t unix_secs);
int http_date_parse(const char *s, int64_t *unix_secs); /* IMF-fixdate only; 0 or -1 */

enum range_answer {
	RANGE_NONE, /* absent, malformed, or more than one range: send the whole */
	RANGE_PART, /* *off and *len say which part; 206 */
	RANGE_BAD,  /* nothing of it is inside: 416 */
};

/* A Range field ("bytes=0-99", "bytes=5-", "bytes=-3", or NULL) for a body of size bytes. */
enum range_answer http_range(const char *field, uint64_t size, uint64_t *off, uint64_t *len);

/* What an Accept-Encoding field (or NULL) allows. A coding with q=0 is refused; "*" stands for all.
 */
bool http_accepts_gzip(const char *field); /* gzip is listed, with q above 0 */
bool http_accepts_identity(
	const char *field); /* false only if identity;q=0, or *;q=0 without identity */

/* Whether an Accept field (or NULL) lists this very media type, with q above 0. */
bool http_accepts_type(const char *field, const char *type);

/* The user of "Basic base64(user:password)" into out. 0, or -1 when it is none or too long. */
int http_basic_user(const char *field, char *out, size_t cap);

/* Whether an If-None-Match field names etag (weak comparison, "*" matches). */
bool http_etag_match(const char *field, const char *etag);

/* Whether a Content-Type field is this media type, whatever its parameters and case. */
bool http_type_is(const char *field, const char *type);

#endif
