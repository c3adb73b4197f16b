/* The E2B client against a server that misbehaves by a script: what is repeated, what never is, and
 * what is said about it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <signal.h>

#include "base/clock.h"
#include "e2b/remote_files.h"
#include "e2b/run.h"
#include "fake_server.h"

#define KEY          "e2b_0123456789abcdef"
#define OK           "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
#define NO_CONTENT   "HTTP/1.1 204 No Content\r\n\r\n"
#define EMPTY_LIST   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
#define STATUS(line) "HTTP/1.1 " line "\r\nContent-Length: 0\r\n\r\n"
#define CREATED                                                                                    \
	"HTTP/1.1 201 Created\r\nConnection: "                                                     \
	"close\r\n\r\n{\"sandboxID\":\"iabc\",\"templateID\":\"t\",\"clientID\":\"c\","            \
	"\"envdVersion\":\"0.6.13\",\"envdAccessToken\":\"tok\",\"trafficAccessToken\":null,"      \
	"\"domain\":null}"
#define STREAM   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#define LINE_OUT "24\r\n{\"type\": \"stdout\", \"text\": \"hello\"}\n\r\n"
#define LINE_END "1d\r\n{\"type\": \"end_of_execution\"}\n\r\n"

static const struct e2b_create what = { .template_id = "t", .timeout_secs = 60 };
static const struct e2b_sandbox sandbox = { .id = "iabc", .token = "tok_secret" };
static const struct e2b_code code = { .code = "1", .ncode = 1 };

/* A server with its script, a client for it, and what came out. */
struct bench {
	struct fake fake;
	struct e2b *c;
	struct err err;
	struct e2b_sandbox made;
	int events, rc;
	int64_t since;
};

static void open_bench(struct bench *b, const struct fake_reply *replies, size_t n)
{
	char url[64];
	memset(b, 0, sizeof *b);
	fake_start(&b->fake, replies, n, NULL);
	snprintf(url, sizeof url, "http://127.0.0.1:%d", b->fake.port);
	const struct e2b_config config = { .api_key = KEY, .api_url = url, .sandbox_url = url };
	assert_int_equal(e2b_new(&b->c, &config, &b->err), 0);
	b->since = clock_mono_us();
}

static void close_bench(struct bench *b)
{
	e2b_free(b->c);
	fake_stop(&b->fake);
}

static int64_t elapsed_ms(const struct bench *b)
{
	return (clock_mono_us() - b->since) / 1000;
}

static void create(struct bench *b, int64_t ms)
{
	struct e2b_wait wait = { .deadline_mono_us = ms ? clock_mono_us() + ms * 1000 : 0 };
	b->rc = e2b_create(b->c, &what, &b->made, &wait, &b->err);
}

static int count(void *ctx, const struct e2b_event *event)
{
	(void)event;
	++*(int *)ctx;
	return 0;
}

static void execute(struct bench *b)
{
	b->rc = e2b_run_code(b->c, &sandbox, &code, count, &b->events, NULL, &b->err);
}

#define OPEN(b, ...)                                                                               \
	static const struct fake_reply script[] = { __VA_ARGS__ };                                 \
	struct bench b;                                                                            \
	(void)state;                                                                               \
	open_bench(&b, script, sizeof script / sizeof *script)

