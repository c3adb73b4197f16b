#include "engine/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/packet.h"

#define QUEUE_MAX 4096 /* packets that wait for a full or frozen socket */

struct call {
	struct call *next;
	uint32_t id;
	agent_fn *fn; /* NULL when forgotten */
	void *ctx;
};

struct queued {
	struct queued *next;
	int fds[PACKET_FDS_MAX];
	size_t nfds, n;
	char packet[];
};

struct agent {
	int sock;
	struct watch watch;
	const struct agent_events *events;
	void *ctx;
	uint32_t last_id;
	struct call *calls;
	struct queued *first, **last;
	size_t queued;
	bool dead;
};

static void take_packet(struct agent *a, const char *p, size_t n, int *fds, size_t nfds);

static void free_queued(struct queued *q)
{
	for (size_t i = 0; i < q->nfds; i++)
		close(q->fds[i]);
	free(q);
}

static void flush(struct agent *a)
{
	while (a->first) {
		struct queued *q = a->first;
		if (packet_send(a->sock, q->packet, q->n, NULL, 0, q->fds, q->nfds) < 0)
			break;
		a->first = q->next;
		if (!a->first)
			a->last = &a->first;
		a->queued--;
		free_queued(q);
	}
	watch_set(&a->watch, a->first ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void on_socket(void *ctx, uint32_t events)
{
	struct agent *a = ctx;
	static char packet[PACKET_MAX];
	int fds[PACKET_FDS_MAX];
	size_t nfds;
	if (events & EPOLLOUT)
		flush(a);
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	ssize_t n = packet_recv(a->sock, packet, sizeof packet, fds, &nfds);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n >= (ssize_t)sizeof(struct agent_msg)) {
		take_packet(a, packet, (size_t)n, fds, nfds);
		return;
	}
	/* Closed, or it does not speak our language: either way it is over. */
	for (size_t i = 0; i < nfds; i++)
		close(fds[i]);
	watch_del(&a->watch);
	a->events->lost(a->ctx);
}

int agent_new(struct agent **out, struct loop *loop, int sock, const struct agent_events *events,
	      void *ctx, struct err *err)
{
	struct agent *a = calloc(1, sizeof *a);
	if (!a) {
		close(sock);
		return err_set(err, ERR_INTERNAL, "no memory");
	}
	*a = (struct agent){ .sock = sock, .events = events, .ctx = ctx };
	a->last = &a->first;
	if (watch_add(&a->watch, loop, sock, EPOLLIN, on_socket, a) < 0) {
		agent_free(a);
		return err_errno(err, "epoll_ctl");
	}
	*out = a;
	return 0;
}

void agent_free(struct agent *a)
{
	if (!a)
		return;
	a->dead = true;
	watch_del(&a->watch);
	close(a->sock);
	while (a->calls) {
		struct call *c = a->calls;
		a->calls = c->next;
		if (c->fn)
			c->fn(c->ctx, -ECONNRESET, NULL, 0, -1);
		free(c);
	}
	while (a->first) {
		struct queued *q = a->first;
		a->first = q->next;
		free_queued(q);
	}
	free(a);
}

static int enqueue(struct agent *a, const struct agent_msg *msg, const void *payload, size_t n,
		   const int *fds, size_t nfds)
{
	if (a->queued == QUEUE_MAX)
		return -1;
	struct queued *q = calloc(1, sizeof *q + sizeof *msg + n);
	if (!q)
		return -1;
	memcpy(q->packet, msg, sizeof *msg);
	if (n)
		memcpy(q->packet + sizeof *msg, payload, n);
	q->n = sizeof *msg + n;
	for (size_t i = 0; i < nfds; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
		if (fd < 0) {
			free_queued(q);
			return -1;
		}
		q->fds[q->nfds++] = fd;
	}
	*a->last = q;
	a->last = &q->next;
	a->queued++;
	watch_set(&a->watch, EPOLLIN | EPOLLOUT);
	return 0;
}

uint32_t agent_call(struct agent *a, struct agent_msg msg, const void *payload, size_t n,
		    const int *fds, size_t nfds, agent_fn *fn, void *ctx)
{
	if (!a || a->dead || sizeof msg + n > PACKET_MAX)
		return 0;
	struct call *c = calloc(1, sizeof *c);
	if (!c)
		return 0;
	msg.id = ++a->last_id ? a->last_id : ++a->last_id;
	bool sent = !a->first && packet_send(a->sock, &msg, sizeof msg, payload, n, fds, nfds) == 0;
	if (!sent &&
	    ((!a->first && errno != EAGAIN) || enqueue(a, &msg, payload, n, fds, nfds) < 0)) {
		free(c);
		return 0;
	}
	*c = (struct call){ .next = a->calls, .id = msg.id, .fn = fn, .ctx = ctx };
	a->calls = c;
	return msg.id;
}

uint32_t agent_call_path(struct agent *a, enum agent_op op, uint32_t flags, int value,
			 const char *path, agent_fn *fn, void *ctx)
{
	struct agent_msg msg = { .op = op, .flags = flags, .value = value };
	return agent_call(a, msg, path, strlen(path) + 1, NULL, 0, fn, ctx);
}

void agent_forget(struct agent *a, uint32_t id)
{
	for (struct call *c = a ? a->calls : NULL; c; c = c->next)
		if (c->id == id)
			c->fn = NULL;
}

static void take_reply(struct agent *a, const struct agent_msg *msg, const char *payload, size_t n,
		       int *fd)
{
	for (struct call **at = &a->calls; *at; at = &(*at)->next) {
		struct call *c = *at;
		if (c->id != msg->id)
			continue;
		*at = c->next;
		if (c->fn)
			c->fn(c->ctx, msg->value, payload, n, steal_fd(fd));
		free(c);
		return;
	}
}

static void take_packet(struct agent *a, const char *p, size_t n, int *fds, size_t nfds)
{
	struct agent_msg msg;
	memcpy(&msg, p, sizeof msg);
	p += sizeof msg;
	n -= sizeof msg;
	_close_ int fd = nfds ? fds[0] : -1;
	for (size_t i = 1; i < nfds; i++)
		close(fds[i]);
	size_t pos = 0;
	const char *why = agent_string(p, n, &pos);
	switch (msg.op) {
	case AGENT_PLACED:
		a->events->placed(a->ctx);
		break;
	case AGENT_READY:
		a->events->ready(a->ctx);
		break;
	case AGENT_FAILED:
		a->events->failed(a->ctx, why ? why : "?");
		break;
	case AGENT_REPLY:
		take_reply(a, &msg, p, n, &fd);
		break;
	case AGENT_EXITED:
		a->events->exited(a->ctx, msg.id, msg.value);
		break;
	}
}
