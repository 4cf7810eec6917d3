/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds three faults: rails that do not reach their own subnet, rails that
 * share a subnet, and rails that do not reach a peer. Only queries the kernel
 * for its routes, and sends no packet. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/te_info.h"

static size_t routes_len(const struct info_net *n)
{
	return n->family == AF_INET ? 4 : 16;
}

/* Copies the interface's address to *out and sets all bits except the first
 * "prefix" ones to 0. */
static void routes_mask(const struct info_net *n, unsigned int prefix,
			uint8_t out[16])
{
	size_t len = routes_len(n), i;

	memcpy(out, n->bytes, 16);
	for (i = 0; i < len; i++) {
		if (i * 8 >= prefix)
			out[i] = 0;
		else if (i * 8 + 8 > prefix)
			out[i] &= (uint8_t)(0xff << (8 - prefix % 8));
	}
}

/* Returns the interface with the smaller subnet, or `a` if the subnets have the
 * same size. */
static const struct info_net *routes_narrower(const struct info_net *a,
					      const struct info_net *b)
{
	return b->prefix > a->prefix ? b : a;
}

/* Returns true if the subnets of the two interfaces overlap. A prefix that
 * covers a single address does not count as a subnet. */
static bool routes_same_subnet(const struct info_net *a,
			       const struct info_net *b)
{
	unsigned int prefix = a->prefix < b->prefix ? a->prefix : b->prefix;
	uint8_t x[16], y[16];

	if (a->family != b->family || a->index == b->index ||
	    routes_narrower(a, b)->prefix == routes_len(a) * 8)
		return false;
	routes_mask(a, prefix, x);
	routes_mask(b, prefix, y);
	return !memcmp(x, y, routes_len(a));
}

static bool routes_own(const struct info *info, int family, const uint8_t *ip,
		       size_t len)
{
	for (size_t i = 0; i < info->n_nets; i++)
		if (info->nets[i].family == family &&
		    !memcmp(info->nets[i].bytes, ip, len))
			return true;
	return false;
}

/* Finds an address in the subnet of n that does not belong to this host, and
 * writes it to *out. Skips the first and the last address of the subnet, which
 * are not hosts, unless it has only two. Returns false if there is no such
 * address. */
static bool routes_neighbour(const struct info *info, const struct info_net *n,
			     uint8_t out[16])
{
	size_t len = routes_len(n);
	unsigned int host = (unsigned int)len * 8 - n->prefix;
	unsigned int i = host > 1, end = host >= 8 ? 255 : (1u << host) - i;

	for (; i < end; i++) {
		routes_mask(n, n->prefix, out);
		out[len - 1] = (uint8_t)(out[len - 1] + i);
		if (!routes_own(info, n->family, out, len))
			return true;
	}
	return false;
}

/* Returns the effective value of a setting that exists for "all" interfaces and
 * for each one: the larger of the two values. */
static long long routes_conf(const struct info *info, const char *ifname,
			     const char *name)
{
	long long all, own;

	all = info_read_num(info, "/proc/sys/net/ipv4/conf/all/%s", name);
	own = info_read_num(info, "/proc/sys/net/ipv4/conf/%s/%s", ifname,
			    name);
	return all > own ? all : own;
}

static void routes_arp(struct info *info, const struct info_net *a,
		       const struct info_net *b)
{
	cJSON *f;

	if (a->family != AF_INET ||
	    (routes_conf(info, a->name, "arp_ignore") >= 1 &&
	     routes_conf(info, a->name, "arp_announce") == 2))
		return;
	f = info_find(info, INFO_WARN, "arp_flux", a->name);
	info_what(f, "%s and %s are in one subnet, and each answers ARP requests for the other's address",
		  a->name, b->name);
	info_why(f, "peers send to the interface that answered first, so one NIC carries both rails");
	info_cure(f, "sysctl net.ipv4.conf.%s.arp_ignore=1 net.ipv4.conf.%s.arp_announce=2, or a subnet per rail",
		  a->name, a->name);
}

/* Returns true if the result of a route query means that packets are not sent:
 * there is no route, or the route is unreachable, a blackhole or prohibited. */
static bool routes_nowhere(int ret)
{
	return ret == -ENETUNREACH || ret == -EHOSTUNREACH || ret == -EINVAL ||
	       ret == -EACCES;
}

static const char *routes_subnet(const struct info_net *n, char *buf,
				 size_t len)
{
	uint8_t bytes[16];
	char text[INFO_ADDR];

	routes_mask(n, n->prefix, bytes);
	inet_ntop(n->family, bytes, text, sizeof(text));
	snprintf(buf, len, "%s/%u", text, n->prefix);
	return buf;
}

static void routes_none(struct info *info, const struct info_net *n,
			const char *dst, int ret)
{
	cJSON *f = info_find(info, INFO_BAD, "routes", n->name);
	char subnet[INFO_ADDR + 8];

	info_what(f, "no route from %s to its own subnet (for example %s): %s",
		  n->address, dst, strerror(-ret));
	info_why(f, "nothing is sent over %s, so peers in this subnet get no answer from this rail",
		 n->name);
	info_cure(f, "ip route replace %s dev %s src %s; if that does not help, ip rule and ip route show table all list the rule that rejects %s",
		  routes_subnet(n, subnet, sizeof(subnet)), n->name,
		  n->address, dst);
}

/* Queries by which interface packets of the rail at n leave if they are sent to
 * an address in the subnet of "of". Writes this address to dst. Returns false,
 * after reporting the reason, if there is no such interface. */
static bool routes_ask(struct info *info, const struct info_net *n,
		       const struct info_net *of, char dst[INFO_ADDR],
		       struct info_route *r)
{
	uint8_t bytes[16];
	int ret;

