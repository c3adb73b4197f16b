#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/httpreply.h"
#include "cuts.h"

struct run {
	struct http_reply reply;
	struct buf log;
	struct err err;
};

static int on_head(void *ctx, const struct http_reply_head *h)
{
	struct run *r = ctx;
	assert_int_equal(buf_addf(&r->log, "%d", h->status), 0);
	for (size_t i = 0; i < h->nfields; i++)
		buf_addf(&r->log, "|%s=%s", h->fields[i].name, h->fields[i].value);
	if (h->sized)
		buf_addf(&r->log, " (%llu)", (unsigned long long)h->length);
	return buf_addf(&r->log, "%s:", h->bodiless ? " none" : "");
}

static int on_data(void *ctx, const char *p, size_t n)
{
	struct run *r = ctx;
	assert_true(n > 0);
	return buf_add(&r->log, p, n);
}

static void on_end(void *ctx)
{
	struct run *r = ctx;
	assert_int_equal(buf_adds(&r->log, "$"), 0);
}

static const struct http_reply_ops ops = { on_head, on_data, on_end };

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct run *r = ctx;
	return http_reply_feed(&r->reply, p, n, &r->err);
}

enum asked { PLAIN, TO_HEAD, MAY_SWITCH };

/* Both the bytes and the end of the stream behind them; 0 or -1. */
static int read_cut(struct run *r, enum asked asked, const char *in, size_t n, size_t cut)
{
	*r = (struct run){ .log = BUF(1 << 20) };
	buf_adds(&r->log, "");
	http_reply_init(&r->reply, asked == TO_HEAD, asked == MAY_SWITCH, &ops, r);
	int rc = feed_cut(in, n, cut, on_piece, r);
	return rc ? rc : http_reply_finish(&r->reply, &r->err);
}

static void stop(struct run *r)
{
	http_reply_free(&r->reply);
	buf_free(&r->log);
}

static void every_cut_gives_the_same_answer(void **state)
{
	(void)state;
	static const struct {
		enum asked asked;
		const char *in, *want;
	} rows[] = {
		{ PLAIN, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA:  b c\t \r\n\r\nhello",
		  "200|Content-Length=5|A=b c (5):hello$" },
		{ PLAIN, "HTTP/1.0 404 \n\nuntil the end", "404:until the end$" },
		{ PLAIN, "HTTP/1.1 200\nX:\nY: :\n\n", "200|X=|Y=::$" },
		{ PLAIN, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		  "200|Content-Length=0 (0):$" },
		{ PLAIN,
		  "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
		  "3\r\nabc\r\n00a ; x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nignored",
		  "200|transfer-encoding=Chunked:abc0123456789$" },
		{ PLAIN,
		  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
		  "HTTP/1.1 201 Made\r\nContent-Length: 1\r\n\r\nzHTTP/1.1 200 OK\r\n\r\n",
		  "201|Content-Length=1 (1):z$" },
		{ TO_HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
		  "200|Content-Length=99 (99) none:$" },
		{ TO_HEAD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		  "200|Transfer-Encoding=chunked none:$" },
		{ PLAIN, "HTTP/1.1 204 No\r\nX: y\r\n\r\nbody", "204|X=y none:$" },
		{ PLAIN, "HTTP/1.1 304 Same\r\nContent-Length: 7\r\n\r\n",
		  "304|Content-Length=7 (7) none:$" },
		{ PLAIN, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
		  "200|Content-Length=2|Content-Length=2 (2):ok$" },
		{ MAY_SWITCH, "HTTP/1.1 101 Go\r\nUpgrade: x\r\n\r\nraw HTTP/1.1 200 bytes",
		  "101|Upgrade=x:raw HTTP/1.1 200 bytes$" },
		{ MAY_SWITCH, "HTTP/1.1 426 No\r\nUpgrade: y\r\nContent-Length: 1\r\n\r\n.",
		  "426|Upgrade=y|Content-Length=1 (1):.$" },
		{ PLAIN, "HTTP/1.1 999 \xe2\x98\x83\r\nX: \xff\r\n\r\n", "999|X=\xff:$" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i].in);
		for (size_t cut = 0; cut <= n + 1; cut++) {
			struct run r;
			assert_int_equal(read_cut(&r, rows[i].asked, rows[i].in, n, cut), 0);
			assert_string_equal(r.log.p, rows[i].want);
			stop(&r);
		}
	}
}

/* Refused before its head was told, whatever the cut. */
static void nonsense_is_refused(void **state)
{
	(void)state;
	static const char *const rows[] = {
		"",
		"\r\n\r\n",
		"SSH-2.0-x\r\n\r\n",
		"HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.2 200 OK\r\n\r\n",
		"HTTP/1.1 20 OK\r\n\r\n",
		"HTTP/1.1 2000 OK\r\n\r\n",
		"HTTP/1.1 099 OK\r\n\r\n",
		"http/1.1 200 OK\r\n\r\n",
		"HTTP/1.1  200 OK\r\n\r\n",
		"HTTP/1.1 200 O\rK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\x01\r\n\r\n",
		"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
		"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
		 "chunked\r\n\r\n"),
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"HTTP/1.1 101 Go\r\nUpgrade: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n",
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i]);
		for (size_t cut = 0; cut <= n + 1; cut++) {
			struct run r;
			if (read_cut(&r, PLAIN, rows[i], n, cut) != -1)
				fail_msg("taken: %s", rows[i]);
			assert_string_equal(r.log.p, "");
			assert_int_equal(http_reply_feed(&r.reply, "x", 1, &r.err), -1);
			stop(&r);
		}
	}
}

