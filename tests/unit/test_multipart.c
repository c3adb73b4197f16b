#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "wire/multipart.h"
#include "cuts.h"

#define TYPE "multipart/form-data; boundary=XyZ"
#define FILE_A                                                                                     \
	"Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n"                    \
	"Content-Type: application/octet-stream\r\n\r\n"
#define NAME_N "Content-Disposition: form-data; name=n\r\n\r\n"

enum refusal { NOTHING, BEGIN, DATA, END };

struct run {
	struct multipart *m;
	struct buf log;
	size_t calls;        /* of data */
	bool open;           /* a part has begun */
	enum refusal refuse; /* the call that is refused */
	struct err err;
};

static int on_begin(void *ctx, const char *name, const char *filename, struct err *err)
{
	struct run *r = ctx;
	if (r->refuse == BEGIN)
		return err_set(err, ERR_DENIED, "refused");
	assert_false(r->open);
	r->open = true;
	return buf_addf(&r->log, "<%s|%s>", name, filename ? filename : "-");
}

static int on_data(void *ctx, const char *p, size_t n, struct err *err)
{
	struct run *r = ctx;
	if (r->refuse == DATA)
		return err_set(err, ERR_DENIED, "refused");
	assert_true(r->open);
	assert_true(n > 0);
	r->calls++;
	return buf_add(&r->log, p, n);
}

static int on_end(void *ctx, struct err *err)
{
	struct run *r = ctx;
	if (r->refuse == END)
		return err_set(err, ERR_DENIED, "refused");
	assert_true(r->open);
	r->open = false;
	return buf_adds(&r->log, "</>");
}

static const struct multipart_ops ops = { on_begin, on_data, on_end };

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct run *r = ctx;
	return multipart_feed(r->m, p, n, &r->err);
}

static void start(struct run *r, const char *type)
{
	*r = (struct run){ .log = BUF(64 << 20) };
	assert_int_equal(buf_adds(&r->log, ""), 0);
	assert_int_equal(multipart_new(&r->m, type, &ops, r, &r->err), 0);
}

static void stop(struct run *r)
{
	multipart_free(r->m);
	buf_free(&r->log);
}

/* Every cut of the input must give the events in want. */
static void expect(const char *type, const char *in, size_t n, const char *want, size_t nwant)
{
	for (size_t cut = 0; cut <= n + 1; cut++) {
		struct run r;
		start(&r, type);
		if (feed_cut(in, n, cut, on_piece, &r) || multipart_finish(r.m, &r.err))
			fail_msg("cut %zu of '%s': %s", cut, in, r.err.text);
		if (r.log.len != nwant || memcmp(r.log.p, want, nwant) != 0)
			fail_msg("cut %zu of '%s': '%s'", cut, in, r.log.p);
		assert_false(r.open);
		stop(&r);
	}
}

/* Every cut of the input must be refused as invalid, after the events in want. */
static void expect_refusal(const char *in, size_t n, const char *want)
{
	for (size_t cut = 0; cut <= n + 1; cut++) {
		struct run r;
		start(&r, TYPE);
		if (!feed_cut(in, n, cut, on_piece, &r))
			fail_msg("cut %zu of '%s' was accepted: '%s'", cut, in, r.log.p);
		assert_int_equal(r.err.code, ERR_INVALID);
		assert_string_equal(r.log.p, want);
		assert_int_equal(multipart_feed(r.m, "more", 4, &r.err), -1);
		assert_int_equal(multipart_finish(r.m, &r.err), -1);
		stop(&r);
	}
}

