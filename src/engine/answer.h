/* Reading JSON requests and giving answers in the dialects of E2B's three surfaces. */
#ifndef ENGINE_ANSWER_H
#define ENGINE_ANSWER_H

#include <json-c/json.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/http.h"

/* One JSON object out of p, in UTF-8, at most 32 deep, with no NUL in any string that is read
 * later. */
int field_root(struct json_object **out, const char *p, size_t n, struct err *err);

/* Fields, typed: 1 when there, 0 when absent or null, -1 with *err when of another type or out of
 * range. */
int field_string(struct json_object *o, const char *key, const char **out, struct err *err);
int field_int(struct json_object *o, const char *key, int64_t min, int64_t max, int64_t *out,
	      struct err *err);
int field_bool(struct json_object *o, const char *key, bool *out, struct err *err);
int field_object(struct json_object *o, const char *key, struct json_object **out, struct err *err);
/* An object all of whose values are strings; as_env: and whose keys can name a variable. */
int field_strings(struct json_object *o, const char *key, bool as_env, struct json_object **out,
		  struct err *err);

/* Takes the reference. */
void answer_json(struct req *r, int status, struct json_object *o);
void answer_empty(struct req *r, int status);
void answer_text(struct req *r, int status, const char *text);

/* {"code":status,"message":"..."}: control plane, envd's plain HTTP. */
void answer_error(struct req *r, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

enum connect_code {
	CONNECT_UNKNOWN,
	CONNECT_INVALID_ARGUMENT,
	CONNECT_DEADLINE_EXCEEDED,
	CONNECT_NOT_FOUND,
	CONNECT_ALREADY_EXISTS,
	CONNECT_PERMISSION_DENIED,
	CONNECT_RESOURCE_EXHAUSTED,
	CONNECT_FAILED_PRECONDITION,
	CONNECT_UNIMPLEMENTED,
	CONNECT_INTERNAL,
	CONNECT_UNAVAILABLE,
	CONNECT_UNAUTHENTICATED,
};

/* A unary call's error: the code's HTTP status and {"code":"not_found","message":"..."}. */
void answer_connect(struct req *r, enum connect_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Whether r is a streaming call, whose errors come as 200 and an end-of-stream envelope. */
bool connect_is_stream(const struct req *r);
/* Begin a streaming answer; then messages; then the end, with or without an error. */
void connect_begin(struct req *r);
void connect_message(struct req *r, const char *json, size_t n);
void connect_end(struct req *r);
void connect_fail(struct req *r, enum connect_code code, const char *text); /* begun or not */

#endif
