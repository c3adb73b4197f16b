#include "engine/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define HEADERS_MAX     (64u << 10)
#define CONNECTIONS_MAX 8192
#define IDLE_SECS       620u /* between requests, and while an answer is read */
#define REQUEST_SECS    30u  /* a client that is silent this long in its first request is gone */
#define BLOCK           (64u << 10)
#define STREAM_MAX                                                                                 \
	(64u << 20) /* one line of a kernel may be large; writers pause long before this */

struct http {
	struct loop *loop;
	struct MHD_Daemon *daemon;
	struct watch watch;
	struct timer timer;
	bool soon; /* the library has something to do that it does not know of yet */
	http_route *route;
	void *app;
	struct req *reqs; /* all that are under way */
};

enum body_mode { BODY_DROP, BODY_COLLECT, BODY_STREAM };

struct req {
	struct http *http;
	struct req *prev, *next;
	struct MHD_Connection *conn;
	char *uri; /* path, and query behind the NUL that replaced '?' */
	const char *query;
	const char *method;

	enum body_mode mode;
	struct buf body;
	void (*then)(void *ctx, struct req *r, struct buf *body);
	const struct req_sink *sink;
	void *body_ctx;
	bool routed, body_done;

	const struct req_owner *owner;
	void *owner_ctx;
	uint64_t mark; /* what it is about; 0: nothing that can end */

	struct MHD_Response *response; /* ready to be queued */
	int status;
	struct header {
		struct header *next;
		char *name, *value;
	} * headers, **headers_end;
	bool answered, queued, suspended, gone;
	struct watch hangup; /* sees the client leave while the connection is suspended */

	bool streaming, ended, cut;
	struct buf out;
	size_t out_at; /* bytes of out that are sent already */
	void (*switched)(void *ctx, int sock, const char *p, size_t n);
	void *switched_ctx;
	struct MHD_UpgradeResponseHandle
		*handle; /* of the client's socket once it is handed over */
	ssize_t (*pull)(void *ctx, char *p, size_t n);
	void (*pull_done)(void *ctx);
	void *pull_ctx;
};

/* ---- the daemon, driven by our loop ---- */

static void run_daemon(void *ctx)
{
	struct http *h = ctx;
	h->soon = false;
	MHD_run(h->daemon);
	MHD_UNSIGNED_LONG_LONG ms;
	/* A connection that was resumed by another's handler is not in the library's own timeout.
	 */
	if (h->soon)
		timer_at(&h->timer, h->loop, 0, run_daemon, h);
	else if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
		timer_at(&h->timer, h->loop, clock_mono_us() + (int64_t)ms * 1000, run_daemon, h);
	else
		timer_stop(&h->timer);
}

static void on_daemon_ready(void *ctx, uint32_t events)
{
	(void)events;
	run_daemon(ctx);
}

static void run_soon(struct http *h)
{
	h->soon = true;
	timer_at(&h->timer, h->loop, 0, run_daemon, h);
}

/* ---- suspending and waking ---- */

static void owner_gone(struct req *r)
{
	const struct req_owner *owner = r->owner;
	void *ctx = r->owner_ctx;
	r->owner = NULL;
	if (owner && owner->gone)
		owner->gone(ctx);
}

static void resume(struct req *r)
{
	if (!r->suspended)
		return;
	r->suspended = false;
	watch_del(&r->hangup);
	MHD_resume_connection(r->conn);
	run_soon(r->http);
}

static void on_hangup(void *ctx, uint32_t events)
{
	struct req *r = ctx;
	(void)events;
	r->gone = true;
	r->cut = true;
	owner_gone(r);
	resume(r);
}

