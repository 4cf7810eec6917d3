/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks the rails, libfabric, which they use, and the RDMA ports. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/te_info.h"

#define FABRIC_CM_US		10000	/* default of ofi_rxm, us */
/* Largest number of receive buffers per endpoint that is not reported as too
 * large. */
#define FABRIC_RX_SIZE		1024
#define FABRIC_CM_SOON_US	1000	/* longest delay for which no advice is
					 * given, us */

static const cJSON *fabric_list(const struct info *info, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(info->doc, key);
}

/* --- rails --------------------------------------------------------------- */

static bool fabric_is_network(const struct info_rail *r)
{
	return strcmp(r->transport, "local") && strcmp(r->transport, "shm");
}

static void fabric_rails(struct info *info)
{
	size_t i, network = 0, loop = 0;
	const struct info_rail *r;
	cJSON *f;

	for (i = 0; i < info->n_rails; i++) {
		r = &info->rails[i];
		network += fabric_is_network(r);
		loop += !strncmp(r->host, "127.", 4) || !strcmp(r->host, "::1");
		if (!strcmp(info_get(r->doc, "state"), "up"))
			continue;
		f = info_find(info, INFO_BAD, "rail", r->name);
		info_what(f, "the rail is %s", info_get(r->doc, "state"));
		info_why(f, "this rail carries no data");
		info_cure(f, "the log lines below name the cause; MC_LOG_LEVEL=debug logs more");
	}
	if (!network || loop < network)
		return;
	f = info_find(info, INFO_WARN, "rail", info->rails[0].name);
	info_what(f, "loopback is the only rail");
	info_why(f, "no other host can be reached");
	info_cure(f, "bring up an interface and give it an address; MC_TE_FILTERS and MOONRAIL_DEVICES must not exclude it");
}

/* --- connections --------------------------------------------------------- */

/* Interprets the value of a boolean variable as libfabric does: any text except
 * these four means off. */
static bool fabric_switch_on(const char *text)
{
	static const char *const on[] = { "1", "true", "yes", "on" };
	size_t i;

	for (i = 0; i < sizeof(on) / sizeof(*on); i++)
		if (!strcasecmp(text, on[i]))
			return true;
	return false;
}

/* Reports whether the provider can close single connections. Only ofi_rxm can,
 * and only if FI_AV_REMOVE_CLEANUP was set before libfabric started. libfabric
 * has no capability bit that shows this. */
static void fabric_closing(struct info *info, const struct info_rail *r)
{
	const cJSON *lib = fabric_list(info, "libfabric");
	const char *set = info_get(lib, "av_remove_cleanup");
	bool rxm = strstr(r->provider, "ofi_rxm") != NULL;
	cJSON *f;

	if (rxm && fabric_switch_on(set)) {
		info_fine(info, "closing", r->provider,
			  "FI_AV_REMOVE_CLEANUP=%s: a single connection can be closed",
			  set);
		return;
	}
	f = info_find(info, INFO_NOTE, "closing", r->provider);
	info_what(f, "a single connection cannot be closed%s%s",
		  !rxm ? " with this provider" :
		  *set ? " with FI_AV_REMOVE_CLEANUP=" :
			 " without FI_AV_REMOVE_CLEANUP",
		  rxm ? set : "");
	info_why(f, "after a connection has broken, the engine replaces the whole endpoint while its other peers drain");
	info_cure(f, rxm ? "FI_AV_REMOVE_CLEANUP=1 in the environment before the program starts" :
			   "none needed; verbs;ofi_rxm and tcp;ofi_rxm can close a single connection with FI_AV_REMOVE_CLEANUP=1");
}

/* Checks how often ofi_rxm looks for new connection requests while an endpoint
 * is polled. By default it does so every 10 ms. */
