/* What answers mean: JSON read safely, and E2B's failures translated into our errors. Pure
 * functions. */
#ifndef E2B_ANSWER_H
#define E2B_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "e2b/e2b.h"

struct json_object;

/* Exactly one JSON value, nested at most 64 deep. ERR_INTERNAL when it is none. */
int json_read(struct json_object **out, const char *p, size_t n, struct err *err);
void json_drop(struct json_object **o); /* for _cleanup_ */

/* Members of an object; o may be anything, also NULL. */
struct json_object *json_member(struct json_object *o, const char *key);
const char *json_text(struct json_object *o, const char *key);            /* NULL: no text */
int64_t json_integer(struct json_object *o, const char *key, int64_t or); /* also "12" */
bool json_true(struct json_object *o, const char *key);
int64_t json_time_us(struct json_object *o, const char *key); /* 0: none */

/* Copy a text into a fixed field. 0, or -1: too long, or not fit for a header field. */
int json_copy(struct json_object *o, const char *key, char *out, size_t cap);

enum plane { PLANE_CONTROL, PLANE_DATA };

/* An HTTP status that is no success, with its body. Sets *err and *why; always -1. */
int answer_fail(enum plane plane, const char *what, int status, const char *body, size_t n,
		enum e2b_why *why, struct err *err);

/* A Connect error: o has "code" and "message". Sets *err; always -1. */
int answer_connect_fail(const char *what, struct json_object *o, struct err *err);

/* Whether this is how something answers that does not route by headers: an edge that reads the host
 * only, or a host that knows nothing of sandboxes. */
bool answer_is_misrouted(int status, const char *body, size_t n);

/* Blot out a secret that a server repeated in its text. */
void answer_scrub(struct err *err, const char *secret);

#endif
