/* The two listening sockets: made at their paths, or taken from systemd. */
#ifndef WEB_SOCKETS_H
#define WEB_SOCKETS_H

#include <stdbool.h>

#include "base/err.h"

/* A unix socket at path, mode 0660, for our group or the named one; a stale one is replaced, a live
 * one is an error. Non-blocking and close-on-exec. The descriptor, or -1. */
int socket_listen(const char *path, const char *group, struct err *err);

/* Whether systemd passed sockets to this process, rather than to one that it descends from. */
bool sockets_passed(void);

/* The descriptor that systemd passed under this name (LISTEN_FDNAMES), or -1. */
int socket_inherited(const char *name, struct err *err);

/* Take what was said of passed sockets out of the environment: it is not for children. */
void sockets_forget(void);

#endif
