/* Two sockets joined: what one says the other hears, until one of them ends. Each direction holds
 * at most TUNNEL_HELD bytes; a side that does not read makes the other wait. */
#ifndef ENGINE_TUNNEL_H
#define ENGINE_TUNNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "engine/loop.h"

#define TUNNEL_HELD (64u << 10)

struct tunnel_end {
	struct tunnel *tunnel;
	int fd; /* not owned */
	struct watch watch;
	struct buf out; /* to be sent to fd */
	size_t out_at;  /* bytes of it that are sent already */
	bool ended;     /* nothing more comes from fd */
};

/* Plain, so that it can be embedded; for tunnel.c only. */
struct tunnel {
	struct loop *loop;
	struct tunnel_end a, b;
	void (*moved)(void *ctx); /* bytes went somewhere */
	void (*closed)(
		void *ctx); /* the end: call tunnel_free and close both; may free the tunnel */
	void *ctx;
};

/* Join a and b, and first send na bytes to a and nb bytes to b, at most TUNNEL_HELD each. closed()
 * comes from the loop, never from here. 0 or -1. */
int tunnel_start(struct tunnel *t, struct loop *loop, int a, const char *to_a, size_t na, int b,
		 const char *to_b, size_t nb);
void tunnel_free(struct tunnel *t); /* fine when it was never started */

#endif