static int socket_of(struct MHD_Connection *conn)
{
	return MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

static void suspend(struct req *r)
{
	r->suspended = true;
	MHD_suspend_connection(r->conn);
	watch_add(&r->hangup, r->http->loop, socket_of(r->conn), EPOLLRDHUP, on_hangup, r);
}

/* ---- the answer ---- */

void req_own(struct req *r, const struct req_owner *owner, void *ctx)
{
	r->owner = owner;
	r->owner_ctx = ctx;
}

static void clear_slot(void *ctx)
{
	*(struct req **)ctx = NULL;
}

void req_hold(struct req *r, struct req **slot)
{
	static const struct req_owner holder = { .gone = clear_slot };
	*slot = r;
	req_own(r, &holder, slot);
}

void req_mark(struct req *r, uint64_t mark)
{
	r->mark = mark;
}

void http_cut(struct http *h, uint64_t mark)
{
	for (struct req *r = h ? h->reqs : NULL; r; r = r->next)
		if (r->mark == mark && !r->streaming && (r->queued || r->mode == BODY_STREAM))
			shutdown(socket_of(r->conn), SHUT_RDWR);
}

void req_add_header(struct req *r, const char *name, const char *value)
{
	struct header *h = calloc(1, sizeof *h);
	if (!h)
		return;
	*h = (struct header){ NULL, strdup(name), strdup(value) };
	*r->headers_end = h;
	r->headers_end = &h->next;
}

static void answer(struct req *r, int status, struct MHD_Response *response)
{
	if (r->answered) {
		MHD_destroy_response(response);
		return;
	}
	r->answered = true;
	r->status = status;
	r->response = response;
	for (struct header *h = r->headers; h; h = h->next)
		if (h->name && h->value)
			MHD_add_response_header(response, h->name, h->value);
	resume(r);
}

static struct MHD_Response *with_type(struct MHD_Response *m, const char *type)
{
	if (m && type)
		MHD_add_response_header(m, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	return m;
}

void req_reply(struct req *r, int status, const char *type, const void *body, size_t n)
{
	r->owner = NULL;
	answer(r, status,
	       with_type(MHD_create_response_from_buffer(n, (void *)body, MHD_RESPMEM_MUST_COPY),
			 type));
}

void req_reply_file(struct req *r, int status, const char *type, int fd, uint64_t off, uint64_t len)
{
	r->owner = NULL;
	answer(r, status, with_type(MHD_create_response_from_fd_at_offset64(len, fd, off), type));
}

/* The library keeps a connection that ends like this until its time is up: make that soon. */
static ssize_t break_off(struct req *r)
{
	MHD_set_connection_option(r->conn, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
	return MHD_CONTENT_READER_END_WITH_ERROR;
}

/* Bytes of the stream to the client. Nothing to send is no end: the connection sleeps until there
 * is. */
static ssize_t stream_reader(void *ctx, uint64_t pos, char *p, size_t max)
{
	struct req *r = ctx;
	(void)pos;
	size_t n = r->out.len - r->out_at;
	if (r->cut)
		return break_off(r);
	if (!n && r->ended)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (!n) {
		suspend(r);
		return 0;
	}
	if (n > max)
		n = max;
	memcpy(p, r->out.p + r->out_at, n);
	r->out_at += n;
	if (r->out_at == r->out.len) {
		r->out.len = r->out_at = 0;
		if (r->out.cap > 2 * REQ_BACKLOG)
			buf_free(&r->out);
	}
	if (r->owner && r->owner->drained && req_backlog(r) < REQ_BACKLOG / 2)
		r->owner->drained(r->owner_ctx);
	return (ssize_t)n;
}

static void begin(struct req *r, int status, const char *type, uint64_t length)
{
	r->streaming = true;
	r->out = BUF(STREAM_MAX);
	answer(r, status,
	       with_type(MHD_create_response_from_callback(length, BLOCK, stream_reader, r, NULL),
			 type));
}

void req_begin(struct req *r, int status, const char *type)
{
	begin(r, status, type, MHD_SIZE_UNKNOWN);
}

void req_begin_sized(struct req *r, int status, uint64_t length)
{
	begin(r, status, NULL, length);
}

bool req_begun(const struct req *r)
{
	return r->streaming;
}

void req_write(struct req *r, const void *p, size_t n)
{
	if (r->cut || r->ended)
		return;
	if (r->out_at > REQ_BACKLOG) {
		buf_drop(&r->out, r->out_at);
		r->out_at = 0;
	}
	if (buf_add(&r->out, p, n) < 0)
		r->cut = true; /* better broken than silently incomplete */
	resume(r);
}

size_t req_backlog(const struct req *r)
{
	return r->out.len - r->out_at;
}

void req_end(struct req *r)
{
	r->owner = NULL;
	r->ended = true;
	resume(r);
}

void req_cut(struct req *r)
{
	r->owner = NULL;
	r->cut = true;
	/* In the midst of a body the library would wait for the client's next word. */
	if (!r->suspended && r->routed && !r->body_done)
		shutdown(socket_of(r->conn), SHUT_RDWR);
	resume(r);
}

static ssize_t pull_reader(void *ctx, uint64_t pos, char *p, size_t max)
{
	struct req *r = ctx;
	(void)pos;
	ssize_t n = r->pull(r->pull_ctx, p, max);
	if (n > 0)
		return n;
	return n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : break_off(r);
}

void req_pull(struct req *r, int status, const char *type, ssize_t (*fn)(void *, char *, size_t),
	      void (*done)(void *), void *ctx)
{
	r->owner = NULL;
	r->pull = fn;
	r->pull_done = done;
	r->pull_ctx = ctx;
	answer(r, status,
	       with_type(MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, pull_reader, r,
							   NULL),
			 type));
}

static void on_upgrade(void *cls, struct MHD_Connection *conn, void *state, const char *extra,
		       size_t n, MHD_socket sock, struct MHD_UpgradeResponseHandle *handle)
{
	struct req *r = cls;
	(void)conn;
	(void)state;
	r->owner = NULL;
	r->handle = handle;
	if (r->cut) { /* whoever asked for it is no more */
		req_hang_up(r);
		return;
	}
	r->switched(r->switched_ctx, sock, extra, n);
}

void req_switch(struct req *r, void (*switched)(void *, int, const char *, size_t), void *ctx)
{
	r->switched = switched;
	r->switched_ctx = ctx;
	answer(r, MHD_HTTP_SWITCHING_PROTOCOLS, MHD_create_response_for_upgrade(on_upgrade, r));
}

void req_hang_up(struct req *r)
{
	MHD_upgrade_action(r->handle, MHD_UPGRADE_ACTION_CLOSE);
	run_soon(r->http);
}

/* ---- the request ---- */

const char *req_method(const struct req *r)
{
	return r->method;
}

const char *req_path(const struct req *r)
{
	return r->uri;
}

const char *req_query(const struct req *r)
{
	return r->query;
}

const char *req_header(const struct req *r, const char *name)
{
	return MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, name);
}

struct each {
	const char *prefix;
	int (*fn)(void *ctx, const char *name, const char *value);
	void *ctx;
	int rc;
};

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *key,
				 const char *value)
{
	struct each *e = cls;
	size_t n = strlen(e->prefix);
	(void)kind;
	if (!strncasecmp(key, e->prefix, n))
		e->rc = e->fn(e->ctx, key + n, value ? value : "");
	return e->rc < 0 ? MHD_NO : MHD_YES;
}