static void an_older_server_is_asked_in_its_own_way(void **state)
{
	OPEN(b, { STATUS("404 Not Found"), FAKE_KEEP }, { CREATED, FAKE_CLOSE },
	     { CREATED, FAKE_CLOSE }, { STATUS("405 Method Not Allowed"), FAKE_KEEP },
	     { CREATED, FAKE_CLOSE });
	create(&b, 0);
	assert_int_equal(b.rc, 0);
	assert_string_equal(b.made.id, "iabc");
	assert_string_equal(b.made.token, "tok");
	assert_string_equal(b.made.domain, "");
	create(&b, 0);
	assert_int_equal(b.rc, 0);
	bool resumed = false;
	assert_int_equal(e2b_connect(b.c, "iabc", 30, &b.made, &resumed, NULL, &b.err), 0);
	assert_true(resumed);
	assert_int_equal(b.fake.requests, 5);
	static const char *const lines[] = { "POST /v2/sandboxes HTTP", "POST /sandboxes HTTP",
					     "POST /sandboxes HTTP",
					     "POST /v2/sandboxes/iabc/connect",
					     "POST /sandboxes/iabc/connect" };
	for (int i = 0; i < 5; i++)
		assert_ptr_equal(strstr(b.fake.seen[i], lines[i]), b.fake.seen[i]);
	assert_null(strstr(b.fake.seen[0], "secure"));
	assert_non_null(strstr(b.fake.seen[1], "\"secure\":true"));
	assert_non_null(strstr(b.fake.seen[4], "{\"timeout\":30}"));
	assert_non_null(strstr(b.fake.seen[0], "\r\nX-API-Key: " KEY "\r\n"));
	assert_non_null(strstr(b.fake.seen[0], "\r\nUser-Agent: sandgate/"));
	assert_null(strcasestr(b.fake.seen[0], "accept-encoding"));
	close_bench(&b);
}

static void a_404_of_both_is_about_the_template(void **state)
{
	OPEN(b, { STATUS("404 Not Found"), FAKE_KEEP }, { STATUS("404 Not Found"), FAKE_KEEP });
	create(&b, 0);
	assert_int_equal(b.rc, -1);
	assert_int_equal(b.err.code, ERR_NOT_FOUND);
	assert_int_equal(b.fake.requests, 2);
	close_bench(&b);
}

static void create_waits_as_long_as_it_is_told(void **state)
{
	OPEN(b, { "HTTP/1.1 429 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", FAKE_KEEP },
	     { STATUS("503 Busy"), FAKE_KEEP }, { CREATED, FAKE_CLOSE });
	create(&b, 0);
	assert_int_equal(b.rc, 0);
	assert_int_equal(b.fake.requests, 3);
	assert_int_equal(e2b_last(b.c)->tries, 3);
	assert_int_equal(e2b_last(b.c)->status, 201);
	assert_in_range(elapsed_ms(&b), 1000, 3500);
	close_bench(&b);
}

static void create_does_not_wait_in_vain(void **state)
{
	OPEN(b, { "HTTP/1.1 429 No\r\nRetry-After: 100\r\nContent-Length: 0\r\n\r\n", FAKE_KEEP },
	     { STATUS("429 Full"), FAKE_KEEP });
	create(&b, 5000);
	assert_int_equal(b.err.code, ERR_LIMIT);
	create(&b, 5000);
	assert_int_equal(b.err.code, ERR_LIMIT);
	assert_int_equal(b.fake.requests, 2);
	assert_in_range(elapsed_ms(&b), 0, 2000);
	close_bench(&b);
}

/* Each of these is sent once, and nobody knows what became of it. */
static void create_is_never_repeated_blindly(void **state)
{
	OPEN(b, { NULL, FAKE_CLOSE }, { NULL, FAKE_RESET }, { STATUS("500 Oops"), FAKE_KEEP },
	     { STATUS("502 Bad"), FAKE_KEEP }, { STATUS("504 Late"), FAKE_KEEP },
	     { "HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\ngarbage", FAKE_KEEP },
	     { "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", FAKE_KEEP },
	     { "HTTP/1.1 201 Created\r\nContent-Length: 70\r\n\r\n{\"sandb", FAKE_CLOSE },
	     { "garbage\r\n\r\n", FAKE_CLOSE }, { NULL, FAKE_HANG });
	for (int i = 1; i <= 10; i++) {
		create(&b, i == 10 ? 300 : 0);
		assert_int_equal(b.rc, -1);
		if (b.err.code != (i == 10 ? ERR_TIMEOUT : ERR_UNKNOWN_OUTCOME))
			fail_msg("case %d: %d %s", i, b.err.code, b.err.text);
		assert_int_equal(e2b_last(b.c)->why, E2B_WHY_OTHER);
		assert_int_equal(b.fake.requests, i);
	}
	close_bench(&b);
}

