#include "e2b/answer.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/buf.h"
#include "base/clock.h"
#include "wire/jsontext.h"

#define DEPTH 64

int json_read(struct json_object **out, const char *p, size_t n, struct err *err)
{
	if (!n || n > INT32_MAX)
		return err_set(err, ERR_INTERNAL, n ? "JSON of %zu bytes" : "no JSON", n);
	_cleanup_(buf_free) struct buf mended = BUF(n);
	struct json_tokener *tok = json_tokener_new_ex(DEPTH);
	if (!tok || json_mend_pairs(&p, &n, &mended)) {
		json_tokener_free(tok);
		return err_set(err, ERR_INTERNAL, "no memory for JSON");
	}
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS);
	struct json_object *o = json_tokener_parse_ex(tok, p, (int)n);
	enum json_tokener_error why = json_tokener_get_error(tok);
	size_t end = json_tokener_get_parse_end(tok);
	json_tokener_free(tok);
	while (end < n && memchr(" \t\r\n", p[end], 4))
		end++;
	if (why == json_tokener_success && end == n) {
		*out = o;
		return 0;
	}
	json_object_put(o);
	return err_set(err, ERR_INTERNAL, "not JSON: %s",
		       why == json_tokener_continue  ? "it is cut off"
		       : why == json_tokener_success ? "something follows"
						     : json_tokener_error_desc(why));
}

void json_drop(struct json_object **o)
{
	json_object_put(*o);
	*o = NULL;
}

struct json_object *json_member(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;
	if (json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, key, &v);
	return v;
}

const char *json_text(struct json_object *o, const char *key)
{
	struct json_object *v = json_member(o, key);
	return json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;
}

int64_t json_integer(struct json_object *o, const char *key, int64_t or)
{
	struct json_object *v = json_member(o, key);
	/* protojson writes 64-bit numbers as texts. */
	if (!json_object_is_type(v, json_type_int) && !json_object_is_type(v, json_type_string))
		return or ;
	return json_object_get_int64(v);
}

bool json_true(struct json_object *o, const char *key)
{
	struct json_object *v = json_member(o, key);
	return json_object_is_type(v, json_type_boolean) && json_object_get_boolean(v);
}

/* protojson and the control plane may write nanoseconds. */
int64_t json_time_us(struct json_object *o, const char *key)
{
	const char *s = json_text(o, key);
	int64_t us;
	return s && clock_parse_rfc3339(s, &us) == 0 ? us : 0;
}

int json_copy(struct json_object *o, const char *key, char *out, size_t cap)
{
	const char *s = json_text(o, key);
	if (!s)
		s = "";
	if (strlen(s) >= cap)
		return -1;
	for (const char *p = s; *p; p++)
		if (*p <= ' ' || *p > '~')
			return -1;
	snprintf(out, cap, "%s", s);
	return 0;
}

static const struct {
	int status;
	enum err_code code;
} by_status[] = {
	{ 400, ERR_INVALID },     { 401, ERR_DENIED },      { 403, ERR_DENIED },
	{ 404, ERR_NOT_FOUND },   { 406, ERR_INVALID },     { 409, ERR_CONFLICT },
	{ 416, ERR_INVALID },     { 422, ERR_INVALID },     { 429, ERR_LIMIT },
	{ 502, ERR_UNAVAILABLE }, { 503, ERR_UNAVAILABLE }, { 504, ERR_UNAVAILABLE },
	{ 507, ERR_NO_SPACE },
};

static const struct {
	const char *name;
	enum err_code code;
} by_name[] = {
	{ "invalid_argument", ERR_INVALID },     { "out_of_range", ERR_INVALID },
	{ "unauthenticated", ERR_DENIED },       { "permission_denied", ERR_DENIED },
	{ "not_found", ERR_NOT_FOUND },          { "already_exists", ERR_EXISTS },
	{ "failed_precondition", ERR_CONFLICT }, { "aborted", ERR_CONFLICT },
	{ "resource_exhausted", ERR_LIMIT },     { "deadline_exceeded", ERR_TIMEOUT },
	{ "canceled", ERR_UNAVAILABLE },         { "unavailable", ERR_UNAVAILABLE },
};

int answer_connect_fail(const char *what, struct json_object *o, struct err *err)
{
	const char *code = json_text(o, "code"), *message = json_text(o, "message");
	enum err_code to = ERR_INTERNAL;
	for (size_t i = 0; code && i < sizeof by_name / sizeof *by_name; i++)
		if (!strcmp(code, by_name[i].name))
			to = by_name[i].code;
	return err_set(err, to, "%s: %s: %s", what, code ? code : "unknown",
		       message ? message : "(no message)");
}

int answer_fail(enum plane plane, const char *what, int status, const char *body, size_t n,
		enum e2b_why *why, struct err *err)
{
	_cleanup_(json_drop) struct json_object *o = NULL;
	*why = E2B_WHY_OTHER;
	if (n && json_read(&o, body, n, NULL) == 0 && json_text(o, "code"))
		return answer_connect_fail(what, o, err);
	enum err_code code = ERR_INTERNAL;
	for (size_t i = 0; i < sizeof by_status / sizeof *by_status; i++)
		if (status == by_status[i].status)
			code = by_status[i].code;
	const char *message = json_text(o, "message");
	int room = 300;
	if (!message) {
		message = n ? body : "(no text)";
		room = n && n < 300 ? (int)n : 300;
	}
	if (plane == PLANE_DATA && status == 502 && strstr(message, "sandbox was not found")) {
		code = ERR_NOT_FOUND;
		*why = E2B_WHY_NO_SANDBOX;
	} else if (plane == PLANE_DATA && status == 502 && strstr(message, "port is not open")) {
		*why = E2B_WHY_PORT_CLOSED;
	} else if (plane == PLANE_DATA &&
		   (status == 501 ||
		    (status == 500 && strstr(message, "Failed to create context")))) {
		code = ERR_INVALID; /* there is no such language, and nothing has run */
	} else if (plane == PLANE_DATA && status == 409) {
		code = ERR_UNAVAILABLE; /* "still transitioning": it says nothing of the request */
	} else if (plane == PLANE_CONTROL && status == 404) {
		*why = E2B_WHY_NO_SANDBOX;
	}
	return err_set(err, code, "%s: %d: %.*s", what, status, room, message);
}

bool answer_is_misrouted(int status, const char *body, size_t n)
{
	_cleanup_(json_drop) struct json_object *o = NULL;
	if (status != 400 && status != 404 && status != 421)
		return false;
	/* envd and the edge answer in JSON once they know the sandbox. */
	return !n || json_read(&o, body, n, NULL) < 0 || !json_object_is_type(o, json_type_object);
}

void answer_scrub(struct err *err, const char *secret)
{
	size_t n = strlen(secret);
	if (!err || !n)
		return;
	for (char *at = strstr(err->text, secret); at; at = strstr(at, secret))
		memset(at, '*', n);
	/* The text may have been cut inside the secret. */
	size_t len = strlen(err->text);
	for (size_t part = n < len ? n : len; part >= 4; part--) {
		char *tail = err->text + len - part;
		if (!strncmp(tail, secret, part)) {
			memset(tail, '*', part);
			return;
		}
	}
}
