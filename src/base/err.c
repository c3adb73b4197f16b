#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
	if (!err)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	err->code = code;
	err->remote = false;
	vsnprintf(err->text, sizeof err->text, fmt, ap);
	va_end(ap);
	return -1;
}

int err_errno(struct err *err, const char *fmt, ...)
{
	int saved = errno;
	if (!err)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	err->code = ERR_INTERNAL;
	err->remote = false;
	int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof err->text)
		snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", strerror(saved));
	return -1;
}