/* libcurl itself would send a POST again when a kept connection dies without an answer. */
static void nothing_is_repeated_on_a_kept_connection(void **state)
{
	OPEN(b, { NO_CONTENT, FAKE_KEEP }, { NULL, FAKE_CLOSE }, { NO_CONTENT, FAKE_KEEP },
	     { NULL, FAKE_RESET }, { NO_CONTENT, FAKE_KEEP }, { NULL, FAKE_CLOSE },
	     { CREATED, FAKE_CLOSE }, { CREATED, FAKE_CLOSE });
	assert_int_equal(e2b_set_timeout(b.c, "iabc", 9, NULL, &b.err), 0);
	create(&b, 0);
	assert_int_equal(b.err.code, ERR_UNKNOWN_OUTCOME);
	assert_int_equal(b.fake.requests, 2);
	assert_int_equal(e2b_set_timeout(b.c, "iabc", 9, NULL, &b.err), 0);
	create(&b, 0);
	assert_int_equal(b.err.code, ERR_UNKNOWN_OUTCOME);
	assert_int_equal(b.fake.requests, 4);
	assert_int_equal(e2b_alive(b.c, &sandbox, NULL, &b.err), 0);
	execute(&b);
	assert_int_equal(b.err.code, ERR_UNKNOWN_OUTCOME);
	assert_int_equal(b.fake.requests, 6);
	close_bench(&b);
}

static void what_does_no_harm_is_repeated(void **state)
{
	OPEN(b, { STATUS("502 Bad"), FAKE_KEEP }, { NULL, FAKE_CLOSE }, { NO_CONTENT, FAKE_KEEP },
	     { STATUS("404 Gone"), FAKE_KEEP }, { STATUS("500 Oops"), FAKE_KEEP },
	     { STATUS("500 Oops"), FAKE_KEEP }, { STATUS("500 Oops"), FAKE_KEEP });
	bool was_there = false;
	assert_int_equal(e2b_kill(b.c, "iabc", &was_there, NULL, &b.err), 0);
	assert_true(was_there);
	assert_int_equal(b.fake.requests, 3);
	assert_int_equal(e2b_kill(b.c, "iabc", &was_there, NULL, &b.err), 0);
	assert_false(was_there);
	assert_int_equal(e2b_set_timeout(b.c, "iabc", 9, NULL, &b.err), -1);
	assert_int_equal(b.err.code, ERR_INTERNAL);
	assert_int_equal(b.fake.requests, 7);
	close_bench(&b);
}

static void nothing_listens(void **state)
{
	OPEN(b, { CREATED, FAKE_CLOSE });
	fake_stop(&b.fake);
	create(&b, 0);
	assert_int_equal(b.err.code, ERR_UNAVAILABLE);
	assert_int_equal(e2b_last(b.c)->why, E2B_WHY_NOT_SENT);
	assert_int_equal(e2b_last(b.c)->tries, 3);
	execute(&b);
	assert_int_equal(b.err.code, ERR_UNAVAILABLE);
	assert_int_equal(e2b_last(b.c)->why, E2B_WHY_NOT_SENT);
	assert_int_equal(e2b_last(b.c)->tries, 1);
	e2b_free(b.c);
}

static int count_bytes(void *ctx, const char *p, size_t n)
{
	(void)p;
	*(int64_t *)ctx += (int64_t)n;
	return 0;
}

