/* Parameters of header fields: the "; name=value" behind a media type or a disposition. */
#ifndef WIRE_PARAM_H
#define WIRE_PARAM_H

#include <stdbool.h>
#include <stddef.h>

/* One parameter. Both texts point into the field; the value is without its quotes, escapes still in
 * it. */
struct param {
	const char *name, *value;
	size_t nname, nvalue;
	bool quoted;
};

/* The parameter at *s, which moves past it. 1, 0 at the end of the field, -1 when it is malformed.
 */
int param_next(const char **s, struct param *out);

/* Whether this is the parameter of that name, in any case. */
bool param_is(const struct param *p, const char *name);

/* The value with its escapes undone, without a NUL; returns its length, which is at most nvalue.
 * out may be the place where the value stands. Only \" and \\ are escapes: browsers send other
 * backslashes as they are. */
size_t param_unescape(char *out, const struct param *p);

#endif
