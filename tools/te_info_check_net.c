/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks the interfaces of the rails and the network settings of the kernel. */
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tools/te_info.h"

static bool net_is(const cJSON *o, const char *key)
{
	return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, key));
}

static bool net_is_false(const cJSON *o, const char *key)
{
	return cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(o, key));
}

/* Returns the interface's object in the report, or NULL. */
static cJSON *net_find(const struct info *info, const char *name)
{
	cJSON *list = cJSON_GetObjectItemCaseSensitive(info->doc,
						       "interfaces"), *o;

	cJSON_ArrayForEach(o, list)
		if (!strcmp(info_get(o, "name"), name))
			return o;
	return NULL;
}

/* --- interfaces that are not rails --------------------------------------- */

/* Returns true for an address in 169.254/16 or fe80::/10, which rails do not
 * use. */
static bool net_link_local(const struct info_net *n)
{
	if (n->family == AF_INET)
		return n->bytes[0] == 169 && n->bytes[1] == 254;
	return n->bytes[0] == 0xfe && (n->bytes[1] & 0xc0) == 0x80;
}

/* Returns true if the interface has an address that a rail can use. */
static bool net_addressed(const struct info *info, const char *name)
{
	const struct info_net *n;

	for (n = info->nets; n < info->nets + info->n_nets; n++)
		if (!strcmp(n->name, name) && n->family && !net_link_local(n))
			return true;
	return false;
}

/*
 * Returns true if an interface without an address is in use: a rail uses its
 * RDMA device, or a bond, bridge or VLAN is above it.
 */
static bool net_in_use(const struct info *info, const char *name)
{
	const cJSON *o, *list = cJSON_GetObjectItemCaseSensitive(info->doc,
								 "interfaces");

	for (size_t i = 0; i < info->n_rails; i++)
		if (!strcmp(info->rails[i].device, name) ||
		    info_exists(info, "/sys/class/net/%s/device/infiniband/%s",
				name, info->rails[i].device))
			return true;
	cJSON_ArrayForEach(o, list)
		if (info_exists(info, "/sys/class/net/%s/upper_%s", name,
				info_get(o, "name")))
			return true;
	return false;
}

static void net_unaddressed(struct info *info, const char *name)
{
	cJSON *f = info_find(info, INFO_NOTE, "link", name);

	info_what(f, "the interface is up but has no address, so it is not a rail");
	info_why(f, "its bandwidth is not used");
	info_cure(f, "ip addr add ADDRESS/PREFIX dev %s, in a subnet of its own",
		  name);
}

static void net_idle(struct info *info, const cJSON *o)
{
	const char *name = info_get(o, "name"), *kind = info_get(o, "kind");
	bool addressed = net_addressed(info, name), nic = !strcmp(kind, "nic");
	bool up = net_is(o, "up"), carrier = net_is(o, "running");
	cJSON *f;

	if (!strcmp(kind, "loopback") || !strcmp(kind, "bridge") ||
	    !strcmp(kind, "tun"))
		return;
	/* a virtual interface that is not used is not a fault */
	if (!addressed && !nic)
		return;
	if (up && carrier) {
		if (!addressed && !net_in_use(info, name))
			net_unaddressed(info, name);
		return;
	}
	f = info_find(info, addressed ? INFO_WARN : INFO_NOTE, "link", name);
	info_what(f, "%s, so it is not a rail",
		  !up ? "the interface is down" : "there is no carrier");
	info_why(f, "its bandwidth is not used");
	info_cure(f, !up ? "ip link set %s up" :
			   "check the cable, the transceiver and the switch port of %s; ethtool shows the state that the driver reports",
		  name);
}

static void net_others(struct info *info)
{
	cJSON *list = cJSON_GetObjectItemCaseSensitive(info->doc,
						       "interfaces"), *o;

	cJSON_ArrayForEach(o, list)
		net_idle(info, o);
}

/* --- rails --------------------------------------------------------------- */

static void net_speed(struct info *info, const char *name, const cJSON *o)
{
	double speed = info_get_num(o, "speed_bps");
	double max = info_get_num(o, "speed_max_bps");
	char text[32], most[32];
	cJSON *f;

	if (!strcmp(info_get(o, "duplex"), "half")) {
		f = info_find(info, INFO_BAD, "duplex", name);
		info_what(f, "the link is half duplex");
		info_why(f, "both directions share one line and collide");
		info_cure(f, "ethtool -s %s autoneg on, and the same at the switch",
			  name);
	}
	if (!speed || (speed >= 1e9 && speed >= max))
		return;
	f = info_find(info, INFO_WARN, "speed", name);
	info_bits_text(speed, text, sizeof(text));
	info_bits_text(max, most, sizeof(most));
	info_what(f, "the link runs at %s%s%s", text,
		  speed < max ? ", the port supports " : "",
		  speed < max ? most : "");
	info_why(f, "the link has negotiated a lower speed than the NIC supports");
	info_cure(f, "check the cable; ethtool %s shows what both ends offer",
		  name);
}

