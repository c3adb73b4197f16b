/* Processes by number and start time. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/procid.h"

static void this_process(void **state)
{
	(void)state;
	struct procid me, again;
	/* A name that looks like the fields behind it. */
	assert_int_equal(prctl(PR_SET_NAME, "a) Z 1 (b"), 0);
	assert_int_equal(procid_of(getpid(), &me), 0);
	assert_int_equal(procid_of(getpid(), &again), 0);
	assert_int_equal(me.pid, getpid());
	assert_int_equal(me.start, again.start);
	assert_true(me.start > 0);
	assert_true(procid_alive(me));
	me.start++;
	assert_false(procid_alive(me));
}

static void the_dead(void **state)
{
	(void)state;
	struct procid child;
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	assert_int_equal(procid_of(pid, &child), 0);
	assert_true(procid_alive(child));
	assert_int_equal(kill(pid, SIGKILL), 0);
	siginfo_t info;
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_false(procid_alive(child)); /* dead, and not waited for */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(procid_alive(child));
	assert_int_equal(procid_of(0, &child), -1);
	assert_int_equal(procid_of(-1, &child), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(this_process),
		cmocka_unit_test(the_dead),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
