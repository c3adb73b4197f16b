/* What follows a command's name on the command line, and the values in it. What is wrong is
 * ERR_INVALID with a sentence for the operator. */
#ifndef CTL_ARGUMENTS_H
#define CTL_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* One of value and flag is NULL: an option has a value or has none. */
struct option_row {
	const char *name;   /* "--user" */
	const char **value; /* NULL until it is given; then it points into argv */
	bool *flag;         /* false until it is given */
};

/* "--name value", "--name=value" and "--flag", each at most once; "--" ends them. One other word is
 * allowed where word is not NULL; *word stays as it is when there is none. */
int arguments_read(int argc, char **argv, const struct option_row *options, size_t n,
		   const char **word, struct err *err);

/* A user's name: 1 to 128 bytes of UTF-8 without control characters and blanks. */
int argument_user(const char *option, const char *value, struct err *err);

/* A session id: 1 to 128 of A-Z a-z 0-9 . _ ~ : - */
int argument_session(const char *option, const char *value, struct err *err);

/* "90s", "15m", "1h" or "7d" as seconds; at most a hundred years. */
int argument_duration(const char *option, const char *value, int64_t *secs, struct err *err);

#endif
