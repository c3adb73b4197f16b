/* Bytes of files, read and written as streams: memory stays flat whatever their size. */
#include <string.h>

#include "e2b/client.h"
#include "wire/uri.h"

struct reading {
	e2b_sink *sink;
	void *ctx;
};

static int begin(struct e2b *c, struct call *call, const struct e2b_sandbox *sb, const char *path,
		 const struct e2b_wait *wait, struct err *err)
{
	struct buf target = BUF(32u << 10);
	int rc;
	call->bulk = true;
	if (buf_adds(&target, "/files?path=") || uri_encode(&target, path, strlen(path)))
		rc = err_set(err, ERR_INVALID, "the path is too long");
	else
		rc = data_call(c, call, sb, PORT_ENVD, target.p, wait, err);
	buf_free(&target);
	return rc;
}

static int take(void *ctx, const char *p, size_t n, struct err *err)
{
	struct reading *r = ctx;
	int rc = r->sink(r->ctx, p, n);
	return rc < 0 ? err_set(err, ERR_ABANDONED, "read: nobody is listening") : rc;
}

int e2b_read(struct e2b *c, const struct e2b_sandbox *sb, const char *path, e2b_sink *sink,
	     void *ctx, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct reading reading = { sink, ctx };
	struct call call;
	call_init(&call, "read", "GET", 64u << 10);
	call.take = take;
	call.ctx = &reading;
	int rc = begin(c, &call, sb, path, wait, err);
	if (rc == 0)
		rc = data_run(c, &call, wait, err);
	call_free(&call);
	return client_end(c, since, sb, rc, err);
}

int e2b_write(struct e2b *c, const struct e2b_sandbox *sb, const char *path, int64_t length,
	      e2b_pull *pull, void *ctx, const struct e2b_wait *wait, struct err *err)
{
	int64_t since = client_begin(c);
	struct call call;
	call_init(&call, "write", "POST", 64u << 10);
	call.pull = pull;
	call.pull_ctx = ctx;
	call.length = length;
	call_header(&call, "Content-Type", "application/octet-stream");
	int rc = begin(c, &call, sb, path, wait, err);
	if (rc == 0)
		rc = data_run(c, &call, wait, err);
	call_free(&call);
	return client_end(c, since, sb, rc, err);
}
