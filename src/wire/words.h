/* A command line as words, as a shell would split it, but without anything else that a shell does:
 * no variables, no globs, no operators. */
#ifndef WIRE_WORDS_H
#define WIRE_WORDS_H

#include <stddef.h>

#include "base/err.h"

/* The words, and NULL behind the last: '...' and "..." keep blanks, a backslash the character
 * behind it. free(*out); the words lie in the same block. ERR_INVALID for a quote that is not
 * closed, or for no word at all. */
int words_split(const char *text, char ***out, struct err *err);

#endif
