/* The E2B client's pure parts: addresses, bodies, errors, and the two streams of events. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "e2b/address.h"
#include "e2b/answer.h"
#include "e2b/bodies.h"
#include "e2b/remote_files.h"
#include "e2b/streams.h"
#include "cuts.h"

static void settings_as_the_sdk_reads_them(void **state)
{
	(void)state;
	static const struct {
		struct e2b_config in;
		const char *api, *sandbox, *domain;
		bool fixed;
	} rows[] = {
		{ { 0 }, "https://api.e2b.app", "https://sandbox.e2b.app", "e2b.app", false },
		{ { .domain = "" },
		  "https://api.e2b.app",
		  "https://sandbox.e2b.app",
		  "e2b.app",
		  false },
		{ { .domain = "https://x.dev/" },
		  "https://api.x.dev",
		  "https://sandbox.x.dev",
		  "x.dev",
		  false },
		{ { .domain = "http://x.dev//" },
		  "https://api.x.dev",
		  "https://sandbox.x.dev",
		  "x.dev",
		  false },
		{ { .domain = "x.dev:8443" },
		  "https://api.x.dev:8443",
		  "https://sandbox.x.dev:8443",
		  "x.dev:8443",
		  false },
		{ { .api_url = "http://h:1/base/", .sandbox_url = "http://h:2/" },
		  "http://h:1/base",
		  "http://h:2",
		  "e2b.app",
		  true },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct address a;
		struct err err;
		assert_int_equal(address_init(&a, &rows[i].in, &err), 0);
		assert_string_equal(a.api, rows[i].api);
		assert_string_equal(a.sandbox, rows[i].sandbox);
		assert_string_equal(a.domain, rows[i].domain);
		assert_int_equal(a.fixed, rows[i].fixed);
	}
	static const struct e2b_config bad[] = {
		{ .domain = "/" },
		{ .domain = "a b" },
		{ .domain = "x.dev/path" },
		{ .domain = "a@b" },
		{ .api_url = "h:1" },
		{ .api_url = "ftp://h" },
		{ .api_url = "https://" },
		{ .api_url = "http://a\r\nX: y" },
		{ .sandbox_url = "http://a?b" },
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct address a;
		struct err err;
		assert_int_equal(address_init(&a, &bad[i], &err), -1);
		assert_int_equal(err.code, ERR_INVALID);
	}
}

static void ids_and_hosts(void **state)
{
	(void)state;
	static const char *const good[] = { "i1a2b3c4d5e6f7g8h9j0k", "i1a2-6532622b", "a" };
	static const char *const bad[] = { "", "-a", "a/b", "..", "a?x", "a b", "a\n", "%41" };
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_int_equal(address_check_id(good[i], NULL), 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(address_check_id(bad[i], NULL), -1);
	assert_int_equal(address_check_id(NULL, NULL), -1);
	struct address a;
	struct buf out = BUF(1000);
	struct e2b_sandbox sb = { .id = "iabc" };
	assert_int_equal(address_init(&a, &(struct e2b_config){ 0 }, NULL), 0);
	assert_int_equal(address_by_host(&a, &sb, 49999, &out), 0);
	assert_string_equal(out.p, "https://49999-iabc.e2b.app");
	buf_drop(&out, out.len);
	snprintf(sb.domain, sizeof sb.domain, "other.dev");
	assert_int_equal(address_by_host(&a, &sb, 3000, &out), 0);
	assert_string_equal(out.p, "https://3000-iabc.other.dev");
	buf_free(&out);
}

static void signatures(void **state)
{
	(void)state;
	static const char token[] = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
	struct buf out = BUF(1000);
	assert_int_equal(address_sign(&out, "hello.txt", "read", "user", token, 0), 0);
	assert_string_equal(out.p, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
	buf_drop(&out, out.len);
	struct e2b_sandbox sb = { .id = "iabc" };
	struct err err;
	snprintf(sb.token, sizeof sb.token, "%s", token);
	assert_int_equal(e2b_file_query(&sb, "/a b/\xc3\xbc", false, 1794793421, &out, &err), 0);
	assert_ptr_equal(strstr(out.p, "/files?path=%2Fa%20b%2F%C3%BC&signature=v1_"), out.p);
	assert_non_null(strstr(out.p, "&signature_expiration=1794793421"));
	assert_null(strpbrk(out.p, "+ "));
	assert_null(strstr(out.p, token));
	buf_drop(&out, out.len);
	sb.token[0] = '\0';
	assert_int_equal(e2b_file_query(&sb, "x", true, 0, &out, &err), 0);
	assert_string_equal(out.p, "/files?path=x");
	buf_free(&out);
	out = BUF(20);
	assert_int_equal(e2b_file_query(&sb, "/long/long/long", true, 0, &out, &err), -1);
	buf_free(&out);
}

static void bodies(void **state)
{
	(void)state;
	static const struct e2b_pair meta[] = { { "a b", "c&d" }, { "x", "y" } };
	static const struct e2b_pair envs[] = { { "A", "\"1\"" } };
	const struct e2b_create create = { .template_id = "base",
					   .timeout_secs = 60,
					   .no_internet = true,
					   .metadata = meta,
					   .nmetadata = 2,
					   .envs = envs,
					   .nenvs = 1 };
	struct buf out = BUF(4096);
	assert_int_equal(query_metadata(&out, meta, 2), 0);
	assert_string_equal(out.p, "a%252520b%3Dc%252526d%26x%3Dy");
	buf_drop(&out, out.len);
	assert_int_equal(body_create(&out, &create, false), 0);
	assert_string_equal(out.p,
			    "{\"templateID\":\"base\",\"timeout\":60,\"allow_internet_access\":"
			    "false,\"metadata\":{\"a b\":\"c&d\",\"x\":\"y\"},"
			    "\"envVars\":{\"A\":\"\\\"1\\\"\"}}");
	buf_drop(&out, out.len);
	assert_int_equal(body_create(&out, &create, true), 0);
	assert_non_null(strstr(out.p, ",\"secure\":true}"));
	buf_drop(&out, out.len);
	const struct e2b_code code = {
		.code = "1\n\0", .ncode = 3, .language = "js", .envs = envs, .nenvs = 1
	};
	assert_int_equal(body_code(&out, &code), 0);
	assert_string_equal(out.p, "{\"code\":\"1\\n\\u0000\",\"language\":\"js\","
				   "\"env_vars\":{\"A\":\"\\\"1\\\"\"}}");
	buf_drop(&out, out.len);
	const struct e2b_command command = {
		.argv = (const char *const[]){ "/bin/sh", "-c", "echo '", NULL }, .cwd = "/tmp"
	};
	assert_int_equal(body_command(&out, &command), 0);
	assert_string_equal(out.p, "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"echo '\"],"
				   "\"cwd\":\"/tmp\"},\"stdin\":false}");
	buf_free(&out);
}

static void failures(void **state)
{
	(void)state;
	static const struct {
		enum plane plane;
		int status;
		const char *body;
		enum err_code code;
		enum e2b_why why;
	} rows[] = {
		{ PLANE_CONTROL, 401, "{\"code\":401,\"message\":\"no\"}", ERR_DENIED,
		  E2B_WHY_OTHER },
		{ PLANE_CONTROL, 403, "", ERR_DENIED, E2B_WHY_OTHER },
		{ PLANE_CONTROL, 404, "", ERR_NOT_FOUND, E2B_WHY_NO_SANDBOX },
		{ PLANE_CONTROL, 429, "<html>", ERR_LIMIT, E2B_WHY_OTHER },
		{ PLANE_CONTROL, 502, "{\"message\":\"The sandbox was not found\"}",
		  ERR_UNAVAILABLE, E2B_WHY_OTHER },
		{ PLANE_CONTROL, 500, "{\"code\":", ERR_INTERNAL, E2B_WHY_OTHER },
		{ PLANE_DATA, 502,
		  "{\"sandboxId\":\"i\",\"message\":\"The sandbox was not found\",\"code\":502}",
		  ERR_NOT_FOUND, E2B_WHY_NO_SANDBOX },
		{ PLANE_DATA, 502,
		  "{\"message\":\"The sandbox is running but port is not open\",\"port\":49999}",
		  ERR_UNAVAILABLE, E2B_WHY_PORT_CLOSED },
		{ PLANE_DATA, 502, "Failed to route request to sandbox", ERR_UNAVAILABLE,
		  E2B_WHY_OTHER },
		{ PLANE_DATA, 404, "{\"code\":\"not_found\",\"message\":\"m\"}", ERR_NOT_FOUND,
		  E2B_WHY_OTHER },
		{ PLANE_DATA, 507, "{\"code\":507,\"message\":\"m\"}", ERR_NO_SPACE,
		  E2B_WHY_OTHER },
		{ PLANE_DATA, 409, "{\"code\":\"already_exists\"}", ERR_EXISTS, E2B_WHY_OTHER },
		{ PLANE_DATA, 409, "x", ERR_UNAVAILABLE, E2B_WHY_OTHER },
		{ PLANE_DATA, 504, "{\"code\":\"deadline_exceeded\"}", ERR_TIMEOUT, E2B_WHY_OTHER },
		{ PLANE_DATA, 418, "", ERR_INTERNAL, E2B_WHY_OTHER },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err err;
		enum e2b_why why;
		size_t n = strlen(rows[i].body);
		char *body = malloc(n + 1);
		memcpy(body, rows[i].body, n + 1);
		assert_int_equal(
			answer_fail(rows[i].plane, "it", rows[i].status, body, n, &why, &err), -1);
		free(body);
		if (err.code != rows[i].code || why != rows[i].why)
			fail_msg("row %zu: %s", i, err.text);
	}
	assert_true(answer_is_misrouted(400, LIT("Invalid host")));
	assert_true(answer_is_misrouted(404, LIT("404 page not found")));
	assert_true(answer_is_misrouted(404, LIT("")));
	assert_false(answer_is_misrouted(404, LIT("{\"code\":404,\"message\":\"no file\"}")));
	assert_false(answer_is_misrouted(502, LIT("text")));
	assert_false(answer_is_misrouted(204, LIT("")));
}

static void secrets_are_blotted_out(void **state)
{
	(void)state;
	struct err err;
	err_set(&err, ERR_DENIED, "key e2b_12345 and e2b_12345, or e2b_123");
	answer_scrub(&err, "e2b_12345");
	assert_string_equal(err.text, "key ********* and *********, or *******");
	answer_scrub(&err, "");
	answer_scrub(NULL, "x");
}

/* json-c alone makes U+FFFD of the first two. */
static void escaped_pairs_are_characters(void **state)
{
	(void)state;
	static const char json[] = "[\"\\ud836\\ude00\", \"\\uD837\\uDFFF!\", \"\\ud83d\\ude42\"]";
	static const char *const want[] = { "\xf0\x9d\xa8\x80", "\xf0\x9d\xbf\xbf!",
					    "\xf0\x9f\x99\x82" };
	struct json_object *o = NULL;
	assert_int_equal(json_read(&o, LIT(json), NULL), 0);
	for (size_t i = 0; i < 3; i++)
		assert_string_equal(json_object_get_string(json_object_array_get_idx(o, i)),
				    want[i]);
	json_drop(&o);
}

