#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "wire/lines.h"
#include "cuts.h"

struct run {
	struct lines lines;
	struct buf log;
	size_t refuse_at; /* the line that is refused, from 1; 0 for none */
	size_t seen;
	struct err err;
};

static int on_line(void *ctx, const char *line, size_t n, struct err *err)
{
	struct run *r = ctx;
	if (++r->seen == r->refuse_at)
		return err_set(err, ERR_CONFLICT, "refused");
	assert_int_equal(line[n], '\0');
	assert_int_equal(buf_addf(&r->log, "[%zu:", n), 0);
	assert_int_equal(buf_add(&r->log, line, n), 0);
	return buf_adds(&r->log, "]");
}

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct run *r = ctx;
	return lines_feed(&r->lines, p, n, on_line, r, &r->err);
}

static void start(struct run *r, size_t max, size_t refuse_at)
{
	*r = (struct run){ .log = BUF(16 << 20), .refuse_at = refuse_at };
	lines_init(&r->lines, max);
}

static void stop(struct run *r)
{
	lines_free(&r->lines);
	buf_free(&r->log);
}

static void every_cut_gives_the_same_lines(void **state)
{
	(void)state;
	static const char in[] = "\nabc\n\n{\"a\": 1}\r\n\xff\0x\n\0\nunfinished";
	static const char want[] = "[0:][3:abc][0:][9:{\"a\": 1}\r][3:\xff\0x][1:\0]";
	for (size_t cut = 0; cut <= sizeof in; cut++) {
		struct run r;
		start(&r, 10, 0);
		assert_int_equal(feed_cut(in, sizeof in - 1, cut, on_piece, &r), 0);
		assert_int_equal(r.log.len, sizeof want - 1);
		assert_memory_equal(r.log.p, want, sizeof want - 1);
		assert_int_equal(r.lines.in.len, 10);
		assert_string_equal(r.lines.in.p, "unfinished");
		stop(&r);
	}
}

static void a_line_over_the_maximum_is_refused(void **state)
{
	(void)state;
	static const char *const rows[] = { "ok\n12345\n", "ok\n12345", "ok\n123456789\nmore\n" };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i]);
		for (size_t cut = 0; cut <= n + 1; cut++) {
			struct run r;
			start(&r, 4, 0);
			assert_int_equal(feed_cut(rows[i], n, cut, on_piece, &r), -1);
			assert_int_equal(r.err.code, ERR_LIMIT);
			assert_string_equal(r.log.p, "[2:ok]");
			stop(&r);
		}
	}
}

static void a_line_of_the_maximum_passes(void **state)
{
	(void)state;
	for (size_t cut = 0; cut <= 11; cut++) {
		struct run r;
		start(&r, 4, 0);
		assert_int_equal(feed_cut("1234\n5678\n", 10, cut, on_piece, &r), 0);
		assert_string_equal(r.log.p, "[4:1234][4:5678]");
		stop(&r);
	}
}

static void a_maximum_of_nothing_passes_empty_lines(void **state)
{
	(void)state;
	struct run r;
	start(&r, 0, 0);
	assert_int_equal(on_piece(&r, "\n\n", 2), 0);
	assert_int_equal(r.seen, 2);
	assert_int_equal(on_piece(&r, "x", 1), -1);
	assert_int_equal(r.err.code, ERR_LIMIT);
	stop(&r);
}

static void a_refusal_stops_the_decoder(void **state)
{
	(void)state;
	for (size_t cut = 0; cut <= 7; cut++) {
		struct run r;
		start(&r, 4, 2);
		assert_int_equal(feed_cut("a\nb\nc\n", 6, cut, on_piece, &r), -1);
		assert_int_equal(r.err.code, ERR_CONFLICT);
		assert_int_equal(r.seen, 2);
		assert_string_equal(r.log.p, "[1:a]");
		stop(&r);
	}
}

static void empty_input_is_fine(void **state)
{
	(void)state;
	struct run r;
	start(&r, 4, 0);
	assert_int_equal(lines_feed(&r.lines, NULL, 0, on_line, &r, &r.err), 0);
	assert_int_equal(r.seen, 0);
	lines_free(&r.lines);
	stop(&r);
}

static void huge_lines_pass_in_pieces(void **state)
{
	(void)state;
	enum { N = 3 << 20 };
	char *in = malloc(N + 1);
	assert_non_null(in);
	memset(in, 'x', N);
	in[N] = '\n';
	struct run r;
	start(&r, N, 0);
	for (size_t i = 0; i < N + 1; i += 4093) {
		size_t left = N + 1 - i;
		assert_int_equal(on_piece(&r, in + i, left < 4093 ? left : 4093), 0);
	}
	assert_int_equal(r.seen, 1);
	assert_int_equal(r.log.len, N + strlen("[3145728:]"));
	stop(&r);

	memset(in, '\n', N);
	start(&r, 1, 0);
	assert_int_equal(on_piece(&r, in, N), 0);
	assert_int_equal(r.seen, N);
	stop(&r);
	free(in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_gives_the_same_lines),
		cmocka_unit_test(a_line_over_the_maximum_is_refused),
		cmocka_unit_test(a_line_of_the_maximum_passes),
		cmocka_unit_test(a_maximum_of_nothing_passes_empty_lines),
		cmocka_unit_test(a_refusal_stops_the_decoder),
		cmocka_unit_test(empty_input_is_fine),
		cmocka_unit_test(huge_lines_pass_in_pieces),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