/* Refused somewhere in the body: what was told before is not taken back, but there is no end. */
static void a_broken_body_has_no_end(void **state)
{
	(void)state;
	static const char *const rows[] = {
		"Content-Length: 5\r\n\r\nabcd",
		"Transfer-Encoding: chunked\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
		"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
		"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\nx\r\nabc\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n3 x\r\nabc\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n1000000000000000\r\nabc\r\n0\r\n\r\n",
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char in[256];
		size_t n = (size_t)snprintf(in, sizeof in, "HTTP/1.1 200 OK\r\n%s", rows[i]);
		for (size_t cut = 0; cut <= n + 1; cut++) {
			struct run r;
			assert_int_equal(read_cut(&r, PLAIN, in, n, cut), -1);
			assert_null(strchr(r.log.p, '$'));
			stop(&r);
		}
	}
}

static void everything_is_bounded(void **state)
{
	(void)state;
	enum { N = 256 << 10 };
	char *in = malloc(N);
	struct run r;
	assert_non_null(in);
	memset(in, 'x', N);
	memcpy(in, LIT("HTTP/1.1 200 OK\r\nX: "));
	assert_int_equal(read_cut(&r, PLAIN, in, N, N), -1);
	assert_int_equal(r.err.code, ERR_LIMIT);
	assert_true(r.reply.in.cap <= 2 * HTTP_REPLY_HEAD);
	stop(&r);

	struct buf many = BUF(N);
	buf_adds(&many, "HTTP/1.1 200 OK\r\n");
	for (int i = 0; i <= HTTP_REPLY_FIELDS; i++)
		buf_adds(&many, "A: b\r\n");
	buf_adds(&many, "\r\n");
	assert_int_equal(read_cut(&r, PLAIN, many.p, many.len, many.len), -1);
	assert_int_equal(r.err.code, ERR_LIMIT);
	stop(&r);

	buf_free(&many);
	many = BUF(N);
	for (int i = 0; i < 1000; i++)
		buf_adds(&many, "HTTP/1.1 100 Continue\r\n\r\n");
	assert_int_equal(read_cut(&r, PLAIN, many.p, many.len, many.len), -1);
	assert_int_equal(r.err.code, ERR_LIMIT);
	stop(&r);

	static const char chunked[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
	for (int trailer = 0; trailer < 2; trailer++) {
		buf_free(&many);
		many = BUF(N);
		buf_adds(&many, chunked);
		buf_adds(&many, trailer ? "0\r\nX: " : "3;");
		for (int i = 0; i < 70000; i++)
			buf_adds(&many, "x");
		assert_int_equal(read_cut(&r, PLAIN, many.p, many.len, many.len), -1);
		assert_int_equal(r.err.code, ERR_LIMIT);
		stop(&r);
	}
	buf_free(&many);
	free(in);
}

static void nuls_are_refused(void **state)
{
	(void)state;
	static const char in[] = "HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n";
	for (size_t cut = 0; cut <= sizeof in; cut++) {
		struct run r;
		assert_int_equal(read_cut(&r, PLAIN, in, sizeof in - 1, cut), -1);
		stop(&r);
	}
}

static int refuse_head(void *ctx, const struct http_reply_head *h)
{
	(void)ctx;
	(void)h;
	return -1;
}

static void a_refusal_stops_the_decoder(void **state)
{
	(void)state;
	static const struct http_reply_ops refusing = { refuse_head, on_data, on_end };
	struct http_reply reply;
	struct err err;
	http_reply_init(&reply, false, false, &refusing, NULL);
	assert_int_equal(http_reply_feed(&reply, LIT("HTTP/1.1 200 OK\r\n\r\nx"), &err), -1);
	assert_int_equal(http_reply_feed(&reply, "x", 1, &err), -1);
	assert_int_equal(http_reply_finish(&reply, &err), -1);
	http_reply_free(&reply);
}

static void lists_of_words(void **state)
{
	(void)state;
	assert_true(http_list_has("Upgrade", "upgrade"));
	assert_true(http_list_has("keep-alive ,\tUpgrade", "upgrade"));
	assert_true(http_list_has(",,close", "close"));
	assert_false(http_list_has("upgraded, not-upgrade", "upgrade"));
	assert_false(http_list_has("", "x"));
	assert_true(http_is_token("X-a_1"));
	assert_false(http_is_token(""));
	assert_false(http_is_token("a b"));
	assert_false(http_is_token("a\xc3"));
	assert_true(http_is_value("a\tb \xff"));
	assert_false(http_is_value("a\x7f"));
	assert_false(http_is_value("a\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_gives_the_same_answer),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(a_broken_body_has_no_end),
		cmocka_unit_test(everything_is_bounded),
		cmocka_unit_test(nuls_are_refused),
		cmocka_unit_test(a_refusal_stops_the_decoder),
		cmocka_unit_test(lists_of_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
