#include "engine/tunnel.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

static struct tunnel_end *other(struct tunnel_end *e)
{
	return e == &e->tunnel->a ? &e->tunnel->b : &e->tunnel->a;
}

static size_t held(const struct tunnel_end *e)
{
	return e->out.len - e->out_at;
}

static void on_ready(void *ctx, uint32_t events);

/* A socket that nothing is wanted of is not watched: a broken one would wake us for ever. */
static int set_watch(struct tunnel_end *e)
{
	uint32_t want = (held(e) ? EPOLLOUT : 0) |
			(!e->ended && held(other(e)) < TUNNEL_HELD ? EPOLLIN : 0);
	if (!want)
		watch_del(&e->watch);
	else if (e->watch.added)
		watch_set(&e->watch, want);
	else
		return watch_add(&e->watch, e->tunnel->loop, e->fd, want, on_ready, e);
	return 0;
}

/* The flags of a socket from inside are shared with whoever made it, so each call says for itself
 * that it does not wait. */
static int send_held(struct tunnel_end *e)
{
	while (held(e)) {
		ssize_t n = send(e->fd, e->out.p + e->out_at, held(e), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		e->out_at += (size_t)n;
	}
	e->out.len = e->out_at = 0;
	return 0;
}

static int receive(struct tunnel_end *e, bool failed)
{
	struct tunnel_end *to = other(e);
	if (to->out_at) {
		buf_drop(&to->out, to->out_at);
		to->out_at = 0;
	}
	size_t room = TUNNEL_HELD - to->out.len;
	char *p = room ? buf_room(&to->out, room) : NULL;
	if (!p)
		return room ? -1 : 0;
	ssize_t n = recv(e->fd, p, room, MSG_DONTWAIT);
	if (n < 0)
		return !failed && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
	to->out.len += (size_t)n;
	e->ended = n == 0;
	return send_held(to);
}

static void on_ready(void *ctx, uint32_t events)
{
	struct tunnel_end *e = ctx;
	struct tunnel *t = e->tunnel;
	int rc = 0;
	if (events & EPOLLOUT)
		rc = send_held(e);
	if (rc == 0 && !e->ended && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		rc = receive(e, (events & EPOLLERR) != 0);
	else if (events & EPOLLERR)
		rc = -1;
	bool over = (t->a.ended && !held(&t->b)) || (t->b.ended && !held(&t->a));
	if (rc < 0 || over || set_watch(&t->a) < 0 || set_watch(&t->b) < 0)
		t->closed(t->ctx);
	else
		t->moved(t->ctx);
}

int tunnel_start(struct tunnel *t, struct loop *loop, int a, const char *to_a, size_t na, int b,
		 const char *to_b, size_t nb)
{
	t->loop = loop;
	t->a = (struct tunnel_end){ .tunnel = t, .fd = a, .out = BUF(TUNNEL_HELD) };
	t->b = (struct tunnel_end){ .tunnel = t, .fd = b, .out = BUF(TUNNEL_HELD) };
	if (buf_add(&t->a.out, to_a, na) < 0 || buf_add(&t->b.out, to_b, nb) < 0 ||
	    set_watch(&t->a) < 0 || set_watch(&t->b) < 0) {
		tunnel_free(t);
		return -1;
	}
	return 0;
}

void tunnel_free(struct tunnel *t)
{
	watch_del(&t->a.watch);
	watch_del(&t->b.watch);
	buf_free(&t->a.out);
	buf_free(&t->b.out);
}
