#include "e2b/backlog.h"

#include <string.h>

struct head {
	size_t n;
	unsigned flags;
};

void backlog_init(struct backlog *b, size_t max, backlog_fn *fn, void *ctx)
{
	*b = (struct backlog){ .held = BUF(max), .fn = fn, .ctx = ctx };
}

void backlog_free(struct backlog *b)
{
	buf_free(&b->held);
}

bool backlog_waits(const struct backlog *b)
{
	return b->held.len > 0;
}

int backlog_put(struct backlog *b, unsigned flags, const char *p, size_t n, struct err *err)
{
	int rc = backlog_waits(b) ? 1 : b->fn(b->ctx, flags, p, n, err);
	if (rc <= 0)
		return rc;
	struct head h = { n, flags };
	if (buf_add(&b->held, &h, sizeof h) || buf_add(&b->held, p, n))
		return err_set(err, ERR_LIMIT, "more than %zu bytes wait for the consumer",
			       b->held.max);
	return 0;
}

int backlog_again(struct backlog *b, struct err *err)
{
	size_t pos = 0;
	int rc = 0;
	while (pos < b->held.len) {
		struct head h;
		memcpy(&h, b->held.p + pos, sizeof h);
		rc = b->fn(b->ctx, h.flags, b->held.p + pos + sizeof h, h.n, err);
		if (rc)
			break;
		pos += sizeof h + h.n;
	}
	buf_drop(&b->held, pos);
	return rc;
}