static void every_cut_gives_the_same_parts(void **state)
{
	(void)state;
	static const struct {
		const char *in;
		size_t n;
		const char *want;
		size_t nwant;
	} rows[] = {
		{ LIT("--XyZ\r\n" FILE_A "hello\r\n--XyZ--\r\n"), LIT("<file|a.txt>hello</>") },
		{ LIT("--XyZ\r\n" FILE_A "one\r\n--XyZ\r\n" NAME_N "two\r\n--XyZ--"),
		  LIT("<file|a.txt>one</><n|->two</>") },
		/* Nothing in the part, with and without the line end that belongs to the boundary.
		 */
		{ LIT("--XyZ\r\n" NAME_N "\r\n--XyZ--"), LIT("<n|-></>") },
		{ LIT("--XyZ\r\n" NAME_N "--XyZ--"), LIT("<n|-></>") },
		/* Data made of what looks like the boundary. */
		{ LIT("--XyZ\r\n" NAME_N "\r\n--Xy\r\n--XyY\r\n-\r\r\n\r\n--X\r\n--XyZ--"),
		  LIT("<n|->\r\n--Xy\r\n--XyY\r\n-\r\r\n\r\n--X</>") },
		{ LIT("--XyZ\r\n" NAME_N "--Xy\r\n--XyZ--"), LIT("<n|->--Xy</>") },
		{ LIT("--XyZ\r\n" NAME_N "--XyY--XyZ\n--XyZ\r--XyZ\r\n--XyZ--"),
		  LIT("<n|->--XyY--XyZ\n--XyZ\r--XyZ</>") },
		{ LIT("--XyZ\r\n" NAME_N "\r\r\r\n\r\n\r\n--XyZ--"), LIT("<n|->\r\r\r\n\r\n</>") },
		{ LIT("--XyZ\r\n" NAME_N "\r\n--\r\n--xyz\r\n--XyZ--"),
		  LIT("<n|->\r\n--\r\n--xyz</>") },
		{ LIT("--XyZ\r\n" NAME_N "\0\xff\0\r\n\0--XyZ\r\n--XyZ--"),
		  LIT("<n|->\0\xff\0\r\n\0--XyZ</>") },
		/* What comes before, behind, and behind the boundary on its line. */
		{ LIT("preamble --XyZ\r\n--Xy\r\n--XyZ\r\n" NAME_N "x\r\n--XyZ--"),
		  LIT("<n|->x</>") },
		{ LIT("\r\n--XyZ\r\n" NAME_N "x\r\n--XyZ--"), LIT("<n|->x</>") },
		{ LIT("--XyZ\r\n" NAME_N "x\r\n--XyZ-- \r\n--XyZ\r\n\r\n\0"), LIT("<n|->x</>") },
		{ LIT("--XyZ \t \r\n" NAME_N "x\r\n--XyZ\t\r\n" NAME_N "y\r\n--XyZ--"),
		  LIT("<n|->x</><n|->y</>") },
		{ LIT("--XyZ--"), LIT("") },
		{ LIT("\r\n--XyZ--\r\n"), LIT("") },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		expect(TYPE, rows[i].in, rows[i].n, rows[i].want, rows[i].nwant);
}

static void part_names_are_read(void **state)
{
	(void)state;
	static const struct {
		const char *header, *want;
	} rows[] = {
		{ "Content-Disposition: form-data; name=\"n\"", "<n|-></>" },
		{ "content-disposition:form-data;name=n;filename=f", "<n|f></>" },
		{ "CONTENT-DISPOSITION: \tForm-Data ; filename=\"f\" ; NAME=\"n\" ;", "<n|f></>" },
		{ "Content-Disposition: form-data; name=\"\"; filename=\"\"", "<|></>" },
		{ "Content-Disposition: form-data; name=\"a\\\"b\\\\c\\d\"", "<a\"b\\c\\d|-></>" },
		{ "Content-Disposition: form-data; name=\"%22%0A%0D%41%2\"", "<\"\n\r%41%2|-></>" },
		{ "Content-Disposition: form-data; name=\"%%22\\\\%22%\"", "<%\"\\\"%|-></>" },
		{ "Content-Disposition: form-data; name=n; filename=%22", "<n|%22></>" },
		{ "Content-Disposition: form-data; name=\"n\"; filename=\"/tmp/b.txt\"",
		  "<n|/tmp/b.txt></>" },
		{ "Content-Disposition: form-data; name=n; filename=/tmp/b.txt",
		  "<n|/tmp/b.txt></>" },
		{ "Content-Disposition: form-data; name=\"\xc3\xbc; x=y\"",
		  "<\xc3\xbc; x=y|-></>" },
		{ "Content-Disposition: form-data; name=n; filename*=UTF-8''x; size=3",
		  "<n|-></>" },
		{ "X-Name: form-data; name=x\r\nContent-Disposition: form-data; name=n\r\nX:",
		  "<n|-></>" },
		{ "Content-Type: a/b; name=x\r\nContent-Disposition: form-data; name=n",
		  "<n|-></>" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf in = BUF(1000);
		buf_addf(&in, "--XyZ\r\n%s\r\n\r\n\r\n--XyZ--", rows[i].header);
		expect(TYPE, in.p, in.len, rows[i].want, strlen(rows[i].want));
		buf_free(&in);
	}
}

static void broken_headers_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *header;
		size_t n;
	} rows[] = {
		{ LIT("") },
		{ LIT("X-Other: 1\r\n") },
		{ LIT("Content-Disposition: form-data\r\n") },
		{ LIT("Content-Disposition: form-data; filename=f\r\n") },
		{ LIT("Content-Disposition: attachment; name=n\r\n") },
		{ LIT("Content-Disposition: form-datax; name=n\r\n") },
		{ LIT("Content-Disposition:\r\n") },
		{ LIT("Content-Disposition: form-data; name\r\n") },
		{ LIT("Content-Disposition: form-data; name=\r\n") },
		{ LIT("Content-Disposition: form-data; name=\"n\r\n") },
		{ LIT("Content-Disposition: form-data; name=\"n\\\"\r\n") },
		{ LIT("Content-Disposition: form-data; name=\"n\"x\r\n") },
		{ LIT("Content-Disposition: form-data; name=a; name=b\r\n") },
		{ LIT("Content-Disposition: form-data; name=a; filename=b; filename=c\r\n") },
		{ LIT("Content-Disposition: form-data; name=a\r\n"
		      "content-disposition: form-data; name=b\r\n") },
		{ LIT("Content-Disposition: form-data; name=\"a\0b\"\r\n") },
		{ LIT("Content-Disposition: form-data; name=n\r\nX: \0\r\n") },
		{ LIT("\0Content-Disposition: form-data; name=n\r\n") },
		{ LIT("Content-Disposition: form-data;\r\n name=n\r\n") },
		{ LIT("Content-Disposition : form-data; name=n\r\n") },
		{ LIT("Content-Disposition: form-data; name=n\r\nno colon\r\n") },
		{ LIT("Content-Disposition: form-data; name=n\r\n: x\r\n") },
		{ LIT("Content-Disposition: form-data; name=\"a\nb\"\r\n") },
		{ LIT("Content-Disposition: form-data; name=\"a\rb\"\r\n") },
		{ LIT("Content-Disposition: form-data; name=n\r\nX: a\nY: b\r\n") },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf in = BUF(1000);
		buf_adds(&in, "--XyZ\r\n");
		buf_add(&in, rows[i].header, rows[i].n);
		buf_adds(&in, "\r\nx\r\n--XyZ--");
		expect_refusal(in.p, in.len, "");
		buf_free(&in);
	}
}

