/* Answers of servers inside a sandbox. The first byte says what was asked, the rest is the stream.
 */
#include "fuzz.h"

#include "wire/httpreply.h"

#define MAX (1u << 20)

/* One reading of the input: what was told, in a form that does not depend on how it was cut. */
struct reading {
	struct http_reply reply;
	struct buf events, data;
	bool headed, sized, bodiless, ended;
	uint64_t length;
	struct err err;
};

static int on_head(void *ctx, const struct http_reply_head *h)
{
	struct reading *r = ctx;
	CHECK(!r->headed && !r->ended);
	CHECK(h->status == 101 ? r->reply.may_switch : h->status >= 200 && h->status <= 999);
	CHECK(h->nfields <= HTTP_REPLY_FIELDS && h->length <= INT64_MAX);
	for (size_t i = 0; i < h->nfields; i++) {
		CHECK(http_is_token(h->fields[i].name) && http_is_value(h->fields[i].value));
		CHECK(buf_addf(&r->events, "%s=%s\n", h->fields[i].name, h->fields[i].value) == 0);
	}
	r->headed = true;
	r->sized = h->sized;
	r->length = h->length;
	r->bodiless = h->bodiless;
	return buf_addf(&r->events, "%d %d %d\n", h->status, h->sized, h->bodiless);
}

static int on_data(void *ctx, const char *p, size_t n)
{
	struct reading *r = ctx;
	CHECK(r->headed && !r->ended && !r->bodiless && n > 0);
	return buf_add(&r->data, p, n);
}

static void on_end(void *ctx)
{
	struct reading *r = ctx;
	CHECK(r->headed && !r->ended);
	r->ended = true;
}

static const struct http_reply_ops ops = { on_head, on_data, on_end };

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct reading *r = ctx;
	return http_reply_feed(&r->reply, p, n, &r->err);
}

static void read_all(struct reading *r, int asked, const char *p, size_t n, enum cut cut)
{
	*r = (struct reading){ .events = BUF(MAX), .data = BUF(MAX) };
	http_reply_init(&r->reply, asked & 1, asked & 2, &ops, r);
	int fed = feed_pieces(p, n, cut, on_piece, r);
	int rc = fed ? fed : http_reply_finish(&r->reply, &r->err);
	CHECK(rc == 0 || r->err.code == ERR_INVALID || r->err.code == ERR_LIMIT);
	CHECK((rc == 0) == r->ended || fed);
	CHECK(!r->ended || r->bodiless || !r->sized || r->data.len == r->length ||
	      r->reply.may_switch);
	CHECK(buf_addf(&r->events, "%d %d %d\n", fed, rc, r->ended) == 0);
	http_reply_free(&r->reply);
}

static void forget(struct reading *r)
{
	buf_free(&r->events);
	buf_free(&r->data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (!n)
		return 0;
	struct reading whole;
	const char *p = (const char *)data + 1;
	read_all(&whole, data[0], p, n - 1, CUT_NOWHERE);
	CHECK(whole.data.len < n);
	for (enum cut cut = CUT_ANYWHERE; cut < CUTS; cut++) {
		struct reading cuts;
		read_all(&cuts, data[0], p, n - 1, cut);
		CHECK(same(&whole.events, &cuts.events) && same(&whole.data, &cuts.data));
		forget(&cuts);
	}
	forget(&whole);
	return 0;
}
