#include "web/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

#define BACKLOG  4096
#define FIRST_FD 3 /* systemd's first descriptor */

static int give_to_group(const char *path, const char *group, struct err *err)
{
	if (group) {
		const struct group *g = getgrnam(group);
		if (!g)
			return err_set(err, ERR_INVALID, "there is no group '%s'", group);
		if (chown(path, (uid_t)-1, g->gr_gid) < 0)
			return err_errno(err, "give %s to group %s", path, group);
	}
	return chmod(path, 0660) < 0 ? err_errno(err, "%s", path) : 0;
}

/* Somebody answers there. */
static int in_use(const struct sockaddr_un *at)
{
	_close_ int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return s >= 0 &&
	       (connect(s, (const struct sockaddr *)at, sizeof *at) == 0 || errno == EAGAIN);
}

int socket_listen(const char *path, const char *group, struct err *err)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof at.sun_path)
		return err_set(err, ERR_INVALID,
			       "the socket's path is longer than %zu characters: %s",
			       sizeof at.sun_path - 1, path);
	memcpy(at.sun_path, path, strlen(path) + 1);
	_close_ int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return err_errno(err, "socket");
	if (in_use(&at))
		return err_set(err, ERR_CONFLICT, "%s is in use by another gateway", path);
	unlink(path);
	/* Closed to everyone until its group is right. */
	mode_t mask = umask(0177);
	int rc = bind(s, (const struct sockaddr *)&at, sizeof at);
	umask(mask);
	if (rc < 0)
		return err_errno(err, "%s", path);
	if (give_to_group(path, group, err) < 0)
		return -1;
	if (listen(s, BACKLOG) < 0)
		return err_errno(err, "%s", path);
	return steal_fd(&s);
}

bool sockets_passed(void)
{
	const char *pid = getenv("LISTEN_PID");
	return pid && getenv("LISTEN_FDS") && strtol(pid, NULL, 10) == getpid();
}

void sockets_forget(void)
{
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
}

/* A name that stands beside no socket that listens is a mistake in a unit. */
static int take(int fd, const char *name, struct err *err)
{
	int listening = 0;
	socklen_t n = sizeof listening;
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) < 0 || !listening)
		return err_set(err, ERR_INVALID, "systemd's '%s' is no socket that listens", name);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

int socket_inherited(const char *name, struct err *err)
{
	const char *names = getenv("LISTEN_FDNAMES");
	if (!sockets_passed() || !names)
		return err_set(err, ERR_NOT_FOUND, "no socket was passed by systemd");
	int fd = FIRST_FD, end = fd + (int)strtol(getenv("LISTEN_FDS"), NULL, 10);
	for (const char *p = names; *p && fd < end; fd++) {
		size_t n = strcspn(p, ":");
		if (n == strlen(name) && !strncmp(p, name, n))
			return take(fd, name, err);
		p += n + (p[n] == ':');
	}
	return err_set(err, ERR_NOT_FOUND, "systemd passed no socket named '%s'", name);
}
