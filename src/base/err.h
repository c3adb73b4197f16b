/* The one error dialect: a function that can fail returns 0 or -1 and takes a struct err as its
 * last parameter. The value lives on the caller's stack; there is nothing to free. NULL is fine
 * where the caller does not care why. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>

enum err_code {
	ERR_NONE = 0,
	ERR_INVALID,         /* the caller's input is wrong */
	ERR_DENIED,          /* known, but not allowed */
	ERR_NOT_FOUND,       /* the thing named does not exist */
	ERR_EXISTS,          /* it exists already */
	ERR_CONFLICT,        /* it exists, but cannot do this now */
	ERR_LIMIT,           /* a quota or a maximum is reached */
	ERR_NO_SPACE,        /* disk or inodes are used up */
	ERR_TIMEOUT,         /* a deadline passed */
	ERR_UNAVAILABLE,     /* try again later */
	ERR_UNKNOWN_OUTCOME, /* it was asked for, and nobody can say whether it happened */
	ERR_ABANDONED,       /* the caller itself gave it up */
	ERR_STOPPED,         /* somebody else ended it on purpose */
	ERR_INTERNAL,        /* ours, or the system's */
};

struct err {
	enum err_code code;
	bool remote;    /* it was the provider's answer, or the lack of one */
	char text[512]; /* for a person; always NUL-terminated */
};

/* Both fill *err and return -1, so that a failing path is one line: return err_set(...). */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ERR_INTERNAL with ": " and the text of errno behind the message. */
int err_errno(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
