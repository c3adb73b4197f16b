#include "engine/porting.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "engine/porthead.h"

#define PIECE (64u << 10)

/* ---- what is wanted of the socket inside ---- */

static size_t up_left(const struct port *p)
{
	return p->up.len - p->up_at;
}

/* A socket that nothing is wanted of is not watched: a broken one would wake us for ever. */
void port_watch(struct port *p)
{
	bool room = !p->headed || (p->req && req_backlog(p->req) < REQ_BACKLOG);
	uint32_t want = 0;
	if (!p->connected || up_left(p))
		want |= EPOLLOUT;
	if (p->connected && room && !p->switching)
		want |= EPOLLIN;
	if (!want)
		watch_del(&p->watch);
	else if (p->watch.added)
		watch_set(&p->watch, want);
	else if (watch_add(&p->watch, p->s->engine->loop, p->fd, want, port_ready, p) < 0)
		port_broken(p, 502, PORT_NOT_OPEN);
}

/* ---- the request, inwards ---- */

/* The flags of the socket are shared with the sandbox, so each call says for itself that it does
 * not wait. */
void port_send(struct port *p)
{
	while (up_left(p)) {
		ssize_t n =
			send(p->fd, p->up.p + p->up_at, up_left(p), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			/* It may have answered before it hung up: the rest of the body is for
			 * nobody, the answer is still read. */
			p->deaf = true;
			p->up_at = p->up.len;
			break;
		}
		p->up_at += (size_t)n;
		port_moved(p);
	}
	if (!up_left(p))
		p->up.len = p->up_at = 0;
	if (p->waiting && up_left(p) <= PORT_UP_WAIT / 2) {
		p->waiting = false;
		req_body_ready(p->req);
	}
}

static int add_body(struct port *p, const char *data, size_t n)
{
	if (p->up_at) {
		buf_drop(&p->up, p->up_at);
		p->up_at = 0;
	}
	if (!p->chunked)
		return buf_add(&p->up, data, n);
	return buf_addf(&p->up, "%zx\r\n", n) | buf_add(&p->up, data, n) | buf_adds(&p->up, "\r\n");
}

static void on_client_gone(void *ctx)
{
	struct port *p = ctx;
	p->body_open = false;
	port_finish(p);
}

static void on_drained(void *ctx)
{
	struct port *p = ctx;
	port_moved(p);
	port_watch(p);
}

static const struct req_owner owner = { .gone = on_client_gone, .drained = on_drained };

/* The HTTP layer brings no more of the body: from now on it knows us as the answer's owner. */
static void close_body(struct port *p)
{
	p->body_open = false;
	if (p->over)
		free(p);
	else
		req_own(p->req, &owner, p);
}

static int on_body(void *ctx, const char *data, size_t n)
{
	struct port *p = ctx;
	if (p->over || p->deaf) {
		close_body(p);
		return -1;
	}
	port_moved(p);
	if (!p->connected || up_left(p) > PORT_UP_WAIT) {
		p->waiting = true;
		return 1;
	}
	if (add_body(p, data, n) < 0) {
		port_cut(p);
		close_body(p);
		return -1;
	}
	port_send(p);
	port_watch(p);
	return 0;
}

static void on_body_end(void *ctx)
{
	struct port *p = ctx;
	bool over = p->over;
	close_body(p);
	if (over)
		return;
	if (p->chunked && buf_adds(&p->up, "0\r\n\r\n") < 0)
		port_cut(p);
	else if (p->fd >= 0)
		port_watch(p);
}

const struct req_sink port_sink = { on_body, on_body_end, on_client_gone };

/* ---- the answer, outwards ---- */

static void on_tunnel_closed(void *ctx)
{
	port_cut(ctx);
}

/* The client's socket is ours now. */
static void on_switched(void *ctx, int sock, const char *extra, size_t n)
{
	struct port *p = ctx;
	watch_del(&p->watch);
	p->tunnel.moved = port_moved;
	p->tunnel.closed = on_tunnel_closed;
	p->tunnel.ctx = p;
	p->tunneled = true;
	if (tunnel_start(&p->tunnel, p->s->engine->loop, sock, p->early.p, p->early.len, p->fd,
			 extra, n) < 0)
		port_cut(p);
	else
		buf_free(&p->early);
}

static int on_head(void *ctx, const struct http_reply_head *h)
{
	struct port *p = ctx;
	if (h->status == 101 && !port_field(h, "Upgrade"))
		return -1;
	p->headed = true;
	port_fields(p->req, h);
	if (h->status == 101) {
		p->switching = true;
		req_switch(p->req, on_switched, p);
	} else if (h->status == 204 || h->status == 304 || (h->sized && !h->length)) {
		req_reply(p->req, h->status, NULL, "", 0);
	} else if (h->sized) {
		req_begin_sized(p->req, h->status, h->length);
	} else {
		req_begin(p->req, h->status, NULL);
	}
	return 0;
}

static int on_data(void *ctx, const char *data, size_t n)
{
	struct port *p = ctx;
	if (p->switching)
		return buf_add(&p->early, data, n);
	req_write(p->req, data, n);
	return 0;
}

/* What to do is seen from reply.state, outside of the decoder. */
static void on_end(void *ctx)
{
	(void)ctx;
}

const struct http_reply_ops port_reply_ops = { on_head, on_data, on_end };

void port_receive(struct port *p, bool failed)
{
	char piece[PIECE];
	struct err err;
	ssize_t n = recv(p->fd, piece, sizeof piece, MSG_DONTWAIT);
	if (n < 0 && !failed && (errno == EAGAIN || errno == EINTR))
		return;
	int rc = -1;
	if (n > 0)
		rc = http_reply_feed(&p->reply, piece, (size_t)n, &err);
	else if (n == 0)
		rc = http_reply_finish(&p->reply, &err);
	port_moved(p);
	if (rc < 0) {
		port_broken(p, 502,
			    n > 0 ? "What listens on the port does not answer in HTTP"
				  : "The server in the sandbox closed the connection without an "
				    "answer");
	} else if (p->reply.state == REPLY_DONE) {
		req_end(p->req);
		port_finish(p);
	} else {
		port_watch(p);
	}
}
