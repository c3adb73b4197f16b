/* The event loop: timers in order, watches that go away in the middle of a round. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/loop.h"

static struct loop *loop;
static char order[64];

static int set_up(void **state)
{
	(void)state;
	memset(order, 0, sizeof order);
	return loop_new(&loop, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	loop_free(loop);
	return 0;
}

static void note(void *ctx)
{
	strncat(order, ctx, 1);
	if (*(char *)ctx == '!')
		loop_stop(loop);
}

static void timers_fire_in_order_of_time(void **state)
{
	(void)state;
	struct timer t[5] = { 0 };
	int64_t now = clock_mono_us();
	timer_at(&t[0], loop, now + 3000, note, "c");
	timer_at(&t[1], loop, now + 1000, note, "a");
	timer_at(&t[2], loop, now + 2000, note, "b");
	timer_at(&t[3], loop, now + 9000, note, "!");
	timer_at(&t[4], loop, now + 4000, note, "x");
	timer_stop(&t[4]);
	timer_at(&t[1], loop, now + 5000, note, "d"); /* moved behind the others */
	loop_run(loop);
	assert_string_equal(order, "bcd!");
}

struct again {
	struct timer timer;
	int left;
};

static void rearm(void *ctx)
{
	struct again *a = ctx;
	if (--a->left)
		timer_at(&a->timer, loop, clock_mono_us(), rearm, a);
	else
		loop_stop(loop);
}

static void a_timer_may_start_itself_again(void **state)
{
	(void)state;
	struct again a = { .left = 100 };
	timer_at(&a.timer, loop, 0, rearm, &a);
	loop_run(loop);
	assert_int_equal(a.left, 0);
	timer_stop(&a.timer); /* fine when it does not run */
}

/* Both ends are readable in the same round; whoever comes first frees the other. */
struct ends {
	struct watch *w[2];
	int called;
};

static void free_both(void *ctx, uint32_t events)
{
	struct ends *e = ctx;
	(void)events;
	e->called++;
	for (int i = 0; i < 2; i++) {
		watch_del(e->w[i]);
		free(e->w[i]);
	}
	loop_stop(loop);
}

static void a_watch_freed_in_its_round_is_not_called(void **state)
{
	(void)state;
	struct ends e = { .called = 0 };
	int p[2][2];
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pipe(p[i]), 0);
		assert_int_equal(write(p[i][1], "x", 1), 1);
		e.w[i] = malloc(sizeof *e.w[i]);
		assert_int_equal(watch_add(e.w[i], loop, p[i][0], EPOLLIN, free_both, &e), 0);
	}
	loop_run(loop);
	assert_int_equal(e.called, 1);
	for (int i = 0; i < 2; i++) {
		close(p[i][0]);
		close(p[i][1]);
	}
}

static void never(void *ctx, uint32_t events)
{
	(void)ctx;
	(void)events;
	fail();
}

static void a_paused_watch_is_silent(void **state)
{
	(void)state;
	struct watch w;
	struct timer t = { 0 };
	int p[2];
	assert_int_equal(pipe(p), 0);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(watch_add(&w, loop, p[0], EPOLLIN, never, NULL), 0);
	watch_set(&w, 0);
	timer_at(&t, loop, clock_mono_us() + 20000, note, "!");
	loop_run(loop);
	assert_string_equal(order, "!");
	watch_del(&w);
	watch_del(&w); /* twice is fine */
	close(p[0]);
	close(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(timers_fire_in_order_of_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_timer_may_start_itself_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_watch_freed_in_its_round_is_not_called, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_paused_watch_is_silent, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
