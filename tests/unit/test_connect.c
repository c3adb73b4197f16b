#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "wire/connect.h"
#include "cuts.h"

struct run {
	struct connect_dec dec;
	struct buf log;
	size_t refuse_at; /* the envelope that is refused, from 1; 0 for none */
	size_t seen;
	struct err err;
};

static int on_envelope(void *ctx, unsigned flags, const char *payload, size_t n, struct err *err)
{
	struct run *r = ctx;
	if (++r->seen == r->refuse_at)
		return err_set(err, ERR_CONFLICT, "refused");
	assert_int_equal(buf_addf(&r->log, "[%u:%zu:", flags, n), 0);
	assert_int_equal(buf_add(&r->log, payload, n), 0);
	return buf_adds(&r->log, "]");
}

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct run *r = ctx;
	return connect_feed(&r->dec, p, n, on_envelope, r, &r->err);
}

static void start(struct run *r, size_t max, size_t refuse_at)
{
	*r = (struct run){ .log = BUF(1 << 20), .refuse_at = refuse_at };
	connect_init(&r->dec, max);
	assert_int_equal(buf_adds(&r->log, ""), 0);
}

static void stop(struct run *r)
{
	connect_free(&r->dec);
	buf_free(&r->log);
}

static void every_cut_gives_the_same_envelopes(void **state)
{
	(void)state;
	static const char in[] = "\0\0\0\0\3abc"
				 "\1\0\0\0\0"
				 "\0\0\0\0\4\0\n\xff\1"
				 "\3\0\0\0\1x"
				 "\2\0\0\0\2{}";
	static const char want[] = "[0:3:abc][1:0:][0:4:\0\n\xff\1][3:1:x][2:2:{}]";
	for (size_t cut = 0; cut <= sizeof in; cut++) {
		struct run r;
		start(&r, 4, 0);
		assert_int_equal(feed_cut(in, sizeof in - 1, cut, on_piece, &r), 0);
		assert_int_equal(r.log.len, sizeof want - 1);
		assert_memory_equal(r.log.p, want, sizeof want - 1);
		assert_int_equal(connect_finish(&r.dec, &r.err), 0);
		stop(&r);
	}
}

static void an_envelope_cut_off_is_seen_at_the_end(void **state)
{
	(void)state;
	static const char in[] = "\0\0\0\0\1a\2\0\0\0\2{}";
	for (size_t n = 0; n <= sizeof in - 1; n++) {
		for (size_t cut = 0; cut <= n + 1; cut++) {
			struct run r;
			start(&r, 100, 0);
			assert_int_equal(feed_cut(in, n, cut, on_piece, &r), 0);
			bool whole = n == 0 || n == 6 || n == 13;
			assert_int_equal(connect_finish(&r.dec, &r.err), whole ? 0 : -1);
			assert_int_equal(r.err.code, whole ? ERR_NONE : ERR_INVALID);
			assert_int_equal(r.seen, n < 6 ? 0 : n < 13 ? 1 : 2);
			stop(&r);
		}
	}
}

static void bad_heads_are_refused_at_once(void **state)
{
	(void)state;
	static const struct {
		char head[5];
		enum err_code code;
	} rows[] = {
		{ { 0, 0, 0, 0, 5 }, ERR_LIMIT },
		{ { 0, 1, 0, 0, 0 }, ERR_LIMIT },
		{ { 0, '\xff', '\xff', '\xff', '\xff' }, ERR_LIMIT },
		{ { 2, '\x80', 0, 0, 0 }, ERR_LIMIT },
		{ { 4, 0, 0, 0, 1 }, ERR_INVALID },
		{ { '\x80', 0, 0, 0, 0 }, ERR_INVALID },
		{ { '\xff', 0, 0, 0, 0 }, ERR_INVALID },
		{ { '{', '"', 'c', 'o', 'd' }, ERR_INVALID },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char in[11] = "\0\0\0\0\1a";
		memcpy(in + 6, rows[i].head, 5);
		for (size_t cut = 0; cut <= sizeof in + 1; cut++) {
			struct run r;
			start(&r, 4, 0);
			assert_int_equal(feed_cut(in, sizeof in, cut, on_piece, &r), -1);
			assert_int_equal(r.err.code, rows[i].code);
			assert_string_not_equal(r.err.text, "");
			assert_int_equal(r.seen, 1);
			stop(&r);
		}
	}
}

