#include "core/clockjump.h"

#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define JUMP_US (60 * SECOND_US)

static void read_boot_id(char *out, size_t size)
{
	_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
	out[n < 0 ? 0 : n] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

struct clock_mark clockjump_mark(void)
{
	struct clock_mark mark = { .boot = clock_boot_us(), .real = clock_real_us() };
	read_boot_id(mark.boot_id, sizeof mark.boot_id);
	return mark;
}

bool clockjump_between(const struct clock_mark *then, const struct clock_mark *now)
{
	const int64_t real = now->real - then->real, boot = now->boot - then->boot;
	/* Where the id is not told, a clock that began anew tells it. */
	if (strcmp(then->boot_id, now->boot_id) != 0 || boot < 0)
		return real < -JUMP_US;
	return real - boot > JUMP_US || boot - real > JUMP_US;
}
