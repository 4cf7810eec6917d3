/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links. The kernel reports over a netlink socket that some interface or
 * address has changed. Then the flags of the rails' interfaces are read, and
 * the user of the data plane is notified, because there may be devices for more
 * rails. Without such a socket the user is notified at intervals.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_timing.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

void rail_link_open(struct tei_rail_dp *dp)
{
	struct sockaddr_nl sa = {
		.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR |
			     RTMGRP_IPV6_IFADDR,
	};

	dp->link.fd =
		socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
		       NETLINK_ROUTE);
	if (dp->link.fd < 0)
		return;
	if (!bind(dp->link.fd, (struct sockaddr *)&sa, sizeof(sa)))
		return;
	close(dp->link.fd);
	dp->link.fd = -1;
}

void rail_link_close(struct tei_rail_dp *dp)
{
	if (dp->link.fd >= 0)
		close(dp->link.fd);
	dp->link.fd = -1;
}

static uint32_t link_index(const struct rail *rail)
{
	return __atomic_load_n(&rail->nic.ifindex, __ATOMIC_RELAXED);
}

/* Returns false if the interface is gone, down or without carrier. If its flags
 * cannot be read, returns true. */
static bool link_up(const struct rail *rail, int fd)
{
	struct ifreq req;

	memset(&req, 0, sizeof(req));
	if (!if_indextoname(link_index(rail), req.ifr_name))
		return false;
	if (ioctl(fd, SIOCGIFFLAGS, &req))
		return true;
	return (req.ifr_flags & IFF_UP) && (req.ifr_flags & IFF_RUNNING);
}

static bool link_is_ip(const struct tei_rail_addr *a)
{
	return a->addr_format == FI_SOCKADDR ||
	       a->addr_format == FI_SOCKADDR_IN ||
	       a->addr_format == FI_SOCKADDR_IN6;
}

/* Returns the interface that has the address, or NULL. */
static const struct ifaddrs *link_interface(const struct ifaddrs *ifs,
					    const struct tei_rail_addr *a)
{
	for (; ifs; ifs = ifs->ifa_next)
		if (rail_info_same_ip(ifs->ifa_addr, (const void *)a->bytes))
			return ifs;
	return NULL;
}

void rail_link_find(struct rail *rail)
{
	const struct ifaddrs *i;
	struct ifaddrs *list;
	int fd;

	if (!link_is_ip(&rail->rx_lane.addr) || getifaddrs(&list))
		return;
	i = link_interface(list, &rail->rx_lane.addr);
	if (i) {
		rail->nic.ifindex = if_nametoindex(i->ifa_name);
		rail->nic.wire =
			rail->nic.ifindex && !(i->ifa_flags & IFF_LOOPBACK);
	}
	freeifaddrs(list);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (rail->nic.ifindex)
		__atomic_store_n(&rail->link.down, !link_up(rail, fd),
				 __ATOMIC_RELAXED);
	close(fd);
}

bool rail_link_has_address(struct rail *rail, const struct ifaddrs *ifs)
{
	const struct ifaddrs *i;
	uint32_t index = link_index(rail);
	char name[IF_NAMESIZE];

	if (!index || !link_is_ip(&rail->nic.own))
		return true;
	i = link_interface(ifs, &rail->nic.own);
	if (i && !if_indextoname(index, name)) {
		index = if_nametoindex(i->ifa_name);
		if (index)
			__atomic_store_n(&rail->nic.ifindex, index,
					 __ATOMIC_RELAXED);
	}
	return i;
}

/* Handles that the link is down: cuts the connections of the tx lanes, so that
 * posted slices return at once and go to the fence. */
static void link_lost(struct rail *rail)
{
	struct rail_done done;
	struct rail_lane *lane;
	bool clean;
	uint32_t j;

	for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
		lane = &rail->tx_lanes[j];
		rail_done_init(&done);
		tei_mutex_lock(&lane->lock);
		clean = tei_list_empty(&lane->posted);
		if (!clean) {
			lane->link_cut = true;
			rail_disconnect(lane, &done);
			clean = tei_list_empty(&lane->posted);
		}
		tei_mutex_unlock(&lane->lock);
		rail_done_run(rail->dp, &done);
		if (!clean && __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) ==
				      RAIL_LANE_ACTIVE)
			rail_renew_lane(lane, 0);
	}
}

/*
 * Handles that the link is up again: opens the tx lanes again with new
 * addresses, because a peer may still hold connections from the old addresses.
 */
static void link_back(struct rail *rail)
{
	struct rail_lane *lane;
	uint32_t j, n = rail->ntx * RAIL_LANE_SLOTS;

	for (j = 0; j < n; j++) {
		lane = &rail->tx_lanes[j];
		if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) ==
			    RAIL_LANE_ACTIVE && lane->link_cut) {
			lane->link_cut = false;
			rail_renew_lane(lane, 0);
		}
	}
	rail_sched_enter(rail->dp);
	rail_probe_soon(rail, NULL);
	rail_sched_leave(rail->dp);
}

/* Reads the state of the rail's link and handles a change. fd: any socket, for
 * the ioctl. */
static void link_check(struct rail *rail, int fd)
{
	bool down = !link_up(rail, fd);

	if (down == __atomic_load_n(&rail->link.down, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&rail->link.down, down, __ATOMIC_RELAXED);
	rail_sched_enter(rail->dp);
	rail_health_state(rail);
	rail_sched_leave(rail->dp);
	if (down)
		link_lost(rail);
	else
		link_back(rail);
	rail_sched_kick(rail->dp, 0);
}

/* Returns true if a link is down and must be checked again now, because it may
 * be up again without a report. */
static bool link_again(struct tei_rail_dp *dp)
{
	uint64_t now = tei_now_ns();
	bool down = false;
	uint32_t i;

	if (now < dp->link.next_ns)
		return false;
	dp->link.next_ns = now + RAIL_LINK_AGAIN_NS;
	for (i = 0; i < rail_count(dp); i++)
		down |= __atomic_load_n(&rail_at(dp, i)->link.down,
					__ATOMIC_RELAXED);
	return down;
}

static void link_notify(struct tei_rail_dp *dp)
{
	if (dp->ops->devices_changed &&
	    !__atomic_load_n(&dp->thread.no_callbacks, __ATOMIC_ACQUIRE))
		dp->ops->devices_changed(dp->arg);
}

/* Returns true if ops->devices_changed must be called although the kernel
 * reported nothing. */
static bool link_devices_due(struct tei_rail_dp *dp)
{
	uint64_t now = tei_now_ns();

	if (dp->link.fd >= 0 || now < dp->link.devices_next_ns)
		return false;
	dp->link.devices_next_ns = now + RAIL_LINK_DEVICES_NS;
	return true;
}

/* Reads the reports from the socket. Returns true if there was a report, or if
 * a report was lost (ENOBUFS). */
static bool link_received(int fd)
{
	char buf[8192];
	bool received = false;
	ssize_t n;
	int i;

	for (i = 0; i < 64; i++) {
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n < 0 && errno != ENOBUFS)
			break;
		received = true;
	}
	return received;
}

void rail_link_read(struct tei_rail_dp *dp)
{
	bool received = dp->link.fd >= 0 && link_received(dp->link.fd);
	struct rail *rail;
	uint32_t i;
	int fd;

	if (received || link_devices_due(dp))
		link_notify(dp);
	if (!received && !link_again(dp))
		return;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (link_index(rail) &&
		    __atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
			link_check(rail, fd);
	}
	close(fd);
}
