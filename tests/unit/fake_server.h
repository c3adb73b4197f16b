/* A server that answers by a script, for the faults that no real server produces on demand. It
 * serves one connection at a time, in a thread, on a free port of 127.0.0.1, with TLS if it is
 * given a context. */
#ifndef TESTS_FAKE_SERVER_H
#define TESTS_FAKE_SERVER_H

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum fake_then { FAKE_CLOSE, FAKE_KEEP, FAKE_RESET, FAKE_HANG };

struct fake_reply {
	const char *bytes; /* all that is sent, the status line included; NULL: nothing */
	enum fake_then then;
};

#define FAKE_SEEN 16

struct fake {
	const struct fake_reply *replies;
	size_t nreplies;
	SSL_CTX *tls;
	int fd, port, stop[2];
	pthread_t thread;
	atomic_int requests;   /* that arrived whole, or at least their heads */
	char *seen[FAKE_SEEN]; /* each of them, head and body */
};

struct fake_conn {
	int fd;
	SSL *ssl;
};

static inline bool fake_readable(struct fake *f, int fd)
{
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN },
			       { .fd = f->stop[0], .events = POLLIN } };
	return poll(p, 2, 30000) > 0 && !p[1].revents;
}

static inline ssize_t fake_read(struct fake *f, struct fake_conn *c, char *p, size_t n)
{
	if (c->ssl)
		return (SSL_pending(c->ssl) || fake_readable(f, c->fd))
			       ? SSL_read(c->ssl, p, (int)n)
			       : 0;
	return fake_readable(f, c->fd) ? recv(c->fd, p, n, 0) : 0;
}

static inline void fake_write(struct fake_conn *c, const char *p, size_t n)
{
	while (n) {
		ssize_t done =
			c->ssl ? SSL_write(c->ssl, p, (int)n) : send(c->fd, p, n, MSG_NOSIGNAL);
		if (done <= 0)
			return;
		p += done;
		n -= (size_t)done;
	}
}

/* The bytes of one request, NULL when the client went away before it was whole. */
static inline char *fake_request(struct fake *f, struct fake_conn *c)
{
	size_t cap = 1u << 20, n = 0, want = 0;
	char *p = malloc(cap + 1);
	while (n < cap) {
		ssize_t got = fake_read(f, c, p + n, cap - n);
		if (got <= 0)
			break;
		n += (size_t)got;
		p[n] = '\0';
		char *body = strstr(p, "\r\n\r\n"), *length = strcasestr(p, "\r\nContent-Length:");
		if (!body)
			continue;
		body += 4;
		if (strcasestr(p, "\r\nTransfer-Encoding: chunked")) {
			if (strstr(body - 2, "\r\n0\r\n\r\n"))
				return p;
			continue;
		}
		want = length && length < body ? strtoul(length + 17, NULL, 10) : 0;
		if (n - (size_t)(body - p) >= want)
			return p;
	}
	free(p);
	return NULL;
}

/* true when the connection stays open. */
static inline bool fake_answer(struct fake *f, struct fake_conn *c)
{
	char *request = fake_request(f, c), byte;
	if (!request)
		return false;
	int i = atomic_load(&f->requests);
	if (i < FAKE_SEEN)
		f->seen[i] = request;
	else
		free(request);
	atomic_store(&f->requests, i + 1);
	if ((size_t)i >= f->nreplies)
		return false;
	const struct fake_reply *r = &f->replies[i];
	if (r->bytes)
		fake_write(c, r->bytes, strlen(r->bytes));
	if (r->then == FAKE_HANG)
		fake_read(f, c, &byte, 1);
	if (r->then == FAKE_RESET)
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 },
			   sizeof(struct linger));
	return r->then == FAKE_KEEP;
}

static inline void *fake_serve(void *ctx)
{
	struct fake *f = ctx;
	while (fake_readable(f, f->fd)) {
		struct fake_conn c = { .fd = accept(f->fd, NULL, NULL) };
		if (c.fd < 0)
			continue;
		if (f->tls) {
			c.ssl = SSL_new(f->tls);
			SSL_set_fd(c.ssl, c.fd);
		}
		if (!c.ssl || SSL_accept(c.ssl) == 1)
			while (fake_answer(f, &c))
				;
		SSL_free(c.ssl);
		close(c.fd);
	}
	return NULL;
}

static inline void fake_start(struct fake *f, const struct fake_reply *replies, size_t n,
			      SSL_CTX *tls)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof at;
	memset(f, 0, sizeof *f);
	f->replies = replies;
	f->nreplies = n;
	f->tls = tls;
	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(f->fd, (struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(listen(f->fd, 16), 0);
	assert_int_equal(getsockname(f->fd, (struct sockaddr *)&at, &len), 0);
	f->port = ntohs(at.sin_port);
	assert_int_equal(pipe(f->stop), 0);
	assert_int_equal(pthread_create(&f->thread, NULL, fake_serve, f), 0);
}

static inline void fake_stop(struct fake *f)
{
	assert_int_equal(write(f->stop[1], "x", 1), 1);
	pthread_join(f->thread, NULL);
	close(f->stop[0]);
	close(f->stop[1]);
	close(f->fd);
	for (int i = 0; i < FAKE_SEEN; i++)
		free(f->seen[i]);
}

#endif
