#include "api/answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define STATUS_GONE 499 /* as in nginx's log */

static const struct {
	int status;
	const char *code;
	const char *begins;   /* the detail */
	int retry_after_secs; /* 0: no such header */
} problems[PROBLEMS] = {
	[BAD_REQUEST] = { 400, "bad_request", "Bad request", 0 },
	[BAD_SESSION_ID] = { 400, "bad_session_id", "Bad session id", 0 },
	[BAD_PATH] = { 400, "bad_path", "Bad path", 0 },
	[BAD_PACKAGE] = { 400, "bad_package", "Bad package", 0 },
	[TEMPLATE_NOT_CONFIGURED] = { 400, "template_not_configured", "Template not configured",
				      0 },
	[UNAUTHORIZED] = { 401, "unauthorized", "Unauthorized", 0 },
	[FORBIDDEN] = { 403, "forbidden", "Forbidden", 0 },
	[COMMAND_NOT_ALLOWED] = { 403, "command_not_allowed", "Command not allowed", 0 },
	[SANDBOX_NOT_FOUND] = { 404, "sandbox_not_found", "Sandbox not found", 0 },
	[FILE_NOT_FOUND] = { 404, "file_not_found", "File not found", 0 },
	[EXECUTION_NOT_FOUND] = { 404, "execution_not_found", "Execution not found", 0 },
	[CONTEXT_NOT_FOUND] = { 404, "context_not_found", "Context not found", 0 },
	[NO_SUCH_ROUTE] = { 404, "no_such_route", "No such route", 0 },
	[METHOD_NOT_ALLOWED] = { 405, "method_not_allowed", "Method not allowed", 0 },
	[EXECUTION_TIMEOUT] = { 408, "execution_timeout", "Timeout", 0 },
	[CONFLICT] = { 409, "conflict", "Conflict", 0 },
	[SANDBOX_STOPPED] = { 409, "sandbox_stopped", "Sandbox stopped", 0 },
	[SANDBOX_EXPIRED] = { 409, "sandbox_expired", "Sandbox expired", 0 },
	[CANCELLED] = { 409, "cancelled", "Cancelled", 0 },
	[NO_INTERPRETER] = { 409, "no_interpreter", "No interpreter", 0 },
	[TOO_LARGE] = { 413, "too_large", "Too large", 0 },
	[UNSUPPORTED_MEDIA_TYPE] = { 415, "unsupported_media_type", "Unsupported media type", 0 },
	[QUOTA_EXCEEDED] = { 429, "quota_exceeded", "Quota exceeded", 30 },
	[PROVIDER_QUOTA] = { 429, "provider_quota", "The sandbox provider's limit is reached", 30 },
	[INTERNAL] = { 500, "internal", "Internal error", 0 },
	[PROVIDER_ERROR] = { 502, "provider_error", "The sandbox provider failed", 0 },
	[PROVIDER_AUTH] = { 502, "provider_auth", "The sandbox provider refused the server's key",
			    0 },
	[COMPLETION_UNKNOWN] = { 502, "completion_unknown", "Completion unknown", 0 },
	[PROVIDER_UNAVAILABLE] = { 503, "provider_unavailable",
				   "The sandbox provider cannot be reached", 5 },
	[DRAINING] = { 503, "draining", "The server is about to restart", 5 },
	[BUSY] = { 503, "busy", "The server is busy", 1 },
	[PROVIDER_TIMEOUT] = { 504, "provider_timeout", "Timeout of the sandbox provider", 0 },
	[NO_SPACE] = { 507, "no_space", "No space left in the sandbox", 0 },
};

static void begin(struct call *c, int status)
{
	c->status = status;
	web_status(c->web, status);
	web_header(c->web, "X-Request-Id", c->request_id);
	web_header(c->web, "Cache-Control", "no-store");
}

void answer_empty(struct call *c, int status)
{
	begin(c, status);
}