static void fabric_connecting(struct info *info, const struct info_rail *r)
{
	const char *set = info_get(fabric_list(info, "libfabric"),
				   "cm_progress_interval");
	long us = *set ? strtol(set, NULL, 0) : FABRIC_CM_US;
	cJSON *f;

	if (!strstr(r->provider, "ofi_rxm"))
		return;
	if (us >= 0 && us <= FABRIC_CM_SOON_US) {
		info_fine(info, "connecting", r->provider,
			  "FI_OFI_RXM_CM_PROGRESS_INTERVAL=%s: connections are accepted without a delay",
			  set);
		return;
	}
	f = info_find(info, INFO_NOTE, "connecting", r->provider);
	info_what(f, "a connection may take %.4g ms to be accepted",
		  us < 0 ? FABRIC_CM_US / 1e3 : (double)us / 1e3);
	info_why(f, "this delays the first transfer to a remote rail, and the first one after the connection to the rail was evicted");
	info_cure(f, "FI_OFI_RXM_CM_PROGRESS_INTERVAL=100 (microseconds) in the environment before the target starts");
}

/* Checks the number of receive buffers of ofi_rxm. libfabric 1.17 fills all of
 * them when an endpoint is opened, even if the endpoint's attributes ask for
 * fewer. Only FI_OFI_RXM_MSG_RX_SIZE reduces them. */
static void fabric_buffers(struct info *info, const struct info_rail *r)
{
	const char *set = info_get(fabric_list(info, "libfabric"),
				   "msg_rx_size");
	long size = strtol(set, NULL, 0);
	cJSON *f;

	if (!strstr(r->provider, "ofi_rxm"))
		return;
	if (size > 0 && size <= FABRIC_RX_SIZE) {
		info_fine(info, "buffers", r->provider,
			  "FI_OFI_RXM_MSG_RX_SIZE=%s: the receive buffers of an endpoint are small",
			  set);
		return;
	}
	f = info_find(info, INFO_NOTE, "buffers", r->provider);
	info_what(f, "libfabric allocates up to 70 MB of receive buffers per endpoint");
	info_why(f, "a rail that sends has two endpoints; the buffers are for messages, not for reads and writes");
	info_cure(f, "FI_OFI_RXM_MSG_RX_SIZE=1024 in the environment before the program starts: 18 MB per endpoint");
}

static void fabric_connections(struct info *info)
{
	size_t i, k;

	for (i = 0; i < info->n_rails; i++) {
		for (k = 0; k < i; k++)
			if (!strcmp(info->rails[k].provider,
				    info->rails[i].provider))
				break;
		if (k < i || !fabric_is_network(&info->rails[i]))
			continue;
		fabric_closing(info, &info->rails[i]);
		fabric_connecting(info, &info->rails[i]);
		fabric_buffers(info, &info->rails[i]);
	}
}

/* --- several copies of a library in one process -------------------------- */

#define FABRIC_COPIES 8

struct fabric_copies {
	char paths[FABRIC_COPIES][256];
	size_t n;
};

static void fabric_copy(struct fabric_copies *c, const char *path)
{
	if (!info_is_libfabric(path))
		return;
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->paths[i], path))
			return;
	if (c->n < FABRIC_COPIES)
		snprintf(c->paths[c->n++], sizeof(c->paths[0]), "%.255s", path);
}

/* Reads which copies of libfabric the process has loaded, from /proc/PID/maps.
 * Returns false if the file cannot be read. */
static bool fabric_maps(struct info *info, struct fabric_copies *c)
{
	char *text, *line, *save = NULL, *path;

	text = info_slurp(info, "/proc/%llu/maps",
			  (unsigned long long)info->opts.pid);
	if (!text) {
		info_unseen(info, "libraries", "/proc/%llu/maps: %s",
			    (unsigned long long)info->opts.pid,
			    strerror(errno));
		return false;
	}
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		path = strchr(line, '/');
		if (path)
			fabric_copy(c, path);
	}
	free(text);
	return true;
}

static void fabric_libraries(struct info *info)
{
	struct fabric_copies c = { .n = 0 };
	char who[32] = "an engine's process";
	const cJSON *lib;
	cJSON *f;

	if (info->opts.pid) {
		snprintf(who, sizeof(who), "pid %llu",
			 (unsigned long long)info->opts.pid);
		if (!fabric_maps(info, &c))
			return;
	} else {
		cJSON_ArrayForEach(lib, fabric_list(info, "libraries"))
			fabric_copy(&c, info_get(lib, "path"));
	}
	if (c.n < 2) {
		if (c.n)
			info_fine(info, "libraries", who, "one libfabric: %s",
				  c.paths[0]);
		else
			info_unseen(info, "libraries", "%s has no libfabric.so mapped",
				    who);
		return;
	}
	f = info_find(info, INFO_BAD, "libraries", who);
	info_what(f, "%zu copies of libfabric are mapped, among them %s and %s", c.n, c.paths[0],
		  c.paths[1]);
	info_why(f, "calls to one copy reach the providers and settings of the other, and the process crashes or hangs");
	info_cure(f, "link all parts of the program with one copy; LD_DEBUG=libs shows which library loads each copy; check LD_LIBRARY_PATH, LD_PRELOAD and Python wheels that bundle their own");
}

