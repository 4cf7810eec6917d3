/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MOONRAIL_DATA_PORTS: the range of ports at which the endpoints of tcp rails
 * listen.
 *
 * Every endpoint listens, even those of tx lanes and probes. moonrail looks for
 * a free port before it opens an endpoint, because opening one may fill tens of
 * megabytes with receive buffers first. If another process takes the port in
 * between, the lane is opened again at the next port.
 */

#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/tei_rail.h"
#include "util/settings.h"
#include "util/world.h"

bool rail_ports_apply(const struct rail_lane *lane, const struct fi_info *info)
{
	const struct sockaddr *sa = info->src_addr;

	return lane->rail->dp->settings->rails.data_port_low &&
	       !strcmp(lane->rail->nic.transport, "tcp") && sa &&
	       (info->addr_format == FI_SOCKADDR ||
		info->addr_format == FI_SOCKADDR_IN ||
		info->addr_format == FI_SOCKADDR_IN6) &&
	       (sa->sa_family == AF_INET || sa->sa_family == AF_INET6);
}

/*
 * Returns true if the port belongs to the contact address of a rail of this
 * engine. A contact lane opens that address again after the rx lane has moved,
 * and no other lane may take the port in between.
 */
static bool ports_reserved(struct tei_rail_dp *dp, uint16_t port)
{
	struct sockaddr_in own;
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++) {
		if (rail_at(dp, i)->nic.own.len < sizeof(own) ||
		    !rail_addr_is_ip(&rail_at(dp, i)->nic.own))
			continue;
		/* sin6_port has the same offset in a sockaddr_in6 */
		memcpy(&own, rail_at(dp, i)->nic.own.bytes, sizeof(own));
		if (ntohs(own.sin_port) == port)
			return true;
	}
	return false;
}

/* Returns true if a socket can listen at the address. Also returns true if no
 * socket can be created; the opening of the endpoint then reports the cause. */
static bool ports_free(const struct sockaddr *sa, uint32_t len)
{
	return tei_world->net.bindable(sa, len, true) == TEI_NET_BIND_FREE;
}

int rail_ports_set(const struct rail_lane *lane, struct fi_info *info)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	uint32_t low = dp->settings->rails.data_port_low;
	uint32_t count = dp->settings->rails.data_port_high - low + 1, i;
	struct sockaddr_in *sa = info->src_addr;
	uint16_t port;

	for (i = 0; i < count; i++) {
		port = (uint16_t)(low + __atomic_fetch_add(&dp->conf.next_port,
							   1,
							   __ATOMIC_RELAXED) %
						count);
		/* sin6_port has the same offset in a sockaddr_in6 */
		sa->sin_port = htons(port);
		if (!ports_reserved(dp, port) &&
		    ports_free(info->src_addr, (uint32_t)info->src_addrlen))
			return 0;
	}
	return -FI_EADDRNOTAVAIL;
}

bool rail_ports_again(const struct rail_lane *lane, int ret, uint32_t tries)
{
	return ret == -FI_EADDRINUSE && !lane->contact &&
	       rail_ports_apply(lane, lane->rail->fab.info) &&
	       tries < RAIL_PORT_TRIES;
}

void rail_ports_hint(const struct rail_lane *lane, int ret, char *hint,
		     size_t len)
{
	const struct tei_settings *s = lane->rail->dp->settings;

	if ((ret == -FI_EADDRNOTAVAIL || ret == -FI_EADDRINUSE) &&
	    rail_ports_apply(lane, lane->rail->fab.info))
		snprintf(hint, len,
			 "widen MOONRAIL_DATA_PORTS=%u-%u: none of its ports "
			 "is free",
			 s->rails.data_port_low, s->rails.data_port_high);
}