static void json_that_is_none(void **state)
{
	(void)state;
	static const char *const bad[] = { "", "{", "{}x", "nul", "{\"a\":1}{", "[1,]" };
	struct json_object *o = NULL;
	struct err err;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		if (json_read(&o, bad[i], strlen(bad[i]), &err) == 0)
			fail_msg("'%s' was accepted", bad[i]);
		assert_int_equal(err.code, ERR_INTERNAL);
	}
	char deep[400];
	memset(deep, '[', 200);
	memset(deep + 200, ']', 200);
	assert_int_equal(json_read(&o, deep, sizeof deep, &err), -1);
	assert_int_equal(json_read(&o, LIT(" {\"size\":\"12\",\"n\":3,\"t\":true} \n"), &err), 0);
	assert_int_equal(json_integer(o, "size", 0), 12);
	assert_int_equal(json_integer(o, "n", 0), 3);
	assert_int_equal(json_integer(o, "none", 7), 7);
	assert_true(json_true(o, "t"));
	assert_null(json_text(o, "n"));
	json_drop(&o);
	assert_null(json_member(NULL, "x"));
}

/* ---- streams ---- */

struct seen {
	struct stream stream;
	int (*feed)(struct stream *, const char *, size_t, struct err *);
	struct buf log;
	int later; /* how often each event is put off before it is taken */
	int put_off;
	struct err err;
};