static void broken_boundary_lines_are_refused(void **state)
{
	(void)state;
	expect_refusal(LIT("--XyZx\r\n" NAME_N), "");
	expect_refusal(LIT("--XyZ-\r\n" NAME_N), "");
	expect_refusal(LIT("--XyZ x\r\n" NAME_N), "");
	expect_refusal(LIT("--XyZ --\r\n"), "");
	expect_refusal(LIT("--XyZ\n" NAME_N), "");
	expect_refusal(LIT("--XyZ\r\r\n" NAME_N), "");
	expect_refusal(LIT("--XyZ\0\r\n" NAME_N), "");
	expect_refusal(LIT("--XyZ\r\n" NAME_N "x\r\n--XyZq"), "<n|->x</>");
}

static void a_cut_off_input_is_seen_at_the_end(void **state)
{
	(void)state;
	static const char in[] = "--XyZ\r\n" NAME_N "hello\r\n--XyZ--";
	for (size_t n = 0; n <= sizeof in - 1; n++) {
		struct run r;
		start(&r, TYPE);
		assert_int_equal(feed_piece(in, n, on_piece, &r), 0);
		bool whole = n == sizeof in - 1;
		assert_int_equal(multipart_finish(r.m, &r.err), whole ? 0 : -1);
		assert_int_equal(r.err.code, whole ? ERR_NONE : ERR_INVALID);
		stop(&r);
	}
}

