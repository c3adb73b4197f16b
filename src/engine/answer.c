#include "engine/answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/connect.h"
#include "wire/httpfield.h"
#include "wire/jsontext.h"
#include "wire/utf8.h"

#define DEPTH_MAX  32
#define VALUES_MAX 32768 /* an empty object of three bytes takes json-c most of a kilobyte */

/* How many values a text has at the most. */
static size_t count_values(const char *p, size_t n)
{
	size_t count = 1;
	bool quoted = false;
	for (size_t i = 0; i < n; i++) {
		if (quoted && p[i] == '\\')
			i++;
		else if (p[i] == '"')
			quoted = !quoted;
		else if (!quoted)
			count += p[i] == ',' || p[i] == '{' || p[i] == '[';
	}
	return count;
}

int field_root(struct json_object **out, const char *p, size_t n, struct err *err)
{
	if (!utf8_valid(p, n))
		return err_set(err, ERR_INVALID, "the body is not valid UTF-8");
	if (n > INT32_MAX)
		return err_set(err, ERR_INVALID, "the body is too large");
	if (count_values(p, n) > VALUES_MAX)
		return err_set(err, ERR_INVALID, "the body has more than %d values", VALUES_MAX);
	_cleanup_(buf_free) struct buf mended = BUF(n);
	struct json_tokener *t = json_tokener_new_ex(DEPTH_MAX);
	if (!t || json_mend_pairs(&p, &n, &mended)) {
		json_tokener_free(t);
		return err_set(err, ERR_INTERNAL, "no memory");
	}
	json_tokener_set_flags(t, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS);
	struct json_object *o = json_tokener_parse_ex(t, p, (int)n);
	enum json_tokener_error e = json_tokener_get_error(t);
	size_t end = json_tokener_get_parse_end(t);
	json_tokener_free(t);
	while (end < n && memchr(" \t\r\n", p[end], 4))
		end++;
	if (e != json_tokener_success || end < n) {
		json_object_put(o);
		return err_set(err, ERR_INVALID, "the body is not valid JSON (%s)",
			       e == json_tokener_continue  ? "it ends too early"
			       : e == json_tokener_success ? "something follows it"
							   : json_tokener_error_desc(e));
	}
	if (!json_object_is_type(o, json_type_object)) {
		json_object_put(o);
		return err_set(err, ERR_INVALID, "the body must be a JSON object");
	}
	*out = o;
	return 0;
}

static struct json_object *field(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;
	json_object_object_get_ex(o, key, &v);
	return v;
}

static bool plain_string(struct json_object *v)
{
	return json_object_is_type(v, json_type_string) &&
	       strlen(json_object_get_string(v)) == (size_t)json_object_get_string_len(v);
}

int field_string(struct json_object *o, const char *key, const char **out, struct err *err)
{
	struct json_object *v = field(o, key);
	if (!v)
		return 0;
	if (!plain_string(v))
		return err_set(err, ERR_INVALID, "%s must be a string without NUL", key);
	*out = json_object_get_string(v);
	return 1;
}

int field_int(struct json_object *o, const char *key, int64_t min, int64_t max, int64_t *out,
	      struct err *err)
{
	struct json_object *v = field(o, key);
	if (!v)
		return 0;
	int64_t n = json_object_get_int64(v);
	if (!json_object_is_type(v, json_type_int) || n < min || n > max)
		return err_set(err, ERR_INVALID, "%s must be an integer from %lld to %lld", key,
			       (long long)min, (long long)max);
	*out = n;
	return 1;
}

int field_bool(struct json_object *o, const char *key, bool *out, struct err *err)
{
	struct json_object *v = field(o, key);
	if (!v)
		return 0;
	if (!json_object_is_type(v, json_type_boolean))
		return err_set(err, ERR_INVALID, "%s must be true or false", key);
	*out = json_object_get_boolean(v);
	return 1;
}

int field_object(struct json_object *o, const char *key, struct json_object **out, struct err *err)
{
	struct json_object *v = field(o, key);
	if (!v)
		return 0;
	if (!json_object_is_type(v, json_type_object))
		return err_set(err, ERR_INVALID, "%s must be an object", key);
	*out = v;
	return 1;
}

