/* One FastCGI request, as a handler sees it: parameters, a body to be read, an answer to be
 * written. */
#ifndef WEB_REQUEST_H
#define WEB_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct web_req;

/* A parameter of nginx's (REQUEST_METHOD, REQUEST_URI, HTTP_ACCEPT ...); NULL when there is none.
 */
const char *web_param(const struct web_req *r, const char *name);

/* The body, as it comes: bytes, 0 at its end, -1 when the client broke off. It waits only when
 * nothing is there: neither buffered nor readable on web_fd. */
ssize_t web_read(struct web_req *r, void *p, size_t n);
bool web_buffered(const struct web_req *r);
bool web_body_read(const struct web_req *r); /* to its end */

/* Throw away the rest of the body; -1 when the client broke off. */
int web_drain(struct web_req *r);

/* The connection to nginx. Once the body is read, readable means: the client is gone. */
int web_fd(const struct web_req *r);
bool web_gone(const struct web_req *r);

/* The answer: status and headers first, then the body. Headers end at the first body byte or at the
 * end of the request. web_write is -1 when nobody listens any more. */
void web_status(struct web_req *r, int status);
void web_header(struct web_req *r, const char *name, const char *value);
int web_write(struct web_req *r, const void *p, size_t n);
int web_flush(struct web_req *r);

/* For a stream: as much as goes out without waiting; 0: nothing just now, -1: nobody listens. */
ssize_t web_offer(struct web_req *r, const void *p, size_t n);

/* The answer is complete and on its way though the handler goes on. Nothing of the request may be
 * used any more, and nobody is there to leave. */
void web_end(struct web_req *r);

#endif
