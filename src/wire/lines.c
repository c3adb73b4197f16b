#include "wire/lines.h"

#include <string.h>

#define KEEP_MAX (256u << 10)

void lines_init(struct lines *l, size_t max_line)
{
	l->in = BUF(max_line);
}

void lines_free(struct lines *l)
{
	buf_free(&l->in);
}

static int hold(struct lines *l, const char *p, size_t n, struct err *err)
{
	if (n > l->in.max - l->in.len)
		return err_set(err, ERR_LIMIT, "a line is longer than %zu bytes", l->in.max);
	if (buf_add(&l->in, p, n))
		return err_set(err, ERR_INTERNAL, "no memory for a line");
	return 0;
}

int lines_feed(struct lines *l, const char *p, size_t n, line_fn *fn, void *ctx, struct err *err)
{
	if (!n)
		return 0;
	const char *end = p + n;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		/* Also a line that lies whole in this piece is copied: fn is promised a NUL behind
		 * it. */
		if (hold(l, p, (size_t)((nl ? nl : end) - p), err))
			return -1;
		if (!nl)
			return 0;
		int rc = fn(ctx, l->in.p, l->in.len, err);
		if (l->in.cap > KEEP_MAX)
			buf_free(&l->in); /* one long line must not be paid for ever after */
		else
			buf_drop(&l->in, l->in.len);
		if (rc)
			return -1;
		p = nl + 1;
	}
	return 0;
}
