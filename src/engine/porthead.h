/* Heads on their way through the proxy to ports inside: which fields go on, and which belong to one
 * connection only. Both directions are written anew, field by field, so that what a client or a
 * server inside wrote never decides where a message ends on the other side. */
#ifndef ENGINE_PORTHEAD_H
#define ENGINE_PORTHEAD_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/http.h"
#include "wire/httpreply.h"

struct port_request {
	struct buf head; /* request line and fields, with the empty line */
	bool chunked;    /* the body has no length: it must be sent in chunks */
	bool to_head;    /* the method is HEAD */
	bool upgrade;    /* the client asks for another protocol */
};

/* What to send inside for r. host is sent as Host, with ${PORT} replaced, or NULL for the client's
 * own. 0, and q->head is the caller's to free; or -1 (ERR_INVALID) for a request whose end or
 * target is not beyond doubt. */
int port_request(struct port_request *q, const struct req *r, long port, const char *host,
		 struct err *err);

/* Add the fields of an answer that are for the client. */
void port_fields(struct req *r, const struct http_reply_head *h);

/* The first value of a field, or NULL. */
const char *port_field(const struct http_reply_head *h, const char *name);

/* Whether a text may be a Host to send inside: the characters of a host and port, and ${PORT}. */
bool port_host_valid(const char *host);

#endif
