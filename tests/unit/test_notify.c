/* What a service manager is told: over which socket, in which words, and how often. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/notify.h"

static char folder[] = "/tmp/sandgate-notify-XXXXXX";
static char name[64];

/* A manager's socket; name is what NOTIFY_SOCKET says of it. */
static int manager(bool abstract)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	snprintf(name, sizeof name, "%s%s/socket", abstract ? "@" : "", folder);
	memcpy(at.sun_path, name, strlen(name));
	if (abstract)
		at.sun_path[0] = '\0';
	size_t len = offsetof(struct sockaddr_un, sun_path) + strlen(name) + !abstract;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, (socklen_t)len), 0);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

static void assert_heard(int fd, const char *expected)
{
	char text[2048];
	ssize_t n = recv(fd, text, sizeof text - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	assert_string_equal(text, expected);
}

static void assert_silence(int fd)
{
	char text[64];
	assert_int_equal(recv(fd, text, sizeof text, 0), -1);
}

static void watchdog(const char *usec, int pid)
{
	char text[16];
	snprintf(text, sizeof text, "%d", pid);
	setenv("WATCHDOG_USEC", usec, 1);
	setenv("WATCHDOG_PID", text, 1);
}

static int set_up(void **state)
{
	(void)state;
	memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
	return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	char path[64];
	snprintf(path, sizeof path, "%s/socket", folder);
	unlink(path);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	return rmdir(folder);
}

static void both_kinds_of_socket_hear_it(void **state)
{
	(void)state;
	for (int abstract = 0; abstract < 2; abstract++) {
		_close_ int fd = manager(abstract);
		struct notify n;
		notify_open(&n);
		notify_say(&n, "READY=%d", 1);
		assert_heard(fd, "READY=1");
		notify_close(&n);
		notify_say(&n, "READY=2");
		assert_silence(fd);
	}
}

static void nobody_asked(void **state)
{
	(void)state;
	char too_long[200] = "/";
	memset(too_long + 1, 'x', sizeof too_long - 2);
	const char *const names[] = { NULL, "", "/", "@", "relative", "vsock:2:1", too_long };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct notify n;
		if (names[i])
			setenv("NOTIFY_SOCKET", names[i], 1);
		watchdog("1000000", getpid());
		notify_open(&n);
		assert_int_equal(n.fd, -1);
		notify_say(&n, "READY=1");
		notify_status(&n, "fine");
		notify_reloading(&n);
		assert_int_equal(notify_alive(&n), -1);
		notify_close(&n);
	}
}

static void a_manager_that_is_gone_stops_nobody(void **state)
{
	(void)state;
	struct notify n;
	int fd = manager(false);
	notify_open(&n);
	close(fd);
	notify_say(&n, "READY=1");
	unlink(name);
	notify_say(&n, "READY=1");
	notify_close(&n);
}

static void children_find_nothing_in_the_environment(void **state)
{
	(void)state;
	struct notify n;
	_close_ int fd = manager(false);
	assert_true(fd >= 0);
	watchdog("1000000", getpid());
	notify_open(&n);
	assert_null(getenv("NOTIFY_SOCKET"));
	assert_null(getenv("WATCHDOG_USEC"));
	assert_null(getenv("WATCHDOG_PID"));
	notify_close(&n);
}

static void a_reload_tells_its_time(void **state)
{
	(void)state;
	struct notify n;
	char text[128];
	_close_ int fd = manager(false);
	notify_open(&n);
	int64_t before = clock_mono_us();
	notify_reloading(&n);
	ssize_t got = recv(fd, text, sizeof text - 1, 0);
	assert_true(got > 0);
	text[got] = '\0';
	long long at;
	assert_int_equal(sscanf(text, "RELOADING=1\nMONOTONIC_USEC=%lld", &at), 1);
	assert_in_range(at, before, clock_mono_us());
	notify_close(&n);
}

static void a_status_is_told_when_it_changes(void **state)
{
	(void)state;
	struct notify n;
	_close_ int fd = manager(false);
	notify_open(&n);
	notify_status(&n, "%d busy", 1);
	assert_heard(fd, "STATUS=1 busy");
	notify_status(&n, "%d busy", 1);
	assert_silence(fd);
	notify_status(&n, "2\nREADY=1");
	assert_heard(fd, "STATUS=2 READY=1");
	notify_close(&n);
}

static void signs_of_life_come_at_half_the_time(void **state)
{
	(void)state;
	struct notify n;
	_close_ int fd = manager(false);
	watchdog("60000000", getpid());
	notify_open(&n);
	int ms = notify_alive(&n);
	assert_int_equal(ms, 30000);
	assert_heard(fd, "WATCHDOG=1");
	assert_in_range(notify_alive(&n), 1, ms);
	assert_silence(fd);
	n.due = clock_mono_us();
	notify_alive(&n);
	assert_heard(fd, "WATCHDOG=1");
	notify_close(&n);
	assert_int_equal(notify_alive(&n), -1);
	assert_silence(fd);
}

static void only_a_watchdog_of_ours_is_served(void **state)
{
	(void)state;
	_close_ int fd = manager(false);
	const struct {
		const char *usec;
		int pid;
	} rows[] = { { "1000000", getpid() + 1 },
		     { "0", getpid() },
		     { "soon", getpid() },
		     { "-5", getpid() } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct notify n;
		setenv("NOTIFY_SOCKET", name, 1);
		watchdog(rows[i].usec, rows[i].pid);
		notify_open(&n);
		assert_int_equal(notify_alive(&n), -1);
		assert_silence(fd);
		notify_close(&n);
	}
	struct notify n;
	setenv("NOTIFY_SOCKET", name, 1);
	setenv("WATCHDOG_USEC", "1000000", 1); /* for whoever reads it, without WATCHDOG_PID */
	notify_open(&n);
	assert_true(notify_alive(&n) > 0);
	notify_close(&n);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(both_kinds_of_socket_hear_it),
		TEST(nobody_asked),
		TEST(a_manager_that_is_gone_stops_nobody),
		TEST(children_find_nothing_in_the_environment),
		TEST(a_reload_tells_its_time),
		TEST(a_status_is_told_when_it_changes),
		TEST(signs_of_life_come_at_half_the_time),
		TEST(only_a_watchdog_of_ours_is_served),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
