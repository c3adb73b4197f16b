/* The FastCGI server with real processes and real sockets; the client is a few records written by
 * hand. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "web/prefork.h"
#include "web/sockets.h"

#define EXEC_MAX 6

/* What the workers tell the test. */
static struct shared {
	_Atomic int opened, generation, seen_gone, refuse_open, ready, tended;
} * shared;

static char dir[64], paths[POOLS][128];
static pid_t master;

static void nap(int ms)
{
	const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
	nanosleep(&t, NULL);
}

/* ---- the application under test ---- */

struct worker {
	struct board *board;
	struct slot *slot;
	int generation;
};

static void *app_open(void *ctx, struct board *board, struct slot *slot, struct err *err)
{
	(void)ctx;
	atomic_fetch_add(&shared->opened, 1);
	if (atomic_load(&shared->refuse_open)) {
		err_set(err, ERR_INTERNAL, "told to fail");
		return NULL;
	}
	struct worker *w = calloc(1, sizeof *w);
	*w = (struct worker){ board, slot, atomic_load(&shared->generation) };
	return w;
}

static void answer(struct web_req *r, int status, const char *text)
{
	web_status(r, status);
	web_header(r, "Content-Type", "text/plain");
	web_header(r, "X-Bad", "a\r\nX-Injected: 1");
	web_write(r, text, strlen(text));
}

static void echo(struct web_req *r)
{
	char data[8192];
	ssize_t n;
	while ((n = web_read(r, data, sizeof data)) > 0)
		web_write(r, data, (size_t)n);
}

static void app_serve(void *worker, struct web_req *r)
{
	struct worker *w = worker;
	const char *uri = web_param(r, "REQUEST_URI");
	char text[128];
	if (board_draining(w->board, NULL))
		answer(r, 503, "draining");
	else if (!strcmp(uri, "/echo"))
		echo(r);
	else if (!strcmp(uri, "/crash"))
		abort();
	else if (!strncmp(uri, "/sleep/", 7)) {
		nap((int)strtol(uri + 7, NULL, 10));
		snprintf(text, sizeof text, "pid=%d", getpid());
		answer(r, 200, text);
	} else if (!strcmp(uri, "/until-gone")) {
		for (int i = 0; i < 300 && !web_gone(r); i++)
			nap(10);
		atomic_store(&shared->seen_gone, web_gone(r) ? 1 : -1);
	} else if (!strcmp(uri, "/pieces")) {
		char piece[64];
		ssize_t first = web_read(r, piece, sizeof piece);
		web_drain(r);
		snprintf(text, sizeof text, "first=%zd", first);
		answer(r, 200, text);
	} else if (!strcmp(uri, "/buffered")) {
		/* Whatever is not buffered after a moment is on its way, or wrongly denied. */
		char piece[64];
		ssize_t all = 0, got = 1;
		nap(200);
		while (got > 0) {
			struct pollfd p = { .fd = web_fd(r), .events = POLLIN };
			if (!web_buffered(r) && poll(&p, 1, 500) == 0)
				break;
			got = web_read(r, piece, sizeof piece);
			all += got;
		}
		snprintf(text, sizeof text, got ? "stuck after %zd" : "all=%zd", all);
		answer(r, 200, text);
	} else if (!strcmp(uri, "/wait")) {
		struct pollfd p = { .fd = w->slot->wake, .events = POLLIN };
		board_wait_for(w->slot, board_key("thing", "x"));
		int woken = poll(&p, 1, 3000);
		board_wait_for(w->slot, 0);
		answer(r, 200, woken ? "woken" : "timeout");
	} else if (!strcmp(uri, "/wake")) {
		board_wake(w->board, board_key("thing", "x"), NULL);
		answer(r, 200, "ok");
	} else {
		snprintf(text, sizeof text, "pid=%d generation=%d", getpid(), w->generation);
		answer(r, 200, text);
	}
}

static void app_close(void *worker)
{
	free(worker);
}

static int app_reload(void *ctx, struct err *err)
{
	(void)ctx;
	(void)err;
	atomic_fetch_add(&shared->generation, 1);
	return 0;
}

