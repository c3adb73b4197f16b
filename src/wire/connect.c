#include "wire/connect.h"

#include <stdbool.h>
#include <stdint.h>

#define HEAD 5 /* flags and length */

void connect_init(struct connect_dec *d, size_t max_payload)
{
	/* The length field holds 32 bits, so a larger maximum means nothing, and HEAD can be added.
	 */
	if (max_payload > UINT32_MAX - HEAD)
		max_payload = UINT32_MAX - HEAD;
	*d = (struct connect_dec){ .in = BUF(HEAD + max_payload), .max = max_payload };
}

void connect_free(struct connect_dec *d)
{
	buf_free(&d->in);
}

static unsigned flags_of(const char *head)
{
	return (unsigned char)head[0];
}

static size_t payload_of(const char *head)
{
	const unsigned char *h = (const unsigned char *)head;
	return (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];
}

/* Judge a head as soon as it is there: nothing of a payload that is refused is ever stored. */
static int check_head(const struct connect_dec *d, const char *head, struct err *err)
{
	if (flags_of(head) & ~(CONNECT_COMPRESSED | CONNECT_END))
		return err_set(err, ERR_INVALID, "unknown envelope flags 0x%02x", flags_of(head));
	if (payload_of(head) > d->max)
		return err_set(err, ERR_LIMIT,
			       "an envelope of %zu bytes is over the maximum of %zu",
			       payload_of(head), d->max);
	return 0;
}

/* Move bytes from *p into the held envelope until it has want of them or the input ends. */
static int hold(struct connect_dec *d, size_t want, const char **p, const char *end,
		struct err *err)
{
	size_t n = (size_t)(end - *p);
	if (n > want - d->in.len)
		n = want - d->in.len;
	if (buf_add(&d->in, *p, n))
		return err_set(err, ERR_INTERNAL, "no memory for an envelope");
	*p += n;
	return 0;
}

/* Carry on with the envelope that an earlier piece began. */
static int feed_held(struct connect_dec *d, const char **p, const char *end, connect_fn *fn,
		     void *ctx, struct err *err)
{
	if (d->in.len < HEAD) {
		if (hold(d, HEAD, p, end, err))
			return -1;
		if (d->in.len < HEAD)
			return 0;
		if (check_head(d, d->in.p, err))
			return -1;
	}
	size_t n = payload_of(d->in.p);
	if (hold(d, HEAD + n, p, end, err))
		return -1;
	if (d->in.len < HEAD + n)
		return 0;
	int rc = fn(ctx, flags_of(d->in.p), d->in.p + HEAD, n, err);
	buf_drop(&d->in, d->in.len);
	return rc;
}

int connect_feed(struct connect_dec *d, const char *p, size_t n, connect_fn *fn, void *ctx,
		 struct err *err)
{
	if (!n)
		return 0;
	const char *end = p + n;
	while (p < end) {
		size_t left = (size_t)(end - p);
		bool whole_head = !d->in.len && left >= HEAD;
		if (whole_head && check_head(d, p, err))
			return -1;
		if (!whole_head || left - HEAD < payload_of(p)) {
			if (feed_held(d, &p, end, fn, ctx, err))
				return -1;
			continue;
		}
		/* The whole envelope lies in this piece: no copy. */
		size_t size = payload_of(p);
		if (fn(ctx, flags_of(p), p + HEAD, size, err))
			return -1;
		p += HEAD + size;
	}
	return 0;
}

int connect_finish(const struct connect_dec *d, struct err *err)
{
	if (d->in.len)
		return err_set(err, ERR_INVALID, "the stream ended inside an envelope");
	return 0;
}

int connect_put(struct buf *out, unsigned flags, const char *payload, size_t n)
{
	if (n > UINT32_MAX - HEAD)
		return -1;
	char *to = buf_room(out, HEAD + n);
	if (!to)
		return -1;
	const char head[HEAD] = { (char)flags, (char)(n >> 24), (char)(n >> 16), (char)(n >> 8),
				  (char)n };
	/* Cannot fail: the room is there. */
	buf_add(out, head, HEAD);
	buf_add(out, payload, n);
	return 0;
}
