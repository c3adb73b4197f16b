/* Uploads. The first line is the Content-Type field, the rest the body. */
#include "fuzz.h"

#include "wire/multipart.h"

#define MAX        (1u << 20)
#define HEADER_MAX (8u << 10)

/* One reading of the input: what was told, in an order and form that do not depend on how it was
 * cut. */
struct reading {
	struct multipart *m;
	const char *in;
	size_t n;
	struct buf events, data;
	size_t from; /* where the data of the open part begins */
	bool open;
	struct err err;
};

static int on_begin(void *ctx, const char *name, const char *filename, struct err *err)
{
	struct reading *r = ctx;
	(void)err;
	CHECK(!r->open && strlen(name) < HEADER_MAX);
	CHECK(!filename || strlen(filename) < HEADER_MAX);
	r->open = true;
	r->from = r->data.len;
	return buf_addf(&r->events, "begin %zu %s %s\n", strlen(name), name,
			filename ? filename : "(none)");
}

static int on_data(void *ctx, const char *p, size_t n, struct err *err)
{
	struct reading *r = ctx;
	(void)err;
	CHECK(r->open && n > 0);
	return buf_add(&r->data, p, n);
}

/* It stood between an empty line and a delimiter, and all of it. */
static void check_data(const struct reading *r, const char *p, size_t n)
{
	struct buf place = BUF(MAX);
	CHECK(buf_adds(&place, "\r\n\r\n") == 0 && buf_add(&place, p, n) == 0 &&
	      buf_adds(&place, "\r\n--") == 0);
	CHECK(memmem(r->in, r->n, place.p, place.len));
	buf_free(&place);
}

static int on_end(void *ctx, struct err *err)
{
	struct reading *r = ctx;
	(void)err;
	size_t n = r->data.len - r->from;
	CHECK(r->open);
	if (n)
		check_data(r, r->data.p + r->from, n);
	r->open = false;
	return buf_addf(&r->events, "end %zu\n", n);
}

static const struct multipart_ops ops = { on_begin, on_data, on_end };

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct reading *r = ctx;
	return multipart_feed(r->m, p, n, &r->err);
}

/* false when the Content-Type is refused already. */
static bool read_all(struct reading *r, const char *type, const char *p, size_t n, enum cut cut)
{
	*r = (struct reading){ .in = p, .n = n, .events = BUF(MAX), .data = BUF(MAX) };
	if (multipart_new(&r->m, type, &ops, r, &r->err))
		return false;
	int fed = feed_pieces(p, n, cut, on_piece, r);
	int rc = fed ? fed : multipart_finish(r->m, &r->err);
	CHECK(rc == 0 || r->err.code == ERR_INVALID);
	CHECK(rc || !r->open);
	CHECK(!fed || multipart_feed(r->m, "x", 1, NULL) < 0);
	CHECK(buf_addf(&r->events, "%d %d\n", fed, rc) == 0);
	multipart_free(r->m);
	return true;
}

static void forget(struct reading *r)
{
	buf_free(&r->events);
	buf_free(&r->data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data;
	_free_ char *type = take_line(&p, &n);
	struct reading whole;
	if (!read_all(&whole, type, p, n, CUT_NOWHERE))
		return 0;
	CHECK(whole.data.len <= n);
	for (enum cut cut = CUT_ANYWHERE; cut < CUTS; cut++) {
		struct reading cuts;
		CHECK(read_all(&cuts, type, p, n, cut));
		CHECK(same(&whole.events, &cuts.events) && same(&whole.data, &cuts.data));
		forget(&cuts);
	}
	forget(&whole);
	return 0;
}
