/* Connect envelopes: the input as they come, and the events of a command, of which each line of the
 * input is one envelope: its flags as a digit, and the payload. */
#include "events.h"

#include "wire/connect.h"

#define SMALL 300 /* the largest payload */

struct seen {
	struct connect_dec decoder;
	struct buf again; /* the envelopes as we would write them */
	struct err err;
};

static int on_envelope(void *ctx, unsigned flags, const char *p, size_t n, struct err *err)
{
	struct seen *s = ctx;
	(void)err;
	CHECK(n <= SMALL && !(flags & ~(CONNECT_COMPRESSED | CONNECT_END)));
	return connect_put(&s->again, flags, p, n);
}

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct seen *s = ctx;
	return connect_feed(&s->decoder, p, n, on_envelope, s, &s->err);
}

/* What was whole is written as it came; what was not is a prefix, or the reason of the refusal. */
static void check_decoder(const char *p, size_t n)
{
	enum err_code code = ERR_NONE;
	size_t whole = 0;
	for (enum cut cut = CUT_NOWHERE; cut < CUTS; cut++) {
		struct seen s = { .again = BUF(1u << 20) };
		connect_init(&s.decoder, SMALL);
		int rc = feed_pieces(p, n, cut, on_piece, &s);
		if (rc == 0)
			CHECK((connect_finish(&s.decoder, &s.err) == 0) == (s.again.len == n));
		CHECK(s.again.len <= n && (!s.again.len || !memcmp(s.again.p, p, s.again.len)));
		CHECK(cut == CUT_NOWHERE || (code == s.err.code && whole == s.again.len));
		code = s.err.code;
		whole = s.again.len;
		connect_free(&s.decoder);
		buf_free(&s.again);
	}
}

static void begin(struct told *t)
{
	t->feed = command_stream_feed;
	command_stream_init(&t->stream, on_event, t);
}

static void check_lines(const char *p, size_t n)
{
	struct buf stream = BUF(1u << 20);
	while (n) {
		_free_ char *line = take_line(&p, &n);
		unsigned flags = *line ? (unsigned char)(*line - '0') : 0;
		const char *payload = *line ? line + 1 : "";
		CHECK(connect_put(&stream, flags, payload, strlen(payload)) == 0);
	}
	check_stream(stream.p, stream.len, begin);
	buf_free(&stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	check_decoder((const char *)data, n);
	check_stream((const char *)data, n, begin);
	check_lines((const char *)data, n);
	return 0;
}
