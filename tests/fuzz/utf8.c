/* Bytes that only claim to be UTF-8. */
#include "fuzz.h"

#include "wire/utf8.h"

#define MAX (1u << 20)

struct text {
	struct utf8 state;
	struct buf out;
};

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct text *t = ctx;
	return utf8_feed(&t->state, p, n, &t->out);
}

static struct buf clean(const char *p, size_t n, enum cut cut)
{
	struct text t = { .out = BUF(MAX) };
	CHECK(feed_pieces(p, n, cut, on_piece, &t) == 0 && utf8_finish(&t.state, &t.out) == 0);
	return t.out;
}

static void check_steps(const char *p, size_t n)
{
	bool valid = true;
	for (size_t i = 0; i < n;) {
		uint32_t code;
		size_t len = utf8_next(p + i, n - i, &code);
		CHECK(len >= 1 && len <= 4 && len <= n - i);
		CHECK(code <= UTF8_LAST || code == UTF8_BAD || (code == UTF8_CUT && i + len == n));
		CHECK(code < 0xd800 || code > 0xdfff);
		valid = valid && code <= UTF8_LAST;
		i += len;
	}
	CHECK(valid == utf8_valid(p, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data;
	struct buf whole = clean(p, n, CUT_NOWHERE);
	CHECK(utf8_valid(whole.p, whole.len) && whole.len <= 3 * n);
	CHECK(utf8_valid(p, n) == (whole.len == n && (!n || !memcmp(whole.p, p, n))));
	for (enum cut cut = CUT_ANYWHERE; cut < CUTS; cut++) {
		struct buf again = clean(p, n, cut);
		CHECK(same(&whole, &again));
		buf_free(&again);
	}
	check_steps(p, n);
	buf_free(&whole);
	return 0;
}