static void app_ready(void *ctx)
{
	(void)ctx;
	atomic_store(&shared->ready, 1);
}

static void app_tend(void *ctx)
{
	(void)ctx;
	atomic_fetch_add(&shared->tended, 1);
}

static const struct prefork_app app = { .open = app_open,
					.serve = app_serve,
					.close = app_close,
					.reload = app_reload,
					.tend = app_tend };

/* ---- a client ---- */

static int dial(enum pool pool)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	const struct timeval limit = { 10, 0 };
	memcpy(at.sun_path, paths[pool], strlen(paths[pool]) + 1);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (connect(s, (struct sockaddr *)&at, sizeof at) < 0) {
		close(s);
		return -1;
	}
	return s;
}

static void record(int s, int type, const void *data, size_t n)
{
	unsigned char head[8] = { 1, (unsigned char)type,     0,
				  1, (unsigned char)(n >> 8), (unsigned char)n };
	if (send(s, head, sizeof head, MSG_NOSIGNAL) < 0 ||
	    (n && send(s, data, n, MSG_NOSIGNAL) < 0))
		return;
}

static size_t put_param(unsigned char *p, const char *name, const char *value)
{
	size_t a = strlen(name), b = strlen(value);
	p[0] = (unsigned char)a;
	p[1] = (unsigned char)b;
	memcpy(p + 2, name, a);
	memcpy(p + 2 + a, value, b);
	return 2 + a + b;
}

/* The request without the record that ends its body. */
static void ask_open(int s, const char *uri, const char *body, size_t nbody)
{
	static const unsigned char begin[8] = { 0, 1 };
	unsigned char params[1024];
	char length[24];
	size_t n = put_param(params, "REQUEST_METHOD", body ? "POST" : "GET");
	n += put_param(params + n, "REQUEST_URI", uri);
	snprintf(length, sizeof length, "%zu", nbody);
	n += put_param(params + n, "CONTENT_LENGTH", body ? length : "");
	record(s, 1, begin, sizeof begin);
	record(s, 4, params, n);
	record(s, 4, NULL, 0);
	for (size_t at = 0; at < nbody; at += 32768)
		record(s, 5, body + at, nbody - at < 32768 ? nbody - at : 32768);
}

static void ask(int s, const char *uri, const char *body, size_t nbody)
{
	ask_open(s, uri, body, nbody);
	record(s, 5, NULL, 0);
}

static int read_all(int s, void *p, size_t n)
{
	return recv(s, p, n, MSG_WAITALL) == (ssize_t)n ? 0 : -1;
}

/* The whole of stdout into out (NUL-terminated); its length, or -1 when the connection broke. */
static ssize_t hear(int s, char *out, size_t cap)
{
	size_t len = 0;
	for (;;) {
		unsigned char head[8], skip[65536 + 256];
		if (read_all(s, head, sizeof head) < 0)
			return -1;
		size_t n = (size_t)head[4] << 8 | head[5];
		if (read_all(s, skip, n + head[6]) < 0)
			return -1;
		if (head[1] == 6 && len + n < cap) {
			memcpy(out + len, skip, n);
			len += n;
		}
		if (head[1] == 3)
			break;
	}
	out[len] = '\0';
	return (ssize_t)len;
}

static ssize_t call(enum pool pool, const char *uri, char *out, size_t cap)
{
	int s = dial(pool);
	if (s < 0)
		return -1;
	ask(s, uri, NULL, 0);
	ssize_t n = hear(s, out, cap);
	close(s);
	return n;
}

/* ---- around each test ---- */

static void serve(void)
{
	const struct prefork_config config = {
		.socket = { paths[POOL_QUICK], paths[POOL_EXEC] },
		.size = { 2, EXEC_MAX },
		.exec_start = 1,
		.drain_secs = 2,
		.app = &app,
		.ready = app_ready,
	};
	struct err err;
	log_set_level("error");
	if (!freopen("/dev/null", "w", stderr) || prefork_run(&config, &err) < 0)
		_exit(1);
	_exit(0);
}

