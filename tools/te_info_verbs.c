/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists RDMA devices and ports, as libibverbs reports them. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

#include "tools/te_info.h"

#define VERBS_GIDS 256		/* largest number of entries of a port's GID
				 * table that are examined */

static double verbs_lanes(const struct ibv_port_attr *p)
{
	static const struct { uint8_t code; double lanes; } widths[] = {
		{ 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 },
	};
	size_t i;

	for (i = 0; i < sizeof(widths) / sizeof(*widths); i++)
		if (widths[i].code == p->active_width)
			return widths[i].lanes;
	return 0;
}

/* Returns the speed of a port, bits/s: the number of its lanes times the speed
 * of a lane. */
static double verbs_speed(const struct ibv_port_attr *p)
{
	static const struct { uint8_t code; double gbps; } speeds[] = {
		{ 1, 2.5 }, { 2, 5 }, { 4, 10 }, { 8, 10 }, { 16, 14.0625 },
		{ 32, 25.78125 }, { 64, 53.125 }, { 128, 106.25 },
	};
	double gbps = 0;
	size_t i;

	for (i = 0; i < sizeof(speeds) / sizeof(*speeds); i++)
		if (speeds[i].code == p->active_speed)
			gbps = speeds[i].gbps;
	return verbs_lanes(p) * gbps * 1e9;
}

/*
 * Returns the speed of a port according to sysfs, bits/s, or 0 if it is
 * unknown. sysfs has a text such as "800 Gb/sec (4X XDR)". libibverbs has only
 * eight bits for the speed of a lane, which cannot express speeds above NDR.
 * For a faster lane it reports a lower speed.
 */
static double verbs_sysfs_speed(const struct info *info, const char *device,
				uint8_t port)
{
	char text[64];
	double gbps;

	if (!info_read(info, text, sizeof(text),
		       "/sys/class/infiniband/%s/ports/%u/rate", device, port) ||
	    sscanf(text, "%lf Gb/sec", &gbps) != 1)
		return 0;
	return gbps * 1e9;
}

static unsigned int verbs_mtu(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ?
		       128u << (unsigned int)mtu : 0;
}

static bool verbs_gid_empty(const union ibv_gid *gid)
{
	static const union ibv_gid none;

	return !memcmp(gid, &none, sizeof(none)) ||
	       (gid->raw[0] == 0xfe && gid->raw[1] == 0x80 &&
		!memcmp(gid->raw + 8, none.raw + 8, 8));
}

static void verbs_gids(struct info *info, struct ibv_context *ctx,
		       uint8_t port, const struct ibv_port_attr *attr,
		       cJSON *doc)
{
	cJSON *list = info_array(doc, "gids"), *o;
	const char *device = ibv_get_device_name(ctx->device);
	char text[64], type[32];
	union ibv_gid gid;
	int i;

	for (i = 0; i < attr->gid_tbl_len && i < VERBS_GIDS; i++) {
		if (ibv_query_gid(ctx, port, i, &gid) || verbs_gid_empty(&gid))
			continue;
		o = info_object(list, NULL);
		info_num(o, "index", i);
		info_text(o, "gid", "%s", inet_ntop(AF_INET6, &gid, text,
						    sizeof(text)));
		if (info_read(info, type, sizeof(type),
			      "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%d",
			      device, port, i))
			info_text(o, "type", "%s", type);
		if (info_read(info, type, sizeof(type),
			      "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%d",
			      device, port, i))
			info_text(o, "netdev", "%s", type);
	}
}

static void verbs_port(struct info *info, struct ibv_context *ctx,
		       uint8_t port, cJSON *list)
{
	const char *device = ibv_get_device_name(ctx->device);
	struct ibv_port_attr attr;
	double speed, sysfs;
	cJSON *o;
	int ret;

	memset(&attr, 0, sizeof(attr));
	ret = ibv_query_port(ctx, port, &attr);
	o = info_object(list, NULL);
	info_num(o, "port", port);
	if (ret) {
		info_text(o, "error", "%s", strerror(ret));
		return;
	}
	info_text(o, "state", "%s", ibv_port_state_str(attr.state));
	info_bool(o, "active", attr.state == IBV_PORT_ACTIVE);
	info_text(o, "link_layer", "%s",
		  attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" :
		  attr.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand" :
								 "unspecified");
	info_num(o, "lid", attr.lid);
	info_num(o, "mtu", verbs_mtu(attr.active_mtu));
	info_num(o, "mtu_max", verbs_mtu(attr.max_mtu));
	speed = verbs_speed(&attr);
	sysfs = verbs_sysfs_speed(info, device, port);
	info_num(o, "speed_bps", sysfs > speed ? sysfs : speed);
	info_num(o, "lanes", verbs_lanes(&attr));
	verbs_gids(info, ctx, port, &attr, o);
}

static void verbs_device(struct info *info, struct ibv_device *dev,
			 cJSON *list)
{
	struct ibv_context *ctx = ibv_open_device(dev);
	cJSON *o = info_object(list, NULL), *ports;
	struct ibv_device_attr attr;

	info_text(o, "name", "%s", ibv_get_device_name(dev));
	if (!ctx) {
		info_text(o, "error", "%s", strerror(errno));
		info_unseen(info, "rdma", "%s: %s", ibv_get_device_name(dev),
			    strerror(errno));
		return;
	}
	if (!ibv_query_device(ctx, &attr)) {
		info_text(o, "firmware", "%.64s", attr.fw_ver);
		info_num(o, "max_qp", attr.max_qp);
		info_num(o, "max_mr", attr.max_mr);
		info_num(o, "max_mr_bytes", (double)attr.max_mr_size);
		ports = info_array(o, "ports");
		for (uint8_t p = 1; p <= attr.phys_port_cnt && p < INFO_PORTS;
		     p++)
			verbs_port(info, ctx, p, ports);
	}
	ibv_close_device(ctx);
}

void info_look_verbs(struct info *info)
{
	cJSON *list = info_array(info->doc, "rdma_devices");
	struct ibv_device **devs;
	int n = 0, i;

	errno = 0;
	devs = ibv_get_device_list(&n);
	if (!devs) {
		/* ENOSYS means that the kernel has no RDMA support, which need
		 * not be reported */
		if (errno != ENOSYS)
			info_unseen(info, "rdma", "ibv_get_device_list: %s",
				    strerror(errno));
		return;
	}
	for (i = 0; i < n; i++)
		verbs_device(info, devs[i], list);
	ibv_free_device_list(devs);
}
