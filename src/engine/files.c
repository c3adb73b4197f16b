/* envd's /files: who may, and downloads. */
#include "engine/files.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/surface.h"
#include "wire/base64.h"
#include "wire/httpfield.h"
#include "wire/uri.h"

#define GZIP_IN (64u << 10)

/* ---- who may ---- */

struct signed_query {
	char path[PATH_TEXT], user[64], signature[128], expiration[32];
	int has_path, has_user, has_signature, has_expiration;
};

static int read_query(struct req *r, struct signed_query *q)
{
	const char *text = req_query(r);
	*q = (struct signed_query){ 0 };
	q->has_path = query_get(text, "path", q->path, sizeof q->path);
	q->has_user = query_get(text, "username", q->user, sizeof q->user);
	q->has_signature = query_get(text, "signature", q->signature, sizeof q->signature);
	q->has_expiration =
		query_get(text, "signature_expiration", q->expiration, sizeof q->expiration);
	return q->has_path < 0 || q->has_user < 0 || q->has_signature < 0 || q->has_expiration < 0
		       ? -1
		       : 0;
}

static const char *operation(struct req *r)
{
	return !strcmp(req_method(r), "POST") ? "write" : "read";
}

/* "v1_" + base64(sha256("path:operation:user:token[:expiration]")) without padding. */
static bool signature_matches(const struct signed_query *q, const char *op, const char *token)
{
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	struct buf text = BUF(2 * PATH_TEXT), want = BUF(256);
	buf_addf(&text, "%s:%s:%s:%s", q->path, op, q->user, token);
	if (q->has_expiration)
		buf_addf(&text, ":%s", q->expiration);
	EVP_Digest(text.p, text.len, hash, &len, EVP_sha256(), NULL);
	buf_adds(&want, "v1_");
	base64_put(&want, hash, len);
	while (want.len && want.p[want.len - 1] == '=')
		want.p[--want.len] = '\0';
	bool ok = secret_equal(q->signature, want.p);
	buf_free(&text);
	buf_free(&want);
	return ok;
}

struct sandbox *files_find_signed(struct engine *e, struct req *r)
{
	struct signed_query q;
	if (read_query(r, &q) < 0)
		return NULL;
	for (struct sandbox *s = e->sandboxes; s; s = s->next)
		if (s->state == SANDBOX_RUNNING && s->envd_token[0] &&
		    signature_matches(&q, operation(r), s->envd_token))
			return s;
	return NULL;
}

static bool allowed(const struct sandbox *s, struct req *r, const struct signed_query *q)
{
	const char *token = req_header(r, "X-Access-Token");
	if (!s->envd_token[0] || (token && secret_equal(token, s->envd_token)))
		return true;
	if (token)
		answer_error(r, 401, "access token present in header but does not match");
	else if (!q->has_signature)
		answer_error(r, 401, "missing signature query parameter");
	else if (!signature_matches(q, operation(r), s->envd_token))
		answer_error(r, 401, "invalid signature");
	else if (q->has_expiration &&
		 strtoll(q->expiration, NULL, 10) < clock_real_us() / SECOND_US)
		answer_error(r, 401, "signature is already expired");
	else
		return true;
	return false;
}

void files_failed(struct req *r, int error, const char *path, bool writing)
{
	switch (error) {
	case ENOENT:
		answer_error(r, 404, "path '%s' does not exist", path);
		break;
	case EISDIR:
		answer_error(r, 400,
			     writing ? "path is a directory: %s" : "path '%s' is a directory",
			     path);
		break;
	case ENOTDIR:
		if (writing)
			answer_error(r, 500, "error ensuring directories: path is a file: %s",
				     path);
		else
			answer_error(r, 404, "path '%s' does not exist", path);
		break;
	case ENOSPC:
	case EDQUOT:
		answer_error(r, 507, "not enough disk space available");
		break;
	case ENOBUFS:
		answer_error(r, 507, "not enough room for the metadata of another file: %s", path);
		break;
	default:
		answer_error(r, 500, "error opening file '%s': %s", path, strerror(error));
	}
}

/* ---- download ---- */

struct download {
	struct req *req;
	struct file_call call;
};

