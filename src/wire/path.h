/* Paths as envd reads them: text only, no file system is asked. */
#ifndef WIRE_PATH_H
#define WIRE_PATH_H

#include <stddef.h>

#include "base/err.h"

#define PATH_TEXT 4096

/* Resolve path into an absolute, cleaned one: "" is base_dir (the default working directory; home
 * when that is NULL or ""); "~" and "~/x" are home; "~other" is ERR_INVALID "cannot expand
 * user-specific home dir"; a relative path is joined to home; an absolute one is kept, then cleaned
 * ("//", "/./", "/../", a trailing "/"; ".." at the root stays at the root). ERR_INVALID when
 * longer than PATH_TEXT - 1 or a component is longer than 255 bytes. */
int path_resolve(char out[PATH_TEXT], const char *path, const char *home, const char *base_dir,
		 struct err *err);

/* The last component of a cleaned absolute path; "/" for the root. */
const char *path_name(const char *path);

#endif
