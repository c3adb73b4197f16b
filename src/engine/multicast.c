#include "engine/multicast.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/xfrm.h>
#include <sys/socket.h>

#include "base/cleanup.h"

static int open_policies(void)
{
	return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_XFRM);
}

bool multicast_can_close(void)
{
	_close_ int nl = open_policies();
	return nl >= 0;
}

int multicast_close(struct err *err)
{
	struct {
		struct nlmsghdr head;
		struct xfrm_userpolicy_info policy;
	} q = {
		.head = { .nlmsg_len = sizeof q,
			  .nlmsg_type = XFRM_MSG_NEWPOLICY,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK },
		.policy = { .sel = { .family = AF_INET,
				     .daddr.a4 = htonl(0xe0000000),
				     .prefixlen_d = 3 },
			    .lft = { .soft_byte_limit = XFRM_INF,
				     .hard_byte_limit = XFRM_INF,
				     .soft_packet_limit = XFRM_INF,
				     .hard_packet_limit = XFRM_INF },
			    .dir = XFRM_POLICY_OUT,
			    .action = XFRM_POLICY_BLOCK },
	};
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[sizeof q];
	} answer;
	_close_ int nl = open_policies();
	if (nl < 0 || send(nl, &q, sizeof q, 0) < 0 ||
	    recv(nl, &answer, sizeof answer, 0) < (ssize_t)(sizeof answer - sizeof answer.rest))
		return err_errno(err, "close multicast");
	if (answer.head.nlmsg_type != NLMSG_ERROR || answer.error.error) {
		errno = -answer.error.error;
		return err_errno(err, "close multicast");
	}
	return 0;
}
