/* The two listening sockets: made at their paths, or taken from systemd. */
#ifndef WEB_SOCKETS_H
#define WEB_SOCKETS_H

#include "base/err.h"

/* A unix socket at path, mode 0660, for our group or the named one; a stale one is replaced, a live
 * one is an error. Non-blocking and close-on-exec. The descriptor, or -1. */
int socket_listen(const char *path, const char *group, struct err *err);

/* The descriptor that systemd passed under this name (LISTEN_FDNAMES), or -1. */
int socket_inherited(const char *name, struct err *err);

#endif