static void a_header_has_a_limit(void **state)
{
	(void)state;
	static const char rest[] = "Content-Disposition: form-data; name=n\r\nX: ";
	for (size_t size = 8190; size < 8196; size++) {
		struct buf in = BUF(10000);
		buf_adds(&in, "--XyZ\r\n");
		size_t from = in.len;
		buf_adds(&in, rest);
		while (in.len - from < size - 4)
			buf_adds(&in, "x");
		buf_adds(&in, "\r\n\r\nd\r\n--XyZ--");
		for (size_t cut = 0; cut <= in.len + 1; cut += cut < 8000 && cut > 100 ? 500 : 1) {
			struct run r;
			start(&r, TYPE);
			int rc = feed_cut(in.p, in.len, cut, on_piece, &r);
			assert_int_equal(rc, size <= 8192 ? 0 : -1);
			assert_int_equal(r.err.code, rc ? ERR_INVALID : ERR_NONE);
			assert_string_equal(r.log.p, rc ? "" : "<n|->d</>");
			stop(&r);
		}
		buf_free(&in);
	}
}

static void an_endless_header_is_refused(void **state)
{
	(void)state;
	struct run r;
	start(&r, TYPE);
	assert_int_equal(on_piece(&r, LIT("--XyZ\r\nX: ")), 0);
	size_t fed = 0;
	while (!on_piece(&r, "xxxxxxxxxxxxxxxx", 16) && fed < 100000)
		fed += 16;
	assert_true(fed <= 8192);
	assert_int_equal(r.err.code, ERR_INVALID);
	stop(&r);
}

static void a_refusal_stops_the_decoder(void **state)
{
	(void)state;
	static const char in[] = "--XyZ\r\n" NAME_N "hello\r\n--XyZ--";
	for (enum refusal what = BEGIN; what <= END; what++) {
		for (size_t cut = 0; cut <= sizeof in; cut++) {
			struct run r;
			start(&r, TYPE);
			r.refuse = what;
			assert_int_equal(feed_cut(in, sizeof in - 1, cut, on_piece, &r), -1);
			assert_int_equal(r.err.code, ERR_DENIED);
			assert_string_equal(r.log.p, what == BEGIN  ? ""
						     : what == DATA ? "<n|->"
								    : "<n|->hello");
			assert_int_equal(multipart_feed(r.m, "x", 1, NULL), -1);
			stop(&r);
		}
	}
}

