/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens rails for devices that appear while the engine runs, and replaces
 * rails.
 *
 * An interface may get its carrier or its address after the engine has started.
 * The rail of this interface is then opened, as if tei_rail_dp_add_transport
 * were called later. The fallback rails, such as loopback, are then hidden:
 * they are no longer published, and peers that do not know them yet are not
 * notified of them. A hidden rail stays open as long as a peer that knows it is
 * alive, because that peer may have no other route. Then it is closed.
 *
 * If the address of a rail is gone and the rail's device has another address, a
 * rail with the new address replaces the old rail. The old rail is closed at
 * once, because no route leads to it. If there is no other address, the rail
 * stays, and health checks find out when the address is back.
 *
 * The index of a closed rail is not used again: peers, slices, fences and
 * registrations refer to a rail by its index, also in messages that are still
 * in transit. So a data plane opens at most TEI_RAIL_MAX rails in its life.
 */

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "prov/rail/conn/rail_announce.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/rail_open.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/text.h"
#include "util/world.h"

/* --- interfaces ----------------------------------------------------------- */

static size_t refresh_length(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

/* Returns a hash of the names, flags and addresses of all interfaces with an IP
 * address. */
static uint64_t refresh_hash(const struct ifaddrs *ifs)
{
	uint64_t hash = TEI_HASH_INIT;
	unsigned int flags;
	size_t len;

	for (; ifs; ifs = ifs->ifa_next) {
		len = ifs->ifa_addr ? refresh_length(ifs->ifa_addr) : 0;
		if (!len)
			continue;
		flags = ifs->ifa_flags & (IFF_UP | IFF_RUNNING);
		hash = tei_hash_add(hash, ifs->ifa_name,
					strlen(ifs->ifa_name));
		hash = tei_hash_add(hash, &flags, sizeof(flags));
		hash = tei_hash_add(hash, ifs->ifa_addr, len);
	}
	return hash;
}

bool tei_rail_dp_devices_changed(struct tei_rail_dp *dp)
{
	struct ifaddrs *ifs = NULL;
	uint64_t hash;
	bool changed;

	if (tei_world->net.interfaces(&ifs))
		return true;
	hash = refresh_hash(ifs);
	tei_world->net.interfaces_free(ifs);
	tei_mutex_lock(&dp->admin);
	changed = hash != dp->devices.seen;
	dp->devices.seen = hash;
	tei_mutex_unlock(&dp->admin);
	return changed;
}

/* Returns false if no socket can be bound to the address in info yet, for
 * example because the kernel still checks a new IPv6 address for duplicates.
 * The kernel sends a report when the address can be used. */
static bool refresh_bindable(const struct fi_info *info)
{
	struct sockaddr_storage ss;
	struct sockaddr *sa = (struct sockaddr *)&ss;
	size_t len;

	if (!info->src_addr || info->src_addrlen > sizeof(ss) ||
	    info->src_addrlen < sizeof(struct sockaddr_in))
		return true;
	memset(&ss, 0, sizeof(ss));
	memcpy(&ss, info->src_addr, info->src_addrlen);
	len = refresh_length(sa);
	if (!len || len > info->src_addrlen)
		return true;
	if (sa->sa_family == AF_INET)
		((struct sockaddr_in *)sa)->sin_port = 0;
	else
		((struct sockaddr_in6 *)sa)->sin6_port = 0;
	return tei_world->net.bindable(sa, (uint32_t)len, false) !=
	       TEI_NET_BIND_ABSENT;
}

/* --- rails --------------------------------------------------------------- */

static bool refresh_in_use(const struct rail *rail, const char *transport)
{
	return __atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) &&
	       !strcmp(rail->nic.transport, transport);
}

static bool refresh_hidden(const struct rail *rail)
{
	return __atomic_load_n(&rail->hidden, __ATOMIC_ACQUIRE);
}

/* Returns true if the transport has an open, published rail that is not a
 * fallback rail and whose address exists on this host. */
static bool refresh_has_better(struct tei_rail_dp *dp, const char *transport)
	TEI_REQUIRES(dp->admin)
{
	const struct rail *rail;
	uint32_t i;

	for (i = 0; i < dp->nrails; i++) {
		rail = dp->rails[i];
		if (refresh_in_use(rail, transport) && !refresh_hidden(rail) &&
		    !rail->nic.fallback && !rail->nic.addr_gone)
			return true;
	}
	return false;
}

/* Returns true if the rail's device has another open, published rail and the
 * address of that rail exists on this host. */
static bool refresh_replaced(struct tei_rail_dp *dp, const struct rail *rail)
	TEI_REQUIRES(dp->admin)
{
	const struct rail *other;
	uint32_t i;

	for (i = 0; i < dp->nrails; i++) {
		other = dp->rails[i];
		if (other != rail &&
		    refresh_in_use(other, rail->nic.transport) &&
		    !refresh_hidden(other) && !other->nic.addr_gone &&
		    !strcmp(other->name, rail->name))
			return true;
	}
	return false;
}

