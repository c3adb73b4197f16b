#include "engine/ports.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/answer.h"
#include "engine/network.h"
#include "engine/porthead.h"
#include "engine/porting.h"
#include "engine/surface.h"

#define CONNECT_SECS 20  /* for the agent and a server whose backlog is full */
#define IDLE_SECS    620 /* nothing moved for so long: as at E2B's edge */

/* ---- the end ---- */

/* Whoever made the socket may have asked for a close that waits. */
static void close_socket(struct port *p)
{
	const struct linger none = { .l_onoff = 0 };
	if (p->fd >= 0)
		setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
	close_fd(&p->fd);
}

/* Let go of everything but the request. */
static void leave(struct port *p)
{
	struct sandbox *s = p->s;
	if (p->over)
		return;
	p->over = true;
	*(p->prev ? &p->prev->next : &s->ports) = p->next;
	if (p->next)
		p->next->prev = p->prev;
	s->nports--;
	if (p->call)
		agent_forget(s->agent, p->call);
	timer_stop(&p->timer);
	watch_del(&p->watch);
	if (p->tunneled)
		tunnel_free(&p->tunnel);
	close_socket(p);
	http_reply_free(&p->reply);
	buf_free(&p->up);
	buf_free(&p->early);
}

static void free_port(struct port *p)
{
	leave(p);
	if (!p->body_open)
		free(p);
}

/* The request is dealt with. */
void port_finish(struct port *p)
{
	p->req = NULL;
	free_port(p);
}

void port_cut(struct port *p)
{
	if (p->tunneled)
		req_hang_up(p->req);
	else if (p->req)
		req_cut(p->req);
	port_finish(p);
}

static void refuse(struct port *p, int status, const char *text)
{
	const struct edge_error e = { .status = status,
				      .id = p->s->id,
				      .port = p->number,
				      .any_origin = true,
				      .text = text };
	edge_refuse(p->req, &e);
	port_finish(p);
}

/* The server failed: an error while there is no answer yet, else a break in it. */
void port_broken(struct port *p, int status, const char *text)
{
	if (p->headed)
		port_cut(p);
	else
		refuse(p, status, text);
}

void ports_cut(struct sandbox *s)
{
	while (s->ports)
		port_cut(s->ports);
}

/* ---- time ---- */

static void on_time(void *ctx);

static void set_timer(struct port *p)
{
	int64_t secs = p->connected ? IDLE_SECS : CONNECT_SECS;
	timer_at(&p->timer, p->s->engine->loop, p->active + secs * SECOND_US, on_time, p);
}

/* The timer is not moved with every byte: it looks at what happened since when it fires. */
static void on_time(void *ctx)
{
	struct port *p = ctx;
	if (!p->connected)
		refuse(p, 502, PORT_NOT_OPEN);
	else if (clock_mono_us() - p->active < IDLE_SECS * SECOND_US)
		set_timer(p);
	else
		port_broken(p, 504, "The server in the sandbox does not answer");
}

void port_moved(void *ctx)
{
	struct port *p = ctx;
	p->active = clock_mono_us();
}

/* ---- the connection ---- */

/* A message from inside may carry anything: only a TCP socket on its way to a peer will do. */
static bool is_connection(int fd)
{
	int domain, type, protocol;
	struct tcp_info info;
	socklen_t n = sizeof domain, size = sizeof info;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) < 0)
		return false;
	if ((domain != AF_INET && domain != AF_INET6) || type != SOCK_STREAM ||
	    protocol != IPPROTO_TCP)
		return false;
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
	       info.tcpi_state != TCP_LISTEN;
}

void port_ready(void *ctx, uint32_t events)
{
	struct port *p = ctx;
	if (!p->connected) {
		int why = 0;
		socklen_t n = sizeof why;
		if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &why, &n) < 0 || why) {
			refuse(p, 502, PORT_NOT_OPEN);
			return;
		}
		p->connected = true;
		port_moved(p);
		set_timer(p);
	}
	port_send(p);
	if (!p->switching && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		port_receive(p, (events & EPOLLERR) != 0);
	else
		port_watch(p);
}

static void on_connected(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct port *p = ctx;
	int one = 1;
	(void)payload;
	(void)n;
	p->call = 0;
	p->fd = fd;
	if (value < 0 || fd < 0 || !is_connection(fd)) {
		refuse(p, 502, PORT_NOT_OPEN);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	port_watch(p);
}

/* ---- the beginning ---- */

static struct port *new_port(struct sandbox *s, struct req *r, long number, struct port_request *q)
{
	struct port *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	*p = (struct port){ .s = s,
			    .next = s->ports,
			    .number = number,
			    .req = r,
			    .fd = -1,
			    .active = clock_mono_us(),
			    .chunked = q->chunked,
			    .up = q->head,
			    .early = BUF(TUNNEL_HELD) };
	p->up.max = PORT_UP_MAX;
	http_reply_init(&p->reply, q->to_head, q->upgrade, &port_reply_ops, p);
	if (s->ports)
		s->ports->prev = p;
	s->ports = p;
	s->nports++;
	set_timer(p);
	return p;
}

static void refuse_more(const struct sandbox *s, struct req *r)
{
	char text[128];
	snprintf(text, sizeof text,
		 "The sandbox has too many concurrent incoming connections (limit: %d)", PORTS_MAX);
	const struct edge_error e = {
		.status = 429, .id = s->id, .limit = PORTS_MAX, .any_origin = true, .text = text
	};
	edge_refuse(r, &e);
}

void ports_route(struct sandbox *s, struct req *r, long number)
{
	struct port_request q;
	struct err err;
	if (s->nports >= PORTS_MAX) {
		refuse_more(s, r);
		return;
	}
	if (port_request(&q, r, number, network_host(s->config.network), &err) < 0) {
		/* Where this request ends is in doubt, so nothing is read behind it. */
		req_add_header(r, "Connection", "close");
		answer_text(r, 400, err.text);
		return;
	}
	struct port *p = new_port(s, r, number, &q);
	if (!p) {
		buf_free(&q.head);
		answer_error(r, 500, "no memory");
		return;
	}
	struct agent_msg msg = { .op = AGENT_CONNECT, .value = (int32_t)number };
	p->call = agent_call(s->agent, msg, NULL, 0, NULL, 0, on_connected, p);
	if (!p->call) {
		refuse(p, 502, PORT_NOT_OPEN);
		return;
	}
	p->body_open = true;
	req_stream_body(r, &port_sink, p);
}
