/* The E2B client against the real engine: every call, interrupts, deadlines, dead sandboxes, large
 * files and a consumer that is slow. */
#include <curl/curl.h>
#include <json-c/json.h>
#include <poll.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/ids.h"
#include "e2b/remote_files.h"
#include "e2b/run.h"
#include "live_client.h"

#define BIG (300LL << 20)

static char nonce[13];

static struct e2b_wait within(int64_t ms)
{
	return (struct e2b_wait){ .deadline_mono_us = clock_mono_us() + ms * 1000 };
}

/* ---- the control plane ---- */

static void health_and_keys(void **state)
{
	(void)state;
	struct e2b *other;
	const struct e2b_config config = { .api_key = "e2b_1111",
					   .api_url = engine.url,
					   .sandbox_url = engine.url };
	WORKS(e2b_check(client, NULL, &err));
	WORKS(e2b_new(&other, &config, &err));
	FAILS(e2b_check(other, NULL, &err), ERR_DENIED);
	FAILS(e2b_create(other, &(struct e2b_create){ .template_id = "base", .timeout_secs = 60 },
			 &box, NULL, &err),
	      ERR_DENIED);
	e2b_free(other);
	FAILS(e2b_new(&other, &(struct e2b_config){ .domain = "x.dev" }, &err), ERR_INVALID);
	FAILS(e2b_create(client,
			 &(struct e2b_create){ .template_id = "nobody", .timeout_secs = 60 }, &box,
			 NULL, &err),
	      ERR_NOT_FOUND);
	FAILS(e2b_get(client, "inobody", NULL, NULL, &err), ERR_NOT_FOUND);
	FAILS(e2b_connect(client, "inobody", 60, NULL, NULL, NULL, &err), ERR_NOT_FOUND);
	FAILS(e2b_set_timeout(client, "../x", 60, NULL, &err), ERR_INVALID);
}

static int count_mine(void *ctx, const struct e2b_info *info)
{
	assert_string_equal(info->sandbox.id, box.id);
	++*(int *)ctx;
	return 0;
}

static void a_sandbox_is_found_by_its_metadata(void **state)
{
	(void)state;
	const struct e2b_pair mine[] = { { "nonce", nonce }, { "odd &=%", "\xc3\xbc +/=&" } };
	const struct e2b_filter filter = { .metadata = mine, .nmetadata = 2, .state = "running" };
	int n = 0;
	WORKS(e2b_list(client, &filter, count_mine, &n, NULL, &err));
	assert_int_equal(n, 1);
	const struct e2b_pair theirs = { "nonce", "other" };
	const struct e2b_filter none = { .metadata = &theirs, .nmetadata = 1 };
	WORKS(e2b_list(client, &none, count_mine, &n, NULL, &err));
	assert_int_equal(n, 1);
}

static void its_end_can_be_moved(void **state)
{
	(void)state;
	struct e2b_info info;
	struct e2b_sandbox again;
	bool resumed = true;
	WORKS(e2b_set_timeout(client, box.id, 1000, NULL, &err));
	WORKS(e2b_get(client, box.id, &info, NULL, &err));
	int64_t left = info.end_us - clock_real_us();
	assert_true(left > 990 * SECOND_US && left < 1010 * SECOND_US);
	assert_true(info.started_us > 0 && !info.paused);
	assert_string_equal(e2b_metadata(&info, "nonce"), nonce);
	assert_string_equal(info.sandbox.token, box.token);
	e2b_info_free(&info);
	WORKS(e2b_connect(client, box.id, 2000, &again, &resumed, NULL, &err));
	assert_false(resumed);
	assert_string_equal(again.token, box.token);
}

/* ---- running ---- */

struct run {
	struct buf log;
	int64_t bytes;
	int pid, exit_code, runs, ends;
	int abandon, kill, slow; /* what to do once it runs */
	int offered;
};

static int on_event(void *ctx, const struct e2b_event *e)
{
	struct run *r = ctx;
	/* A slow consumer takes one event in three. */
	if (r->slow && ++r->offered % 3)
		return E2B_LATER;
	if (e->type == E2B_RUNS) {
		r->runs++;
		r->pid = e->pid;
	} else if (e->type == E2B_END) {
		r->ends++;
		r->exit_code = e->exit_code;
	} else if (e->type == E2B_STDOUT || e->type == E2B_STDERR) {
		r->bytes += (int64_t)e->ntext;
		if (r->log.len + e->ntext < r->log.max)
			buf_add(&r->log, e->text, e->ntext);
	} else if (e->type == E2B_RESULT) {
		struct json_object *text = NULL;
		json_object_object_get_ex(e->result, "text", &text);
		buf_addf(&r->log, "=%s", json_object_get_string(text));
	} else if (e->type == E2B_ERROR) {
		buf_addf(&r->log, "!%s", e->name);
	}
	return 0;
}