void answer_json(struct call *c, int status, struct json_object *o)
{
	size_t n;
	const char *text = json_object_to_json_string_length(
		o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
	char length[24];
	snprintf(length, sizeof length, "%zu", n + 1);
	begin(c, status);
	web_header(c->web, "Content-Type", "application/json");
	web_header(c->web, "Content-Length", length);
	if (web_write(c->web, text, n) == 0)
		web_write(c->web, "\n", 1);
	json_object_put(o);
}

struct json_object *problem_object(struct call *c, enum problem problem, struct json_object *more,
				   const char *detail)
{
	struct json_object *o = more ? more : json_object_new_object();
	char text[1024];
	snprintf(text, sizeof text, "%s%s%s", problems[problem].begins, *detail ? ": " : "",
		 detail);
	json_object_object_add(o, "detail", json_object_new_string(text));
	json_object_object_add(o, "code", json_object_new_string(problems[problem].code));
	json_object_object_add(o, "request_id", json_object_new_string(c->request_id));
	c->code = problems[problem].code;
	return o;
}

int problem_status(enum problem problem)
{
	return problems[problem].status;
}

void answer_retry_after(struct call *c, enum problem problem)
{
	char secs[16];
	if (!problems[problem].retry_after_secs)
		return;
	snprintf(secs, sizeof secs, "%d", problems[problem].retry_after_secs);
	web_header(c->web, "Retry-After", secs);
}

static void send_problem(struct call *c, enum problem problem, struct json_object *more,
			 const char *detail)
{
	struct json_object *o = problem_object(c, problem, more, detail);
	answer_retry_after(c, problem);
	if (problem == UNAUTHORIZED)
		web_header(c->web, "WWW-Authenticate", "Bearer realm=\"sandgate\"");
	answer_json(c, problems[problem].status, o);
}

void answer_problem(struct call *c, enum problem problem, const char *fmt, ...)
{
	char detail[900];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(detail, sizeof detail, fmt, ap);
	va_end(ap);
	send_problem(c, problem, NULL, detail);
}

void answer_problem_with(struct call *c, enum problem problem, struct json_object *more,
			 const char *fmt, ...)
{
	char detail[900];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(detail, sizeof detail, fmt, ap);
	va_end(ap);
	send_problem(c, problem, more, detail);
}

static enum problem of_provider(enum err_code code)
{
	switch (code) {
	case ERR_DENIED:
		return PROVIDER_AUTH;
	case ERR_LIMIT:
		return PROVIDER_QUOTA;
	case ERR_UNAVAILABLE:
		return PROVIDER_UNAVAILABLE;
	case ERR_TIMEOUT:
		return PROVIDER_TIMEOUT;
	case ERR_NO_SPACE:
		return NO_SPACE;
	default:
		return PROVIDER_ERROR;
	}
}

static enum problem of_ours(enum err_code code)
{
	switch (code) {
	case ERR_INVALID:
		return BAD_REQUEST;
	case ERR_NOT_FOUND:
		return SANDBOX_NOT_FOUND;
	case ERR_CONFLICT:
	case ERR_EXISTS:
		return CONFLICT;
	case ERR_STOPPED:
		return SANDBOX_STOPPED;
	case ERR_LIMIT:
		return QUOTA_EXCEEDED;
	case ERR_UNAVAILABLE:
		return BUSY;
	case ERR_TIMEOUT:
		return PROVIDER_TIMEOUT;
	default:
		return INTERNAL;
	}
}

enum problem problem_of(const struct err *err)
{
	return err->remote ? of_provider(err->code) : of_ours(err->code);
}

void answer_err(struct call *c, const struct err *err)
{
	if (err->code == ERR_ABANDONED) {
		answer_nobody(c);
		return;
	}
	enum problem problem = problem_of(err);
	bool callers = problems[problem].status < 500 && !err->remote;
	snprintf(c->inner, sizeof c->inner, "%s", err->text);
	answer_problem(c, problem, "%s", callers ? err->text : "");
}

void answer_nobody(struct call *c)
{
	c->status = STATUS_GONE;
	c->code = "client_gone";
}

struct json_object *json_time(int64_t real_us)
{
	char text[CLOCK_TEXT];
	return json_object_new_string(clock_iso8601(text, real_us));
}