int field_strings(struct json_object *o, const char *key, bool as_env, struct json_object **out,
		  struct err *err)
{
	int rc = field_object(o, key, out, err);
	if (rc <= 0)
		return rc;
	json_object_object_foreach(*out, name, value)
	{
		if (!plain_string(value))
			return err_set(err, ERR_INVALID, "%s.%s must be a string without NUL", key,
				       name);
		if (as_env && (!*name || strchr(name, '=')))
			return err_set(err, ERR_INVALID, "%s: '%s' cannot name a variable", key,
				       name);
	}
	return 1;
}

void answer_json(struct req *r, int status, struct json_object *o)
{
	size_t n;
	const char *s = json_object_to_json_string_length(
		o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
	req_reply(r, status, "application/json", s, n);
	json_object_put(o);
}

void answer_empty(struct req *r, int status)
{
	req_reply(r, status, NULL, "", 0);
}

void answer_text(struct req *r, int status, const char *text)
{
	req_reply(r, status, "text/plain; charset=utf-8", text, strlen(text));
}

void answer_error(struct req *r, int status, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	struct buf json = BUF(8192);
	buf_addf(&json, "{\"code\":%d,\"message\":", status);
	json_put_string(&json, text, strlen(text));
	buf_adds(&json, "}");
	req_reply(r, status, "application/json", json.p, json.len);
	buf_free(&json);
}

static const struct {
	const char *name;
	int status;
} codes[] = {
	[CONNECT_UNKNOWN] = { "unknown", 500 },
	[CONNECT_INVALID_ARGUMENT] = { "invalid_argument", 400 },
	[CONNECT_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
	[CONNECT_NOT_FOUND] = { "not_found", 404 },
	[CONNECT_ALREADY_EXISTS] = { "already_exists", 409 },
	[CONNECT_PERMISSION_DENIED] = { "permission_denied", 403 },
	[CONNECT_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
	[CONNECT_FAILED_PRECONDITION] = { "failed_precondition", 400 },
	[CONNECT_UNIMPLEMENTED] = { "unimplemented", 501 },
	[CONNECT_INTERNAL] = { "internal", 500 },
	[CONNECT_UNAVAILABLE] = { "unavailable", 503 },
	[CONNECT_UNAUTHENTICATED] = { "unauthenticated", 401 },
};

static void put_error(struct buf *json, enum connect_code code, const char *text)
{
	buf_addf(json, "{\"code\":\"%s\",\"message\":", codes[code].name);
	json_put_string(json, text, strlen(text));
	buf_adds(json, "}");
}

void answer_connect(struct req *r, enum connect_code code, const char *fmt, ...)
{
	char text[5000];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (connect_is_stream(r)) {
		connect_fail(r, code, text);
		return;
	}
	struct buf json = BUF(65536);
	put_error(&json, code, text);
	req_reply(r, codes[code].status, "application/json", json.p, json.len);
	buf_free(&json);
}

bool connect_is_stream(const struct req *r)
{
	const char *type = req_header(r, "Content-Type");
	return type && http_type_is(type, "application/connect+json");
}

void connect_begin(struct req *r)
{
	req_begin(r, 200, "application/connect+json");
}

static void put_envelope(struct req *r, unsigned flags, const char *json, size_t n)
{
	struct buf out = BUF(n + 16);
	connect_put(&out, flags, json, n);
	req_write(r, out.p, out.len);
	buf_free(&out);
}

void connect_message(struct req *r, const char *json, size_t n)
{
	put_envelope(r, 0, json, n);
}

void connect_end(struct req *r)
{
	put_envelope(r, CONNECT_END, "{}", 2);
	req_end(r);
}

void connect_fail(struct req *r, enum connect_code code, const char *text)
{
	struct buf json = BUF(65536);
	if (!req_begun(r))
		connect_begin(r);
	buf_adds(&json, "{\"error\":");
	put_error(&json, code, text);
	buf_adds(&json, "}");
	put_envelope(r, CONNECT_END, json.p, json.len);
	buf_free(&json);
	req_end(r);
}