static int on_tick(void *ctx, unsigned ready)
{
	struct run *r = ctx;
	(void)ready;
	if (r->runs && r->kill == SIGKILL) {
		r->kill = 0;
		WORKS(e2b_signal(client, &box, r->pid, SIGKILL, NULL, &err));
	}
	return r->runs && r->abandon ? -1 : 0;
}

static int run_code(struct run *r, const char *text, struct e2b_wait *wait, struct err *err)
{
	const struct e2b_code code = { .code = text, .ncode = strlen(text) };
	r->log = r->log.max ? r->log : BUF(1u << 20);
	buf_drop(&r->log, r->log.len);
	buf_adds(&r->log, "");
	r->runs = r->ends = 0;
	return e2b_run_code(client, &box, &code, on_event, r, wait, err);
}

static int run_shell(struct run *r, const char *text, int64_t timeout_ms, struct e2b_wait *wait,
		     struct err *err)
{
	const struct e2b_pair env = { "GREETING", "hi" };
	const struct e2b_command command = {
		.argv = (const char *const[]){ "/bin/sh", "-c", text, NULL },
		.cwd = "/tmp",
		.timeout_ms = timeout_ms,
		.envs = &env,
		.nenvs = 1,
	};
	r->log = r->log.max ? r->log : BUF(1u << 20);
	buf_drop(&r->log, r->log.len);
	buf_adds(&r->log, "");
	r->runs = r->ends = 0;
	return e2b_run_command(client, &box, &command, on_event, r, wait, err);
}

static void code_runs_and_keeps_its_state(void **state)
{
	(void)state;
	struct run r = { 0 };
	WORKS(run_code(&r, "x = 20\nprint('h\xc3\xbc')", NULL, &err));
	assert_string_equal(r.log.p, "h\xc3\xbc\n");
	WORKS(run_code(&r, "x + 1", NULL, &err));
	assert_string_equal(r.log.p, "=21");
	assert_true(r.runs == 1 && r.ends == 1);
	WORKS(run_code(&r, "1/0", NULL, &err));
	assert_string_equal(r.log.p, "!ZeroDivisionError");
	WORKS(e2b_restart_context(client, &box, NULL, "python", NULL, &err));
	WORKS(run_code(&r, "x", NULL, &err));
	assert_string_equal(r.log.p, "!NameError");
	FAILS(e2b_restart_context(client, &box, NULL, "cobol", NULL, &err), ERR_NOT_FOUND);
	const struct e2b_code wrong = { .code = "1", .ncode = 1, .context_id = "nobody" };
	FAILS(e2b_run_code(client, &box, &wrong, on_event, &r, NULL, &err), ERR_NOT_FOUND);
	assert_int_equal(e2b_last(client)->why, E2B_WHY_OTHER);
	buf_free(&r.log);
}

static void leaving_and_deadlines_interrupt_code(void **state)
{
	(void)state;
	struct run r = { 0 };
	WORKS(run_code(&r, "y = 5", NULL, &err));
	struct e2b_wait wait = within(30000);
	wait.tick = on_tick;
	wait.ctx = &r;
	r.abandon = 1;
	FAILS(run_code(&r, "import time\ntime.sleep(60)", &wait, &err), ERR_ABANDONED);
	r.abandon = 0;
	wait = within(10000);
	WORKS(run_code(&r, "y", &wait, &err));
	assert_string_equal(r.log.p, "=5");
	int64_t since = clock_mono_us();
	wait = within(700);
	FAILS(run_code(&r, "while True: pass", &wait, &err), ERR_TIMEOUT);
	assert_in_range((clock_mono_us() - since) / 1000, 700, 1000);
	wait = within(10000);
	WORKS(run_code(&r, "y", &wait, &err));
	assert_string_equal(r.log.p, "=5");
	buf_free(&r.log);
}