/* Checks whether libinfinipath installs its signal handlers. It does so when it
 * is loaded, unless IPATH_NO_BACKTRACE and HFI_NO_BACKTRACE are set. For
 * another process (--pid) these variables are not read. */
static void fabric_handlers(struct info *info)
{
	const char *ipath = getenv("IPATH_NO_BACKTRACE");
	const char *hfi = getenv("HFI_NO_BACKTRACE");
	const cJSON *lib;
	cJSON *f;

	if (info->opts.pid)
		return;
	cJSON_ArrayForEach(lib, fabric_list(info, "libraries"))
		if (info_is_infinipath(info_get(lib, "path")))
			break;
	if (!lib)
		return;
	if (ipath && hfi) {
		info_fine(info, "handlers", "libinfinipath",
			  "IPATH_NO_BACKTRACE and HFI_NO_BACKTRACE are set");
		return;
	}
	f = info_find(info, INFO_NOTE, "handlers", "libinfinipath");
	info_what(f, "libfabric loads %s, which installs signal handlers",
		  info_get(lib, "path"));
	info_why(f, "a process that SIGTERM ends then exits with status 1, and SIGSEGV leaves no core file");
	info_cure(f, "IPATH_NO_BACKTRACE=1 HFI_NO_BACKTRACE=1 in the environment before the program starts");
}

/* --- RDMA ---------------------------------------------------------------- */

/* Returns true if the port has a GID that is not link-local (fe80::/10). The
 * provider chooses among such GIDs. */
static bool fabric_has_gid(const cJSON *port)
{
	const cJSON *gid;
	uint8_t raw[16];

	cJSON_ArrayForEach(gid, cJSON_GetObjectItemCaseSensitive(port, "gids"))
	{
		if (inet_pton(AF_INET6, info_get(gid, "gid"), raw) == 1 &&
		    (raw[0] != 0xfe || (raw[1] & 0xc0) != 0x80))
			return true;
	}
	return false;
}

static void fabric_gid(struct info *info, const char *name, const cJSON *port)
{
	cJSON *f;

	if (strcmp(info_get(port, "link_layer"), "Ethernet"))
		return;
	if (fabric_has_gid(port)) {
		info_fine(info, "gid", name, "port %.0f has a GID that is not link-local",
			  info_get_num(port, "port"));
		return;
	}
	f = info_find(info, INFO_WARN, "gid", name);
	info_what(f, "port %.0f has link-local GIDs only",
		  info_get_num(port, "port"));
	info_why(f, "RoCE needs a GID that is an IP address to reach other hosts");
	info_cure(f, "give the port's interface an IP address; ibv_devinfo -v lists the GIDs");
}

/* Returns the highest speed that the interface of an Ethernet port supports, or
 * 0 if it is unknown. */
static double fabric_ethernet_max(const struct info *info, const cJSON *port)
{
	const cJSON *gids = cJSON_GetObjectItemCaseSensitive(port, "gids"), *o;
	const char *netdev = info_get(cJSON_GetArrayItem(gids, 0), "netdev");

	cJSON_ArrayForEach(o, fabric_list(info, "interfaces"))
		if (*netdev && !strcmp(info_get(o, "name"), netdev))
			return info_get_num(o, "speed_max_bps");
	return 0;
}

/* Returns the speed of the fastest active port of the device. */
static double fabric_fastest(const cJSON *ports)
{
	const cJSON *port;
	double best = 0;

	cJSON_ArrayForEach(port, ports)
		if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(port,
								  "active")) &&
		    info_get_num(port, "speed_bps") > best)
			best = info_get_num(port, "speed_bps");
	return best;
}

