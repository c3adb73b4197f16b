/* The JSON body of a call, and its fields. Each getter answers the call itself when the field is
 * not as it must be, and then returns -1. */
#ifndef API_BODY_H
#define API_BODY_H

#include <json-c/json.h>

#include "api/call.h"
#include "e2b/sandboxes.h"

/* The object; an empty body is an empty object. Release it by json_object_put. */
int body_object(struct call *c, struct json_object **out);

/* *out is NULL when the field is absent or null. The text has no NUL. */
int body_text(struct call *c, struct json_object *o, const char *key, const char **out, size_t *n);

/* An array; NULL when it is absent or null. */
int body_array(struct call *c, struct json_object *o, const char *key, struct json_object **out);

/* A whole number from min to max; *there is false when it is absent or null. */
int body_number(struct call *c, struct json_object *o, const char *key, int64_t min, int64_t max,
		int64_t *out, bool *there);

/* true or false; absent or null is false. */
int body_bool(struct call *c, struct json_object *o, const char *key, bool *out);

/* An object of names and texts, as pairs that live as long as o does; free(*out). */
int body_pairs(struct call *c, struct json_object *o, const char *key, struct e2b_pair **out,
	       size_t *n);

#endif