static void refresh_addresses(struct tei_rail_dp *dp, const struct ifaddrs *ifs)
	TEI_REQUIRES(dp->admin)
{
	struct rail *rail;
	uint32_t i;

	for (i = 0; i < dp->nrails; i++) {
		rail = dp->rails[i];
		if (__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
			rail->nic.addr_gone = !rail_link_has_address(rail, ifs);
	}
}

/* Logs once that no further rail can be opened. */
static void refresh_full(struct tei_rail_dp *dp, const char *device)
	TEI_REQUIRES(dp->admin)
{
	if (!dp->devices.warned_full)
		TEI_WARN("rail",
			 "%s: not used: the engine has opened %d rails, which is the limit; "
			 RAIL_FULL_HINT, device, TEI_RAIL_MAX);
	dp->devices.warned_full = true;
}

/* Opens a rail for the device if the device has none and no better rail exists.
 * Returns TEI_RAIL_REFRESHED if the rail was opened, TEI_RAIL_REFRESH_AGAIN if
 * opening it failed, 0 if nothing is to be done. */
static uint32_t refresh_open(struct tei_rail_dp *dp, const struct rail_found *f,
			     const char *transport) TEI_REQUIRES(dp->admin)
{
	struct tei_err err;

	if (rail_dp_has(dp, f, transport) ||
	    (f->fallback && refresh_has_better(dp, transport)))
		return 0;
	if (!refresh_bindable(f->info)) {
		/* the kernel's next report is then treated as a change */
		dp->devices.seen = 0;
		return 0;
	}
	if (dp->nrails == TEI_RAIL_MAX) {
		refresh_full(dp, f->name);
		return 0;
	}
	return rail_dp_add(dp, f, transport, &err) ? TEI_RAIL_REFRESH_AGAIN :
						     TEI_RAIL_REFRESHED;
}

static void refresh_hide(struct tei_rail_dp *dp, struct rail *rail)
{
	rail_sched_enter(dp);
	__atomic_store_n(&rail->hidden, true, __ATOMIC_RELEASE);
	rail_sched_leave(dp);
	TEI_INFO("rail", "%s: no longer published: %s", rail->name,
		 rail->nic.addr_gone ? "its device has another address"
				     : "there is a better rail");
}

/* Returns true if the rail was listed in a hello to a peer that is not gone. */
static bool refresh_known(struct tei_rail_dp *dp, const struct rail *rail)
{
	struct tei_rail_peer *p;
	bool known = false;

	rail_sched_enter(dp);
	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link)
		known |= p->state != RAIL_PEER_GONE &&
			 p->hello.notified_rails >> rail->index & 1;
	rail_sched_leave(dp);
	return known;
}

/* Hides the rail if a better one has replaced it, and closes a hidden rail that
 * is no longer needed. Returns TEI_RAIL_REFRESHED if the rail was hidden or
 * closed, and TEI_RAIL_REFRESH_AGAIN if it is hidden and must be closed
 * later. */
static uint32_t refresh_replace(struct tei_rail_dp *dp, struct rail *rail,
				bool better) TEI_REQUIRES(dp->admin)
{
	uint32_t did = 0;

	if (!refresh_hidden(rail)) {
		if (!(rail->nic.fallback && better) &&
		    !(rail->nic.addr_gone && refresh_replaced(dp, rail)))
			return 0;
		refresh_hide(dp, rail);
		did = TEI_RAIL_REFRESHED;
	}
	if (!rail->nic.addr_gone && refresh_known(dp, rail))
		return did | TEI_RAIL_REFRESH_AGAIN;
	rail_dp_close_rail(dp, rail);
	TEI_INFO("rail", "%s: closed", rail->name);
	return did | TEI_RAIL_REFRESHED;
}

uint32_t tei_rail_dp_refresh(struct tei_rail_dp *dp, const char *transport,
			     const char *devices)
{
	struct rail_found *list, *f;
	struct ifaddrs *ifs = NULL;
	uint32_t i, did = 0;
	bool better;

	if (tei_world->net.interfaces(&ifs))
		return TEI_RAIL_REFRESH_AGAIN;
	list = rail_info_find_again(dp->settings, transport, devices,
				    dp->conf.info_flags);
	transport = tei_rail_transport_of(transport);
	tei_mutex_lock(&dp->admin);
	refresh_addresses(dp, ifs);
	for (f = list; f; f = f->next)
		did |= refresh_open(dp, f, transport);
	better = refresh_has_better(dp, transport);
	for (i = 0; i < dp->nrails; i++)
		if (refresh_in_use(dp->rails[i], transport))
			did |= refresh_replace(dp, dp->rails[i], better);
	if (did & TEI_RAIL_REFRESHED)
		rail_numa_bind(dp);
	tei_mutex_unlock(&dp->admin);
	rail_info_free(list);
	tei_world->net.interfaces_free(ifs);
	if (did & TEI_RAIL_REFRESHED)
		rail_peer_announce(dp);
	return did;
}
