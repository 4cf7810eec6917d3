/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fence: makes sure that nothing posted earlier can still land.
 *
 * Withdrawing a key is not enough: a provider may check the key once and
 * continue to write. Posted reads and writes cannot be cancelled portably.
 * Closing the endpoint stops them with every provider. So:
 *
 * - The target closes its rx lane of the generation named in the request before
 *   it answers. Then it opens a replacement and announces it with a hello. The
 *   other initiators that use the lane see an error, learn the new generation
 *   from the hello and post their slices again.
 * - The initiator renews its own lane if slices do not complete on it
 *   (rail_renew.h).
 *
 * No part of this runs unless there is a failure.
 */
#include "prov/rail/conn/rail_announce.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

void rail_fence_want(struct tei_rail_peer *peer, uint16_t remote, uint32_t gen)
{
	struct rail_fence *f = &peer->remotes[remote].fence;

	if (f->wanted && f->gen >= gen)
		return;
	peer->stats.fences++;
	f->wanted = true;
	if (f->gen < gen)
		f->gen = gen;
	f->tries = 0;
	f->next_ns = 0;
	f->since_ns = 0;
	rail_peer_attend(peer);
}

bool rail_fence_wanted(const struct tei_rail_peer *peer)
{
	uint16_t i;

	for (i = 0; i < peer->nremotes; i++)
		if (peer->remotes[i].fence.wanted)
			return true;
	return false;
}

/* Collects the rx lane if a closer thread has closed it. Returns true if the
 * lane was collected. */
static bool fence_collect(struct rail_lane *lane)
{
	struct tei_list none;
	bool over;

	if (!rail_closing_under_way(lane))
		return false;
	tei_list_init(&none);
	tei_mutex_lock(&lane->lock);
	over = rail_closing_collect(lane, &none);
	tei_mutex_unlock(&lane->lock);
	return over;
}

/* Called when the rail's rx lane has been closed: opens the next rx lane and
 * answers the peers that wait for the fence. */
static void fence_target_closed(struct rail *rail)
{
	struct tei_rail_peer *p;

	TEI_INFO("rail", "%s: rx lane fenced: its generation is now %u",
		 rail->name, rail->rx_lane.gen + 1);
	rail_reopen_start(&rail->rx_lane);
	rail_contact_lane_left(rail);
	rail_sched_enter(rail->dp);
	tei_list_foreach (p, &rail->dp->peers.list, struct tei_rail_peer, link)
		if (p->fence.pending)
			rail_peer_attend(p);
	rail_sched_leave(rail->dp);
}

void rail_fence_run(struct tei_rail_dp *dp)
{
	struct rail *rail;
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (fence_collect(&rail->rx_lane))
			fence_target_closed(rail);
	}
}

/* Opens the lane again, unless the rail is closed. Returns false on failure. */
static bool fence_reopen_lane(struct rail_lane *lane)
{
	struct tei_err err;
	int ret = 0;

	tei_mutex_lock(&lane->lock);
	/* the thread that removes the rail closes its lanes after clearing
	 * rail->open */
	if (!lane->ep && __atomic_load_n(&lane->rail->open, __ATOMIC_ACQUIRE))
		ret = rail_lane_open(lane, &err);
	tei_mutex_unlock(&lane->lock);
	return !ret;
}

/*
 * Replaces the rx lane of a rail with FI_MR_ENDPOINT, whose registrations are
 * bound to the endpoint and must be renewed with it. Acquires dp->admin, so it
 * may wait for a registration by another thread. Only devices with
 * FI_MR_ENDPOINT have this delay, and only after a failure.
 */
static void fence_renew_bound(struct rail *rail)
{
	tei_mutex_lock(&rail->dp->admin);
	rail_mr_unbind(rail);
	rail_lane_shutdown(&rail->rx_lane, false);
	rail_contact_lane_left(rail);
	if (fence_reopen_lane(&rail->rx_lane))
		rail_mr_rebind(rail);
	else
		__atomic_store_n(&rail->link.lost, true, __ATOMIC_RELAXED);
	tei_mutex_unlock(&rail->dp->admin);
	rail_peer_announce(rail->dp);
}

/* Opens the rx lane of a rail with FI_MR_ENDPOINT again after an attempt has
 * failed. */
static void fence_reopen_bound(struct rail *rail)
{
	tei_mutex_lock(&rail->dp->admin);
	if (fence_reopen_lane(&rail->rx_lane))
		rail_mr_rebind(rail);
	else
		__atomic_store_n(&rail->link.lost, true, __ATOMIC_RELAXED);
	tei_mutex_unlock(&rail->dp->admin);
	if (rail->rx_lane.ep)
		rail_peer_announce(rail->dp);
}

uint32_t rail_fence_target(struct rail *rail, uint32_t gen)
{
	/* only the progress thread changes the rx lane */
	uint32_t now = rail->rx_lane.gen;

	if (now > gen)
		return now;
	if (rail_closing_under_way(&rail->rx_lane))
		return 0;
	if (!rail->rx_lane.ep)
		return gen + 1;
	if (!(rail->fab.mr_mode & FI_MR_ENDPOINT)) {
		rail_lane_shutdown(&rail->rx_lane, true);
		return 0;
	}
	fence_renew_bound(rail);
	/* a lane that must still be opened gets the next generation */
	now = rail->rx_lane.gen + !rail->rx_lane.ep;
	TEI_INFO("rail", "%s: rx lane fenced: its generation is now %u",
		 rail->name, now);
	return now;
}

void rail_fence_reopened(struct rail *rail)
{
	TEI_DEBUG_LOG("rail", "%s: rx lane opened again, generation %u",
		      rail->name, rail->rx_lane.gen);
	rail_peer_announce(rail->dp);
}

/* rail_reopen.c logs failed attempts at a limited rate. */
void rail_fence_reopen(struct rail *rail)
{
	if (!rail->rx_lane.ep && rail->fab.mr_mode & FI_MR_ENDPOINT)
		fence_reopen_bound(rail);
	else if (!rail->rx_lane.ep)
		rail_reopen_start(&rail->rx_lane);
}