int req_each_header(const struct req *r, const char *prefix,
		    int (*fn)(void *ctx, const char *name, const char *value), void *ctx)
{
	struct each e = { prefix, fn, ctx, 0 };
	MHD_get_connection_values(r->conn, MHD_HEADER_KIND, on_header, &e);
	return e.rc;
}

bool req_has_query(const struct req *r)
{
	return r->query != r->uri + strlen(r->uri);
}

bool req_has_body(const struct req *r)
{
	const char *n = req_header(r, "Content-Length");
	return req_header(r, "Transfer-Encoding") || (n && strcmp(n, "0") != 0);
}

void req_collect(struct req *r, size_t max, void (*then)(void *, struct req *, struct buf *),
		 void *ctx)
{
	r->mode = BODY_COLLECT;
	r->body = BUF(max);
	r->then = then;
	r->body_ctx = ctx;
}

void req_stream_body(struct req *r, const struct req_sink *sink, void *ctx)
{
	r->mode = BODY_STREAM;
	r->sink = sink;
	r->body_ctx = ctx;
}

void req_body_ready(struct req *r)
{
	resume(r);
}

/* Whether the bytes are done with. */
static bool take_body(struct req *r, const char *p, size_t n)
{
	static const char too_large[] = "{\"code\":413,\"message\":\"Request body is too large\"}";
	if (r->mode == BODY_COLLECT && buf_add(&r->body, p, n) < 0) {
		r->mode = BODY_DROP;
		free(r->body_ctx);
		req_reply(r, 413, "application/json", too_large, sizeof too_large - 1);
	} else if (r->mode == BODY_STREAM) {
		int rc = r->sink->data(r->body_ctx, p, n);
		if (rc < 0)
			r->mode = BODY_DROP;
		return rc <= 0;
	}
	return true;
}

