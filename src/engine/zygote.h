/* The zygote: one Python outside of every sandbox that has IPython and the usual libraries loaded,
 * and forks itself into sandboxes when a kernel is wanted there: milliseconds in place of a quarter
 * of a second. It runs no code of any client; what it forks is confined as everything inside is
 * before it hears anything of one (src/zygote). When it dies another one is started;
 * kernels that it has made live on. */
#ifndef ENGINE_ZYGOTE_H
#define ENGINE_ZYGOTE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "wire/zygotemsg.h"

struct zygote;
struct forked; /* a process that it was asked for */

struct forked_events {
	void (*made)(void *ctx);   /* it is there */
	void (*failed)(void *ctx); /* it could not be made; the handle is dead */
	void (*ended)(void *ctx);  /* it has ended, the handle is dead */
};

/* Start it; it says by ready() when it can be asked, or by ready(ctx, why) that it did not come up
 * the first time. */
int zygote_new(struct zygote **out, struct engine *e, void (*ready)(void *ctx, const char *why),
	       void *ctx, struct err *err);
void zygote_free(struct zygote *z); /* kills it; NULL is fine */
bool zygote_is_ready(const struct zygote *z);

/* A child of the engine was reaped: whether it was the zygote, or one that a dead zygote has left.
 */
bool zygote_reaped(struct zygote *z, pid_t pid);

/* Fork into the sandbox, which may still be in the making: the process is there then, and enters
 * once it stands. strings: cwd, then the environment, NUL-terminated; fds: the three that
 * the process gets, as in enum zygote_fd from ZYGOTE_CONTROL on; they stay the caller's. NULL when
 * it cannot be asked. */
struct forked *zygote_fork(struct zygote *z, struct sandbox *s, const struct buf *strings,
			   const int fds[3], const struct forked_events *events, void *ctx);

/* A signal to the process and its group. */
void forked_signal(struct forked *f, int sig);

/* Kill it and forget it; NULL is fine. */
void forked_free(struct forked *f);

#endif
