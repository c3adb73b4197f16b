/* What ports.c (a connection's life) and portflow.c (the bytes that go through it) share; for them
 * only. */
#ifndef ENGINE_PORTING_H
#define ENGINE_PORTING_H

#include "base/buf.h"
#include "engine/http.h"
#include "engine/loop.h"
#include "engine/sandbox.h"
#include "engine/tunnel.h"
#include "wire/httpreply.h"

#define PORT_UP_WAIT  (64u << 10)  /* with so much on its way inside the client waits */
#define PORT_UP_MAX   (512u << 10) /* that, a head and the largest piece of a body */
#define PORT_NOT_OPEN "The sandbox is running but port is not open"

/* One request and its connection inside. It is its sandbox's until it is over; after that it only
 * lives on while the HTTP layer still brings it the request's body. */
struct port {
	struct sandbox *s;
	struct port *prev, *next;
	long number;
	struct req *req; /* NULL: answered, or the client is gone */
	bool body_open;  /* the HTTP layer still holds this pointer, for the body */
	bool over;

	uint32_t call; /* the agent's connect that is under way */
	int fd;        /* -1 until then */
	struct watch watch;
	bool connected, deaf; /* deaf: the server takes nothing more */
	struct timer timer;
	int64_t active; /* when something moved last */

	bool chunked;
	struct buf up; /* on its way inside */
	size_t up_at;  /* bytes of it that are sent already */
	bool waiting;  /* the client, for room in it */

	struct http_reply reply;
	bool headed;      /* the client has the answer's head */
	bool switching;   /* it was a 101: no longer read here */
	struct buf early; /* what came behind it */
	struct tunnel tunnel;
	bool tunneled;
};

/* ports.c. After the first three the pointer is dead, unless body_open. */
void port_finish(struct port *p); /* the request is dealt with */
void port_cut(struct port *p);
/* The server failed: an error while there is no answer yet, else a break in it. */
void port_broken(struct port *p, int status, const char *text);
void port_moved(void *ctx); /* bytes went somewhere; ctx is the port */
void port_ready(void *ctx, uint32_t events);

/* portflow.c. The pointer may be dead after port_receive and port_watch, as after port_cut. */
void port_send(struct port *p);
void port_receive(struct port *p, bool failed); /* failed: epoll said so */
void port_watch(struct port *p);                /* the socket, for what is wanted of it now */
extern const struct req_sink port_sink;
extern const struct http_reply_ops port_reply_ops;

#endif