static void commands_run(void **state)
{
	(void)state;
	struct run r = { 0 };
	WORKS(run_shell(&r, "echo $GREETING; pwd >&2; exit 3", 0, NULL, &err));
	assert_string_equal(r.log.p, "hi\n/tmp\n");
	assert_true(r.pid > 0 && r.runs == 1 && r.ends == 1);
	assert_int_equal(r.exit_code, 3);
	FAILS(run_shell(&r, "sleep 60", 500, NULL, &err), ERR_TIMEOUT);
	assert_int_equal(r.ends, 0);
	struct e2b_wait wait = within(20000);
	wait.tick = on_tick;
	wait.ctx = &r;
	r.kill = SIGKILL; /* from a tick: a call inside a call */
	WORKS(run_shell(&r, "sleep 60", 0, &wait, &err));
	assert_int_equal(r.exit_code, -1);
	FAILS(e2b_signal(client, &box, 999999, SIGTERM, NULL, &err), ERR_NOT_FOUND);
	FAILS(e2b_signal(client, &box, 1, SIGHUP, NULL, &err), ERR_INVALID);
	const struct e2b_command nowhere = { .argv = (const char *const[]){ "true", NULL },
					     .cwd = "/nowhere" };
	FAILS(e2b_run_command(client, &box, &nowhere, on_event, &r, NULL, &err), ERR_INVALID);
	const struct e2b_command nobody = { .argv = (const char *const[]){ "true", NULL },
					    .user = "nobody-at-all" };
	FAILS(e2b_run_command(client, &box, &nobody, on_event, &r, NULL, &err), ERR_DENIED);
	buf_free(&r.log);
}

static long memory_peak_kib(void)
{
	char line[128];
	long kib = 0;
	FILE *f = fopen("/proc/self/status", "re");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "VmHWM:", 6))
			kib = strtol(line + 6, NULL, 10);
	if (f)
		fclose(f);
	return kib;
}

/* The sanitizers keep freed memory for a while. */
static void assert_flat(long before)
{
#if !defined(__SANITIZE_ADDRESS__)
	assert_in_range(memory_peak_kib() - before, 0, 40 << 10);
#endif
	(void)before;
}

static void a_slow_consumer_gets_everything(void **state)
{
	(void)state;
	struct run r = { .slow = 1 };
	int pipes[2];
	assert_int_equal(pipe(pipes), 0);
	/* Always writable, so that a tick follows at once, as with a client that keeps up again. */
	struct e2b_wait wait = within(100000);
	wait.fds[0] = pipes[1];
	wait.events[0] = POLLOUT;
	wait.nfds = 1;
	long before = memory_peak_kib();
	WORKS(run_shell(&r, "head -c 100000000 /dev/zero", 0, &wait, &err));
	assert_int_equal(r.bytes, 100000000);
	assert_int_equal(r.ends, 1);
	assert_flat(before);
	r.bytes = 0;
	wait.deadline_mono_us = clock_mono_us() + 100 * SECOND_US;
	WORKS(run_code(&r, "for i in range(2000): print('x' * 9999)", &wait, &err));
	assert_int_equal(r.bytes, 20000000);
	assert_int_equal(r.ends, 1);
	close(pipes[0]);
	close(pipes[1]);
	buf_free(&r.log);
}

/* ---- files ---- */

struct file {
	int64_t at, size, stop; /* stop: where to give up, or -1 */
	int later;
	char name[256];
	int entries;
};

static char byte_at(int64_t at)
{
	return (char)(at * 31 + (at >> 12));
}

static ssize_t pull(void *ctx, char *p, size_t n)
{
	struct file *f = ctx;
	if (f->stop >= 0 && f->at >= f->stop)
		return -1;
	if (f->later && f->later-- % 2)
		return E2B_PULL_LATER;
	if ((int64_t)n > f->size - f->at)
		n = (size_t)(f->size - f->at);
	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(f->at++);
	return (ssize_t)n;
}

static int sink(void *ctx, const char *p, size_t n)
{
	struct file *f = ctx;
	if (f->stop >= 0 && f->at >= f->stop)
		return -1;
	if (f->later && f->later-- % 2)
		return E2B_LATER;
	for (size_t i = 0; i < n; i++)
		if (p[i] != byte_at(f->at++))
			fail_msg("byte %lld differs", (long long)f->at - 1);
	return 0;
}

static int on_entry(void *ctx, const struct e2b_entry *e)
{
	struct file *f = ctx;
	f->entries++;
	f->size = e->size;
	snprintf(f->name, sizeof f->name, "%s", e->name);
	assert_int_equal(e->type, E2B_FILE_REGULAR);
	assert_int_equal(e->mode & 0600, 0600);
	assert_true(e->modified_us > clock_real_us() - 600 * SECOND_US);
	return 0;
}

