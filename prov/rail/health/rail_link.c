/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Watches the links of the rails. When the kernel reports over a netlink socket
 * that an interface or address has changed, the flags of the rails' interfaces
 * are read. The owner of the data plane is notified too, because there may be
 * devices for more rails. Without a netlink socket, the owner is notified at
 * intervals.
 */

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/fabric.h>

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
#include "util/world.h"

void rail_link_open(struct tei_rail_dp *dp)
{
	dp->link.fd = tei_world->net.changes_open();
}

void rail_link_close(struct tei_rail_dp *dp)
{
	if (dp->link.fd >= 0)
		tei_world->net.close(dp->link.fd);
	dp->link.fd = -1;
}

static uint32_t link_index(const struct rail *rail)
{
	return __atomic_load_n(&rail->nic.ifindex, __ATOMIC_RELAXED);
}

static bool link_is_ip(const struct tei_rail_addr *a)
{
	return a->addr_format == FI_SOCKADDR ||
	       a->addr_format == FI_SOCKADDR_IN ||
	       a->addr_format == FI_SOCKADDR_IN6;
}

/* Returns the entry of ifs that has the address, or NULL if there is none. */
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
	const struct tei_world_net *net = &tei_world->net;
	const struct ifaddrs *i;
	struct ifaddrs *list;

	if (!link_is_ip(&rail->rx_lane.addr) || net->interfaces(&list))
		return;
	i = link_interface(list, &rail->rx_lane.addr);
	if (i) {
		rail->nic.ifindex = net->interface_index(i->ifa_name);
		rail->nic.wire =
			rail->nic.ifindex && !(i->ifa_flags & IFF_LOOPBACK);
	}
	net->interfaces_free(list);
	if (rail->nic.ifindex)
		__atomic_store_n(&rail->link.down,
				 !net->interface_up(rail->nic.ifindex),
				 __ATOMIC_RELAXED);
}

bool rail_link_has_address(struct rail *rail, const struct ifaddrs *ifs)
{
	const struct ifaddrs *i;
	uint32_t index = link_index(rail);
	char name[IF_NAMESIZE];

	if (!index || !link_is_ip(&rail->nic.own))
		return true;
	i = link_interface(ifs, &rail->nic.own);
	if (i && !tei_world->net.interface_name(index, name)) {
		index = tei_world->net.interface_index(i->ifa_name);
		if (index)
			__atomic_store_n(&rail->nic.ifindex, index,
					 __ATOMIC_RELAXED);
	}
	return i;
}

/* Handles that the link has gone down: cuts the connections of the tx lanes, so
 * that posted slices return at once and wait for a fence. */
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

/* Handles that the link is up again: opens the tx lanes again. They get new
 * addresses, because a peer may still hold connections from the old ones. */
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

/* Reads the state of the rail's link and handles a change. */
static void link_check(struct rail *rail)
{
	int up = tei_world->net.interface_up(link_index(rail));
	bool down = !up;

	if (up < 0 ||
	    down == __atomic_load_n(&rail->link.down, __ATOMIC_RELAXED))
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

/* Returns true if a rail's link is down and must be checked again now, because
 * the link may have come up without a report by the kernel. */
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

void rail_link_read(struct tei_rail_dp *dp)
{
	bool received = dp->link.fd >= 0 &&
			tei_world->net.changes_read(dp->link.fd);
	struct rail *rail;
	uint32_t i;

	if (received || link_devices_due(dp))
		link_notify(dp);
	if (!received && !link_again(dp))
		return;
	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (link_index(rail) &&
		    __atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
			link_check(rail);
	}
}