static const char *type_by_name(const char *name)
{
	static const char *const types[][2] = {
		{ ".txt", "text/plain; charset=utf-8" },
		{ ".html", "text/html; charset=utf-8" },
		{ ".htm", "text/html; charset=utf-8" },
		{ ".css", "text/css; charset=utf-8" },
		{ ".js", "text/javascript; charset=utf-8" },
		{ ".csv", "text/csv; charset=utf-8" },
		{ ".xml", "text/xml; charset=utf-8" },
		{ ".json", "application/json" },
		{ ".pdf", "application/pdf" },
		{ ".png", "image/png" },
		{ ".jpg", "image/jpeg" },
		{ ".jpeg", "image/jpeg" },
		{ ".gif", "image/gif" },
		{ ".webp", "image/webp" },
		{ ".svg", "image/svg+xml" },
		{ ".wasm", "application/wasm" },
		{ ".gz", "application/gzip" },
		{ ".zip", "application/zip" },
	};
	const char *dot = strrchr(name, '.');
	for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
		if (!strcasecmp(dot, types[i][0]))
			return types[i][1];
	return NULL;
}

/* A first look at the bytes: control characters make it binary. */
static const char *type_of(const char *path, int fd)
{
	unsigned char head[512];
	const char *known = type_by_name(path_name(path));
	if (known)
		return known;
	ssize_t n = pread(fd, head, sizeof head, 0);
	for (ssize_t i = 0; i < n; i++)
		if (!head[i] || (head[i] < ' ' && !strchr("\t\n\f\r\033", head[i])))
			return "application/octet-stream";
	return "text/plain; charset=utf-8";
}

static void put_disposition(struct req *r, const char *name)
{
	struct buf b = BUF(2048);
	bool ascii = true, token = true;
	for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
		ascii &= *p >= ' ' && *p < 0x7f;
		token &= *p > ' ' && *p < 0x7f && !strchr("()<>@,;:\\\"/[]?=", *p);
	}
	if (!ascii) {
		buf_adds(&b, "inline; filename*=utf-8''");
		uri_encode(&b, name, strlen(name));
	} else if (token) {
		buf_addf(&b, "inline; filename=%s", name);
	} else {
		buf_adds(&b, "inline; filename=\"");
		for (const char *p = name; *p; p++)
			buf_addf(&b, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
		buf_adds(&b, "\"");
	}
	req_add_header(r, "Content-Disposition", b.p);
	buf_free(&b);
}

struct gzip {
	z_stream z;
	int fd;
	bool at_end;
	unsigned char in[GZIP_IN];
};

static ssize_t gzip_pull(void *ctx, char *p, size_t n)
{
	struct gzip *g = ctx;
	g->z.next_out = (unsigned char *)p;
	g->z.avail_out = (unsigned)n;
	while (g->z.avail_out == n) {
		if (!g->z.avail_in && !g->at_end) {
			ssize_t got = read(g->fd, g->in, sizeof g->in);
			if (got < 0)
				return -1;
			g->at_end = got == 0;
			g->z.next_in = g->in;
			g->z.avail_in = (unsigned)got;
		}
		int rc = deflate(&g->z, g->at_end ? Z_FINISH : Z_NO_FLUSH);
		if (rc == Z_STREAM_END)
			break;
		if (rc != Z_OK && rc != Z_BUF_ERROR)
			return -1;
	}
	return (ssize_t)(n - g->z.avail_out);
}

static void gzip_done(void *ctx)
{
	struct gzip *g = ctx;
	deflateEnd(&g->z);
	close(g->fd);
	free(g);
}

