/* What the engine takes for a terminal from a sandbox's agent, and what it does not. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "engine/proc_parts.h"

static struct proc fresh(void)
{
	return (struct proc){ .in = -1, .pty = true, .pipes = { { .fd = -1 }, { .fd = -1 } } };
}

static int open_pair(int *slave)
{
	int locked = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(master >= 0);
	assert_int_equal(ioctl(master, TIOCSPTLCK, &locked), 0);
	*slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(*slave >= 0);
	return master;
}

static void a_master_is_taken(void **state)
{
	struct proc p = fresh();
	struct winsize size;
	struct err err;
	_close_ int slave = -1, fd = open_pair(&slave);
	int master = fd;
	(void)state;
	assert_int_equal(pty_take(&p, &fd), 0);
	assert_int_equal(fd, -1);
	assert_int_equal(p.pipes[OUT].fd, master);
	assert_true(p.in >= 0 && p.in != master);
	assert_true(fcntl(master, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(p.in, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(p.in, F_GETFD) & FD_CLOEXEC);
	assert_false(fcntl(slave, F_GETFL) & O_NONBLOCK);
	assert_int_equal(proc_resize(&p, AGENT_WINDOW(65535, 7), &err), 0);
	assert_int_equal(ioctl(slave, TIOCGWINSZ, &size), 0);
	assert_int_equal(size.ws_col, 65535);
	assert_int_equal(size.ws_row, 7);
	close_fd(&p.in);
	close_fd(&p.pipes[OUT].fd);
	assert_int_equal(proc_resize(&p, AGENT_WINDOW(1, 1), &err), -1);
	p.pty = false;
	assert_int_equal(proc_resize(&p, AGENT_WINDOW(1, 1), &err), -1);
}

static void refuse(int fd)
{
	struct proc p = fresh();
	int before = fd < 0 ? 0 : fcntl(fd, F_GETFL), kept = fd;
	assert_int_equal(pty_take(&p, &fd), -1);
	assert_int_equal(fd, kept);
	assert_int_equal(p.in, -1);
	assert_int_equal(p.pipes[OUT].fd, -1);
	if (fd >= 0) {
		assert_int_equal(fcntl(fd, F_GETFL), before);
		close(fd);
	}
}

static void nothing_else_is(void **state)
{
	int pair[2], slave;
	(void)state;
	refuse(-1);
	refuse(open("/dev/null", O_RDWR | O_CLOEXEC));
	refuse(open("/dev/zero", O_RDWR | O_CLOEXEC));
	refuse(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
	refuse(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	refuse(open("/", O_PATH | O_CLOEXEC));
	refuse(open("/dev/ptmx", O_PATH | O_CLOEXEC));
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	refuse(pair[0]);
	refuse(pair[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	refuse(pair[0]);
	refuse(pair[1]);
	_close_ int master = open_pair(&slave);
	assert_true(master >= 0);
	refuse(slave);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_master_is_taken),
		cmocka_unit_test(nothing_else_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
