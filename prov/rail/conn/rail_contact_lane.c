/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contact lanes: keep a rail's original address in use for as long as the rail
 * exists.
 *
 * A fence closes the rx lane, and the next rx lane intentionally has another
 * address. Operations posted to the old address, including those that a
 * provider holds back until it has connected, must not find an endpoint there.
 * But then a process that makes its first contact finds no endpoint there
 * either, and the control channel may not be available to get the new address.
 * Two processes that move their rx lanes at the same time would lose each
 * other.
 *
 * So after the first rx lane has been closed, an endpoint that only receives
 * messages is opened at the lane's address, in its own domain. No memory is
 * registered in this domain, so no remote key is valid there. Reads and writes
 * posted to the old lane fail as if no process listened, and the fence remains
 * effective. A hello to the contact lane is answered with the current rail
 * table.
 *
 * As with other lanes, a separate thread opens the contact lane. The progress
 * thread polls the contact lane. Nothing is ever sent from a contact lane.
 */
#include "prov/rail/conn/rail_announce.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_lane.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/secret.h"

/* first interval between retries; it doubles FIRST_DOUBLES times */
#define FIRST_AGAIN_NS	(100 * TEI_NS_PER_MS)
#define FIRST_DOUBLES	6

static enum rail_contact_lane_state contact_lane_state(const struct rail *rail)
{
	return (enum rail_contact_lane_state)__atomic_load_n(
		&rail->contact.state, __ATOMIC_ACQUIRE);
}

static void contact_lane_set(struct rail *rail,
			     enum rail_contact_lane_state state)
{
	__atomic_store_n(&rail->contact.state, state, __ATOMIC_RELEASE);
}

void rail_contact_lane_init(struct rail *rail)
{
	/* an endpoint can be opened at a given address only if it is an IP
	 * address */
	contact_lane_set(rail, rail_addr_is_ip(&rail->nic.own)
				       ? RAIL_CONTACT_LANE_TARGET
				       : RAIL_CONTACT_LANE_LEFT);
}

bool rail_contact_lane_held(const struct rail *rail)
{
	if (!__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
		return false;
	switch (contact_lane_state(rail)) {
	case RAIL_CONTACT_LANE_TARGET:
	case RAIL_CONTACT_LANE_WANTED:
	case RAIL_CONTACT_LANE_HELD:
		return true;
	case RAIL_CONTACT_LANE_LEFT:
	case RAIL_CONTACT_LANE_TAKEN:
		break;
	}
	return false;
}

static void contact_lane_open(struct rail *rail)
{
	tei_mutex_lock(&rail->contact.opening.lane.lock);
	if (__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
		rail_opening_start(&rail->contact.opening, 0);
	tei_mutex_unlock(&rail->contact.opening.lane.lock);
}

void rail_contact_lane_left(struct rail *rail)
{
	if (contact_lane_state(rail) != RAIL_CONTACT_LANE_TARGET)
		return;
	contact_lane_set(rail, RAIL_CONTACT_LANE_WANTED);
	contact_lane_open(rail);
}

void rail_contact_lane_run(struct rail *rail, uint64_t now)
{
	if (contact_lane_state(rail) == RAIL_CONTACT_LANE_TAKEN &&
	    !__atomic_load_n(&rail->contact.opening.under_way,
			     __ATOMIC_RELAXED) &&
	    now >= rail->contact.next_ns)
		contact_lane_open(rail);
}

/* Schedules another attempt after the contact lane could not be opened. At the
 * first failure, logs it and announces that the rail has no contact address. */
static void contact_lane_taken(struct rail *rail)
{
	uint32_t tries = rail->contact.tries++;

	rail->contact.next_ns =
		tei_now_ns() +
		tei_jitter(FIRST_AGAIN_NS
			   << (tries < FIRST_DOUBLES ? tries : FIRST_DOUBLES));
	if (contact_lane_state(rail) == RAIL_CONTACT_LANE_TAKEN)
		return;
	TEI_WARN("rail",
		 "%s; processes that know only this address cannot connect "
		 "until the address is free",
		 rail->contact.opening.err.text);
	contact_lane_set(rail, RAIL_CONTACT_LANE_TAKEN);
	rail_peer_announce(rail->dp);
}

/* Closes the contact lane because the provider has not opened it at the
 * requested address. */
static void contact_lane_give_up(struct rail *rail)
{
	TEI_WARN("rail",
		 "%s: contact lane closed: %s did not open it at the rail's "
		 "original address",
		 rail->name, rail->nic.provider);
	rail_lane_shutdown(&rail->contact.opening.lane, false);
	contact_lane_set(rail, RAIL_CONTACT_LANE_LEFT);
	rail_peer_announce(rail->dp);
}

void rail_contact_lane_collect(struct rail *rail)
{
	struct rail_lane *lane = &rail->contact.opening.lane;
	bool there, original;

	if (!__atomic_load_n(&rail->contact.opening.under_way,
			     __ATOMIC_RELAXED) ||
	    !rail_opening_over(&rail->contact.opening) ||
	    !__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
		return;
	tei_mutex_lock(&lane->lock);
	there = lane->ep != NULL;
	original = there && rail_addr_same(&lane->addr, &rail->nic.own);
	tei_mutex_unlock(&lane->lock);
	if (!there) {
		contact_lane_taken(rail);
		return;
	}
	if (!original) {
		contact_lane_give_up(rail);
		return;
	}
	TEI_INFO("rail", "%s: contact lane open at the rail's original address",
		 rail->name);
	rail->contact.tries = 0;
	if (contact_lane_state(rail) == RAIL_CONTACT_LANE_TAKEN) {
		contact_lane_set(rail, RAIL_CONTACT_LANE_HELD);
		rail_peer_announce(rail->dp);
	}
	contact_lane_set(rail, RAIL_CONTACT_LANE_HELD);
}

void rail_contact_lane_stop(struct rail *rail)
{
	rail_opening_stop(&rail->contact.opening);
}
