/* What a service tells its manager, over the datagram socket that NOTIFY_SOCKET names (sd_notify(3)
 * of systemd); nothing at all where nobody asked. Words that cannot be delivered are lost: a
 * service goes on without them. */
#ifndef BASE_NOTIFY_H
#define BASE_NOTIFY_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
	int fd; /* -1: nobody listens */
	struct sockaddr_un to;
	socklen_t to_len;
	int64_t every; /* microseconds between two signs of life, half of what is allowed; 0: none
			*/
	int64_t due;   /* when the next is, CLOCK_MONOTONIC */
	char status[160]; /* as it was told last */
};

/* Read the environment and take out what is meant for this process alone, so that no child
 * speaks in its place. A watchdog is served when it is meant for this process; whoever is forked
 * from it may go on with a copy. */
void notify_open(struct notify *n);
void notify_close(struct notify *n);

/* One message of NAME=value lines, such as "READY=1". */
void notify_say(const struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* RELOADING=1; READY=1 must follow, whatever becomes of it. */
void notify_reloading(const struct notify *n);

/* One line for people, sent when it differs from the last. */
void notify_status(struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A sign of life, if it is time for one. To be called where nothing but a turning main loop gets
 * to. Returns the milliseconds until the next is due; -1: never. */
int notify_alive(struct notify *n);

#endif
