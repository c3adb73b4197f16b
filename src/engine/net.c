#include "engine/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "engine/multicast.h"
#include "engine/netroute.h"

/* Everything that is no public address (IANA's special-purpose registry, but for what is reserved
 * for documents, where nobody is), and the one by which Azure tells a machine of itself. slirp's
 * own 10.0.2.0/24 is more specific than 10/8 and stays open; it leads to its resolver only. */
#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))
static const struct net_range closed[] = {
	{ IP(0, 0, 0, 0), 8 },      { IP(10, 0, 0, 0), 8 },       { IP(100, 64, 0, 0), 10 },
	{ IP(169, 254, 0, 0), 16 }, { IP(172, 16, 0, 0), 12 },    { IP(192, 0, 0, 0), 24 },
	{ IP(192, 168, 0, 0), 16 }, { IP(198, 18, 0, 0), 15 },    { IP(224, 0, 0, 0), 4 },
	{ IP(240, 0, 0, 0), 4 },    { IP(168, 63, 129, 16), 32 },
};

size_t net_closed(const struct net_host *h, struct net_range out[NETRULES_ENTRIES])
{
	size_t n = sizeof closed / sizeof *closed;
	_Static_assert(sizeof closed / sizeof *closed + NET_HOST_MAX <= NETRULES_ENTRIES,
		       "all of them have room");
	memcpy(out, closed, sizeof closed);
	for (size_t i = 0; i < h->n; i++)
		out[n++] =
			(struct net_range){ IP(h->ip[i][0], h->ip[i][1], h->ip[i][2], h->ip[i][3]),
					    32 };
	return n;
}

/* The halves are more specific than the default route and than the route to the resolver. */
int net_off(struct netrules *out, struct err *err)
{
	static const struct net_range all[] = { { IP(0, 0, 0, 0), 1 },
						{ IP(10, 0, 2, 0), 25 },
						{ IP(10, 0, 2, 128), 25 },
						{ IP(128, 0, 0, 0), 1 } };
	struct net_range *copy = malloc(sizeof all);
	if (!copy)
		return err_set(err, ERR_INTERNAL, "no memory");
	memcpy(copy, all, sizeof all);
	*out = (struct netrules){ copy, sizeof all / sizeof *all };
	return 0;
}

static bool is_closed(const unsigned char ip[4])
{
	uint32_t address = IP(ip[0], ip[1], ip[2], ip[3]);
	for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
		if (!((address ^ closed[i].ip) >> (32 - closed[i].bits)))
			return true;
	return false;
}

int net_host_read(struct net_host *h)
{
	struct ifaddrs *all;
	struct net_host found = { 0 };
	int rc = 0;
	if (getifaddrs(&all) < 0)
		return -1;
	for (struct ifaddrs *a = all; a && rc == 0; a = a->ifa_next) {
		struct sockaddr_in in;
		if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET ||
		    (a->ifa_flags & IFF_LOOPBACK))
			continue;
		memcpy(&in, a->ifa_addr, sizeof in);
		if (is_closed((const unsigned char *)&in.sin_addr))
			continue;
		if (found.n == NET_HOST_MAX)
			rc = -1;
		else
			memcpy(found.ip[found.n++], &in.sin_addr, 4);
	}
	freeifaddrs(all);
	if (rc == 0)
		*h = found;
	return rc;
}

static int loopback_up(void)
{
	_close_ int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_flags = IFF_UP | IFF_RUNNING };
	snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "lo");
	return s < 0 ? -1 : ioctl(s, SIOCSIFFLAGS, &ifr);
}

int net_setup(const struct netrules *unreachable, struct err *err)
{
	if (loopback_up() < 0)
		return err_errno(err, "loopback");
	if (unreachable && netroute_close(unreachable, err) < 0)
		return -1;
	return unreachable ? multicast_close(err) : 0;
}

int net_start_slirp(pid_t pid, pid_t *slirp, int *ready, struct err *err)
{
	int out[2];
	char target[16];
	if (pipe2(out, O_CLOEXEC) < 0)
		return err_errno(err, "pipe");
	snprintf(target, sizeof target, "%d", pid);
	pid_t child = fork();
	if (child == 0) {
		char *const env[] = { "PATH=/usr/bin:/bin", NULL };
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int null = open("/dev/null", O_RDWR);
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		dup2(out[1], 3);
		close_range(4, ~0u, 0);
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		execle(NET_SLIRP, "slirp4netns", "--configure", "--mtu=65520",
		       "--disable-host-loopback", "--enable-sandbox", "--enable-seccomp",
		       "--ready-fd=3", target, "tap0", (char *)NULL, env);
		_exit(127);
	}
	close(out[1]);
	if (child < 0) {
		close(out[0]);
		return err_errno(err, "fork");
	}
	*slirp = child;
	*ready = out[0];
	return 0;
}