static void files_go_both_ways(void **state)
{
	(void)state;
	static const char odd[] = "/home/user/d/a \"b\"\n\xc3\xbc&?#%.txt";
	struct file f = { .size = 100000, .stop = -1 };
	struct e2b_wait wait = within(30000);
	WORKS(e2b_write(client, &box, odd, 100000, pull, &f, &wait, &err));
	f.at = 0;
	WORKS(e2b_write(client, &box, "/home/user/d/two", -1, pull, &f, &wait, &err));
	f = (struct file){ .stop = -1 };
	WORKS(e2b_stat(client, &box, odd, on_entry, &f, &wait, &err));
	assert_int_equal(f.size, 100000);
	assert_string_equal(f.name, strrchr(odd, '/') + 1);
	WORKS(e2b_move(client, &box, "d/two", "/home/user/d/e/three", on_entry, &f, &wait, &err));
	assert_string_equal(f.name, "three");
	WORKS(e2b_read(client, &box, "/home/user/d/e/three", sink, &f, &wait, &err));
	assert_int_equal(f.at, 100000);
	WORKS(e2b_remove(client, &box, "/home/user/d/e", &wait, &err));
	WORKS(e2b_remove(client, &box, "/home/user/d/e", &wait, &err));
	f.entries = 0;
	WORKS(e2b_list_files(client, &box, "/home/user/d", 1, on_entry, &f, &wait, &err));
	assert_int_equal(f.entries, 1);
	FAILS(e2b_read(client, &box, "/nowhere", sink, &f, &wait, &err), ERR_NOT_FOUND);
	assert_int_equal(e2b_last(client)->why, E2B_WHY_OTHER);
	FAILS(e2b_stat(client, &box, "/nowhere", on_entry, &f, &wait, &err), ERR_NOT_FOUND);
	FAILS(e2b_read(client, &box, "/home/user", sink, &f, &wait, &err), ERR_INVALID);
	FAILS(e2b_list_files(client, &box, odd, 1, on_entry, &f, &wait, &err), ERR_INVALID);
	f = (struct file){ .size = 9 << 20, .stop = 1 << 20 };
	FAILS(e2b_write(client, &box, "cut", 9 << 20, pull, &f, &wait, &err), ERR_ABANDONED);
	f = (struct file){ .size = 100, .stop = -1 };
	FAILS(e2b_write(client, &box, "cut", 9 << 20, pull, &f, &wait, &err), ERR_ABANDONED);
	f = (struct file){ .stop = 10 };
	FAILS(e2b_read(client, &box, odd, sink, &f, &wait, &err), ERR_ABANDONED);
}

static void large_files_need_no_memory(void **state)
{
	(void)state;
	struct file f = { .size = BIG, .stop = -1, .later = 6 };
	struct e2b_wait wait = within(100000);
	int pipes[2];
	assert_int_equal(pipe(pipes), 0);
	wait.fds[0] = pipes[1];
	wait.events[0] = POLLOUT;
	wait.nfds = 1;
	long before = memory_peak_kib();
	WORKS(e2b_write(client, &box, "/home/user/big", BIG, pull, &f, &wait, &err));
	f = (struct file){ .stop = -1, .later = 6 };
	WORKS(e2b_read(client, &box, "/home/user/big", sink, &f, &wait, &err));
	assert_int_equal(f.at, BIG);
	assert_flat(before);
	struct run r = { 0 };
	WORKS(run_shell(&r, "head -c 9G /dev/zero > /home/user/rest", 0, &wait, &err));
	buf_free(&r.log);
	f = (struct file){ .size = BIG, .stop = -1 };
	FAILS(e2b_write(client, &box, "/home/user/more", BIG, pull, &f, &wait, &err), ERR_NO_SPACE);
	WORKS(e2b_remove(client, &box, "/home/user/rest", &wait, &err));
	WORKS(e2b_remove(client, &box, "/home/user/more", &wait, &err));
	WORKS(e2b_remove(client, &box, "/home/user/big", &wait, &err));
	close(pipes[0]);
	close(pipes[1]);
}

static size_t ignore(char *p, size_t size, size_t n, void *ctx)
{
	(void)p;
	*(size_t *)ctx += size * n;
	return size * n;
}

/* As nginx would: no token, no header. */
static long fetch(const char *url, size_t *bytes)
{
	long status = 0;
	CURL *e = curl_easy_init();
	*bytes = 0;
	curl_easy_setopt(e, CURLOPT_URL, url);
	curl_easy_setopt(e, CURLOPT_TIMEOUT, 10L);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, ignore);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, bytes);
	curl_easy_perform(e);
	curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(e);
	return status;
}

