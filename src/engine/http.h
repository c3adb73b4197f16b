/* HTTP/1.1 for the engine (libmicrohttpd, driven by our loop). A request is routed when its headers
 * are there; its body is then collected, or streamed to whoever routed it; the answer may come at
 * any time later, whole, from a file, or as a stream with back-pressure.
 *
 * A struct req lives until the client has its answer or is gone. Whoever keeps a pointer to it for
 * later must register with req_own, and drops the pointer in gone(), or with the call that ends the
 * answer. */
#ifndef ENGINE_HTTP_H
#define ENGINE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/loop.h"

struct http;
struct req;

#define REQ_PATH_MAX 8192

/* Takes the request's body as it arrives. */
struct req_sink {
	/* 0: taken. 1: not now, nothing was taken; the client waits until req_body_ready. -1: the
	 * answer is given already, throw the rest away. */
	int (*data)(void *ctx, const char *p, size_t n);
	void (*end)(void *ctx);  /* the body is complete */
	void (*gone)(void *ctx); /* it never will be: free what was begun */
};

struct req_owner {
	void (*gone)(void *ctx);    /* the client went away; the pointer is dead after this */
	void (*drained)(void *ctx); /* a stream has room again; may be NULL */
};

/* Routes one request: called once, with the headers read and nothing of the body. It calls
 * req_collect, req_sink or an answer. */
typedef void http_route(void *app, struct req *r);

int http_new(struct http **out, struct loop *loop, int listen_fd, http_route *route, void *app,
	     struct err *err);
void http_stop_listening(struct http *h);
void http_free(struct http *h); /* cuts what is still open */

/* What was asked. path is still percent-encoded; query is "" when there is none. */
const char *req_method(const struct req *r);
const char *req_path(const struct req *r);
const char *req_query(const struct req *r);
const char *req_header(const struct req *r, const char *name); /* NULL when absent */
/* Every header whose name begins with prefix, in any case and in the order they came: fn gets the
 * rest of the name, and the value up to its first NUL. Stops, and returns -1, when fn does. */
int req_each_header(const struct req *r, const char *prefix,
		    int (*fn)(void *ctx, const char *name, const char *value), void *ctx);
bool req_has_body(const struct req *r);  /* any body, also an empty chunked one */
bool req_has_query(const struct req *r); /* there is a '?', perhaps with nothing behind it */

/* The body: gather up to max bytes, then call then(ctx, r, body); over it the answer is 413 by
 * itself. ctx comes from malloc, or is NULL, and is freed after then, or when that will never be
 * called. */
void req_collect(struct req *r, size_t max,
		 void (*then)(void *ctx, struct req *r, struct buf *body), void *ctx);
void req_stream_body(struct req *r, const struct req_sink *sink, void *ctx);
void req_body_ready(struct req *r);

void req_own(struct req *r, const struct req_owner *owner, void *ctx);

/* The common case: keep r in *slot, which becomes NULL when the client goes away. */
void req_hold(struct req *r, struct req **slot);

/* Mark what a request is about; http_cut breaks off every whole or file answer under that mark.
 * Streams are cut by those who write them. */
void req_mark(struct req *r, uint64_t mark);
void http_cut(struct http *h, uint64_t mark);

/* The answer. Headers first; then one of the following ends it. */
void req_add_header(struct req *r, const char *name, const char *value);
void req_reply(struct req *r, int status, const char *type, const void *body, size_t n);
void req_reply_file(struct req *r, int status, const char *type, int fd, uint64_t off,
		    uint64_t len);

/* Or a stream: begin, write, and end, or cut it so that the client sees it broken. */
#define REQ_BACKLOG (256u << 10) /* past this a writer should pause until drained() */
void req_begin(struct req *r, int status, const char *type);
/* The same with as many bytes as are said here: whoever writes fewer must cut. */
void req_begin_sized(struct req *r, int status, uint64_t length);
bool req_begun(const struct req *r);
void req_write(struct req *r, const void *p, size_t n);
size_t req_backlog(const struct req *r);
void req_end(struct req *r);
void req_cut(struct req *r);

/* Or a stream that is pulled: fn fills p with up to n bytes; 0 is the end, -1 cuts. done frees ctx.
 */
void req_pull(struct req *r, int status, const char *type,
	      ssize_t (*fn)(void *ctx, char *p, size_t n), void (*done)(void *ctx), void *ctx);

/* Or 101: with the head sent, switched() gets the client's socket (not owned, non-blocking) and the
 * n bytes that were read from it already. From then on only req_hang_up ends the request; it may
 * not be used afterwards. A client that leaves before is gone() as ever. The headers must have an
 * Upgrade. */
void req_switch(struct req *r, void (*switched)(void *ctx, int sock, const char *p, size_t n),
		void *ctx);
void req_hang_up(struct req *r);

#endif
