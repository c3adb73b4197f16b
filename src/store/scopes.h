/* What a token's holder may, as bits and as words. */
#ifndef STORE_SCOPES_H
#define STORE_SCOPES_H

#include "base/err.h"

enum token_scope { SCOPE_READ = 1, SCOPE_RUN = 2, SCOPE_WRITE = 4, SCOPE_ADMIN = 8 };

#define SCOPES_DEFAULT  (SCOPE_READ | SCOPE_RUN | SCOPE_WRITE)
#define SCOPES_OF_ADMIN (SCOPES_DEFAULT | SCOPE_ADMIN)
#define SCOPES_TEXT     32

/* "read,run"; "" for none. */
const char *scopes_text(char out[SCOPES_TEXT], unsigned scopes);

/* The words of a list, at least one. ERR_INVALID names the one that is none, and those there are.
 */
int scopes_parse(const char *list, unsigned *out, struct err *err);

#endif
