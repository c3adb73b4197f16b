#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum log_level log_level = LOG_INFO;

static const char *const names[] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warn",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

void log_line(enum log_level level, const char *fmt, ...)
{
	if (level > log_level)
		return;
	char when[CLOCK_TEXT], line[2048];
	int n = snprintf(line, sizeof line, "time=%s level=%s ",
			 clock_rfc3339(when, clock_real_us()), names[level]);
	va_list ap;
	va_start(ap, fmt);
	int more = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (more > 0)
		n += more;
	if ((size_t)n > sizeof line - 2)
		n = sizeof line - 2;
	for (int i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ')
			line[i] = ' ';
	line[n++] = '\n';
	/* One write, so that lines of several processes do not mix; a full log is nobody's failure.
	 */
	ssize_t done = write(STDERR_FILENO, line, (size_t)n);
	(void)done;
}

const char *log_plain(char out[LOG_PLAIN], const char *s)
{
	size_t len = strlen(s), n = len < LOG_PLAIN ? len : LOG_PLAIN - 1;
	for (size_t i = 0; i < n; i++)
		out[i] = (char)(s[i] == '"' ? '\'' : s[i]);
	out[n] = '\0';
	return out;
}

int log_set_level(const char *name)
{
	for (int i = LOG_ERROR; i <= LOG_DEBUG; i++) {
		if (!strcmp(name, names[i])) {
			log_level = (enum log_level)i;
			return 0;
		}
	}
	return -1;
}
