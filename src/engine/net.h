/* A sandbox's network: a namespace of its own with a loopback, and, where internet is allowed, a
 * tap device served by slirp4netns. Whatever is not the public internet is closed by routes that
 * nothing inside may change. */
#ifndef ENGINE_NET_H
#define ENGINE_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/netrules.h"

#define NET_HOST_MAX 64

/* The machine's own addresses, which sandboxes must not reach either. */
struct net_host {
	unsigned char ip[NET_HOST_MAX][4];
	size_t n;
};

/* Those that are not closed anyway. 0; or -1, and h is as it was: they cannot be listed, or are
 * more than NET_HOST_MAX. */
int net_host_read(struct net_host *h);

/* What is closed to every sandbox: all that is not the public internet, and this machine. */
size_t net_closed(const struct net_host *h, struct net_range out[NETRULES_ENTRIES]);

/* All there is, slirp's resolver too, but not the loopback. netrules_free(out). */
int net_off(struct netrules *out, struct err *err);

/* In the sandbox's network namespace, as its root: loopback up and, with internet, what cannot be
 * reached all the same; NULL without. */
int net_setup(const struct netrules *unreachable, struct err *err);

#define NET_SLIRP "/usr/bin/slirp4netns"

/* Start slirp4netns for the namespaces of pid. *ready becomes readable when the network works, and
 * closed without a byte when it does not. */
int net_start_slirp(pid_t pid, pid_t *slirp, int *ready, struct err *err);

#endif