static int on_event(void *ctx, const struct e2b_event *e)
{
	struct seen *s = ctx;
	if (s->put_off < s->later) {
		s->put_off++;
		return E2B_LATER;
	}
	s->put_off = 0;
	switch (e->type) {
	case E2B_RUNS:
		return buf_addf(&s->log, "runs %d|", e->pid);
	case E2B_COUNT:
		return buf_addf(&s->log, "count %d|", (int)e->count);
	case E2B_STDOUT:
	case E2B_STDERR:
		assert_int_equal(e->text[e->ntext], '\0');
		buf_adds(&s->log, e->type == E2B_STDOUT ? "out " : "err ");
		buf_add(&s->log, e->text, e->ntext);
		return buf_adds(&s->log, "|");
	case E2B_RESULT:
		return buf_addf(&s->log, "result %s|", json_text(e->result, "text"));
	case E2B_ERROR:
		return buf_addf(&s->log, "error %s,%s,%s|", e->name, e->value, e->traceback);
	case E2B_END:
		return buf_addf(&s->log, "end %d %d %s|", e->exit_code, e->exited, e->status);
	}
	return -1;
}

static int on_piece(void *ctx, const char *p, size_t n)
{
	struct seen *s = ctx;
	int rc;
	while ((rc = s->feed(&s->stream, p, n, &s->err)) > 0)
		if (stream_again(&s->stream, &s->err) < 0)
			return -1;
	return rc;
}

