/* Uploads: the body as it comes, perhaps unzipped, perhaps split into parts, written into files
 * that the agent opened inside the sandbox. At most one piece of the body is held while a file is
 * being opened. */
#include "engine/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "engine/surface.h"
#include "wire/filemeta.h"
#include "wire/httpfield.h"
#include "wire/multipart.h"

#define PIECE_MAX (1u << 20) /* the largest piece that the HTTP layer hands over, and then some */
#define CHUNK     (64u << 10)
#define STEP_MAX  (4u << 20) /* unzipped in one turn of the loop */
#define PARTS_MAX 1024

struct part {
	struct upload *u;
	struct part *next;
	char path[PATH_TEXT];
	int fd;          /* -1 until the agent has opened it */
	uint32_t call;   /* the open that is under way */
	struct buf held; /* what came before it was open */
	bool ended;
};

struct upload {
	struct req *req;
	struct file_call call;
	struct multipart *multipart; /* NULL: the body is the file */
	z_stream *z;                 /* NULL: not compressed */
	bool z_ended;
	struct buf rest;           /* of the body, not yet processed */
	struct buf metadata;       /* pairs; of every file of this upload */
	struct part *parts, *tail; /* in order; tail is the one that gets data */
	size_t nparts;
	int opening; /* parts that wait for the agent */
	bool body_done, failed;
	struct timer turn; /* for the rest of a long piece */
};

static void advance(struct upload *u);

static struct sandbox *sandbox_of(struct upload *u)
{
	struct sandbox *s = sandbox_find(u->call.e, u->call.id);
	return s && s->state == SANDBOX_RUNNING ? s : NULL;
}

static void free_upload(struct upload *u)
{
	struct sandbox *s = sandbox_find(u->call.e, u->call.id);
	timer_stop(&u->turn);
	while (u->parts) {
		struct part *p = u->parts;
		u->parts = p->next;
		if (p->call && s)
			agent_forget(s->agent, p->call);
		close_fd(&p->fd);
		buf_free(&p->held);
		free(p);
	}
	if (u->z) {
		inflateEnd(u->z);
		free(u->z);
	}
	multipart_free(u->multipart);
	buf_free(&u->rest);
	buf_free(&u->metadata);
	free(u);
}

/* ---- parts ---- */

static int write_all(struct upload *u, struct part *p, const char *data, size_t n)
{
	while (n) {
		ssize_t done = write(p->fd, data, n);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0) {
			const char *length = req_header(u->req, "Content-Length");
			if (errno == ENOSPC && length)
				answer_error(u->req, 507,
					     "attempted to write %.20s bytes: not enough disk "
					     "space available",
					     length);
			else
				files_failed(u->req, errno, p->path, true);
			u->failed = true;
			return -1;
		}
		data += done;
		n -= (size_t)done;
	}
	return 0;
}

static void settle(struct part *p)
{
	if (p->ended && p->fd >= 0)
		close_fd(&p->fd);
}

static void on_opened(void *ctx, int value, const char *payload, size_t n, int fd)
{
	struct part *p = ctx;
	struct upload *u = p->u;
	struct stat st;
	_close_ int f = fd;
	size_t pos = 0;
	const char *bad = agent_string(payload, n, &pos);
	p->call = 0;
	u->opening--;
	/* Writing into anything but a file could block the engine. */
	if (value >= 0 && (f < 0 || fstat(f, &st) < 0 || !S_ISREG(st.st_mode)))
		value = -EIO;
	if (!u->failed && value < 0) {
		u->failed = true;
		if (value == -ECONNRESET)
			req_cut(u->req);
		else
			files_failed(u->req, -value, value == -ENOTDIR && bad ? bad : p->path,
				     true);
	} else if (!u->failed) {
		p->fd = steal_fd(&f);
		write_all(u, p, p->held.p, p->held.len);
		buf_free(&p->held);
		settle(p);
	}
	advance(u);
}

static uint32_t open_part(struct upload *u, struct part *p)
{
	struct sandbox *s = sandbox_of(u);
	struct agent_msg msg = { .op = AGENT_OPEN_WRITE,
				 .flags = u->call.root ? AGENT_AS_ROOT : 0 };
	struct buf strings = BUF(PATH_TEXT + u->metadata.max);
	uint32_t id = 0;
	if (s && buf_add(&strings, p->path, strlen(p->path) + 1) == 0 &&
	    buf_add(&strings, u->metadata.p, u->metadata.len) == 0)
		id = agent_call(s->agent, msg, strings.p, strings.len, NULL, 0, on_opened, p);
	buf_free(&strings);
	return id;
}

