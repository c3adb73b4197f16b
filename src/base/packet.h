/* Packets with file descriptors over a SOCK_SEQPACKET unix socket. */
#ifndef BASE_PACKET_H
#define BASE_PACKET_H

#include <stddef.h>
#include <sys/types.h>

#define PACKET_MAX     (160u << 10) /* bytes of one packet; fits the kernel's default send buffer */
#define PACKET_FDS_MAX 12

/* Send head and body as one packet, with nfds descriptors. 0, or -1 with errno (EAGAIN on a full
 * non-blocking socket: nothing was sent). */
int packet_send(int sock, const void *head, size_t nhead, const void *body, size_t nbody,
		const int *fds, size_t nfds);

/* Receive one packet into p. The number of bytes, 0 when the peer is gone, or -1 with errno.
 * Received descriptors are close-on-exec; *nfds says how many there are, and the caller owns them.
 * A packet that was cut is -1 with EMSGSIZE and has no descriptors. */
ssize_t packet_recv(int sock, void *p, size_t cap, int fds[PACKET_FDS_MAX], size_t *nfds);

#endif
