/* What may be installed: one requirement of PEP 508, of which its name, extras and version parts
 * are taken. No options, URLs, paths or environment markers, nothing that a shell or pip would read
 * as anything but a package of its index. Pure: no I/O. */
#ifndef CORE_PACKAGES_H
#define CORE_PACKAGES_H

#include <stddef.h>

#include "base/err.h"

#define PACKAGE_MAX 200 /* bytes of a requirement as it comes */

struct package {
	char requirement[PACKAGE_MAX + 1]; /* "pandas[excel]>=2,<3": no blanks, no parentheses */
	char name[PACKAGE_MAX + 1];        /* "pandas" */
};

/* ERR_INVALID says what is wrong and what is allowed. *out is written only on 0. */
int package_parse(const char *p, size_t n, struct package *out, struct err *err);

#endif
