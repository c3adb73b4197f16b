/* Processes in a terminal. The terminal is the sandbox's own; the engine has its master from the
 * agent, and uses it as the pipe of all three streams. */
#include "engine/proc_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"

#define PTMX makedev(5, 2)

/* Any other descriptor could block the engine, or be one that reads and writes do something to. */
static bool is_master(int fd)
{
	struct stat st;
	int number;
	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == PTMX &&
	       ioctl(fd, TIOCGPTN, &number) == 0;
}

int pty_take(struct proc *p, int *fd)
{
	/* Only the master is made non-blocking: the process has the slave, opened apart. */
	if (*fd < 0 || !is_master(*fd) || fcntl(*fd, F_SETFL, O_NONBLOCK) < 0)
		return -1;
	/* Its own descriptor: the loop watches each for one thing. */
	p->in = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
	if (p->in < 0)
		return -1;
	p->pipes[OUT].fd = steal_fd(fd);
	return 0;
}

int proc_resize(struct proc *p, uint32_t window, struct err *err)
{
	struct winsize size = { .ws_col = (unsigned short)(window & 0xffff),
				.ws_row = (unsigned short)(window >> 16) };
	if (!p->pty)
		return err_set(err, ERR_CONFLICT, "tty not assigned to process");
	if (p->pipes[OUT].fd < 0)
		return err_set(err, ERR_CONFLICT, "the terminal is closed");
	if (ioctl(p->pipes[OUT].fd, TIOCSWINSZ, &size) < 0)
		return err_errno(err, "TIOCSWINSZ");
	return 0;
}
