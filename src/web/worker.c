#include "web/worker.h"

#include <errno.h>
#include <fcgiapp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
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

/* How libfcgi's private record of a stream begins. It has no call that says whether a read would
 * wait, and several records of a body can be in its buffer at once, of which it shows only one. */
struct fcgi_stream {
	unsigned char *buff;
	int bufflen;
	unsigned char *allocated;
	unsigned char *buff_stop; /* the end of all that was read from the socket */
	int type, eor_stop, skip, content, padding;
};

/* Bytes that libfcgi has read but does not show yet, the padding behind the current record left
 * out. A record that does not look like the above counts as none. */
static ptrdiff_t hidden_bytes(const FCGX_Stream *in)
{
	const struct fcgi_stream *f = in->data;
	bool plausible = f && f->buff <= in->rdNext && in->rdNext <= in->stop &&
			 in->stop <= f->buff_stop && f->buff_stop <= f->buff + f->bufflen &&
			 f->padding >= 0 && f->padding < 256;
	return plausible ? f->buff_stop - in->stop - f->padding : 0;
}

bool web_buffered(const struct web_req *r)
{
	const FCGX_Stream *in = r->fcgi.in;
	return in->isClosed || in->stop > in->rdNext || hidden_bytes(in) > 0;
}

/* FCGX_GetStr waits until all n bytes are there, so it is asked for no more than there are. */
ssize_t web_read(struct web_req *r, void *p, size_t n)
{
	int c = r->fcgi.in->stop > r->fcgi.in->rdNext ? -1 : FCGX_GetChar(r->fcgi.in);
	if (c >= 0)
		FCGX_UnGetChar(c, r->fcgi.in);
	/* Skipped padding puts rdNext behind stop where the connection ends after it. */
	ptrdiff_t there = r->fcgi.in->stop - r->fcgi.in->rdNext;
	if (there > 0)
		return FCGX_GetStr(p, n < (size_t)there ? (int)n : (int)there, r->fcgi.in);
	/* libfcgi gives the same 0 for the end of the body and for a client that broke off. */
	if (FCGX_GetError(r->fcgi.in)) {
		r->cut = true;
		return -1;
	}
	r->body_read = true;
	return 0;
}

bool web_body_read(const struct web_req *r)
{
	return r->body_read || r->cut;
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

static const char *reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} all[] = {
		{ 200, "OK" },
		{ 201, "Created" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 413, "Content Too Large" },
		{ 415, "Unsupported Media Type" },
		{ 429, "Too Many Requests" },
		{ 500, "Internal Server Error" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 507, "Insufficient Storage" },
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i].status == status)
			return all[i].reason;
	return "Other";
}

void web_status(struct web_req *r, int status)
{
	if (!r->headers_done && !r->has_status)
		FCGX_FPrintF(r->fcgi.out, "Status: %d %s\r\n", status, reason(status));
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

/* The quick pool does not grow: its last idle worker is nobody's concern. */
static void set_busy(struct board *b, struct slot *s)
{
	atomic_store(&s->state, SLOT_BUSY);
	if (s->pool != POOL_EXEC || board_count(b, s->pool, SLOT_IDLE))
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
	/* HTTP/2 needs neither, so nginx says where a body is passed on as it comes. */
	return web_param(r, "HTTP_TRANSFER_ENCODING") || web_param(r, "SANDGATE_BODY");
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
	if (app->served)
		app->served(worker);
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
