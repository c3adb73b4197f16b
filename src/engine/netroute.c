#include "engine/netroute.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define BATCH    64          /* requests whose answers surely fit the socket's buffer */
#define DUMP     (64u << 10) /* one packet of a list of routes */
#define LIST_MAX (1u << 20)  /* bytes of struct net_range that such a list may make */

struct request {
	struct nlmsghdr head;
	struct rtmsg route;
	struct rtattr attr;
	uint32_t dst;
};

static int open_netlink(struct err *err)
{
	int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	return nl < 0 ? err_errno(err, "netlink") : nl;
}

/* One `ip route add unreachable IP/BITS`, or del. */
static struct request make_request(uint16_t type, struct net_range range)
{
	return (struct request){
		.head = { .nlmsg_len = sizeof(struct request),
			  .nlmsg_type = type,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK |
					 (type == RTM_NEWROUTE ? NLM_F_CREATE : 0) },
		.route = { .rtm_family = AF_INET,
			   .rtm_dst_len = range.bits,
			   .rtm_table = RT_TABLE_MAIN,
			   .rtm_protocol = RTPROT_STATIC,
			   .rtm_scope = RT_SCOPE_UNIVERSE,
			   .rtm_type = RTN_UNREACHABLE },
		.attr = { .rta_len = RTA_LENGTH(4), .rta_type = RTA_DST },
		.dst = htonl(range.ip),
	};
}

/* The kernel's answer to one request. What is as it should be already is fine. */
static int read_answer(int nl)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	ssize_t n = recv(nl, &answer, sizeof answer, 0);
	if (n < 0)
		return -1;
	if ((size_t)n < sizeof answer.head + sizeof answer.error ||
	    answer.head.nlmsg_type != NLMSG_ERROR) {
		errno = EPROTO;
		return -1;
	}
	int why = -answer.error.error;
	if (!why || why == EEXIST || why == ESRCH)
		return 0;
	errno = why;
	return -1;
}

/* Add (or delete) all of these, many to a packet: the kernel answers each. */
static int change(int nl, uint16_t type, const struct net_range *range, size_t n)
{
	struct request batch[BATCH];
	for (size_t at = 0, here; at < n; at += here) {
		for (here = 0; here < BATCH && at + here < n; here++)
			batch[here] = make_request(type, range[at + here]);
		if (send(nl, batch, here * sizeof *batch, 0) < 0)
			return -1;
		for (size_t i = 0; i < here; i++)
			if (read_answer(nl) < 0)
				return -1;
	}
	return 0;
}

int netroute_close(const struct netrules *r, struct err *err)
{
	_close_ int nl = open_netlink(err);
	if (nl < 0)
		return -1;
	return change(nl, RTM_NEWROUTE, r->range, r->n) < 0 ? err_errno(err, "close a range") : 0;
}

/* ---- what is closed now ---- */

static int note_route(const struct nlmsghdr *h, const struct netrules *keep, struct buf *out)
{
	const struct rtmsg *route = NLMSG_DATA(h);
	if (h->nlmsg_len < NLMSG_LENGTH(sizeof *route) || route->rtm_family != AF_INET ||
	    route->rtm_type != RTN_UNREACHABLE || route->rtm_table != RT_TABLE_MAIN)
		return 0;
	struct net_range range = { 0, route->rtm_dst_len };
	int left = (int)(h->nlmsg_len - NLMSG_LENGTH(sizeof *route));
	for (const struct rtattr *a = RTM_RTA(route); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type != RTA_DST || RTA_PAYLOAD(a) != sizeof range.ip)
			continue;
		memcpy(&range.ip, RTA_DATA(a), sizeof range.ip);
		range.ip = ntohl(range.ip);
	}
	return netrules_has(keep, range) ? 0 : buf_add(out, &range, sizeof range);
}

/* One packet of the list: 1 when it was the last, -1 with errno. */
static int read_list(int nl, const struct netrules *keep, struct buf *out)
{
	_free_ char *packet = malloc(DUMP);
	ssize_t n = packet ? recv(nl, packet, DUMP, 0) : -1;
	if (n < 0)
		return -1;
	struct nlmsghdr *h;
	for (size_t at = 0; at + sizeof *h <= (size_t)n; at += NLMSG_ALIGN(h->nlmsg_len)) {
		h = (void *)(packet + at);
		if (h->nlmsg_len < sizeof *h || h->nlmsg_len > (size_t)n - at)
			break;
		if (h->nlmsg_type == NLMSG_DONE)
			return 1;
		if (h->nlmsg_type != RTM_NEWROUTE || note_route(h, keep, out) < 0) {
			errno = EPROTO;
			return -1;
		}
	}
	return 0;
}

/* The closed ranges that are not among keep, as struct net_range behind each other. */
static int list_others(int nl, const struct netrules *keep, struct buf *out)
{
	struct {
		struct nlmsghdr head;
		struct rtmsg route;
	} q = { .head = { .nlmsg_len = sizeof q,
			  .nlmsg_type = RTM_GETROUTE,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.route = { .rtm_family = AF_INET } };
	int rc = send(nl, &q, sizeof q, 0) < 0 ? -1 : 0;
	while (rc == 0)
		rc = read_list(nl, keep, out);
	return rc < 0 ? -1 : 0;
}

int netroute_replace(const struct netrules *r, struct err *err)
{
	_close_ int nl = open_netlink(err);
	struct buf others = BUF(LIST_MAX);
	if (nl < 0)
		return -1;
	int rc = change(nl, RTM_NEWROUTE, r->range, r->n);
	if (rc == 0)
		rc = list_others(nl, r, &others);
	if (rc == 0)
		rc = change(nl, RTM_DELROUTE, (const struct net_range *)(void *)others.p,
			    others.len / sizeof(struct net_range));
	int why = errno;
	buf_free(&others);
	errno = why;
	return rc < 0 ? err_errno(err, "change the routes") : 0;
}
