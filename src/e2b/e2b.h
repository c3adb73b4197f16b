/* The E2B client: one per process, made after fork(). It keeps connections open and makes one call
 * at a time; every call returns when it is answered, when its deadline passes, or when the caller's
 * tick gives it up. Another call may be made from inside a tick (a running stream then goes on
 * meanwhile), but never from inside an event callback, a sink or a pull.
 *
 * Every int function returns 0, or -1 with *err set; outputs are written only on 0. The API key and
 * the sandboxes' tokens are never part of an error's text.
 *
 * Codes: ERR_DENIED 401, 403 · ERR_NOT_FOUND · ERR_LIMIT 429 · ERR_CONFLICT 409 of the control
 * plane · ERR_UNAVAILABLE not reached, 502, 503, 409 of a sandbox · ERR_TIMEOUT the deadline ·
 * ERR_ABANDONED tick, sink, pull or event callback said -1 · ERR_UNKNOWN_OUTCOME it may have
 * happened · ERR_INTERNAL an answer that makes no sense. */
#ifndef E2B_E2B_H
#define E2B_E2B_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Strings may be NULL or "" but for the key where no api_url is given; they are copied. */
struct e2b_config {
	const char *api_key;
	const char *domain;      /* E2B_DOMAIN; e2b.app */
	const char *api_url;     /* E2B_API_URL; https://api.{domain} */
	const char *sandbox_url; /* E2B_SANDBOX_URL; https://sandbox.{domain} */
	const char *ca_file;     /* SANDGATE_CA_FILE; the system's */
	int timeout_secs;        /* of a call whose wait names no deadline; 0 is 60 */
};

/* For a process that will fork, before it does: what libcurl and its TLS library make at their
 * first use is then there once, and not in every child. */
void e2b_prepare(void);

struct e2b;
int e2b_new(struct e2b **out, const struct e2b_config *config, struct err *err);
void e2b_free(struct e2b *c); /* NULL is fine */

/* How long, and for what else, a call waits. It is read anew before every wait, so a tick may
 * change it. A NULL wait is one of zeros. */
struct e2b_wait {
	int64_t deadline_mono_us; /* 0: the configured timeout; INT64_MAX: none */
	int fds[2];
	int nfds;
	short events[2]; /* what of poll(2) is looked for besides hang-up; 0 is POLLIN */
	/* Called when a descriptor is ready (bit i of ready for fds[i]) and at least once a second.
	 * -1 gives the call up: its connection is closed, which is how E2B interrupts code. */
	int (*tick)(void *ctx, unsigned ready);
	void *ctx;
};

/* A consumer answers 0 for "taken", -1 for "stop", or this: "not now". The transfer is then paused
 * and the same thing offered again after each tick. */
#define E2B_LATER 1

typedef int e2b_sink(void *ctx, const char *p, size_t n);

/* Where a sandbox is and what opens it; a plain value that can be stored. */
struct e2b_sandbox {
	char id[64];
	char domain[256];        /* "": the client's own */
	char token[512];         /* envd's; "": it has none */
	char traffic_token[512]; /* "": it has none */
};

/* What the last call that ended can say beyond its error; for decisions and for the log. */
enum e2b_why {
	E2B_WHY_OTHER,
	E2B_WHY_NOT_SENT,   /* the request never left: nothing happened at the other end */
	E2B_WHY_NO_SANDBOX, /* it is the sandbox that does not exist (any more), not a file in it */
	E2B_WHY_PORT_CLOSED, /* it runs, but nothing listens yet; a short wait may help */
};
struct e2b_last {
	const char *what; /* "create", "execute" ...; NULL when nothing was sent at all */
	char sandbox[64]; /* its id, or "" */
	enum e2b_why why;
	int status, tries; /* of HTTP, 0 when there was no answer; how often it was sent */
	int64_t us;        /* how long it took, repetitions included */
};
const struct e2b_last *e2b_last(const struct e2b *c);

/* Called at the end of every call, for the log; err is NULL when it went well. */
typedef void e2b_done_fn(void *ctx, const struct e2b_last *last, const struct err *err);
void e2b_on_done(struct e2b *c, e2b_done_fn *fn, void *ctx);

/* Whether the control plane is up and accepts our key: GET /health, then the shortest list. */
int e2b_check(struct e2b *c, const struct e2b_wait *wait, struct err *err);

#endif