static void end_body(struct req *r)
{
	r->body_done = true;
	MHD_set_connection_option(r->conn, MHD_CONNECTION_OPTION_TIMEOUT, IDLE_SECS);
	if (r->mode == BODY_COLLECT) {
		r->mode = BODY_DROP;
		buf_add(&r->body, "", 0); /* so that p is a string also when nothing came */
		r->then(r->body_ctx, r, &r->body);
		free(r->body_ctx);
		buf_free(&r->body); /* the answer may be a stream that lasts for hours */
	} else if (r->mode == BODY_STREAM) {
		r->mode = BODY_DROP;
		r->sink->end(r->body_ctx);
	}
}

/* Of a body in another coding the library does not see the end. */
static bool end_is_clear(const struct req *r)
{
	const char *coding = req_header(r, "Transfer-Encoding");
	return !coding || !strcasecmp(coding, "chunked");
}

static enum MHD_Result refuse_body(struct req *r)
{
	static const char unknown[] =
		"{\"code\":400,\"message\":\"the only Transfer-Encoding is chunked\"}";
	req_reply(r, 400, "application/json", unknown, sizeof unknown - 1);
	r->queued = true;
	return MHD_queue_response(r->conn, 400, r->response);
}

/* libmicrohttpd calls this with the headers, with each piece of the body, at its end, and again
 * whenever a suspended request without an answer is resumed. */
static enum MHD_Result on_access(void *cls, struct MHD_Connection *conn, const char *url,
				 const char *method, const char *version, const char *data,
				 size_t *size, void **state)
{
	struct http *h = cls;
	struct req *r = *state;
	(void)url;
	(void)version;
	if (!r)
		return MHD_NO;
	if (!r->routed) {
		r->routed = true;
		r->conn = conn;
		r->method = method;
		if (!end_is_clear(r))
			return refuse_body(r);
		h->route(h->app, r);
		return MHD_YES;
	}
	if (r->gone || (r->cut && !r->answered))
		return MHD_NO;
	if (*size) {
		if (take_body(r, data, *size))
			*size = 0;
		else
			suspend(r);
		return MHD_YES;
	}
	if (!r->body_done)
		end_body(r);
	if (r->cut && !r->answered)
		return MHD_NO;
	if (!r->answered) {
		suspend(r);
		return MHD_YES;
	}
	if (r->queued)
		return MHD_YES;
	r->queued = true;
	return MHD_queue_response(conn, (unsigned)r->status, r->response);
}

/* The raw request target, before libmicrohttpd decodes it: an encoded NUL or '/' must stay visible.
 */
