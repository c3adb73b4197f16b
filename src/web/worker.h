/* A worker's life: wait for a connection, serve it, again. */
#ifndef WEB_WORKER_H
#define WEB_WORKER_H

#include "web/prefork.h"

/* Serve until SIGTERM comes while idle. Does not return. */
void worker_run(int listen_fd, const struct prefork_app *app, struct board *board,
		struct slot *slot) __attribute__((noreturn));

#endif