static int set_up(void **state)
{
	(void)state;
	memset(shared, 0, sizeof *shared);
	snprintf(dir, sizeof dir, "/tmp/sandgate-prefork-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(paths[POOL_QUICK], sizeof paths[0], "%s/quick", dir);
	snprintf(paths[POOL_EXEC], sizeof paths[0], "%s/exec", dir);
	master = fork();
	if (master == 0)
		serve();
	for (int i = 0; i < 500 && !atomic_load(&shared->ready); i++)
		nap(10);
	return atomic_load(&shared->ready) ? 0 : -1;
}

static int end_master(int sig)
{
	int status = -1;
	if (!master)
		return 0;
	kill(master, sig);
	for (int i = 0; i < 1000; i++) {
		if (waitpid(master, &status, WNOHANG) == master) {
			master = 0;
			return status;
		}
		nap(10);
	}
	kill(master, SIGKILL);
	waitpid(master, &status, 0);
	master = 0;
	return -1;
}

static int tear_down(void **state)
{
	(void)state;
	int status = end_master(SIGTERM);
	int left = access(paths[POOL_QUICK], F_OK) == 0 || access(paths[POOL_EXEC], F_OK) == 0;
	unlink(paths[POOL_QUICK]);
	unlink(paths[POOL_EXEC]);
	rmdir(dir);
	return status || left ? -1 : 0;
}

/* ---- the tests ---- */

static void both_sockets_answer(void **state)
{
	(void)state;
	char out[4096];
	for (int pool = 0; pool < POOLS; pool++) {
		assert_true(call((enum pool)pool, "/", out, sizeof out) > 0);
		assert_non_null(strstr(out, "Status: 200 OK\r\nContent-Type: text/plain\r\n"));
		assert_non_null(strstr(out, "\r\n\r\npid="));
		assert_null(strstr(out, "X-Injected"));
	}
}

static void a_large_body_comes_back(void **state)
{
	(void)state;
	size_t n = 3 << 20;
	char *body = malloc(n), *out = malloc(n + 4096);
	for (size_t i = 0; i < n; i++)
		body[i] = (char)(i * 31 >> 3);
	int s = dial(POOL_EXEC);
	pid_t writer = fork();
	if (writer == 0) {
		ask(s, "/echo", body, n);
		_exit(0);
	}
	ssize_t got = hear(s, out, n + 4096);
	waitpid(writer, NULL, 0);
	char *start = strstr(out, "\r\n\r\n");
	assert_non_null(start);
	assert_int_equal(out + got - (start + 4), n);
	assert_memory_equal(start + 4, body, n);
	close(s);
	free(body);
	free(out);
}

static void the_exec_pool_grows_and_quick_calls_go_on(void **state)
{
	(void)state;
	int s[EXEC_MAX];
	char out[1024];
	pid_t pids[EXEC_MAX];
	for (int i = 0; i < EXEC_MAX; i++) {
		s[i] = dial(POOL_EXEC);
		ask(s[i], "/sleep/2500", NULL, 0);
	}
	assert_true(call(POOL_QUICK, "/", out, sizeof out) > 0);
	struct pollfd first = { .fd = s[0], .events = POLLIN };
	assert_int_equal(poll(&first, 1, 0), 0); /* they are all still asleep */
	for (int i = 0; i < EXEC_MAX; i++) {
		assert_true(hear(s[i], out, sizeof out) > 0);
		pids[i] = (pid_t)strtol(strstr(out, "pid=") + 4, NULL, 10);
		for (int k = 0; k < i; k++)
			assert_int_not_equal(pids[i], pids[k]);
		close(s[i]);
	}
}

static void a_crashed_worker_is_replaced(void **state)
{
	(void)state;
	char out[1024];
	for (int i = 0; i < 5; i++) {
		assert_int_equal(call(POOL_EXEC, "/crash", out, sizeof out), -1);
		assert_true(call(POOL_QUICK, "/", out, sizeof out) > 0);
	}
	ssize_t got = -1;
	for (int i = 0; i < 100 && got < 0; i++, nap(50))
		got = call(POOL_EXEC, "/", out, sizeof out);
	assert_true(got > 0);
	/* Once at the start, and then for the dead. */
	for (int i = 0; i < 100 && atomic_load(&shared->tended) < 2; i++)
		nap(50);
	assert_true(atomic_load(&shared->tended) >= 2);
}

static void workers_that_cannot_start_are_not_tried_in_a_tight_loop(void **state)
{
	(void)state;
	char out[1024];
	int before = atomic_load(&shared->opened);
	atomic_store(&shared->refuse_open, 1);
	call(POOL_EXEC, "/crash", out, sizeof out);
	for (int i = 0; i < 500 && atomic_load(&shared->opened) == before; i++)
		nap(10);
	nap(1500);
	assert_in_range(atomic_load(&shared->opened) - before, 1,
			40); /* a tight loop makes thousands */
	atomic_store(&shared->refuse_open, 0);
	ssize_t got = call(POOL_EXEC, "/", out, sizeof out); /* waits in the backlog meanwhile */
	assert_true(got > 0);
}

static void sigterm_lets_running_requests_finish(void **state)
{
	(void)state;
	char out[1024];
	int s = dial(POOL_EXEC);
	ask(s, "/sleep/1000", NULL, 0);
	nap(200);
	kill(master, SIGTERM);
	nap(100);
	assert_true(call(POOL_QUICK, "/", out, sizeof out) > 0);
	assert_non_null(strstr(out, "Status: 503"));
	assert_true(hear(s, out, sizeof out) > 0);
	assert_non_null(strstr(out, "Status: 200"));
	close(s);
	assert_int_equal(end_master(0), 0);
}

static void a_request_longer_than_the_drain_is_cut(void **state)
{
	(void)state;
	char out[1024];
	int s = dial(POOL_EXEC);
	ask(s, "/sleep/20000", NULL, 0);
	nap(200);
	int64_t from = clock_mono_us();
	assert_int_equal(end_master(SIGTERM), 0);
	assert_true(clock_mono_us() - from < 8 * SECOND_US);
	assert_int_equal(hear(s, out, sizeof out), -1);
	close(s);
}

/* No call may fail until one is served by a worker with the new settings. A second signal before
 * that could be one with the first. */
static void await_generation(int wanted)
{
	char out[1024], mark[32];
	snprintf(mark, sizeof mark, "generation=%d", wanted);
	for (int i = 0; i < 1000; i++, nap(5)) {
		assert_true(call(POOL_QUICK, "/", out, sizeof out) > 0);
		if (strstr(out, mark))
			return;
	}
	fail_msg("no worker has the new settings");
}

static void sighup_replaces_workers_without_dropping_a_request(void **state)
{
	(void)state;
	char out[1024];
	int s = dial(POOL_EXEC);
	ask(s, "/sleep/800", NULL, 0);
	nap(100);
	for (int round = 1; round <= 3; round++) {
		kill(master, SIGHUP);
		await_generation(round);
	}
	assert_true(hear(s, out, sizeof out) > 0);
	close(s);
}

static void a_client_that_leaves_is_noticed(void **state)
{
	(void)state;
	int s = dial(POOL_EXEC);
	ask(s, "/until-gone", NULL, 0);
	nap(100);
	assert_int_equal(atomic_load(&shared->seen_gone), 0);
	close(s);
	for (int i = 0; i < 200 && !atomic_load(&shared->seen_gone); i++)
		nap(10);
	assert_int_equal(atomic_load(&shared->seen_gone), 1);
}

static void the_end_of_a_body_that_comes_late_is_no_departure(void **state)
{
	(void)state;
	int s = dial(POOL_EXEC);
	ask_open(s, "/until-gone", NULL, 0);
	nap(100);
	record(s, 5, NULL, 0);
	nap(100);
	assert_int_equal(atomic_load(&shared->seen_gone), 0);
	close(s);
	for (int i = 0; i < 200 && !atomic_load(&shared->seen_gone); i++)
		nap(10);
	assert_int_equal(atomic_load(&shared->seen_gone), 1);
}

/* Several records that came at once, the last one the end, are all there without waiting. */
static void what_came_at_once_is_buffered(void **state)
{
	(void)state;
	char out[1024];
	int s = dial(POOL_EXEC);
	ask_open(s, "/buffered", "abc", 3);
	record(s, 5, "de", 2);
	record(s, 5, NULL, 0);
	assert_true(hear(s, out, sizeof out) > 0);
	assert_non_null(strstr(out, "all=5"));
	close(s);
}

/* A slow sender's bytes are given on as they come, not when a whole buffer is full. */
static void a_body_is_read_as_it_comes(void **state)
{
	(void)state;
	char out[1024];
	int s = dial(POOL_EXEC);
	ask_open(s, "/pieces", "abc", 3);
	nap(200);
	record(s, 5, "de", 2);
	record(s, 5, NULL, 0);
	assert_true(hear(s, out, sizeof out) > 0);
	assert_non_null(strstr(out, "first=3"));
	close(s);
}

static void a_waiter_is_woken_by_its_key(void **state)
{
	(void)state;
	char out[1024];
	int s = dial(POOL_EXEC);
	ask(s, "/wait", NULL, 0);
	nap(200);
	assert_true(call(POOL_QUICK, "/wake", out, sizeof out) > 0);
	assert_true(hear(s, out, sizeof out) > 0);
	assert_non_null(strstr(out, "woken"));
	close(s);
}

static void sockets_refuse_what_they_must(void **state)
{
	(void)state;
	struct err err;
	assert_int_equal(socket_listen(paths[POOL_QUICK], NULL, &err), -1);
	assert_non_null(strstr(err.text, "in use"));
	char lengthy[200];
	memset(lengthy, 'x', sizeof lengthy - 1);
	lengthy[sizeof lengthy - 1] = '\0';
	assert_int_equal(socket_listen(lengthy, NULL, &err), -1);
	char other[200];
	snprintf(other, sizeof other, "%s/other", dir);
	assert_int_equal(socket_listen(other, "no-such-group", &err), -1);
	assert_non_null(strstr(err.text, "no-such-group"));
	unlink(other);
}

static void only_what_was_passed_to_us_is_taken(void **state)
{
	(void)state;
	struct err err;
	char own[16];
	snprintf(own, sizeof own, "%d", getpid());
	assert_false(sockets_passed());
	assert_int_equal(socket_inherited("quick", &err), -1);
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_FDNAMES", "exec:quick", 1);
	setenv("LISTEN_PID", "1", 1);
	assert_false(sockets_passed());
	setenv("LISTEN_PID", own, 1);
	assert_true(sockets_passed());
	assert_int_equal(socket_inherited("quick", &err), -1); /* more names than descriptors */
	assert_non_null(strstr(err.text, "no socket named 'quick'"));
	int there = dup(3); /* whatever it is */
	dup2(STDERR_FILENO, 3);
	assert_int_equal(socket_inherited("exec", &err), -1);
	assert_non_null(strstr(err.text, "no socket that listens"));
	if (there >= 0)
		dup2(there, 3);
	close(there >= 0 ? there : 3);
	sockets_forget();
	assert_false(sockets_passed());
	assert_null(getenv("LISTEN_FDS"));
	assert_null(getenv("LISTEN_FDNAMES"));
}

int main(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(both_sockets_answer),
		T(a_large_body_comes_back),
		T(the_exec_pool_grows_and_quick_calls_go_on),
		T(a_crashed_worker_is_replaced),
		T(workers_that_cannot_start_are_not_tried_in_a_tight_loop),
		T(sigterm_lets_running_requests_finish),
		T(a_request_longer_than_the_drain_is_cut),
		T(sighup_replaces_workers_without_dropping_a_request),
		T(a_client_that_leaves_is_noticed),
		T(the_end_of_a_body_that_comes_late_is_no_departure),
		T(a_body_is_read_as_it_comes),
		T(what_came_at_once_is_buffered),
		T(a_waiter_is_woken_by_its_key),
		T(sockets_refuse_what_they_must),
		T(only_what_was_passed_to_us_is_taken),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
