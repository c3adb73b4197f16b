/* When the clocks of two passes disagree. */
#include "core/clockjump.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "base/clock.h"

#define S SECOND_US

static bool jumped(const char *id, int64_t boot_secs, int64_t real_secs)
{
	const struct clock_mark then = { "boot-1", 1000 * S, 50000 * S };
	struct clock_mark now = { "", (1000 + boot_secs) * S, (50000 + real_secs) * S };
	strncpy(now.boot_id, id, sizeof now.boot_id - 1);
	return clockjump_between(&then, &now);
}

static void time_that_passes_is_no_jump(void **state)
{
	(void)state;
	assert_false(jumped("boot-1", 0, 0));
	assert_false(jumped("boot-1", 60, 60));
	assert_false(jumped("boot-1", 86400, 86400)); /* the machine slept, or the timer was off */
	assert_false(jumped("boot-1", 60, 119));      /* corrected, by less than a minute */
	assert_false(jumped("boot-1", 60, 1));
}

static void a_clock_that_was_set_is_one(void **state)
{
	(void)state;
	assert_true(jumped("boot-1", 60, 122));
	assert_true(jumped("boot-1", 60, 7260));
	assert_true(jumped("boot-1", 60, -3));
	assert_true(jumped("boot-1", 60, -7260));
}

/* How long it was off nobody knows, but time does not run backwards. */
static void after_a_new_start_only_a_step_back_is_seen(void **state)
{
	(void)state;
	assert_false(jumped("boot-2", -990, 86400));
	assert_false(jumped("boot-2", -990, -30));
	assert_true(jumped("boot-2", -990, -61));
	assert_false(jumped("boot-1", -990, 86400)); /* without a new id */
}

static void the_clocks_can_be_read(void **state)
{
	(void)state;
	struct clock_mark a = clockjump_mark(), b = clockjump_mark();
	assert_int_equal(strlen(a.boot_id), 36);
	assert_true(a.boot > 0 && b.boot >= a.boot);
	assert_false(clockjump_between(&a, &b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_that_passes_is_no_jump),
		cmocka_unit_test(a_clock_that_was_set_is_one),
		cmocka_unit_test(after_a_new_start_only_a_step_back_is_seen),
		cmocka_unit_test(the_clocks_can_be_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
