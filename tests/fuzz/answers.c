/* Answers of E2B: lists of sandboxes and of files, and failures. The first line is the token of the
 * next page, the rest the body of the answer. */
#include "fuzz.h"

#include <json-c/json.h>

#include "base/clock.h"
#include "e2b/control.h"
#include "e2b/rpc.h"

#define SECRET "e2b_0123456789abcdef"

static struct {
	const char *token, *body;
	size_t n;
	int calls;
} server;

/* ---- in the place of the network ---- */

int64_t client_begin(struct e2b *c)
{
	(void)c;
	return 0;
}

int64_t client_deadline(const struct e2b *c, const struct e2b_wait *wait)
{
	(void)c;
	(void)wait;
	return 0;
}

int client_end(struct e2b *c, int64_t since, const struct e2b_sandbox *sb, int rc, struct err *err)
{
	(void)c;
	(void)since;
	(void)sb;
	(void)err;
	return rc;
}

int control_run(struct e2b *c, const struct operation *op, struct call *call, int64_t deadline,
		const struct e2b_wait *wait, struct err *err)
{
	(void)c;
	(void)deadline;
	(void)wait;
	(void)err;
	*call = (struct call){ .url = BUF(64u << 10), .answer = BUF(op->answer_max) };
	CHECK(op->fill(call, false, op->request) == 0 && is_printable(call->url.p, call->url.len));
	CHECK(!strpbrk(call->url.p, " \"<>\\^`{|}#"));
	CHECK(buf_add(&call->answer, server.body, server.n) == 0);
	if (server.calls++ == 0)
		snprintf(call->next_token, sizeof call->next_token, "%s", server.token);
	return 0;
}

void call_free(struct call *call)
{
	buf_free(&call->url);
	buf_free(&call->answer);
}

int rpc_call(struct e2b *c, const struct e2b_sandbox *sb, const char *method, struct buf *body,
	     bool repeatable, struct json_object **out, const struct e2b_wait *wait,
	     struct err *err)
{
	(void)c;
	(void)sb;
	(void)method;
	(void)body;
	(void)repeatable;
	(void)wait;
	return json_read(out, server.body, server.n, err);
}

/* ---- what must hold ---- */

static bool is_field(const char *s, size_t cap)
{
	return strnlen(s, cap) < cap && !strchr(s, ' ') && is_printable(s, strlen(s));
}

static int on_sandbox(void *ctx, const struct e2b_info *info)
{
	const struct e2b_sandbox *sb = &info->sandbox;
	(void)ctx;
	CHECK(address_check_id(sb->id, NULL) == 0 && is_field(sb->id, sizeof sb->id));
	CHECK(is_field(sb->domain, sizeof sb->domain) && is_field(sb->token, sizeof sb->token));
	CHECK(is_field(info->template_id, sizeof info->template_id));
	e2b_metadata(info, "sandgate_nonce");
	return 0;
}

static int on_file(void *ctx, const struct e2b_entry *e)
{
	(void)ctx;
	CHECK(e->name && e->path && e->mode <= 07777);
	return 0;
}

static void check_failures(const char *body, size_t n)
{
	static const int statuses[] = { 400, 404, 429, 500, 502 };
	for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
		enum e2b_why why;
		struct err err = { 0 };
		enum plane plane = i % 2 ? PLANE_DATA : PLANE_CONTROL;
		CHECK(answer_fail(plane, "fuzz", statuses[i], body, n, &why, &err) == -1);
		CHECK(err.code != ERR_NONE);
		answer_scrub(&err, SECRET);
		CHECK(!strstr(err.text, SECRET));
		answer_is_misrouted(statuses[i], body, n);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data;
	_free_ char *token = take_line(&p, &n), *body = copy_text(p, n);
	const struct e2b_pair ours = { "sandgate_instance", "a b&c=d" };
	const struct e2b_filter filter = { .metadata = &ours, .nmetadata = 1, .state = "running" };
	struct err err = { 0 };
	server.token = token;
	server.body = body;
	server.n = n;
	server.calls = 0;
	int rc = e2b_list(NULL, &filter, on_sandbox, NULL, NULL, &err);
	CHECK(server.calls <= 2 && (rc == 0 || err.code == ERR_INTERNAL));
	rc = e2b_list_files(NULL, NULL, "/", 1, on_file, NULL, NULL, &err);
	CHECK(rc == 0 || err.code == ERR_INTERNAL);
	rc = e2b_stat(NULL, NULL, "/x", on_file, NULL, NULL, &err);
	CHECK(rc == 0 || err.code == ERR_INTERNAL);
	check_failures(body, n);
	return 0;
}