	if (!routes_neighbour(info, of, bytes))
		return false;
	inet_ntop(n->family, bytes, dst, INFO_ADDR);
	ret = info_route_get(n->family, bytes, n->bytes, 0, r);
	if (routes_nowhere(ret))
		routes_none(info, n, dst, ret);
	else if (ret)
		info_unseen(info, "routes", "from %s to %s: %s", n->address,
			    dst, strerror(-ret));
	return !ret;
}

/* Reports that packets of a rail to its own subnet leave by another interface.
 * pair is true if another rail is in the same subnet. */
static void routes_stray(struct info *info, const struct info_net *n,
			 const char *dst, const struct info_route *r, bool pair)
{
	bool strict = n->family == AF_INET &&
		      routes_conf(info, n->name, "rp_filter") == 1;
	char subnet[INFO_ADDR + 8];
	cJSON *f;

	f = info_find(info, strict ? INFO_BAD : INFO_WARN, "routes", n->name);
	info_what(f, "packets from %s to its subnet (for example %s) leave by %s",
		  n->address, dst, *r->name ? r->name : "another interface");
	info_why(f, strict ? "rp_filter=1 drops the packets that arrive at %s, so the rail does not work" :
		    pair ? "two rails share one NIC, and %s stays idle" :
			   "another NIC carries this rail's bytes, and %s stays idle",
		 n->name);
	routes_subnet(n, subnet, sizeof(subnet));
	if (!pair)
		info_cure(f, "ip route replace %s dev %s src %s, or, if another interface is in that subnet, a subnet for each",
			  subnet, n->name, n->address);
	else
		info_cure(f, "a subnet per rail; or ip rule add from %s table %u && ip route add %s dev %s src %s table %u%s%s%s",
			  n->address, 100 + n->index, subnet, n->name,
			  n->address, 100 + n->index,
			  strict ? ", and sysctl net.ipv4.conf." : "",
			  strict ? n->name : "", strict ? ".rp_filter=2" : "");
}

/* Checks the route of the rail at n to its own subnet. other: another rail in
 * the same subnet, or NULL if there is none. */
static void routes_rail(struct info *info, const struct info_net *n,
			const struct info_net *other)
{
	struct info_route r;
	char dst[INFO_ADDR];

	if (other)
		routes_arp(info, n, other);
	if (!routes_ask(info, n, other ? routes_narrower(n, other) : n, dst,
			&r))
		return;
	if (r.index == n->index)
		info_fine(info, "routes", n->name,
			  "packets from %s to its subnet leave by %s",
			  n->address, n->name);
	else
		routes_stray(info, n, dst, &r, other);
}

static void routes_subnets(struct info *info)
{
	const struct info_net *n, *end = info->nets + info->n_nets, *other;

	for (n = info->nets; n < end; n++) {
		if (!n->rail || n->flags & IFF_LOOPBACK ||
		    n->prefix >= routes_len(n) * 8)
			continue;
		for (other = info->nets; other < end; other++)
			if (other->rail && routes_same_subnet(n, other))
				break;
		routes_rail(info, n, other < end ? other : NULL);
	}
}

/* --- peers --------------------------------------------------------------- */

/* Returns true if packets of the rail reach the address dst of a peer. If they
 * leave by another interface, reports this. */
static bool routes_reach(struct info *info, const struct info_net *n,
			 const uint8_t *dst, const char *peer)
{
	struct info_route r;
	int ret = info_route_get(n->family, dst, n->bytes, 0, &r);
	cJSON *f;

	if (ret) {
		f = info_find(info, INFO_WARN, "peer", n->name);
		info_what(f, "no route from %s to %s: %s", n->address, peer,
			  strerror(-ret));
		info_why(f, "this rail carries no data to that peer");
		info_cure(f, "ip route add %s dev %s, or leave the rail out with MOONRAIL_DEVICES",
			  peer, n->name);
		return false;
	}
	if (r.index == n->index || routes_own(info, n->family, dst,
					      routes_len(n))) {
		info_fine(info, "peer", n->name, "reaches %s%s", peer,
			  r.gateway ? " through a router" : "");
		return true;
	}
	f = info_find(info, INFO_WARN, "peer", n->name);
	info_what(f, "packets from %s to %s leave by %s", n->address, peer,
		  r.name);
	info_why(f, "two rails share one NIC, and the answer arrives at the other NIC");
	info_cure(f, "ip rule add from %s table %u && ip route add %s dev %s table %u",
		  n->address, 100 + n->index, peer, n->name, 100 + n->index);
	return true;
}

static void routes_peer(struct info *info, const char *peer)
{
	bool any = false;
	uint8_t dst[16];
	int family;
	cJSON *f;

	family = info_address(peer, dst);
	for (size_t i = 0; i < info->n_nets; i++)
		if (info->nets[i].rail && info->nets[i].family == family)
			any |= routes_reach(info, &info->nets[i], dst, peer);
	if (any)
		return;
	f = info_find(info, INFO_BAD, "peer", peer);
	info_what(f, "no rail reaches this peer");
	info_why(f, "nothing can be transferred to or from it");
	info_cure(f, "ip route get %s shows the kernel's route; MC_USE_IPV6 chooses the address family of the rails",
		  peer);
}

void info_check_routes(struct info *info)
{
	char *list, *save = NULL, *peer;

	routes_subnets(info);
	list = info->opts.peers ? strdup(info->opts.peers) : NULL;
	for (peer = list ? strtok_r(list, ", ", &save) : NULL; peer;
	     peer = strtok_r(NULL, ", ", &save))
		routes_peer(info, peer);
	free(list);
}
