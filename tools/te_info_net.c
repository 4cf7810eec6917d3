/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists the IP interfaces. Uses only sources that every user may read
 * (getifaddrs, sysfs). */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/te_info.h"

#define NET_MAX 4096		/* largest number of addresses that are
				 * examined */

static unsigned int net_bits(const uint8_t *p, size_t n)
{
	unsigned int bits = 0;

	while (n--)
		bits += (unsigned int)__builtin_popcount(*p++);
	return bits;
}

/* Returns true if the interface has a peer address in another subnet than its
 * own address; the prefix then belongs to the peer. If the interface has no
 * peer, the field of the peer address holds a broadcast address. */
static bool net_far(const uint8_t *a, const uint8_t *mask,
		    const struct sockaddr *peer, size_t off, size_t n)
{
	static const uint8_t all[16] = { 255, 255, 255, 255 };
	const uint8_t *b = (const uint8_t *)peer + off;

	if (!memcmp(b, all, n))
		return false;
	for (; n; n--, a++, b++, mask++)
		if ((*a ^ *b) & *mask)
			return true;
	return false;
}

static void net_address(struct info_net *net, const struct ifaddrs *ifa)
{
	const struct sockaddr *sa = ifa->ifa_addr, *mask = ifa->ifa_netmask;
	const struct sockaddr *peer = ifa->ifa_dstaddr;
	size_t off, n;

	if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
		return;
	n = sa->sa_family == AF_INET ? 4 : 16;
	off = sa->sa_family == AF_INET ?
		      offsetof(struct sockaddr_in, sin_addr) :
		      offsetof(struct sockaddr_in6, sin6_addr);
	memcpy(net->bytes, (const char *)sa + off, n);
	net->family = sa->sa_family;
	inet_ntop(sa->sa_family, net->bytes, net->address,
		  sizeof(net->address));
	if (mask)
		net->prefix = net_bits((const uint8_t *)mask + off, n);
	if (mask && peer && peer->sa_family == sa->sa_family &&
	    net_far(net->bytes, (const uint8_t *)mask + off, peer, off, n))
		net->prefix = (unsigned int)n * 8;
}

static int net_cmp(const void *pa, const void *pb)
{
	const struct info_net *a = pa, *b = pb;

	if (a->index != b->index)
		return a->index < b->index ? -1 : 1;
	if (a->family != b->family)
		return a->family < b->family ? -1 : 1;
	return strcmp(a->address, b->address);
}

/* Removes the entries without an address of all interfaces that also have an
 * entry with an address. Returns the new number of entries. */
static size_t net_prune(struct info_net *nets, size_t n)
{
	size_t i, out = 0;

	for (i = 0; i < n; i++) {
		if (!nets[i].family && i + 1 < n &&
		    !strcmp(nets[i].name, nets[i + 1].name))
			continue;
		nets[out] = nets[i];
		nets[out].first = !out ||
				  strcmp(nets[out].name, nets[out - 1].name);
		out++;
	}
	return out;
}

static void net_mtu(struct info_net *nets, size_t n)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq req;

	for (size_t i = 0; i < n && fd >= 0; i++) {
		memset(&req, 0, sizeof(req));
		snprintf(req.ifr_name, sizeof(req.ifr_name), "%.15s",
			 nets[i].name);
		if (!ioctl(fd, SIOCGIFMTU, &req))
			nets[i].mtu = (unsigned int)req.ifr_mtu;
	}
	if (fd >= 0)
		close(fd);
}

static void net_collect(struct info *info, const struct ifaddrs *list)
{
	const struct ifaddrs *i;
	size_t n = 0;

	for (i = list; i && n < NET_MAX; i = i->ifa_next)
		n++;
	if (i)
		info_unseen(info, "interfaces", "only the first %d addresses were examined",
			    NET_MAX);
	info->nets = calloc(n + 1, sizeof(*info->nets));
	if (!info->nets)
		return;
	for (i = list; i && info->n_nets < n; i = i->ifa_next) {
		struct info_net *net = &info->nets[info->n_nets++];

		snprintf(net->name, sizeof(net->name), "%s", i->ifa_name);
		net->index = if_nametoindex(i->ifa_name);
		net->flags = i->ifa_flags;
		net_address(net, i);
	}
	qsort(info->nets, info->n_nets, sizeof(*info->nets), net_cmp);
	info->n_nets = net_prune(info->nets, info->n_nets);
	net_mtu(info->nets, info->n_nets);
}

/* Returns the kind of an interface according to sysfs. */
static const char *net_kind(const struct info *info, const struct info_net *n)
{
	if (n->flags & IFF_LOOPBACK)
		return "loopback";
	if (info_exists(info, "/sys/class/net/%s/bridge/bridge_id", n->name))
		return "bridge";
	if (info_exists(info, "/sys/class/net/%s/bonding/mode", n->name))
		return "bond";
	if (info_exists(info, "/sys/class/net/%s/tun_flags", n->name))
		return "tun";
	if (info_exists(info, "/sys/class/net/%s/device/uevent", n->name))
		return "nic";
	return "virtual";
}

static void net_doc(struct info *info, cJSON *list, const struct info_net *n)
{
	cJSON *o = info_object(list, NULL);
	char text[64];
	long long node;

	info_text(o, "name", "%s", n->name);
	info_text(o, "kind", "%s", net_kind(info, n));
	info_bool(o, "up", n->flags & IFF_UP);
	info_bool(o, "running", n->flags & IFF_RUNNING);
	info_num(o, "mtu", n->mtu);
	if (info_read(info, text, sizeof(text), "/sys/class/net/%s/operstate",
		      n->name))
		info_text(o, "operstate", "%s", text);
	node = info_read_num(info, "/sys/class/net/%s/device/numa_node",
			     n->name);
	if (node >= 0)
		info_num(o, "numa_node", (double)node);
	info_ethtool(info, n, o);
	info_array(o, "addresses");
}

static void net_doc_address(cJSON *list, const struct info_net *n)
{
	cJSON *o = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1);
	cJSON *addresses = cJSON_GetObjectItemCaseSensitive(o, "addresses");

	if (n->family)
		info_text(addresses, NULL, "%s/%u", n->address, n->prefix);
}

void info_look_net(struct info *info)
{
	cJSON *list = info_array(info->doc, "interfaces");
	struct ifaddrs *ifs = NULL;

	if (getifaddrs(&ifs)) {
		info_unseen(info, "interfaces", "getifaddrs: %s",
			    strerror(errno));
		return;
	}
	net_collect(info, ifs);
	freeifaddrs(ifs);
	for (size_t i = 0; i < info->n_nets; i++) {
		if (info->nets[i].first)
			net_doc(info, list, &info->nets[i]);
		net_doc_address(list, &info->nets[i]);
	}
	if (!info_exists(info, "/sys/class/net/."))
		info_unseen(info, "interfaces", "%s/sys/class/net: %s; kinds, NUMA nodes and states of interfaces are unknown",
			    info->opts.root, strerror(errno));
}

const struct info_net *info_rail_net(const struct info *info,
				     const struct info_rail *rail)
{
	const struct info_net *loop = NULL;

	if (!*rail->host)
		return NULL;
	for (size_t i = 0; i < info->n_nets; i++) {
		if (!strcmp(info->nets[i].address, rail->host))
			return &info->nets[i];
		if (info->nets[i].family == AF_INET &&
		    (info->nets[i].flags & IFF_LOOPBACK))
			loop = &info->nets[i];
	}
	/* all addresses of 127/8 belong to the loopback interface */
	return strncmp(rail->host, "127.", 4) ? NULL : loop;
}