static void net_offloads(struct info *info, const char *name, const cJSON *o)
{
	const cJSON *off = cJSON_GetObjectItemCaseSensitive(o, "offloads");
	/* Offloads that an interface should have. If nic_only is true, a
	 * software interface need not have it, because the interface below does
	 * this work. */
	static const struct {
		const char *name;
		bool nic_only;
	} rows[] = {
		{ "tx_checksum", false },
		{ "scatter_gather", false },
		{ "tso", false },
		{ "gso", false },
		{ "gro", true },
		{ "rx_checksum", true },
	};
	bool nic = !strcmp(info_get(o, "kind"), "nic");
	char missing[128] = "";
	size_t used = 0;
	cJSON *f;

	for (size_t i = 0; off && i < sizeof(rows) / sizeof(*rows); i++)
		if (net_is_false(off, rows[i].name) &&
		    (nic || !rows[i].nic_only))
			used += (size_t)snprintf(missing + used,
						 sizeof(missing) - used,
						 "%s%s", used ? ", " : "",
						 rows[i].name);
	if (!used)
		return;
	f = info_find(info, nic ? INFO_WARN : INFO_NOTE, "offloads", name);
	info_what(f, "switched off or not available: %s", missing);
	info_why(f, "the CPU segments and checksums every packet of a tcp rail");
	info_cure(f, "ethtool -K %s rx on tx on sg on tso on gso on gro on", name);
}

static void net_rings(struct info *info, const char *name, const cJSON *o)
{
	const cJSON *r = cJSON_GetObjectItemCaseSensitive(o, "rings");
	double rx = info_get_num(r, "rx"), max = info_get_num(r, "rx_max");
	cJSON *f;

	if (!r || rx * 4 > max || info_get_num(o, "speed_bps") < 1e10)
		return;
	f = info_find(info, INFO_NOTE, "rings", name);
	info_what(f, "%.0f of %.0f possible receive descriptors are configured", rx, max);
	info_why(f, "bursts on a fast link overflow a short ring, and tcp has to retransmit");
	info_cure(f, "ethtool -G %s rx %.0f", name, max);
}

static void net_mtu(struct info *info, const struct info_net *n,
		    const cJSON *o)
{
	cJSON *f;

	if (n->mtu && n->mtu < 1280) {
		f = info_find(info, INFO_WARN, "mtu", n->name);
		info_what(f, "packets carry %u bytes at most", n->mtu);
		info_why(f, "below 1280 bytes IPv6 does not work, and each packet costs CPU time");
		info_cure(f, "ip link set %s mtu 1500", n->name);
	} else if (n->mtu && n->mtu < 4096 &&
		   strcmp(info_get(o, "kind"), "virtual") &&
		   info_get_num(o, "speed_bps") >= 1e10) {
		f = info_find(info, INFO_NOTE, "mtu", n->name);
		info_what(f, "packets carry %u bytes on a fast link", n->mtu);
		info_why(f, "RoCE and tcp are faster with large frames");
		info_cure(f, "ip link set %s mtu 9000, if the switch and all peers support it",
			  n->name);
	}
}

static void net_rails(struct info *info)
{
	const struct info_net *n;
	const cJSON *o;
	size_t i;

	for (i = 0; i < info->n_rails; i++) {
		n = info_rail_net(info, &info->rails[i]);
		if (!n || (n->flags & IFF_LOOPBACK))
			continue;
		o = net_find(info, n->name);
		net_speed(info, n->name, o);
		net_mtu(info, n, o);
		net_offloads(info, n->name, o);
		net_rings(info, n->name, o);
	}
}

/* --- settings of the kernel ---------------------------------------------- */

static double net_fastest(const struct info *info)
{
	double best = 0, speed;

	for (size_t i = 0; i < info->n_rails; i++) {
		speed = info_get_num(info->rails[i].doc, "speed_bps");
		best = speed > best ? speed : best;
	}
	return best;
}

/* Checks the third number of tcp_rmem or tcp_wmem: the largest buffer of a
 * socket. */
