#include "engine/porthead.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HEAD_MAX   (192u << 10) /* more than the HTTP layer takes of a client */
#define HOST_MAX   255
#define PORT_MARK  "${PORT}"
#define NAMED_MAX  32 /* fields that a Connection field may name */
#define LENGTH_MAX 18 /* digits */

/* What is about one connection, not about the message (RFC 9110, 7.6.1). */
static const char *const one_hop[] = {
	"Connection", "Keep-Alive", "Proxy-Connection",    "Proxy-Authenticate", "TE",
	"Trailer",    "Upgrade",    "Proxy-Authorization", "Transfer-Encoding",
};

/* What is for the edge, and what is written anew. */
static const char *const for_the_edge[] = {
	"E2b-Sandbox-Id", "E2b-Sandbox-Port", "E2B-Traffic-Access-Token", "Expect",
	"Host",           "Content-Length",
};

#define LISTED(list, name) is_listed(list, sizeof(list) / sizeof *(list), name)

static bool is_listed(const char *const *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcasecmp(list[i], name))
			return true;
	return false;
}

/* ---- the request ---- */

/* What the client's fields say, gathered before anything is written. */
struct asked {
	const char *host, *length, *coding, *upgrade;
	const char *named[NAMED_MAX]; /* values of Connection */
	size_t nnamed;
	bool bad;
	struct buf *out;
};

/* One of a kind: a second one makes the request ambiguous. */
static void note(struct asked *a, const char **slot, const char *value)
{
	a->bad |= *slot != NULL;
	*slot = value;
}

static int gather(void *ctx, const char *name, const char *value)
{
	struct asked *a = ctx;
	a->bad |= !http_is_token(name) || !http_is_value(value);
	if (!strcasecmp(name, "Host"))
		note(a, &a->host, value);
	else if (!strcasecmp(name, "Content-Length"))
		note(a, &a->length, value);
	else if (!strcasecmp(name, "Transfer-Encoding"))
		note(a, &a->coding, value);
	else if (!strcasecmp(name, "Upgrade"))
		note(a, &a->upgrade, value);
	else if (!strcasecmp(name, "Connection") && a->nnamed < NAMED_MAX)
		a->named[a->nnamed++] = value;
	else if (!strcasecmp(name, "Connection"))
		a->bad = true;
	return 0;
}

static bool connection_names(const struct asked *a, const char *word)
{
	for (size_t i = 0; i < a->nnamed; i++)
		if (http_list_has(a->named[i], word))
			return true;
	return false;
}

static int pass_field(void *ctx, const char *name, const char *value)
{
	struct asked *a = ctx;
	if (!LISTED(one_hop, name) && !LISTED(for_the_edge, name) && !connection_names(a, name))
		a->bad |= buf_addf(a->out, "%s: %s\r\n", name, value) < 0;
	return 0;
}

static bool is_length(const char *s)
{
	size_t n = strspn(s, "0123456789");
	return n && n <= LENGTH_MAX && !s[n];
}

/* Both lengths at once, or one that is none: two readers could see two messages. */
static bool framing_clear(const struct asked *a)
{
	if (a->length && (a->coding || !is_length(a->length)))
		return false;
	return !a->coding || !strcasecmp(a->coding, "chunked");
}

/* A path, or the '*' of OPTIONS, without a space or control character that would end it early. */
static bool target_clear(const struct req *r)
{
	const char *path = req_path(r), *query = req_query(r);
	if (*path != '/' && !(!strcmp(path, "*") && !strcmp(req_method(r), "OPTIONS")))
		return false;
	return http_is_value(path) && http_is_value(query) && !path[strcspn(path, " \t")] &&
	       !query[strcspn(query, " \t")];
}

static bool method_clear(const char *method)
{
	return http_is_token(method) && strcmp(method, "CONNECT") != 0 &&
	       strcmp(method, "TRACE") != 0;
}

static int add_host(struct buf *out, const char *host, long port)
{
	int rc = buf_adds(out, "Host: ");
	for (const char *mark; (mark = strstr(host, PORT_MARK)); host = mark + strlen(PORT_MARK))
		rc |= buf_add(out, host, (size_t)(mark - host)) | buf_addf(out, "%ld", port);
	return rc | buf_addf(out, "%s\r\n", host);
}

