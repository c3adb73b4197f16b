#include "engine/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Everything that is no public address (IANA's special-purpose registry). slirp's own 10.0.2.0/24
 * is more specific than 10/8 and stays open; it leads to its resolver only. */
static const struct range {
	unsigned char ip[4];
	unsigned char bits;
} closed[] = {
	{ { 0, 0, 0, 0 }, 8 },      { { 10, 0, 0, 0 }, 8 },    { { 100, 64, 0, 0 }, 10 },
	{ { 169, 254, 0, 0 }, 16 }, { { 172, 16, 0, 0 }, 12 }, { { 192, 0, 0, 0 }, 24 },
	{ { 192, 168, 0, 0 }, 16 }, { { 198, 18, 0, 0 }, 15 }, { { 224, 0, 0, 0 }, 4 },
	{ { 240, 0, 0, 0 }, 4 },
};

void net_host_read(struct net_host *h)
{
	struct ifaddrs *all;
	h->n = 0;
	if (getifaddrs(&all) < 0)
		return;
	for (struct ifaddrs *a = all; a; a = a->ifa_next) {
		if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET ||
		    (a->ifa_flags & IFF_LOOPBACK) || h->n == NET_HOST_MAX)
			continue;
		struct sockaddr_in in;
		memcpy(&in, a->ifa_addr, sizeof in);
		memcpy(h->ip[h->n++], &in.sin_addr, 4);
	}
	freeifaddrs(all);
}

static int loopback_up(void)
{
	_close_ int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_flags = IFF_UP | IFF_RUNNING };
	snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "lo");
	return s < 0 ? -1 : ioctl(s, SIOCSIFFLAGS, &ifr);
}

/* One `ip route add unreachable IP/BITS`; the kernel's answer is read, so that a failure is seen.
 */
static int close_range_of(int nl, const unsigned char ip[4], unsigned char bits)
{
	struct {
		struct nlmsghdr head;
		struct rtmsg route;
		struct rtattr attr;
		unsigned char dst[4];
	} q = {
		.head = { .nlmsg_len = sizeof q,
			  .nlmsg_type = RTM_NEWROUTE,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK },
		.route = { .rtm_family = AF_INET,
			   .rtm_dst_len = bits,
			   .rtm_table = RT_TABLE_MAIN,
			   .rtm_protocol = RTPROT_STATIC,
			   .rtm_scope = RT_SCOPE_UNIVERSE,
			   .rtm_type = RTN_UNREACHABLE },
		.attr = { .rta_len = RTA_LENGTH(4), .rta_type = RTA_DST },
	};
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	memcpy(q.dst, ip, 4);
	if (send(nl, &q, sizeof q, 0) < 0 || recv(nl, &answer, sizeof answer, 0) < 0)
		return -1;
	if (answer.head.nlmsg_type != NLMSG_ERROR ||
	    (answer.error.error && answer.error.error != -EEXIST)) {
		errno = -answer.error.error;
		return -1;
	}
	return 0;
}

int net_setup(bool internet, const struct net_host *h, struct err *err)
{
	if (loopback_up() < 0)
		return err_errno(err, "loopback");
	if (!internet)
		return 0;
	_close_ int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (nl < 0)
		return err_errno(err, "netlink");
	for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
		if (close_range_of(nl, closed[i].ip, closed[i].bits) < 0)
			return err_errno(err, "close %d.%d/%d", closed[i].ip[0], closed[i].ip[1],
					 closed[i].bits);
	for (size_t i = 0; i < h->n; i++)
		if (close_range_of(nl, h->ip[i], 32) < 0)
			return err_errno(err, "close the host's address");
	return 0;
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