static void net_buffer(struct info *info, const char *name)
{
	bool fast = net_fastest(info) >= 1e10;
	double max, need = fast ? 16 << 20 : 1 << 20;
	char text[96], a[32], b[32];
	cJSON *f;

	if (!info_read(info, text, sizeof(text), "/proc/sys/net/ipv4/%s",
		       name)) {
		info_unseen(info, "socket_buffers", "/proc/sys/net/ipv4/%s can't be read",
			    name);
		return;
	}
	if (sscanf(text, "%*s %*s %lf", &max) != 1)
		return;
	info_bytes_text(max, a, sizeof(a));
	info_bytes_text(need, b, sizeof(b));
	if (max >= need) {
		info_fine(info, "socket_buffers", name,
			  "a tcp socket's buffer may grow to %s", a);
		return;
	}
	f = info_find(info, max < need / 4 ? INFO_WARN : INFO_NOTE,
		      "socket_buffers", name);
	info_what(f, "a tcp socket's buffer may grow to %s (recommended: %s)", a, b);
	info_why(f, "a connection carries at most the size of its buffer per round trip");
	info_cure(f, "sysctl net.ipv4.%s=\"4096 131072 %.0f\"", name, need);
}

static void net_core(struct info *info, const char *name)
{
	char path[64];
	long long value;
	cJSON *f;

	snprintf(path, sizeof(path), "net/core/%s", name);
	value = info_sysctl(info, "socket_buffers", path);
	if (value < 0)
		return;
	if (value >= 212992) {
		info_fine(info, "socket_buffers", name, "%lld bytes", value);
		return;
	}
	f = info_find(info, INFO_WARN, "socket_buffers", name);
	info_what(f, "net.core.%s is %lld bytes, below the kernel's default",
		  name, value);
	info_why(f, "programs and providers that request a larger buffer do not get it");
	info_cure(f, "sysctl net.core.%s=16777216", name);
}

static void net_backlog(struct info *info)
{
	long long n = info_sysctl(info, "backlog", "net/core/somaxconn");
	double peers = (double)info->opts.expected_peers;
	cJSON *f;

	if (n < 0)
		return;
	if ((double)n >= peers && n >= 128) {
		info_fine(info, "backlog", "somaxconn",
			  "%lld connections may wait to be accepted", n);
		return;
	}
	f = info_find(info, INFO_WARN, "backlog", "somaxconn");
	info_what(f, "%lld connections may wait to be accepted, but %.0f peers may connect at once",
		  n, peers);
	info_why(f, "when a whole cluster starts, connection requests are dropped and repeated only seconds later");
	info_cure(f, "sysctl net.core.somaxconn=4096");
}

/* Checks the port ranges. The control channel's ports must not be among the
 * ports that the kernel assigns to outgoing connections. */
static void net_ports(struct info *info)
{
	long lo, hi, min = 0, max = 0;
	double need = (double)info->opts.expected_peers * 2 *
		      (double)(info->n_rails ? info->n_rails : 1);
	cJSON *list = cJSON_GetObjectItemCaseSensitive(info->doc, "settings");
	cJSON *o, *f;
	char text[64];

	if (!info_read(info, text, sizeof(text),
		       "/proc/sys/net/ipv4/ip_local_port_range") ||
	    sscanf(text, "%ld %ld", &lo, &hi) != 2)
		return;
	cJSON_ArrayForEach(o, list) {
		if (!strcmp(info_get(o, "name"), "MC_MIN_RPC_PORT"))
			min = strtol(info_get(o, "value"), NULL, 10);
		if (!strcmp(info_get(o, "name"), "MC_MAX_RPC_PORT"))
			max = strtol(info_get(o, "value"), NULL, 10);
	}
	if (max && min <= hi && max >= lo) {
		f = info_find(info, INFO_NOTE, "ports", "control channel");
		info_what(f, "ports %ld to %ld overlap the ports that the kernel assigns, %ld to %ld",
			  min, max, lo, hi);
		info_why(f, "after a restart, another program may use the port that a peer still knows");
		info_cure(f, "set MC_MIN_RPC_PORT and MC_MAX_RPC_PORT outside net.ipv4.ip_local_port_range");
	}
	if ((double)(hi - lo + 1) >= need)
		return;
	f = info_find(info, INFO_WARN, "ports", "ip_local_port_range");
	info_what(f, "there are %ld ports for connections, about %.0f are needed",
		  hi - lo + 1, need);
	info_why(f, "a connection without a port fails");
	info_cure(f, "sysctl net.ipv4.ip_local_port_range=\"32768 60999\"");
}

void info_check_net(struct info *info)
{
	net_others(info);
	net_rails(info);
	net_buffer(info, "tcp_rmem");
	net_buffer(info, "tcp_wmem");
	net_core(info, "rmem_max");
	net_core(info, "wmem_max");
	net_backlog(info);
	net_ports(info);
}
