#include "web/worker.h"

#include <errno.h>
#include <fcgiapp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"

struct web_req {
	FCGX_Request fcgi;
	bool headers_done, body_read, cut;
	bool has_status;
};

/* ---- the request ---- */

const char *web_param(const struct web_req *r, const char *name)
{
	return FCGX_GetParam(name, r->fcgi.envp);
}

bool web_buffered(const struct web_req *r)
{
	return r->fcgi.in->stop > r->fcgi.in->rdNext;
}

/* FCGX_GetStr waits until all n bytes are there, so it is asked for no more than there are. */
ssize_t web_read(struct web_req *r, void *p, size_t n)
{
	int c = web_buffered(r) || !n ? -1 : FCGX_GetChar(r->fcgi.in);
	if (c >= 0)
		FCGX_UnGetChar(c, r->fcgi.in);
	size_t there = (size_t)(r->fcgi.in->stop - r->fcgi.in->rdNext);
	if (there)
		return FCGX_GetStr(p, (int)(n < there ? n : there), r->fcgi.in);
	/* libfcgi gives the same 0 for the end of the body and for a client that broke off. */
	if (FCGX_GetError(r->fcgi.in)) {
		r->cut = true;
		return -1;
	}
	r->body_read = true;
	return 0;
}

int web_drain(struct web_req *r)
{
	char rest[16384];
	ssize_t n;
	while ((n = web_read(r, rest, sizeof rest)) > 0)
		;
	return n < 0 ? -1 : 0;
}

int web_fd(const struct web_req *r)
{
	return r->fcgi.ipcFd;
}

bool web_gone(const struct web_req *r)
{
	struct pollfd p = { .fd = r->fcgi.ipcFd, .events = POLLIN | POLLRDHUP };
	if (r->cut)
		return true;
	/* An unread body makes it readable as well. */
	return poll(&p, 1, 0) > 0 &&
	       (r->body_read || (p.revents & (POLLHUP | POLLERR | POLLRDHUP)));
}

void web_status(struct web_req *r, int status)
{
	if (!r->headers_done && !r->has_status)
		FCGX_FPrintF(r->fcgi.out, "Status: %d\r\n", status);
	r->has_status = true;
}

/* A line break in a value would begin a header of the client's choosing. */
void web_header(struct web_req *r, const char *name, const char *value)
{
	if (!r->headers_done && !strpbrk(value, "\r\n"))
		FCGX_FPrintF(r->fcgi.out, "%s: %s\r\n", name, value);
}

static void end_headers(struct web_req *r)
{
	if (r->headers_done)
		return;
	web_status(r, 200);
	FCGX_PutS("\r\n", r->fcgi.out);
	r->headers_done = true;
}

int web_write(struct web_req *r, const void *p, size_t n)
{
	end_headers(r);
	while (n) {
		int piece = n > 1 << 20 ? 1 << 20 : (int)n;
		if (FCGX_PutStr(p, piece, r->fcgi.out) < 0)
			return -1;
		p = (const char *)p + piece;
		n -= (size_t)piece;
	}
	return 0;
}

int web_flush(struct web_req *r)
{
	end_headers(r);
	return FCGX_FFlush(r->fcgi.out) < 0 ? -1 : 0;
}

static void finish(struct web_req *r)
{
	end_headers(r);
	/* Detached, libfcgi does not wait for nginx to close its end. With an unread body it must:
	 * nginx would take the reset for a failure. */
	if (r->body_read)
		FCGX_Detach(&r->fcgi);
	FCGX_Finish_r(&r->fcgi);
}

/* ---- the loop ---- */

static volatile sig_atomic_t asked_to_end;

static void on_term(int sig)
{
	(void)sig;
	asked_to_end = 1;
}

static void set_busy(struct board *b, struct slot *s)
{
	atomic_store(&s->state, SLOT_BUSY);
	if (board_count(b, s->pool, SLOT_IDLE))
		return;
	const uint64_t one = 1;
	ssize_t done = write(board_hungry(b), &one, sizeof one);
	(void)done; /* full: the master knows */
}

static bool has_body(const struct web_req *r)
{
	const char *length = web_param(r, "CONTENT_LENGTH");
	if (length && *length)
		return strcmp(length, "0") != 0;
	return web_param(r, "HTTP_TRANSFER_ENCODING") != NULL;
}

/* SIGTERM is let in only while nothing is accepted: no signal is lost, and no connection either. */
static void accept_and_serve(struct web_req *r, const struct prefork_app *app, void *worker,
			     struct board *board, struct slot *slot, int epoll,
			     const sigset_t *open_mask)
{
	struct epoll_event e;
	atomic_store(&slot->state, SLOT_IDLE);
	if (epoll_pwait(epoll, &e, 1, -1, open_mask) <= 0 || asked_to_end)
		return;
	set_busy(board, slot);
	if (FCGX_Accept_r(&r->fcgi) < 0)
		return; /* another worker was quicker, or the client left */
	r->headers_done = r->body_read = r->cut = r->has_status = false;
	/* Without a body there is still the record that says so, and it may be late: unread, it
	 * would look like a departure. */
	if (!has_body(r))
		web_drain(r);
	atomic_fetch_add(&slot->served, 1);
	app->serve(worker, r);
	finish(r);
}

void worker_run(int listen_fd, const struct prefork_app *app, struct board *board,
		struct slot *slot)
{
	static struct web_req r;
	struct err err = { 0 };
	sigset_t blocked, open_mask;
	struct epoll_event e = { .events = EPOLLIN | EPOLLEXCLUSIVE };
	FCGX_Init();
	/* It has taken over three signals; they are ours again. */
	const struct sigaction term = { .sa_handler = on_term };
	sigaction(SIGTERM, &term, NULL);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN); /* Ctrl-C in a terminal goes to all; the master decides */
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	sigemptyset(&open_mask);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listen_fd, &e) < 0 ||
	    FCGX_InitRequest(&r.fcgi, listen_fd, FCGI_FAIL_ACCEPT_ON_INTR) != 0) {
		log_line(LOG_ERROR, "op=worker error=\"%s\"", strerror(errno));
		_exit(1);
	}
	void *worker = app->open(app->ctx, board, slot, &err);
	if (!worker) {
		log_line(LOG_ERROR, "op=worker error=\"%s\"", err.text);
		_exit(1);
	}
	while (!asked_to_end)
		accept_and_serve(&r, app, worker, board, slot, epoll, &open_mask);
	app->close(worker);
	exit(0);
}