/* Servers may insist on a length for methods that usually have a body. */
static bool wants_length(const char *method)
{
	return !strcmp(method, "POST") || !strcmp(method, "PUT") || !strcmp(method, "PATCH");
}

static int add_framing(struct port_request *q, const struct asked *a, const char *method)
{
	if (q->chunked)
		return buf_adds(&q->head, "Transfer-Encoding: chunked\r\n");
	if (a->length)
		return buf_addf(&q->head, "Content-Length: %s\r\n", a->length);
	return wants_length(method) ? buf_adds(&q->head, "Content-Length: 0\r\n") : 0;
}

static int write_head(struct port_request *q, const struct req *r, struct asked *a, long port,
		      const char *host)
{
	char local[32];
	snprintf(local, sizeof local, "localhost:%ld", port);
	int rc = buf_addf(&q->head, "%s %s%s%s HTTP/1.1\r\n", req_method(r), req_path(r),
			  req_has_query(r) ? "?" : "", req_query(r));
	if (host)
		rc |= add_host(&q->head, host, port);
	else
		rc |= buf_addf(&q->head, "Host: %s\r\n", a->host ? a->host : local);
	req_each_header(r, "", pass_field, a);
	rc |= add_framing(q, a, req_method(r));
	if (q->upgrade)
		rc |= buf_addf(&q->head, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", a->upgrade);
	else
		rc |= buf_adds(&q->head, "Connection: close\r\n\r\n");
	return rc || a->bad ? -1 : 0;
}

int port_request(struct port_request *q, const struct req *r, long port, const char *host,
		 struct err *err)
{
	struct asked a = { .out = &q->head };
	*q = (struct port_request){ .head = BUF(HEAD_MAX) };
	if (!method_clear(req_method(r)))
		return err_set(err, ERR_INVALID, "this method cannot be passed on");
	if (!target_clear(r))
		return err_set(err, ERR_INVALID, "this target cannot be passed on");
	req_each_header(r, "", gather, &a);
	if (a.bad || !framing_clear(&a))
		return err_set(err, ERR_INVALID, "the request's header is malformed or ambiguous");
	q->chunked = a.coding != NULL;
	q->to_head = !strcmp(req_method(r), "HEAD");
	q->upgrade = a.upgrade && *a.upgrade && connection_names(&a, "upgrade") &&
		     !req_has_body(r) && !q->to_head;
	if (write_head(q, r, &a, port, host) == 0)
		return 0;
	buf_free(&q->head);
	return err_set(err, ERR_INVALID, "the request's header is too long");
}

bool port_host_valid(const char *host)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789.-_:[]";
	size_t n = strlen(host);
	for (const char *p = host; *p; p += strspn(p, letters)) {
		if (!strncmp(p, PORT_MARK, strlen(PORT_MARK)))
			p += strlen(PORT_MARK);
		else if (!strspn(p, letters))
			return false;
	}
	return n && n <= HOST_MAX;
}

/* ---- the answer ---- */

const char *port_field(const struct http_reply_head *h, const char *name)
{
	for (size_t i = 0; i < h->nfields; i++)
		if (!strcasecmp(h->fields[i].name, name))
			return h->fields[i].value;
	return NULL;
}

static bool answer_names(const struct http_reply_head *h, const char *word)
{
	for (size_t i = 0; i < h->nfields; i++)
		if (!strcasecmp(h->fields[i].name, "Connection") &&
		    http_list_has(h->fields[i].value, word))
			return true;
	return false;
}

/* libmicrohttpd takes neither tabs nor nothing for a value; both mean the same as a space. */
static void add_field(struct req *r, const struct http_field *f)
{
	char value[HTTP_REPLY_HEAD];
	snprintf(value, sizeof value, "%s", *f->value ? f->value : " ");
	for (char *p = value; (p = strchr(p, '\t'));)
		*p = ' ';
	req_add_header(r, f->name, value);
}

void port_fields(struct req *r, const struct http_reply_head *h)
{
	bool to_switch = h->status == 101;
	for (size_t i = 0; i < h->nfields; i++) {
		const char *name = h->fields[i].name;
		if (to_switch && !strcasecmp(name, "Upgrade"))
			add_field(r, &h->fields[i]);
		else if (!LISTED(one_hop, name) && strcasecmp(name, "Content-Length") != 0 &&
			 !answer_names(h, name))
			add_field(r, &h->fields[i]);
	}
}
