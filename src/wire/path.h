/* Paths as envd reads them, and as our own clients may write them: text only, no file system is
 * asked. Outputs are written only on success. */
#ifndef WIRE_PATH_H
#define WIRE_PATH_H

#include <stddef.h>

#include "base/err.h"

#define PATH_TEXT 4096 /* with the NUL */

/* Resolve path into an absolute, cleaned one: "" is base_dir (the default working directory; home
 * when that is NULL or ""); "~" and "~/x" are home; "~other" is ERR_INVALID "cannot expand
 * user-specific home dir"; a relative path is joined to home; an absolute one is kept, then cleaned
 * ("//", "/./", "/../", a trailing "/"; ".." at the root stays at the root). ERR_INVALID when
 * longer than PATH_TEXT - 1 or a component is longer than 255 bytes. */
int path_resolve(char out[PATH_TEXT], const char *path, const char *home, const char *base_dir,
		 struct err *err);

/* A path that a client gave: absolute, cleaned like the above. ERR_INVALID when it does not begin
 * with '/', when ".." would leave the root, when it is not UTF-8, and for the lengths above. */
int path_strict(char out[PATH_TEXT], const char *path, struct err *err);

/* The name under which an uploaded file is kept: what stands behind the last '/' or '\\' of the
 * filename that its form gave, since some clients send whole paths. Quotes, line ends and other
 * characters stay as they are. ERR_INVALID for what is no name: "", ".", "..", not UTF-8, longer
 * than 255 bytes. */
#define PATH_NAME 256 /* with the NUL */
int path_upload_name(char out[PATH_NAME], const char *filename, struct err *err);

/* The last component of a cleaned absolute path; "/" for the root. */
const char *path_name(const char *path);

#endif