/*
 * Checks whether a port runs at the speed that it supports. libibverbs reports
 * only the present speed. The supported speed of an Ethernet port is that of
 * its interface. For an InfiniBand port, the check assumes that it supports at
 * least two lanes and the speed of the fastest active port of the device.
 */
static void fabric_rate(struct info *info, const char *name, const cJSON *port,
			const cJSON *ports)
{
	bool ib = !strcmp(info_get(port, "link_layer"), "InfiniBand");
	double speed = info_get_num(port, "speed_bps");
	double max = ib ? fabric_fastest(ports) :
			  fabric_ethernet_max(info, port);
	bool lame = ib && info_get_num(port, "lanes") == 1;
	char rate[32], most[32];
	cJSON *f;

	info_bits_text(speed, rate, sizeof(rate));
	/* a rate may be reported with or without coding overhead, so a
	 * difference of 10 % is accepted */
	if (!lame && speed >= max * 0.9) {
		info_fine(info, "rdma_port", name, "port %.0f is active at %s",
			  info_get_num(port, "port"), rate);
		return;
	}
	f = info_find(info, INFO_WARN, "rdma_rate", name);
	if (lame)
		info_what(f, "port %.0f runs on one lane, at %s",
			  info_get_num(port, "port"), rate);
	else
		info_what(f, "port %.0f runs at %s, %s %s",
			  info_get_num(port, "port"), rate,
			  ib ? "another port of the device at" : "the port supports",
			  info_bits_text(max, most, sizeof(most)));
	info_why(f, "the link has negotiated a lower speed than the port supports");
	info_cure(f, "check the cable, the transceiver and the switch port; mlxlink or ethtool shows what both ends offer");
}

static void fabric_port(struct info *info, const char *name, const cJSON *port,
			const cJSON *ports)
{
	double mtu = info_get_num(port, "mtu");
	double max = info_get_num(port, "mtu_max");
	cJSON *f;

	if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(port, "active"))) {
		f = info_find(info, INFO_WARN, "rdma_port", name);
		info_what(f, "port %.0f is %s", info_get_num(port, "port"),
			  *info_get(port, "state") ? info_get(port, "state") :
						     info_get(port, "error"));
		info_why(f, "this port cannot be a rail");
		info_cure(f, "check the cable and the switch; RoCE needs ip link set … up, InfiniBand a running subnet manager");
		return;
	}
	fabric_rate(info, name, port, ports);
	fabric_gid(info, name, port);
	if (mtu >= max || mtu >= 4096)
		return;
	f = info_find(info, INFO_NOTE, "rdma_mtu", name);
	info_what(f, "port %.0f uses an MTU of %.0f where %.0f is possible",
		  info_get_num(port, "port"), mtu, max);
	info_why(f, "each packet has a fixed cost in the NIC, so small packets lower the throughput");
	info_cure(f, "ip link set … mtu 9000 (4200 at least) on its interface and the switch");
}

static void fabric_unused(struct info *info, size_t devices)
{
	cJSON *f;
	size_t i;

	for (i = 0; i < info->n_rails; i++)
		if (!strcmp(info->rails[i].transport, "rdma"))
			return;
	if (!devices || strcmp(info->opts.protocol, "auto"))
		return;
	f = info_find(info, INFO_WARN, "rdma", "rails");
	info_what(f, "this host has %zu RDMA devices, but no rail uses one", devices);
	info_why(f, "tcp costs CPU time and throughput that RDMA does not");
	info_cure(f, "fi_info -p verbs shows whether libfabric finds them; MC_FORCE_TCP, MOONRAIL_PROVIDER and MC_TE_FILTERS must not exclude them");
}

static void fabric_rdma(struct info *info)
{
	const cJSON *dev, *port, *list = fabric_list(info, "rdma_devices");
	const cJSON *ports;

	cJSON_ArrayForEach(dev, list) {
		ports = cJSON_GetObjectItemCaseSensitive(dev, "ports");
		cJSON_ArrayForEach(port, ports)
			fabric_port(info, info_get(dev, "name"), port, ports);
	}
	fabric_unused(info, (size_t)cJSON_GetArraySize(list));
}

void info_check_fabric(struct info *info)
{
	fabric_rails(info);
	fabric_connections(info);
	fabric_libraries(info);
	fabric_handlers(info);
	fabric_rdma(info);
}
