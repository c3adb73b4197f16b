/* The FastCGI server: a master and single-threaded workers in two pools on two sockets. The quick
 * pool has a fixed size; the exec pool grows on demand and shrinks when idle. */
#ifndef WEB_PREFORK_H
#define WEB_PREFORK_H

#include "base/err.h"
#include "web/request.h"
#include "web/scoreboard.h"

/* What the workers do. All of it is called in the worker, after the fork, but for the last two. */
struct prefork_app {
	/* Open what belongs to one process; NULL with *err set makes the worker exit, and another
	 * is tried later. */
	void *(*open)(void *ctx, struct board *board, struct slot *slot, struct err *err);
	void (*serve)(void *worker, struct web_req *r);
	/* Once the answer is on its way and nobody waits any more. May be NULL. */
	void (*served)(void *worker);
	void (*close)(void *worker);
	/* In the master, at SIGHUP: read the settings anew; -1 keeps the workers as they are. */
	int (*reload)(void *ctx, struct err *err);
	/* In the master, after a worker has crashed and once a minute: give back what the dead
	 * held. May be NULL. */
	void (*tend)(void *ctx);
	void *ctx;
};

struct prefork_config {
	const char
		*socket[POOLS]; /* paths; NULL takes systemd's descriptors named quick and exec */
	const char *group;      /* who may connect besides us; NULL: our own group */
	int size[POOLS];        /* the most workers of each pool */
	int exec_start;         /* how many exec workers there are at least */
	int drain_secs;         /* how long running requests may take after SIGTERM */
	const struct prefork_app *app;
	void (*ready)(void *ctx); /* called once, when both sockets are served; may be NULL */
};

/* Serve until SIGTERM or SIGINT and everything is drained. 0, or -1 when it could not be started.
 * A service manager is told how it goes (base/notify.h). systemd's sockets stay when it ends. */
int prefork_run(const struct prefork_config *config, struct err *err);

#endif