static int add_part(struct upload *u, const char *path, struct err *err)
{
	struct part *p = u->nparts < PARTS_MAX ? calloc(1, sizeof *p) : NULL;
	if (!p)
		return err_set(err, ERR_LIMIT, "more than %d files", PARTS_MAX);
	*p = (struct part){ .u = u, .fd = -1, .held = BUF(2 * PIECE_MAX) };
	snprintf(p->path, sizeof p->path, "%s", path);
	*(u->tail ? &u->tail->next : &u->parts) = p;
	u->tail = p;
	u->nparts++;
	p->call = open_part(u, p);
	if (!p->call)
		return err_set(err, ERR_INTERNAL, "error opening file");
	u->opening++;
	return 0;
}

static int put(struct upload *u, const char *data, size_t n, struct err *err)
{
	struct part *p = u->tail;
	if (p->fd >= 0)
		return write_all(u, p, data, n) < 0 ? err_set(err, ERR_NO_SPACE, "answered") : 0;
	return buf_add(&p->held, data, n) < 0 ? err_set(err, ERR_LIMIT, "too much at once") : 0;
}

/* ---- multipart ---- */

/* Only parts named "file" are files; the others are passed over. */
static int on_begin(void *ctx, const char *name, const char *filename, struct err *err)
{
	struct upload *u = ctx;
	char path[PATH_TEXT];
	struct part *p = u->tail;
	if (p)
		p->ended = true;
	if (strcmp(name, "file") != 0)
		return 0;
	if (u->call.has_path && u->nparts)
		return err_set(
			err, ERR_INVALID,
			"you cannot upload multiple files to the same path '%s', only one allowed",
			u->call.path);
	if (u->call.has_path)
		return add_part(u, u->call.path, err);
	if (!filename || !*filename)
		return err_set(err, ERR_INVALID,
			       "a file part has no filename, and there is no path");
	if (path_resolve(path, filename, surface_home(u->call.root), surface_home(u->call.root),
			 err) < 0)
		return -1;
	return add_part(u, path, err);
}

static int on_data(void *ctx, const char *data, size_t n, struct err *err)
{
	struct upload *u = ctx;
	struct part *p = u->tail;
	return p && !p->ended ? put(u, data, n, err) : 0;
}

static int on_end(void *ctx, struct err *err)
{
	struct upload *u = ctx;
	struct part *p = u->tail;
	(void)err;
	if (p) {
		p->ended = true;
		settle(p);
	}
	return 0;
}

static const struct multipart_ops multipart_ops = { on_begin, on_data, on_end };

/* ---- the body ---- */

static void fail(struct upload *u, const struct err *err)
{
	if (!u->failed)
		answer_error(u->req, err->code == ERR_INTERNAL ? 500 : 400, "%s", err->text);
	u->failed = true;
}

static int feed(struct upload *u, const char *p, size_t n, struct err *err)
{
	return u->multipart ? multipart_feed(u->multipart, p, n, err) : put(u, p, n, err);
}

/* Unzip what is there, a step at a time: a small body can blow up to a thousand times its size, and
 * others are to be served meanwhile. Where it all goes is bounded by the disk. */
static int unzip(struct upload *u, struct err *err)
{
	char out[CHUNK];
	u->z->next_in = (unsigned char *)u->rest.p;
	u->z->avail_in = (unsigned)u->rest.len;
	size_t done = 0;
	while (u->z->avail_in && !u->opening && done < STEP_MAX) {
		if (u->z_ended) /* another one follows, and they are one file */
			inflateReset(u->z);
		u->z->next_out = (unsigned char *)out;
		u->z->avail_out = sizeof out;
		int rc = inflate(u->z, Z_NO_FLUSH);
		if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
			return err_set(err, ERR_INVALID, "the body is not valid gzip");
		u->z_ended = rc == Z_STREAM_END;
		done += sizeof out - u->z->avail_out;
		if (feed(u, out, sizeof out - u->z->avail_out, err) < 0)
			return -1;
	}
	buf_drop(&u->rest, u->rest.len - u->z->avail_in);
	return 0;
}

static int check_end(struct upload *u, struct err *err)
{
	if (u->z && !u->z_ended)
		return err_set(err, ERR_INVALID, "the gzip body ends too early");
	return u->multipart ? multipart_finish(u->multipart, err) : 0;
}

