#include "api/body.h"

#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "base/cleanup.h"
#include "wire/httpfield.h"
#include "wire/jsontext.h"
#include "wire/utf8.h"

#define DEPTH_MAX 32
#define PAIRS_MAX 100

static int refuse(struct call *c, const char *what)
{
	answer_problem(c, BAD_REQUEST, "%s", what);
	return -1;
}

/* An escaped one; outside a string no backslash is JSON. json-c ends a name at its NUL, so that
 * "code\u0000x" would be "code", and none of our texts may have one. */
static bool has_nul(const char *p, size_t n)
{
	const char *end = p + n;
	while (p < end && (p = memchr(p, '\\', (size_t)(end - p)))) {
		if (end - p >= 6 && !memcmp(p, "\\u0000", 6))
			return true;
		p += 2;
	}
	return false;
}

int body_object(struct call *c, struct json_object **out)
{
	const char *type = web_param(c->web, "CONTENT_TYPE");
	if (type && http_type_is(type, "multipart/form-data")) {
		answer_problem(c, UNSUPPORTED_MEDIA_TYPE, "send a JSON object");
		return -1;
	}
	while (c->body.len && memchr(" \t\r\n", c->body.p[c->body.len - 1], 4))
		c->body.len--; /* json-c would take it for more than one value */
	if (!c->body.len) {
		*out = json_object_new_object();
		return 0;
	}
	if (!utf8_valid(c->body.p, c->body.len))
		return refuse(c, "the body is not UTF-8");
	if (has_nul(c->body.p, c->body.len))
		return refuse(c, "the body has a NUL character");
	_cleanup_(buf_free) struct buf mended = BUF(c->body.len);
	const char *text = c->body.p;
	size_t n = c->body.len;
	struct json_tokener *t = json_tokener_new_ex(DEPTH_MAX);
	if (!t || json_mend_pairs(&text, &n, &mended))
		abort();
	json_tokener_set_flags(t, JSON_TOKENER_STRICT);
	struct json_object *o = json_tokener_parse_ex(t, text, (int)n);
	enum json_tokener_error why = json_tokener_get_error(t);
	bool whole = o && json_tokener_get_parse_end(t) == n;
	json_tokener_free(t);
	if (whole && json_object_is_type(o, json_type_object)) {
		*out = o;
		return 0;
	}
	json_object_put(o);
	if (why == json_tokener_error_depth)
		return refuse(c, "the JSON is nested too deeply");
	return refuse(c, whole ? "the body must be a JSON object" : "the body is not valid JSON");
}

static int ill_typed(struct call *c, const char *key, const char *wanted)
{
	answer_problem(c, BAD_REQUEST, "'%s' must be %s", key, wanted);
	return -1;
}

int body_text(struct call *c, struct json_object *o, const char *key, const char **out, size_t *n)
{
	struct json_object *v;
	*out = NULL;
	*n = 0;
	if (!json_object_object_get_ex(o, key, &v) || !v)
		return 0;
	if (!json_object_is_type(v, json_type_string))
		return ill_typed(c, key, "a string");
	*out = json_object_get_string(v);
	*n = (size_t)json_object_get_string_len(v);
	return 0;
}

int body_array(struct call *c, struct json_object *o, const char *key, struct json_object **out)
{
	struct json_object *v;
	*out = NULL;
	if (!json_object_object_get_ex(o, key, &v) || !v)
		return 0;
	if (!json_object_is_type(v, json_type_array))
		return ill_typed(c, key, "an array");
	*out = v;
	return 0;
}

/* As a shell would have the name of a variable. */
static bool is_name(const char *s)
{
	size_t n = strlen(s);
	return n && n <= 128 && !strchr("0123456789", *s) &&
	       strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") == n;
}

int body_pairs(struct call *c, struct json_object *o, const char *key, struct e2b_pair **out,
	       size_t *n)
{
	struct json_object *v;
	*out = NULL;
	*n = 0;
	if (!json_object_object_get_ex(o, key, &v) || !v)
		return 0;
	if (!json_object_is_type(v, json_type_object))
		return ill_typed(c, key, "an object of strings");
	if (json_object_object_length(v) > PAIRS_MAX)
		return ill_typed(c, key, "an object of at most 100 names");
	struct e2b_pair *pairs = calloc((size_t)json_object_object_length(v) + 1, sizeof *pairs);
	if (!pairs)
		abort();
	json_object_object_foreach(v, name, value)
	{
		if (!is_name(name) || !json_object_is_type(value, json_type_string)) {
			free(pairs);
			return ill_typed(c, key,
					 "an object of strings, whose names are of letters, digits "
					 "and '_'");
		}
		pairs[(*n)++] = (struct e2b_pair){ name, json_object_get_string(value) };
	}
	*out = pairs;
	return 0;
}
