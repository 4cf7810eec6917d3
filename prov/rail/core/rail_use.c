/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides which tx lanes are opened. A tx lane is opened when a peer is
 * contacted over it for the first time, because its endpoint may occupy tens of
 * megabytes: a process that has contacted no peer has no tx lane, and rails
 * without a route to a peer never have one.
 *
 * A message opens the first tx lane of each rail over which it is tried. As long
 * as no rail accepts the message, these are all rails that have a route to the
 * peer (health/rail_send.c). Tasks open further lanes, if the open lanes leave
 * slices that could be posted: windows or queues are full, another rail is
 * nearer to the memory, or other threads use the open lanes. The progress thread
 * starts the opener threads (conn/rail_reopen.c).
 */

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

#define USE_PEERS 16	/* largest number of peers that rail_use_for_tasks
			 * examines */
#define USE_PAUSE_NS TEI_NS_PER_MS /* pause after a search that found no lane to
				    * be opened */

static uint32_t use_of(const struct rail *rail, uint32_t index)
{
	return __atomic_load_n(&rail->next_tx[index].use, __ATOMIC_ACQUIRE);
}

bool rail_use_none(const struct rail *rail, uint32_t index)
{
	return index < rail->nbase && use_of(rail, index) == RAIL_LANE_UNUSED;
}

bool rail_use_begun(const struct rail *rail, uint32_t index)
{
	return use_of(rail, index) == RAIL_LANE_USED;
}

uint32_t rail_use_count(const struct rail *rail)
{
	uint32_t j, n = 0;

	for (j = 0; j < rail->nbase; j++)
		n += rail_use_begun(rail, j);
	return n;
}

/* Replaces the state "from" of the tx lane by "to". Returns false if the lane has
 * another state. */
static bool use_change(struct rail *rail, uint32_t index, uint32_t from,
		       uint32_t to)
{
	return __atomic_compare_exchange_n(&rail->next_tx[index].use, &from, to,
					   false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

bool rail_use_want(struct rail *rail, uint32_t index)
{
	struct tei_rail_dp *dp = rail->dp;

	if (__atomic_load_n(&dp->thread.stop, __ATOMIC_ACQUIRE) ||
	    !use_change(rail, index, RAIL_LANE_UNUSED, RAIL_LANE_WANTED))
		return false;
	__atomic_store_n(&dp->health.reopened, true, __ATOMIC_RELEASE);
	rail_progress_wake(dp);
	return true;
}

bool rail_use_begin(struct rail *rail, uint32_t index)
{
	return use_change(rail, index, RAIL_LANE_WANTED, RAIL_LANE_OPENING);
}

bool rail_use_end(struct rail *rail, uint32_t index)
{
	return use_change(rail, index, RAIL_LANE_OPENING, RAIL_LANE_USED);
}

bool rail_use_first(struct tei_rail_dp *dp)
{
	const struct rail *rail;
	bool opens = false;
	uint32_t i;
	int k;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		for (k = 0; k < RAIL_LANE_SLOTS; k++)
			if (__atomic_load_n(&rail->tx_lanes[k].gen,
					    __ATOMIC_ACQUIRE))
				return false;
		opens |= use_of(rail, 0) == RAIL_LANE_WANTED ||
			 __atomic_load_n(&rail->next_tx[0].under_way,
					 __ATOMIC_RELAXED);
	}
	return opens;
}

/* Makes one UNUSED tx lane of the rail WANTED, unless another one is being
 * opened: the lane with which the calling thread begins, otherwise the first
 * UNUSED one. Returns true if a lane is WANTED or being opened. */
static bool use_want_one(struct rail *rail)
{
	uint32_t from = rail_first_lane(rail) / RAIL_LANE_SLOTS, j;

	for (j = 0; j < rail->nbase; j++)
		if (use_of(rail, j) == RAIL_LANE_WANTED ||
		    __atomic_load_n(&rail->next_tx[j].under_way,
				    __ATOMIC_RELAXED))
			return true;
	for (j = 0; j < rail->nbase; j++)
		if (rail_use_want(rail, (from + j) % rail->nbase))
			return true;
	return false;
}

/* Returns true if the first task in the queue can be posted: its keys are
 * known. */
static bool use_keys_known(const struct tei_list *queue)
	TEI_REQUIRES(rail_sched_held)
{
	return !tei_list_empty(queue) &&
	       tei_list_first(queue, struct tei_rail_task, queue_link)
		       ->keys_checked;
}

/* Returns true if the peer, which is in the list of peers with slices, has
 * slices that can be posted. If late is true, the open lanes have examined the
 * slices since they were submitted, so a key that is missing has been requested
 * (keys.want.active). If late is false, the peer must have slices that are to be
 * sent again, or a queue whose first task has checked keys. */
static bool use_is_left(const struct tei_rail_peer *peer, bool late)
	TEI_REQUIRES(rail_sched_held)
{
	if (peer->state != RAIL_PEER_READY || peer->keys.want.active ||
	    rail_fence_failed(&peer->fence))
		return false;
	return late || !tei_list_empty(&peer->tasks.retry) ||
	       use_keys_known(&peer->tasks.small) ||
	       use_keys_known(&peer->tasks.queue);
}

/* Makes lanes WANTED on the rails that have a route to the peer. Returns true if
 * a lane is WANTED or being opened. If a lost rail has a USED lane, no
 * further lane of it becomes WANTED until the rail has recovered: the progress
 * thread tries to open its USED lanes (rail_renew_reopen). A lost rail without a
 * USED lane counts as working (rail_health_works), so slices that prefer it wait
 * for its first lane. */
static bool use_for_peer(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail *rail;
	bool any = false;
	uint32_t i;

	for (i = 0; i < rail_count(peer->dp); i++) {
		rail = rail_at(peer->dp, i);
		if (peer->routes.route[i] >= 0 &&
		    __atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) &&
		    !__atomic_load_n(&rail->link.down, __ATOMIC_RELAXED) &&
		    (!__atomic_load_n(&rail->link.lost, __ATOMIC_RELAXED) ||
		     !rail_use_count(rail)))
			any |= use_want_one(rail);
	}
	return any;
}

void rail_use_for_tasks(struct tei_rail_dp *dp, bool late)
{
	const struct tei_rail_peer *p;
	bool any = false;
	uint32_t n = 0;
	uint64_t now;

	if (!__atomic_load_n(&dp->tasks.nactive, __ATOMIC_RELAXED))
		return;
	now = tei_now_ns();
	if (!late && now < __atomic_load_n(&dp->tasks.use_next_ns,
					   __ATOMIC_RELAXED))
		return;
	rail_sched_enter(dp);
	tei_list_foreach (p, &dp->tasks.active, struct tei_rail_peer,
			  active_link) {
		if (use_is_left(p, late))
			any |= use_for_peer(p);
		if (++n == USE_PEERS)
			break;
	}
	rail_sched_leave(dp);
	if (!any)
		__atomic_store_n(&dp->tasks.use_next_ns, now + USE_PAUSE_NS,
				 __ATOMIC_RELAXED);
}
