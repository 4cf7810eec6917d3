/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queries the kernel for the route of a packet, by rtnetlink.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tools/te_info.h"

struct route_ask {
	struct nlmsghdr head;
	struct rtmsg msg;
	char attrs[128];
};

static void route_attr(struct route_ask *ask, unsigned short type,
		       const void *data, size_t len)
{
	struct rtattr *a = (void *)((char *)ask +
				    NLMSG_ALIGN(ask->head.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	ask->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(ask->head.nlmsg_len) +
					 RTA_SPACE(len));
}

static int route_open(void)
{
	struct timeval limit = { .tv_sec = 2 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static int route_read(const struct nlmsghdr *head, size_t got, int family,
		      struct info_route *route)
{
	const struct nlmsgerr *e = NLMSG_DATA(head);
	const struct rtmsg *msg = NLMSG_DATA(head);
	const struct rtattr *a;
	size_t left;

	if (got < sizeof(*head) || head->nlmsg_len > got)
		return -EPROTO;
	if (head->nlmsg_type == NLMSG_ERROR)
		return head->nlmsg_len < NLMSG_LENGTH(sizeof(*e)) || !e->error ?
			       -EPROTO : e->error;
	if (head->nlmsg_type != RTM_NEWROUTE ||
	    head->nlmsg_len < NLMSG_LENGTH(sizeof(*msg)))
		return -EPROTO;
	if (msg->rtm_type == RTN_UNREACHABLE || msg->rtm_type == RTN_BLACKHOLE ||
	    msg->rtm_type == RTN_PROHIBIT)
		return -ENETUNREACH;
	left = RTM_PAYLOAD(head);
	for (a = RTM_RTA(msg); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == RTA_OIF && RTA_PAYLOAD(a) >= 4)
			memcpy(&route->index, RTA_DATA(a), 4);
		else if (a->rta_type == RTA_GATEWAY)
			route->gateway = true;
		else if (a->rta_type == RTA_PREFSRC)
			inet_ntop(family, RTA_DATA(a), route->source,
				  sizeof(route->source));
	}
	return 0;
}

int info_route_get(int family, const void *dst, const void *src,
		   unsigned int oif, struct info_route *route)
{
	size_t len = family == AF_INET ? 4 : 16;
	union {
		struct nlmsghdr head;
		char bytes[4096];
	} reply;
	struct route_ask ask;
	char name[IF_NAMESIZE];
	ssize_t n;
	int fd = route_open(), ret;

	if (fd < 0)
		return fd;
	memset(&ask, 0, sizeof(ask));
	memset(route, 0, sizeof(*route));
	ask.head.nlmsg_len = NLMSG_LENGTH(sizeof(ask.msg));
	ask.head.nlmsg_type = RTM_GETROUTE;
	ask.head.nlmsg_flags = NLM_F_REQUEST;
	ask.msg.rtm_family = (uint8_t)family;
	ask.msg.rtm_dst_len = (uint8_t)(len * 8);
	route_attr(&ask, RTA_DST, dst, len);
	if (src) {
		ask.msg.rtm_src_len = (uint8_t)(len * 8);
		route_attr(&ask, RTA_SRC, src, len);
	}
	if (oif)
		route_attr(&ask, RTA_OIF, &oif, sizeof(oif));
	n = send(fd, &ask, ask.head.nlmsg_len, 0);
	if (n >= 0)
		n = recv(fd, &reply, sizeof(reply), 0);
	ret = n < 0 ? -errno : route_read(&reply.head, (size_t)n, family, route);
	close(fd);
	if (!ret && if_indextoname(route->index, name))
		snprintf(route->name, sizeof(route->name), "%s", name);
	return ret;
}