static void a_refusal_stops_the_decoder(void **state)
{
	(void)state;
	static const char in[] = "\0\0\0\0\1a\0\0\0\0\1b\0\0\0\0\1c";
	for (size_t cut = 0; cut <= sizeof in; cut++) {
		struct run r;
		start(&r, 4, 2);
		assert_int_equal(feed_cut(in, sizeof in - 1, cut, on_piece, &r), -1);
		assert_int_equal(r.err.code, ERR_CONFLICT);
		assert_string_equal(r.err.text, "refused");
		assert_int_equal(r.seen, 2);
		stop(&r);
	}
}

static void a_claimed_length_takes_no_memory(void **state)
{
	(void)state;
	struct run r;
	start(&r, SIZE_MAX, 0);
	assert_int_equal(on_piece(&r, "\0\x70\0\0\0abc", 8), 0);
	assert_true(r.dec.in.cap < 4096);
	assert_int_equal(connect_finish(&r.dec, NULL), -1);
	stop(&r);
}

static void a_large_envelope_passes_in_pieces(void **state)
{
	(void)state;
	enum { N = 300000 };
	struct buf in = BUF(N + 10);
	char *payload = calloc(1, N);
	assert_non_null(payload);
	payload[N - 1] = 'z';
	assert_int_equal(connect_put(&in, CONNECT_END, payload, N), 0);
	for (size_t size = 1000; size < 400000; size *= 7) {
		struct run r;
		start(&r, N, 0);
		for (size_t i = 0; i < in.len; i += size) {
			size_t n = in.len - i < size ? in.len - i : size;
			assert_int_equal(feed_piece(in.p + i, n, on_piece, &r), 0);
		}
		assert_int_equal(r.seen, 1);
		assert_int_equal(r.log.len, strlen("[2:300000:]") + N);
		assert_memory_equal(r.log.p + strlen("[2:300000:"), payload, N);
		stop(&r);
	}
	free(payload);
	buf_free(&in);
}

static void empty_input_is_fine(void **state)
{
	(void)state;
	struct run r;
	start(&r, 0, 0);
	assert_int_equal(connect_feed(&r.dec, NULL, 0, on_envelope, &r, &r.err), 0);
	assert_int_equal(connect_finish(&r.dec, &r.err), 0);
	assert_int_equal(on_piece(&r, "\2\0\0\0\0", 5), 0);
	assert_int_equal(r.seen, 1);
	assert_int_equal(on_piece(&r, "\2\0\0\0\1", 5), -1);
	assert_int_equal(r.err.code, ERR_LIMIT);
	stop(&r);
}

static void envelopes_are_written(void **state)
{
	(void)state;
	struct buf out = BUF(600);
	char payload[515];
	memset(payload, 'p', sizeof payload);
	assert_int_equal(connect_put(&out, 0, payload, sizeof payload), 0);
	assert_int_equal(connect_put(&out, CONNECT_END | CONNECT_COMPRESSED, NULL, 0), 0);
	assert_int_equal(out.len, 5 + 515 + 5);
	assert_memory_equal(out.p, "\0\0\0\2\3pp", 7);
	assert_memory_equal(out.p + 520, "\3\0\0\0\0", 6);
	buf_free(&out);

	out.max = 7;
	assert_int_equal(connect_put(&out, 2, "abc", 3), -1);
	assert_int_equal(out.len, 0);
	assert_int_equal(connect_put(&out, 2, "ab", 2), 0);
	assert_memory_equal(out.p, "\2\0\0\0\2ab", 8);
	assert_int_equal(connect_put(&out, 2, "", SIZE_MAX), -1);
	assert_int_equal(connect_put(&out, 2, "", SIZE_MAX - 4), -1);
	assert_int_equal(out.len, 7);
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_gives_the_same_envelopes),
		cmocka_unit_test(an_envelope_cut_off_is_seen_at_the_end),
		cmocka_unit_test(bad_heads_are_refused_at_once),
		cmocka_unit_test(a_refusal_stops_the_decoder),
		cmocka_unit_test(a_claimed_length_takes_no_memory),
		cmocka_unit_test(a_large_envelope_passes_in_pieces),
		cmocka_unit_test(empty_input_is_fine),
		cmocka_unit_test(envelopes_are_written),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
