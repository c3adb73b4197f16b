/* Answers, and the one place that makes errors. */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include <json-c/json.h>

#include "api/call.h"

enum problem {
	BAD_REQUEST,
	BAD_SESSION_ID,
	BAD_PATH,
	BAD_PACKAGE,
	TEMPLATE_NOT_CONFIGURED,
	UNAUTHORIZED,
	FORBIDDEN,
	COMMAND_NOT_ALLOWED,
	SANDBOX_NOT_FOUND,
	FILE_NOT_FOUND,
	EXECUTION_NOT_FOUND,
	CONTEXT_NOT_FOUND,
	NO_SUCH_ROUTE,
	METHOD_NOT_ALLOWED,
	EXECUTION_TIMEOUT,
	CONFLICT,
	SANDBOX_STOPPED,
	SANDBOX_EXPIRED,
	CANCELLED,
	NO_INTERPRETER,
	TOO_LARGE,
	UNSUPPORTED_MEDIA_TYPE,
	QUOTA_EXCEEDED,
	PROVIDER_QUOTA,
	INTERNAL,
	PROVIDER_ERROR,
	PROVIDER_AUTH,
	COMPLETION_UNKNOWN,
	PROVIDER_UNAVAILABLE,
	DRAINING,
	BUSY,
	PROVIDER_TIMEOUT,
	NO_SPACE,
	PROBLEMS,
};

/* The object is taken over; NULL is JSON's null. */
void answer_json(struct call *c, int status, struct json_object *o);
void answer_empty(struct call *c, int status);

/* {"detail","code","request_id"}. What the detail begins with is the problem's own. */
void answer_problem(struct call *c, enum problem problem, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The same with the fields of another object, which is taken over. */
void answer_problem_with(struct call *c, enum problem problem, struct json_object *more,
			 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* For who sends it otherwise than as an answer: the object, its status, and which problem an error
 * is. */
struct json_object *problem_object(struct call *c, enum problem problem, struct json_object *more,
				   const char *detail);
int problem_status(enum problem problem);
void answer_retry_after(struct call *c, enum problem problem); /* the header, where it has one */
enum problem problem_of(const struct err *err);

/* What an error means to the caller; its text is for the log where the fault is not the caller's.
 * Nobody is there to be answered after ERR_ABANDONED. */
void answer_err(struct call *c, const struct err *err);

/* The client is gone; nothing is sent. */
void answer_nobody(struct call *c);

/* A time as the API shows it. */
struct json_object *json_time(int64_t real_us);

#endif
