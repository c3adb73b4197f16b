#include "base/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union control {
	char bytes[CMSG_SPACE(PACKET_FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};

int packet_send(int sock, const void *head, size_t nhead, const void *body, size_t nbody,
		const int *fds, size_t nfds)
{
	struct iovec iov[2] = { { (void *)head, nhead }, { (void *)body, nbody } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = nbody ? 2 : 1 };
	union control c;
	if (nfds > PACKET_FDS_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (nfds) {
		memset(&c, 0, sizeof c);
		msg.msg_control = c.bytes;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
	}
	ssize_t n;
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -1 : 0;
}

static size_t take_fds(struct msghdr *msg, int fds[PACKET_FDS_MAX])
{
	size_t n = 0;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		size_t here = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < here; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof fd);
			if (n < PACKET_FDS_MAX)
				fds[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

ssize_t packet_recv(int sock, void *p, size_t cap, int fds[PACKET_FDS_MAX], size_t *nfds)
{
	struct iovec iov = { p, cap };
	union control c;
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = c.bytes,
			      .msg_controllen = sizeof c.bytes };
	*nfds = 0;
	ssize_t n;
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -1;
	*nfds = take_fds(&msg, fds);
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		for (size_t i = 0; i < *nfds; i++)
			close(fds[i]);
		*nfds = 0;
		errno = EMSGSIZE;
		return -1;
	}
	return n;
}