static void each_cut(bool code, const char *in, size_t n, const char *want)
{
	for (int later = 0; later < 3; later++)
		for (size_t cut = 0; cut <= n + 1; cut++) {
			struct seen s = { .log = BUF(1u << 20), .later = later };
			s.feed = code ? code_stream_feed : command_stream_feed;
			if (code)
				code_stream_init(&s.stream, on_event, &s);
			else
				command_stream_init(&s.stream, on_event, &s);
			if (code)
				assert_int_equal(code_stream_began(&s.stream, &s.err), 0);
			assert_int_equal(feed_cut(in, n, cut, on_piece, &s), 0);
			while (stream_again(&s.stream, &s.err) > 0)
				;
			assert_int_equal(s.log.len, strlen(want));
			assert_string_equal(s.log.p, want);
			assert_true(s.stream.ended);
			stream_free(&s.stream);
			buf_free(&s.log);
		}
}

static void code_cut_at_every_byte(void **state)
{
	(void)state;
	static const char in[] =
		"{\"type\": \"number_of_executions\", \"execution_count\": 3}\n"
		"{\"type\": \"stdout\", \"text\": \"h\\u00fc\\n\", \"timestamp\": \"t\"}\n\n"
		"{\"type\": \"keepalive\"}\r\n"
		"{\"type\": \"stderr\", \"text\": \"\"}\n"
		"{\"type\": \"result\", \"text\": \"2\", \"extra\": {}, \"is_main_result\": true}\n"
		"{\"type\": \"something new\", \"text\": 5}\n"
		"{\"type\": \"error\", \"name\": \"E\", \"value\": \"v\", \"traceback\": \"t\"}\n"
		"{\"type\": \"end_of_execution\"}\n"
		"{\"type\": \"stdout\", \"text\": \"late\"}\n";
	each_cut(true, LIT(in),
		 "runs 0|count 3|out h\xc3\xbc\n|err |result 2|error E,v,t|end 0 0 |");
}

static void command_cut_at_every_byte(void **state)
{
	(void)state;
	static const struct {
		unsigned flags;
		const char *json;
	} parts[] = {
		{ 0, "{\"event\":{\"start\":{\"pid\":42}}}" },
		{ 0, "{ \"event\": {\"data\": {\"stdout\": \"aGkK\"}}}" },
		{ 0, "{\"event\":{\"keepalive\":{}}}" },
		{ 0, "{\"event\":{\"data\":{\"stderr\":\"/w==\"}}}" },
		{ 0, "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit status "
		     "3\"}}}" },
		{ CONNECT_END, "{}" },
	};
	struct buf in = BUF(4096);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		connect_put(&in, parts[i].flags, parts[i].json, strlen(parts[i].json));
	each_cut(false, in.p, in.len, "runs 42|out hi\n|err \xff|end 3 1 exit status 3|");
	buf_free(&in);
}

static void a_command_refused_in_its_stream(void **state)
{
	(void)state;
	static const char json[] = "{\"error\":{\"code\":\"invalid_argument\",\"message\":\"cwd "
				   "'/x' does not exist\"}}";
	struct seen s = { .log = BUF(4096) };
	struct buf in = BUF(4096);
	command_stream_init(&s.stream, on_event, &s);
	connect_put(&in, CONNECT_END, LIT(json));
	assert_int_equal(command_stream_feed(&s.stream, in.p, in.len, &s.err), -1);
	assert_int_equal(s.err.code, ERR_INVALID);
	assert_non_null(strstr(s.err.text, "cwd '/x'"));
	assert_true(s.stream.closed && !s.stream.ended);
	stream_free(&s.stream);
	buf_free(&in);
}