static void *on_uri(void *cls, const char *uri, struct MHD_Connection *conn)
{
	struct http *h = cls;
	struct req *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->http = h;
	r->conn = conn;
	r->headers_end = &r->headers;
	r->uri = strdup(uri);
	if (!r->uri) {
		free(r);
		return NULL;
	}
	char *mark = strchr(r->uri, '?');
	r->query = mark ? mark + 1 : r->uri + strlen(r->uri);
	if (mark)
		*mark = '\0';
	r->next = h->reqs;
	if (h->reqs)
		h->reqs->prev = r;
	h->reqs = r;
	return r;
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **state,
			 enum MHD_RequestTerminationCode why)
{
	struct http *h = cls;
	struct req *r = *state;
	(void)conn;
	(void)why;
	if (!r)
		return;
	*state = NULL;
	r->gone = true;
	watch_del(&r->hangup);
	if (r->mode == BODY_COLLECT)
		free(r->body_ctx);
	if (r->mode == BODY_STREAM) {
		r->owner = NULL;
		if (r->sink->gone)
			r->sink->gone(r->body_ctx);
	}
	owner_gone(r);
	if (r->pull_done)
		r->pull_done(r->pull_ctx);
	*(r->prev ? &r->prev->next : &h->reqs) = r->next;
	if (r->next)
		r->next->prev = r->prev;
	if (r->response)
		MHD_destroy_response(r->response);
	while (r->headers) {
		struct header *next = r->headers->next;
		free(r->headers->name);
		free(r->headers->value);
		free(r->headers);
		r->headers = next;
	}
	buf_free(&r->body);
	buf_free(&r->out);
	free(r->uri);
	free(r);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	(void)cls;
	(void)socket_context;
	if (code != MHD_CONNECTION_NOTIFY_STARTED)
		return;
	int one = 1;
	setsockopt(socket_of(conn), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, REQUEST_SECS);
}

static size_t keep_encoded(void *cls, struct MHD_Connection *conn, char *s)
{
	(void)cls;
	(void)conn;
	return strlen(s);
}

/* Clients never take more than a third of our descriptors: the sandboxes need the rest. */
static unsigned connections_max(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur / 3 >= CONNECTIONS_MAX)
		return CONNECTIONS_MAX;
	return (unsigned)(r.rlim_cur / 3);
}

int http_new(struct http **out, struct loop *loop, int listen_fd, http_route *route, void *app,
	     struct err *err)
{
	struct http *h = calloc(1, sizeof *h);
	if (!h)
		return err_set(err, ERR_INTERNAL, "no memory for the HTTP server");
	*h = (struct http){ .loop = loop, .route = route, .app = app };
	h->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE, 0, NULL, NULL,
		on_access, h, MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_URI_LOG_CALLBACK,
		on_uri, h, MHD_OPTION_UNESCAPE_CALLBACK, keep_encoded, NULL,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADERS_MAX * 2,
		MHD_OPTION_CONNECTION_LIMIT, connections_max(), MHD_OPTION_CONNECTION_TIMEOUT,
		IDLE_SECS, MHD_OPTION_END);
	const union MHD_DaemonInfo *info =
		h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info || watch_add(&h->watch, loop, info->epoll_fd, EPOLLIN, on_daemon_ready, h) < 0) {
		http_free(h);
		return err_set(err, ERR_INTERNAL, "the HTTP server could not be started");
	}
	*out = h;
	return 0;
}

void http_stop_listening(struct http *h)
{
	int fd = MHD_quiesce_daemon(h->daemon);
	if (fd >= 0)
		close(fd);
}

void http_free(struct http *h)
{
	if (!h)
		return;
	watch_del(&h->watch);
	for (struct req *r = h->reqs; r; r = r->next) {
		r->cut = true;
		resume(r);
	}
	timer_stop(&h->timer);
	if (h->daemon)
		MHD_stop_daemon(h->daemon);
	free(h);
}