static void content_types_give_their_boundary(void **state)
{
	(void)state;
	static const struct {
		const char *type, *boundary;
	} rows[] = {
		{ "multipart/form-data; boundary=b", "b" },
		{ "Multipart/Form-Data;BOUNDARY=\"b\"", "b" },
		{ "multipart/form-data; charset=utf-8; boundary=a'()+_,-./:=?b ; x=y",
		  "a'()+_,-./:=?b" },
		{ "multipart/form-data; boundary=\"a b;c\"", "a b;c" },
		{ "multipart/form-data; boundary=\"a\\\"b\"", "a\"b" },
		{ "multipart/form-data; boundary=\"%22\"", "%22" },
		{ "multipart/form-data; boundary=----formdata-undici-081239552663",
		  "----formdata-undici-081239552663" },
		{ "multipart/form-data; boundary=--", "--" },
		{ "multipart/form-data; boundary=~!", "~!" },
		{ "multipart/form-data; boundary="
		  "1234567890123456789012345678901234567890123456789012345678901234567890",
		  "1234567890123456789012345678901234567890123456789012345678901234567890" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *b = rows[i].boundary;
		struct buf in = BUF(1000);
		buf_addf(&in, "--%s\r\n%sx\r\n--%s\r\n%sy\r\n--%s--\r\n", b, NAME_N, b, NAME_N, b);
		expect(rows[i].type, in.p, in.len, LIT("<n|->x</><n|->y</>"));
		buf_free(&in);
	}
}

static void other_content_types_are_refused(void **state)
{
	(void)state;
	static const char *const rows[] = {
		NULL,
		"",
		"multipart/form-data",
		"multipart/form-data;",
		"multipart/form-data; boundary",
		"multipart/form-data; boundary=",
		"multipart/form-data; boundary=\"\"",
		"multipart/form-data; boundary=\"b",
		"multipart/form-data; boundary=\"b \"",
		"multipart/form-data; boundary=\"a\r\nb\"",
		"multipart/form-data; boundary=\"a\tb\"",
		"multipart/form-data; boundary=\xc3\xbc",
		"multipart/form-data; boundary=a; boundary=b",
		"multipart/form-data; boundary=a, b",
		"multipart/form-data; xboundary=a",
		"multipart/form-data boundary=a",
		"multipart/mixed; boundary=a",
		"text/plain; boundary=a",
		"multipart/form-data; boundary="
		"12345678901234567890123456789012345678901234567890123456789012345678901",
		"multipart/form-data; boundary="
		"1234567890123456789012345678901234567890123456789012345678901234567890"
		"1234567890123456789012345678901234567890123456789012345678901234567890x",
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct multipart *m = NULL;
		struct err err = { 0 };
		if (!multipart_new(&m, rows[i], &ops, NULL, &err))
			fail_msg("%s was accepted", rows[i]);
		assert_int_equal(err.code, ERR_INVALID);
		assert_null(m);
	}
	multipart_free(NULL);
}

static void big_data_passes_in_large_pieces(void **state)
{
	(void)state;
	enum { N = 8 << 20, PIECE = 64 << 10 };
	struct buf in = BUF(N + 1000);
	buf_adds(&in, "--XyZ\r\n" NAME_N);
	size_t from = in.len;
	uint32_t seed = 1;
	char *data = buf_room(&in, N);
	assert_non_null(data);
	for (size_t i = 0; i < N; i++) {
		seed = seed * 1664525u + 1013904223u;
		data[i] = (char)(seed >> 24);
	}
	in.len += N;
	buf_adds(&in, "\r\n--XyZ--");

	struct run r;
	start(&r, TYPE);
	for (size_t i = 0; i < in.len; i += PIECE)
		assert_int_equal(on_piece(&r, in.p + i, in.len - i < PIECE ? in.len - i : PIECE),
				 0);
	assert_int_equal(multipart_finish(r.m, &r.err), 0);
	assert_int_equal(r.log.len, N + strlen("<n|-></>"));
	assert_memory_equal(r.log.p + strlen("<n|->"), in.p + from, N);
	/* One call for each piece, and a few more where a piece ended like a boundary begins. */
	assert_true(r.calls <= N / PIECE + 20);
	stop(&r);
	buf_free(&in);
}

static void many_parts_pass(void **state)
{
	(void)state;
	struct buf in = BUF(1 << 20);
	for (int i = 0; i < 5000; i++)
		buf_adds(&in, "--XyZ\r\n" NAME_N "x\r\n");
	buf_adds(&in, "--XyZ--");
	struct run r;
	start(&r, TYPE);
	assert_int_equal(on_piece(&r, in.p, in.len), 0);
	assert_int_equal(multipart_feed(r.m, NULL, 0, &r.err), 0);
	assert_int_equal(multipart_finish(r.m, &r.err), 0);
	assert_int_equal(r.log.len, 5000 * strlen("<n|->x</>"));
	stop(&r);
	buf_free(&in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_gives_the_same_parts),
		cmocka_unit_test(part_names_are_read),
		cmocka_unit_test(broken_headers_are_refused),
		cmocka_unit_test(broken_boundary_lines_are_refused),
		cmocka_unit_test(a_cut_off_input_is_seen_at_the_end),
		cmocka_unit_test(a_header_has_a_limit),
		cmocka_unit_test(an_endless_header_is_refused),
		cmocka_unit_test(a_refusal_stops_the_decoder),
		cmocka_unit_test(content_types_give_their_boundary),
		cmocka_unit_test(other_content_types_are_refused),
		cmocka_unit_test(big_data_passes_in_large_pieces),
		cmocka_unit_test(many_parts_pass),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
