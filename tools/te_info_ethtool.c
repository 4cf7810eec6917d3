/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads link, driver and offloads of the interfaces, as their drivers report
 * them (SIOCETHTOOL). If a driver does not support a query, the report does not
 * contain the members that the query would fill. */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/te_info.h"

/* Sends a query to the driver. data begins with the command and receives the
 * result. Returns 0, or -1 with errno set. */
static int ethtool_ask(int fd, const struct info_net *net, void *data)
{
	struct ifreq req;

	memset(&req, 0, sizeof(req));
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%.15s", net->name);
	req.ifr_data = data;
	return ioctl(fd, SIOCETHTOOL, &req);
}

/* Sends a query whose result is a number. Returns this number, or -1 on
 * failure. */
static long ethtool_value(int fd, const struct info_net *net, uint32_t cmd)
{
	struct ethtool_value v = { .cmd = cmd };

	return ethtool_ask(fd, net, &v) ? -1 : (long)v.data;
}

static void ethtool_driver(int fd, const struct info_net *net, cJSON *doc)
{
	struct ethtool_drvinfo d = { .cmd = ETHTOOL_GDRVINFO };

	if (ethtool_ask(fd, net, &d))
		return;
	info_text(doc, "driver", "%.32s", d.driver);
	if (d.fw_version[0] && strncmp(d.fw_version, "N/A", 3))
		info_text(doc, "firmware", "%.32s", d.fw_version);
	if (d.bus_info[0])
		info_text(doc, "bus", "%.32s", d.bus_info);
}

/* Speed of link modes, Mbit/s. Each row is for the bits from first to last.
 * Bits outside of all rows are no link modes or are unknown. */
static const struct {
	unsigned int first, last, mbps;
} ethtool_modes[] = {
	{ 0, 1, 10 }, { 2, 3, 100 }, { 4, 5, 1000 }, { 12, 12, 10000 },
	{ 15, 15, 2500 }, { 17, 17, 1000 }, { 18, 20, 10000 },
	{ 21, 22, 20000 }, { 23, 26, 40000 }, { 27, 30, 56000 },
	{ 31, 33, 25000 }, { 34, 35, 50000 }, { 36, 39, 100000 },
	{ 40, 40, 50000 }, { 41, 41, 1000 }, { 42, 46, 10000 },
	{ 47, 47, 2500 }, { 48, 48, 5000 }, { 52, 56, 50000 },
	{ 57, 61, 100000 }, { 62, 66, 200000 }, { 67, 67, 100 },
	{ 68, 68, 1000 }, { 69, 73, 400000 }, { 75, 79, 100000 },
	{ 80, 84, 200000 }, { 85, 89, 400000 }, { 90, 91, 100 },
	{ 93, 98, 800000 },
};

/* Returns the speed of the fastest mode in the bitmap, Mbit/s, or 0 if no mode
 * is known. */
static unsigned int ethtool_fastest(const uint32_t *bits, unsigned int words)
{
	unsigned int best = 0, bit;
	size_t i;

	for (i = 0; i < sizeof(ethtool_modes) / sizeof(*ethtool_modes); i++)
		for (bit = ethtool_modes[i].first;
		     bit <= ethtool_modes[i].last && bit / 32 < words; bit++)
			if (bits[bit / 32] >> bit % 32 & 1 &&
			    ethtool_modes[i].mbps > best)
				best = ethtool_modes[i].mbps;
	return best;
}

/* Adds speed and duplex of the link, and the highest supported speed. Bitmaps
 * of link modes follow the struct, in a size that the kernel reports. The first
 * bitmap contains the modes that the port supports. */
static void ethtool_link(int fd, const struct info_net *net, cJSON *doc)
{
	_Alignas(8) char room[sizeof(struct ethtool_link_settings) +
			      sizeof(uint32_t) * 3 * 127] = { 0 };
	struct ethtool_link_settings *s = (void *)room;
	static const char *const duplex[] = { "half", "full" };
	unsigned int fastest;

	s->cmd = ETHTOOL_GLINKSETTINGS;
	if (ethtool_ask(fd, net, s))
		return;
	if (s->link_mode_masks_nwords < 0) {
		s->link_mode_masks_nwords =
			(int8_t)-s->link_mode_masks_nwords;
		s->cmd = ETHTOOL_GLINKSETTINGS;
		if (ethtool_ask(fd, net, s))
			return;
	}
	if (s->speed && s->speed != (uint32_t)SPEED_UNKNOWN)
		info_num(doc, "speed_bps", (double)s->speed * 1e6);
	fastest = ethtool_fastest((const void *)(s + 1),
				  s->link_mode_masks_nwords < 0 ? 0 :
				  (unsigned int)s->link_mode_masks_nwords);
	if (fastest)
		info_num(doc, "speed_max_bps", fastest * 1e6);
	if (s->duplex < 2)
		info_text(doc, "duplex", "%s", duplex[s->duplex]);
	info_bool(doc, "autoneg", s->autoneg == AUTONEG_ENABLE);
}

static void ethtool_offloads(int fd, const struct info_net *net, cJSON *doc)
{
	static const struct {
		const char *name;
		uint32_t cmd;
	} rows[] = {
		{ "tx_checksum", ETHTOOL_GTXCSUM },
		{ "rx_checksum", ETHTOOL_GRXCSUM },
		{ "scatter_gather", ETHTOOL_GSG },
		{ "tso", ETHTOOL_GTSO },
		{ "gso", ETHTOOL_GGSO },
		{ "gro", ETHTOOL_GGRO },
	};
	cJSON *o = NULL;
	long value;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		value = ethtool_value(fd, net, rows[i].cmd);
		if (value < 0)
			continue;
		if (!o)
			o = info_object(doc, "offloads");
		info_bool(o, rows[i].name, value != 0);
	}
}

static void ethtool_rings(int fd, const struct info_net *net, cJSON *doc)
{
	struct ethtool_ringparam r = { .cmd = ETHTOOL_GRINGPARAM };
	struct ethtool_channels c = { .cmd = ETHTOOL_GCHANNELS };
	cJSON *o;

	if (!ethtool_ask(fd, net, &r) && r.rx_max_pending) {
		o = info_object(doc, "rings");
		info_num(o, "rx", r.rx_pending);
		info_num(o, "rx_max", r.rx_max_pending);
		info_num(o, "tx", r.tx_pending);
		info_num(o, "tx_max", r.tx_max_pending);
	}
	if (!ethtool_ask(fd, net, &c)) {
		o = info_object(doc, "channels");
		info_num(o, "rx", c.rx_count);
		info_num(o, "tx", c.tx_count);
		info_num(o, "combined", c.combined_count);
		info_num(o, "combined_max", c.max_combined);
	}
}

void info_ethtool(struct info *info, const struct info_net *net, cJSON *doc)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	long link;

	if (fd < 0)
		fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		if (net == info->nets)
			info_unseen(info, "ethtool", "socket: %s",
				    strerror(errno));
		return;
	}
	link = ethtool_value(fd, net, ETHTOOL_GLINK);
	if (link >= 0)
		info_bool(doc, "link", link != 0);
	else if (errno != EOPNOTSUPP)
		info_unseen(info, "ethtool", "%s: %s", net->name,
			    strerror(errno));
	ethtool_driver(fd, net, doc);
	ethtool_link(fd, net, doc);
	ethtool_offloads(fd, net, doc);
	ethtool_rings(fd, net, doc);
	close(fd);
}