static void send_gzip(struct req *r, const char *type, int fd)
{
	struct gzip *g = calloc(1, sizeof *g);
	/* 16 + 15: a gzip header, the largest window. */
	if (!g || deflateInit2(&g->z, 1, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
		free(g);
		close(fd);
		answer_error(r, 500, "no memory");
		return;
	}
	g->fd = fd;
	req_add_header(r, "Content-Encoding", "gzip");
	req_pull(r, 200, type, gzip_pull, gzip_done, g);
}

static bool unchanged(struct req *r, const struct stat *st)
{
	const char *since = req_header(r, "If-Modified-Since");
	int64_t secs;
	return since && !req_header(r, "If-None-Match") && http_date_parse(since, &secs) == 0 &&
	       st->st_mtim.tv_sec <= secs;
}

/* No entity tag is given out, so If-Match can only mean any file at all. */
static bool refused(struct req *r, const struct stat *st)
{
	const char *match = req_header(r, "If-Match"),
		   *since = req_header(r, "If-Unmodified-Since");
	int64_t secs;
	if (match)
		return !http_etag_match(match, "\"\"");
	return since && http_date_parse(since, &secs) == 0 && st->st_mtim.tv_sec > secs;
}

/* If-Range: the range counts only if the file is still the one that the client has a part of. */
static const char *range_of(struct req *r, const struct stat *st)
{
	const char *range = req_header(r, "Range"), *condition = req_header(r, "If-Range");
	int64_t secs;
	if (condition && (http_date_parse(condition, &secs) < 0 || secs != st->st_mtim.tv_sec))
		return NULL;
	return range;
}

static void send_plain(struct req *r, const char *type, int fd, const struct stat *st)
{
	uint64_t off = 0, len = (uint64_t)st->st_size, size = len;
	char text[96];
	enum range_answer part = http_range(range_of(r, st), size, &off, &len);
	req_add_header(r, "Accept-Ranges", "bytes");
	if (part == RANGE_BAD) {
		snprintf(text, sizeof text, "bytes */%llu", (unsigned long long)size);
		req_add_header(r, "Content-Range", text);
		answer_text(r, 416, "invalid range: failed to overlap");
		close(fd);
		return;
	}
	if (part == RANGE_PART) {
		snprintf(text, sizeof text, "bytes %llu-%llu/%llu", (unsigned long long)off,
			 (unsigned long long)(off + len - 1), (unsigned long long)size);
		req_add_header(r, "Content-Range", text);
	}
	req_reply_file(r, part == RANGE_PART ? 206 : 200, type, fd, off, len);
}

static void send_file(struct req *r, const char *path, int fd)
{
	struct stat st;
	char date[HTTP_DATE];
	const char *encodings = req_header(r, "Accept-Encoding");
	/* The agent promised a regular file; a pipe here could make the whole engine wait. */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		answer_error(r, 500, "error opening file '%s'", path);
		return;
	}
	const char *type = type_of(path, fd);
	bool gzip = http_accepts_gzip(encodings) && !req_header(r, "Range") &&
		    !req_header(r, "If-Modified-Since");
	if (!gzip && !http_accepts_identity(encodings)) {
		close(fd);
		answer_error(r, 406, "no acceptable encoding: gzip and identity are offered");
		return;
	}
	req_add_header(r, "Last-Modified", http_date(date, st.st_mtim.tv_sec));
	req_add_header(r, "Vary", "Accept-Encoding");
	put_disposition(r, path_name(path));
	if (refused(r, &st)) {
		close(fd);
		answer_empty(r, 412);
	} else if (unchanged(r, &st)) {
		close(fd);
		answer_empty(r, 304);
	} else if (gzip) {
		send_gzip(r, type, fd);
	} else {
		send_plain(r, type, fd, &st);
	}
}

static void on_opened(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct download *d = ctx;
	_close_ int f = fd;
	(void)payload;
	(void)n;
	if (d->req && value == -ECONNRESET)
		req_cut(d->req);
	else if (d->req && (value < 0 || f < 0))
		files_failed(d->req, value < 0 ? -value : EIO, d->call.path, false);
	else if (d->req)
		send_file(d->req, d->call.path, steal_fd(&f));
	free(d);
}

static void download(struct sandbox *s, struct req *r, const struct file_call *call)
{
	struct download *d = malloc(sizeof *d);
	if (d)
		*d = (struct download){ NULL, *call };
	if (!d || !agent_call_path(s->agent, AGENT_OPEN_READ, 0, 0, call->path, on_opened, d)) {
		free(d);
		answer_error(r, 500, "error opening file '%s'", call->path);
		return;
	}
	req_hold(r, &d->req);
}

/* ---- the route ---- */

void files_route(struct sandbox *s, struct req *r)
{
	const char *method = req_method(r);
	bool post = !strcmp(method, "POST");
	struct file_call call = { .e = s->engine };
	struct signed_query q;
	struct err err;
	memcpy(call.id, s->id, sizeof call.id);
	if (!post && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		answer_error(r, 405, "method not allowed");
		return;
	}
	if (read_query(r, &q) < 0) {
		answer_error(r, 400,
			     "bad query: broken encoding, a NUL, or a value that is too long");
		return;
	}
	if (!allowed(s, r, &q))
		return;
	if (!surface_user(s, q.user, &call.root)) {
		answer_error(r, 401, "error looking up user '%s': user: unknown user %s", q.user,
			     q.user);
		return;
	}
	call.has_path = q.has_path && q.path[0];
	if (path_resolve(call.path, q.path, surface_home(call.root), surface_home(call.root),
			 &err) < 0) {
		answer_error(r, 400, "%s", err.text);
		return;
	}
	if (post)
		upload_start(s, r, &call);
	else
		download(s, r, &call);
}
