#include "base/notify.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define MESSAGE_MAX 1024
#define SEND_SECS   2 /* for a manager that is busy with the words of others */

/* "/path", or "@name" for one in the abstract namespace. */
static int read_address(struct notify *n, const char *name)
{
	size_t len = strlen(name);
	n->to = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if ((*name != '/' && *name != '@') || len < 2 || len >= sizeof n->to.sun_path)
		return -1;
	memcpy(n->to.sun_path, name, len);
	n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	if (*name == '@')
		n->to.sun_path[0] = '\0';
	else
		n->to_len++;
	return 0;
}

static int64_t number(const char *name)
{
	const char *text = getenv(name);
	char *end;
	errno = 0;
	long long v = text ? strtoll(text, &end, 10) : 0;
	return text && !errno && end != text && !*end && v > 0 ? v : 0;
}

static int64_t watchdog_us(void)
{
	return getenv("WATCHDOG_PID") && number("WATCHDOG_PID") != getpid()
		       ? 0
		       : number("WATCHDOG_USEC");
}

void notify_open(struct notify *n)
{
	static const char *const ours[] = { "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC" };
	const char *name = getenv(ours[0]);
	*n = (struct notify){ .fd = -1 };
	if (name && read_address(n, name) == 0)
		n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (n->fd >= 0) {
		const struct timeval limit = { .tv_sec = SEND_SECS };
		setsockopt(n->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
		n->every = watchdog_us() / 2;
	}
	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		unsetenv(ours[i]);
}

void notify_close(struct notify *n)
{
	close_fd(&n->fd);
	n->every = 0;
}

static void __attribute__((format(printf, 2, 0)))
send_text(const struct notify *n, const char *fmt, va_list ap)
{
	char text[MESSAGE_MAX];
	int len = vsnprintf(text, sizeof text, fmt, ap);
	if (n->fd >= 0 && len > 0 && (size_t)len < sizeof text)
		sendto(n->fd, text, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)&n->to,
		       n->to_len);
}

void notify_say(const struct notify *n, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	send_text(n, fmt, ap);
	va_end(ap);
}

void notify_reloading(const struct notify *n)
{
	notify_say(n, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)clock_mono_us());
}

void notify_status(struct notify *n, const char *fmt, ...)
{
	char text[sizeof n->status];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' '; /* a new line would begin another word of ours */
	if (!strcmp(text, n->status))
		return;
	memcpy(n->status, text, sizeof text);
	notify_say(n, "STATUS=%s", text);
}

int notify_alive(struct notify *n)
{
	if (!n->every)
		return -1;
	int64_t now = clock_mono_us();
	if (now >= n->due) {
		notify_say(n, "WATCHDOG=1");
		n->due = now + n->every;
	}
	int64_t ms = (n->due - now + 999) / 1000;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}