/* The body is done with and every file is open or refused: answer, unless that is done already. */
static void finish(struct upload *u)
{
	struct err err;
	struct json_object *all;
	if (!u->failed && check_end(u, &err) < 0)
		fail(u, &err);
	if (!u->failed && !sandbox_of(u)) {
		req_cut(u->req);
		u->failed = true;
	}
	if (u->failed) {
		free_upload(u);
		return;
	}
	all = json_object_new_array();
	for (struct part *p = u->parts; p; p = p->next)
		json_object_array_add(all, files_entry(p->path, files_metadata_json(&u->metadata)));
	struct req *r = u->req;
	free_upload(u);
	answer_json(r, 200, all);
}

static void go_on(void *ctx)
{
	advance(ctx);
}

/* Process what there is, as far as open files allow. */
static void advance(struct upload *u)
{
	struct err err = { 0 };
	int rc = 0;
	if (!u->failed && !u->opening && u->rest.len) {
		if (u->z) {
			rc = unzip(u, &err);
		} else {
			rc = feed(u, u->rest.p, u->rest.len, &err);
			buf_free(&u->rest);
		}
	}
	if (rc < 0)
		fail(u, &err);
	if (u->body_done && !u->opening && (u->failed || !u->rest.len))
		finish(u);
	else if (!u->opening && !u->failed && u->rest.len)
		timer_at(&u->turn, u->call.e->loop, 0, go_on, u);
	else if (!u->opening)
		req_body_ready(u->req);
}

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct upload *u = ctx;
	if (u->failed) {
		if (!u->opening) {
			free_upload(u);
			return -1;
		}
		return 0;
	}
	if (u->opening || u->rest.len)
		return 1;
	if (buf_add(&u->rest, p, n) < 0) {
		answer_error(u->req, 500, "no memory");
		u->failed = true;
		return 0;
	}
	advance(u);
	return 0;
}

static void on_gone(void *ctx)
{
	free_upload(ctx);
}

static const struct req_owner owner = { .gone = on_gone };

/* From here on nobody but the owner hears of the client's departure; until here the sink does. */
static void on_complete(void *ctx)
{
	struct upload *u = ctx;
	u->body_done = true;
	if (!u->failed)
		req_own(u->req, &owner, u);
	if (!u->opening)
		advance(u);
}

static const struct req_sink sink = { on_piece, on_complete, on_gone };

static int set_up(struct upload *u, struct req *r, struct err *err)
{
	const char *type = req_header(r, "Content-Type"),
		   *encoding = req_header(r, "Content-Encoding");
	bool raw = type && http_type_is(type, "application/octet-stream");
	if (!raw && !(type && http_type_is(type, "multipart/form-data")))
		return err_set(err, ERR_INVALID,
			       "unsupported content type: %.100s, expected "
			       "multipart/form-data or application/octet-stream",
			       type ? type : "(none)");
	if (files_metadata(r, &u->metadata, err) < 0)
		return -1;
	if (raw && !u->call.has_path)
		return err_set(err, ERR_INVALID,
			       "path query parameter is required for raw body upload");
	if (encoding && strcasecmp(encoding, "gzip") != 0 && strcasecmp(encoding, "identity") != 0)
		return err_set(err, ERR_INVALID, "unsupported content encoding: %.32s", encoding);
	if (encoding && !strcasecmp(encoding, "gzip")) {
		u->z = calloc(1, sizeof *u->z);
		if (!u->z || inflateInit2(u->z, 16 + 15) != Z_OK)
			return err_set(err, ERR_INTERNAL, "no memory");
	}
	if (!raw)
		return multipart_new(&u->multipart, type, &multipart_ops, u, err);
	return add_part(u, u->call.path, err);
}

void upload_start(struct sandbox *s, struct req *r, const struct file_call *call)
{
	struct upload *u = calloc(1, sizeof *u);
	struct err err;
	(void)s;
	if (!u) {
		answer_error(r, 500, "no memory");
		return;
	}
	*u = (struct upload){
		.req = r, .call = *call, .rest = BUF(PIECE_MAX), .metadata = BUF(2 * FILEMETA_MAX)
	};
	if (set_up(u, r, &err) < 0) {
		fail(u, &err);
		free_upload(u);
		return;
	}
	req_stream_body(r, &sink, u);
}