static void streams_that_break(void **state)
{
	OPEN(b, { STREAM LINE_OUT, FAKE_CLOSE }, { STREAM LINE_OUT "0\r\n\r\n", FAKE_KEEP },
	     { STREAM "8\r\ngarbage\n\r\n", FAKE_CLOSE }, { STREAM "zz\r\n", FAKE_CLOSE },
	     { STREAM LINE_OUT LINE_END, FAKE_CLOSE }, { STATUS("504 Late"), FAKE_KEEP },
	     { STATUS("503 Busy"), FAKE_KEEP }, { STATUS("500 Oops"), FAKE_KEEP },
	     { STATUS("502 Bad"), FAKE_KEEP }, { STATUS("409 Moving"), FAKE_KEEP },
	     { STREAM "5\r\n\1\1\1\1\1\r\n0\r\n\r\n", FAKE_CLOSE },
	     { "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", FAKE_CLOSE });
	static const struct {
		enum err_code code;
		int events;
	} rows[] = { { ERR_UNKNOWN_OUTCOME, 2 },
		     { ERR_UNKNOWN_OUTCOME, 2 },
		     { ERR_UNKNOWN_OUTCOME, 1 },
		     { ERR_UNKNOWN_OUTCOME, 1 },
		     { ERR_NONE, 3 },
		     { ERR_UNKNOWN_OUTCOME, 0 },
		     { ERR_UNAVAILABLE, 0 },
		     { ERR_UNKNOWN_OUTCOME, 0 },
		     { ERR_UNKNOWN_OUTCOME, 0 },
		     { ERR_UNAVAILABLE, 0 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		b.events = 0;
		b.err.code = ERR_NONE;
		execute(&b);
		assert_int_equal(b.rc, rows[i].code ? -1 : 0);
		if (b.err.code != rows[i].code || b.events != rows[i].events)
			fail_msg("case %zu: %d events, %d %s", i, b.events, b.err.code, b.err.text);
	}
	const struct e2b_command command = { .argv = (const char *const[]){ "x", NULL } };
	assert_int_equal(e2b_run_command(b.c, &sandbox, &command, count, &b.events, NULL, &b.err),
			 -1);
	assert_int_equal(b.err.code, ERR_UNKNOWN_OUTCOME);
	int64_t bytes = 0;
	assert_int_equal(e2b_read(b.c, &sandbox, "/x", count_bytes, &bytes, NULL, &b.err), -1);
	assert_int_equal(b.err.code, ERR_UNAVAILABLE);
	assert_int_equal(bytes, 4);
	close_bench(&b);
}

static int closed(void *ctx, unsigned ready)
{
	int *calls = ctx;
	++*calls;
	return ready ? -1 : 0;
}

static void deadlines_and_departures_are_exact(void **state)
{
	OPEN(b, { STREAM LINE_OUT, FAKE_HANG }, { STREAM LINE_OUT, FAKE_HANG }, { NULL, FAKE_HANG },
	     { STREAM LINE_OUT, FAKE_HANG });
	int pipes[2], ticks = 0;
	struct e2b_wait wait = { .deadline_mono_us = clock_mono_us() + 250 * 1000 };
	b.rc = e2b_run_code(b.c, &sandbox, &code, count, &b.events, &wait, &b.err);
	assert_int_equal(b.err.code, ERR_TIMEOUT);
	assert_in_range(elapsed_ms(&b), 250, 400);

	/* A pipe whose other end is closed hangs up and never becomes readable. */
	assert_int_equal(pipe(pipes), 0);
	close(pipes[1]);
	wait = (struct e2b_wait){ .fds = { pipes[0] }, .nfds = 1, .tick = closed, .ctx = &ticks };
	for (int i = 0; i < 2; i++) {
		b.since = clock_mono_us();
		b.rc = e2b_run_code(b.c, &sandbox, &code, count, &b.events, &wait, &b.err);
		assert_int_equal(b.err.code, ERR_ABANDONED);
		assert_in_range(elapsed_ms(&b), 0, 150);
	}
	assert_int_equal(ticks, 2);
	close(pipes[0]);

	wait = (struct e2b_wait){ .tick = closed, .ctx = &ticks };
	wait.deadline_mono_us = clock_mono_us() + 2300 * 1000;
	b.rc = e2b_run_code(b.c, &sandbox, &code, count, &b.events, &wait, &b.err);
	assert_int_equal(b.err.code, ERR_TIMEOUT);
	assert_int_equal(ticks, 4);
	close_bench(&b);
}

static int one_more(void *ctx, const struct e2b_info *info)
{
	assert_string_equal(e2b_metadata(info, "k"), "v");
	assert_int_equal(info->end_us - info->started_us, 300 * SECOND_US);
	++*(int *)ctx;
	return 0;
}

#define PAGE(token)                                                                                \
	"HTTP/1.1 200 OK\r\nX-Next-Token: " token "\r\nContent-Length: 136\r\n\r\n"                \
	"[{\"sandboxID\":\"iabc\",\"state\":\"running\",\"startedAt\":\"2026-01-01T00:00:00Z\","   \
	"\"endAt\":\"2026-01-01T00:05:00.000Z\",\"metadata\":{\"k\":\"v\"}}  ]   "

static void lists_have_pages(void **state)
{
	OPEN(b, { PAGE("a+b="), FAKE_KEEP }, { STATUS("503 Busy"), FAKE_KEEP },
	     { PAGE("c"), FAKE_KEEP }, { EMPTY_LIST, FAKE_KEEP }, { PAGE("same"), FAKE_KEEP },
	     { PAGE("same"), FAKE_KEEP },
	     { "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", FAKE_KEEP });
	const struct e2b_pair pair = { "k", "v" };
	const struct e2b_filter filter = { .metadata = &pair, .nmetadata = 1, .state = "running" };
	int found = 0;
	assert_int_equal(e2b_list(b.c, &filter, one_more, &found, NULL, &b.err), 0);
	assert_int_equal(found, 2);
	assert_non_null(strstr(b.fake.seen[0], "&metadata=k%3Dv&state=running HTTP"));
	assert_non_null(strstr(b.fake.seen[2], "&nextToken=a%2Bb%3D HTTP"));
	assert_int_equal(e2b_list(b.c, NULL, one_more, &found, NULL, &b.err), -1);
	assert_int_equal(b.err.code, ERR_INTERNAL);
	assert_int_equal(e2b_list(b.c, NULL, one_more, &found, NULL, &b.err), -1);
	assert_int_equal(b.err.code, ERR_INTERNAL);
	close_bench(&b);
}

static void secrets_stay_out_of_errors(void **state)
{
	OPEN(b,
	     { "HTTP/1.1 401 No\r\nConnection: close\r\n\r\n{\"code\":401,\"message\":\"bad " KEY
	       "\"}",
	       FAKE_CLOSE },
	     { "HTTP/1.1 403 No\r\nConnection: close\r\n\r\nno: tok_secret", FAKE_CLOSE });
	create(&b, 0);
	assert_int_equal(b.err.code, ERR_DENIED);
	assert_null(strstr(b.err.text, "0123456789"));
	assert_non_null(strstr(b.err.text, "bad ****"));
	execute(&b);
	assert_int_equal(b.err.code, ERR_DENIED);
	assert_null(strstr(b.err.text, "secret"));
	close_bench(&b);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("no_proxy", "*", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_older_server_is_asked_in_its_own_way),
		cmocka_unit_test(a_404_of_both_is_about_the_template),
		cmocka_unit_test(create_waits_as_long_as_it_is_told),
		cmocka_unit_test(create_does_not_wait_in_vain),
		cmocka_unit_test(create_is_never_repeated_blindly),
		cmocka_unit_test(nothing_is_repeated_on_a_kept_connection),
		cmocka_unit_test(what_does_no_harm_is_repeated),
		cmocka_unit_test(nothing_listens),
		cmocka_unit_test(streams_that_break),
		cmocka_unit_test(deadlines_and_departures_are_exact),
		cmocka_unit_test(lists_have_pages),
		cmocka_unit_test(secrets_stay_out_of_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
