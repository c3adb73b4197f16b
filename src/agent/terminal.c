#include "agent/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"

int terminal_open(uint32_t window, uid_t uid, int *master, int *slave)
{
	_close_ int m = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	struct winsize size = { .ws_col = (unsigned short)(window & 0xffff),
				.ws_row = (unsigned short)(window >> 16) };
	int locked = 0;
	if (m < 0 || ioctl(m, TIOCSPTLCK, &locked) < 0 || ioctl(m, TIOCSWINSZ, &size) < 0)
		return -errno;
	/* By the master itself: no name is looked up. */
	_close_ int s = ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (s < 0)
		return -errno;
	/* It must be able to open its own terminal by name. */
	if (uid != (uid_t)-1 && fchown(s, uid, uid) < 0)
		return -errno;
	*master = steal_fd(&m);
	*slave = steal_fd(&s);
	return 0;
}

void terminal_control(void)
{
	ioctl(STDIN_FILENO, TIOCSCTTY, 0);
}
