#include "agent/connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/cleanup.h"

static int try_address(const struct sockaddr *to, socklen_t len, int *fd)
{
	_close_ int s = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -errno;
	if (connect(s, to, len) < 0 && errno != EINPROGRESS)
		return -errno;
	/* Over the loopback a refusal is there already; only a full backlog is still on its way. */
	int why = 0;
	socklen_t size = sizeof why;
	if (getsockopt(s, SOL_SOCKET, SO_ERROR, &why, &size) < 0)
		return -errno;
	if (why)
		return -why;
	*fd = steal_fd(&s);
	return 0;
}

int connect_port(int port, int *fd)
{
	if (port < 1 || port > UINT16_MAX)
		return -EINVAL;
	const struct sockaddr_in v4 = { .sin_family = AF_INET,
					.sin_port = htons((uint16_t)port),
					.sin_addr = { htonl(INADDR_LOOPBACK) } };
	const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
					 .sin6_port = htons((uint16_t)port),
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int rc = try_address((const struct sockaddr *)&v4, sizeof v4, fd);
	if (rc < 0 && try_address((const struct sockaddr *)&v6, sizeof v6, fd) == 0)
		rc = 0;
	return rc;
}