static void a_signed_url_opens_one_file(void **state)
{
	(void)state;
	struct file f = { .size = 5000, .stop = -1 };
	struct buf url = BUF(4096);
	size_t bytes;
	int64_t now = clock_real_us() / SECOND_US;
	WORKS(e2b_write(client, &box, "/home/user/s p.txt", -1, pull, &f, NULL, &err));
	WORKS(e2b_file_url(client, &box, "/home/user/s p.txt", false, now + 60, &url, &err));
	assert_int_equal(fetch(url.p, &bytes), 200);
	assert_int_equal(bytes, 5000);
	buf_drop(&url, url.len);
	WORKS(e2b_file_url(client, &box, "/home/user/s p.txt", false, now - 60, &url, &err));
	assert_int_equal(fetch(url.p, &bytes), 401);
	buf_free(&url);
}

/* ---- ends ---- */

static int kill_it(void *ctx, unsigned ready)
{
	struct run *r = ctx;
	(void)ready;
	if (r->runs && !r->kill++)
		WORKS(e2b_kill(client, box.id, NULL, NULL, &err));
	return 0;
}

static void a_dead_sandbox_is_noticed(void **state)
{
	(void)state;
	struct e2b_sandbox plain;
	struct run r = { 0 };
	bool was_there = true;
	WORKS(e2b_create(client, &(struct e2b_create){ .template_id = "base", .timeout_secs = 60 },
			 &plain, NULL, &err));
	WORKS(e2b_alive(client, &plain, NULL, &err));
	const struct e2b_code code = { .code = "1", .ncode = 1 };
	FAILS(e2b_run_code(client, &plain, &code, on_event, &r, NULL, &err), ERR_UNAVAILABLE);
	assert_int_equal(e2b_last(client)->why, E2B_WHY_PORT_CLOSED);
	struct e2b_sandbox stranger = plain;
	snprintf(stranger.token, sizeof stranger.token, "wrong");
	FAILS(e2b_stat(client, &stranger, "/tmp", NULL, NULL, NULL, &err), ERR_DENIED);
	WORKS(e2b_kill(client, plain.id, &was_there, NULL, &err));
	assert_true(was_there);

	struct e2b_wait wait = within(20000);
	wait.tick = kill_it;
	wait.ctx = &r;
	FAILS(run_code(&r, "import time\ntime.sleep(60)", &wait, &err), ERR_UNKNOWN_OUTCOME);
	FAILS(e2b_alive(client, &box, NULL, &err), ERR_NOT_FOUND);
	assert_int_equal(e2b_last(client)->why, E2B_WHY_NO_SANDBOX);
	FAILS(run_code(&r, "1", NULL, &err), ERR_NOT_FOUND);
	assert_int_equal(e2b_last(client)->why, E2B_WHY_NO_SANDBOX);
	FAILS(run_shell(&r, "true", 0, NULL, &err), ERR_NOT_FOUND);
	FAILS(e2b_stat(client, &box, "/tmp", NULL, NULL, NULL, &err), ERR_NOT_FOUND);
	assert_int_equal(e2b_last(client)->why, E2B_WHY_NO_SANDBOX);
	FAILS(e2b_get(client, box.id, NULL, NULL, &err), ERR_NOT_FOUND);
	WORKS(e2b_kill(client, box.id, &was_there, NULL, &err));
	assert_false(was_there);
	buf_free(&r.log);
}

static int set_up(void **state)
{
	(void)state;
	id_alnum(nonce, 12);
	const struct e2b_pair metadata[] = { { "nonce", nonce }, { "odd &=%", "\xc3\xbc +/=&" } };
	const struct e2b_create what = { .template_id = "code-interpreter-v1",
					 .timeout_secs = 600,
					 .metadata = metadata,
					 .nmetadata = 2 };
	return live_client_start(&what);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("no_proxy", "*", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(health_and_keys),
		cmocka_unit_test(a_sandbox_is_found_by_its_metadata),
		cmocka_unit_test(its_end_can_be_moved),
		cmocka_unit_test(code_runs_and_keeps_its_state),
		cmocka_unit_test(leaving_and_deadlines_interrupt_code),
		cmocka_unit_test(commands_run),
		cmocka_unit_test(a_slow_consumer_gets_everything),
		cmocka_unit_test(files_go_both_ways),
		cmocka_unit_test(large_files_need_no_memory),
		cmocka_unit_test(a_signed_url_opens_one_file),
		cmocka_unit_test(a_dead_sandbox_is_noticed),
	};
	return cmocka_run_group_tests(tests, set_up, live_client_stop);
}