/* Nobody else can tell that it came: what is broken behind it must not take it away. */
static void what_came_before_a_break_is_told(void **state)
{
	(void)state;
	static const char start[] = "{\"event\":{\"start\":{\"pid\":42}}}",
			  end[] = "{\"event\":{\"end\":{\"status\":\"exit status 0\"}}}";
	struct buf in = BUF(4096);
	connect_put(&in, 0, LIT(start));
	connect_put(&in, 0, LIT(end));
	connect_put(&in, CONNECT_END, LIT("{}"));
	connect_put(&in, 0x80, LIT(""));
	for (int later = 0; later < 3; later++)
		for (size_t cut = 0; cut <= in.len + 1; cut++) {
			struct seen s = { .log = BUF(4096), .later = later };
			s.feed = command_stream_feed;
			command_stream_init(&s.stream, on_event, &s);
			int rc = feed_cut(in.p, in.len, cut, on_piece, &s);
			while (rc >= 0 && (rc = stream_again(&s.stream, &s.err)) > 0)
				;
			assert_int_equal(rc, -1);
			assert_int_equal(s.err.code, ERR_INTERNAL);
			assert_string_equal(s.log.p, "runs 42|end 0 0 exit status 0|");
			assert_true(s.stream.ended && s.stream.closed);
			stream_free(&s.stream);
			buf_free(&s.log);
		}
	buf_free(&in);
}

static void streams_of_garbage(void **state)
{
	(void)state;
	static const char *const lines[] = { "garbage\n",
					     "{}\n",
					     "[]\n",
					     "{\"type\":5}\n",
					     "{\"type\":\"stdout\"}\n",
					     "{\"type\":\"stdout\",\"text\":7}\n" };
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		struct seen s = { .log = BUF(4096) };
		code_stream_init(&s.stream, on_event, &s);
		assert_int_equal(code_stream_feed(&s.stream, lines[i], strlen(lines[i]), &s.err),
				 -1);
		assert_int_equal(s.err.code, ERR_INTERNAL);
		stream_free(&s.stream);
	}
	static const struct {
		const char *p;
		size_t n;
	} envelopes[] = {
		{ LIT("\x00\xff\xff\xff\xff") },   /* too long */
		{ LIT("\x80\x00\x00\x00\x00") },   /* unknown flags */
		{ LIT("\x01\x00\x00\x00\x02{}") }, /* compressed */
		{ LIT("\x00\x00\x00\x00\x02no") }, /* no JSON */
		{ LIT("\x00\x00\x00\x00\x29{\"event\":{\"data\":{\"stdout\":\"not base64\"}}}") },
	};
	for (size_t i = 0; i < sizeof envelopes / sizeof *envelopes; i++) {
		struct seen s = { .log = BUF(4096) };
		command_stream_init(&s.stream, on_event, &s);
		assert_int_equal(
			command_stream_feed(&s.stream, envelopes[i].p, envelopes[i].n, &s.err), -1);
		assert_true(s.err.code == ERR_INTERNAL || s.err.code == ERR_LIMIT);
		stream_free(&s.stream);
	}
	char *piece = malloc(1u << 20);
	struct seen s = { .log = BUF(4096) };
	int rc = 0, pieces = 0;
	memset(piece, 'x', 1u << 20);
	code_stream_init(&s.stream, on_event, &s);
	for (; rc == 0 && pieces < 20; pieces++)
		rc = code_stream_feed(&s.stream, piece, 1u << 20, &s.err);
	assert_int_equal(rc, -1);
	assert_int_equal(pieces, 18);
	assert_int_equal(s.err.code, ERR_INTERNAL);
	stream_free(&s.stream);
	free(piece);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_as_the_sdk_reads_them),
		cmocka_unit_test(ids_and_hosts),
		cmocka_unit_test(signatures),
		cmocka_unit_test(bodies),
		cmocka_unit_test(failures),
		cmocka_unit_test(secrets_are_blotted_out),
		cmocka_unit_test(escaped_pairs_are_characters),
		cmocka_unit_test(json_that_is_none),
		cmocka_unit_test(code_cut_at_every_byte),
		cmocka_unit_test(command_cut_at_every_byte),
		cmocka_unit_test(a_command_refused_in_its_stream),
		cmocka_unit_test(what_came_before_a_break_is_told),
		cmocka_unit_test(streams_of_garbage),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
