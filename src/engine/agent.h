/* The engine's end of the socket to a sandbox's agent: calls with answers, and events. */
#ifndef ENGINE_AGENT_H
#define ENGINE_AGENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/loop.h"
#include "wire/agentmsg.h"

struct agent;

struct agent_events {
	void (*placed)(void *ctx); /* its namespaces can be joined */
	void (*ready)(void *ctx);
	void (*failed)(void *ctx, const char *why);
	void (*exited)(void *ctx, uint32_t id,
		       int status); /* a spawned process, under its call's id */
	void (*lost)(void *ctx);    /* the socket is closed: the sandbox is no more */
};

/* value >= 0, or a negative errno; -ECONNRESET when the sandbox ended first. fd is -1 or now the
 * callee's. */
typedef void agent_fn(void *ctx, int value, const char *payload, size_t n, int fd);

/* Takes the socket over. */
int agent_new(struct agent **out, struct loop *loop, int sock, const struct agent_events *events,
	      void *ctx, struct err *err);
void agent_free(
	struct agent *a); /* every call under way is answered -ECONNRESET first; NULL is fine */

/* Send a call; msg->id is filled in. Strings go behind it; descriptors stay the caller's. The id,
 * or 0 when it could not be sent, and then fn is not called. */
uint32_t agent_call(struct agent *a, struct agent_msg msg, const void *payload, size_t n,
		    const int *fds, size_t nfds, agent_fn *fn, void *ctx);

/* Calls on one path. */
uint32_t agent_call_path(struct agent *a, enum agent_op op, uint32_t flags, int value,
			 const char *path, agent_fn *fn, void *ctx);

/* The answer of this call is of no interest any more. */
void agent_forget(struct agent *a, uint32_t id);

#endif
