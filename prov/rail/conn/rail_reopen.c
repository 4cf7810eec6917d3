/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens a tx lane that a peer is contacted over for the first time, and opens a
 * lane again that was closed or retired, on a separate thread. A
 * provider may fill tens of megabytes with receive buffers first, which takes
 * up to a third of a second, and the other rails continue to work meanwhile.
 *
 * The new lane is separate (struct rail_opening) until the progress thread
 * moves it to the place of the old lane. So only the progress thread changes
 * lanes. The lock of the new lane protects against a concurrent close; it is
 * acquired before the lock of the old lane.
 */

#include <stdio.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/thread.h"

#define OPENING_TRIES	8	/* number of attempts to open an rx lane at a
				 * new address */

/* --- opening ------------------------------------------------------------- */

/* Returns true if the new rx lane listens at the address of its predecessor or
 * at the rail's contact address. Operations that were posted to the predecessor
 * could then reach the new lane. */
static bool opening_repeats(struct rail_opening *o)
	TEI_REQUIRES(o->lane.lock)
{
	const struct tei_rail_addr *addr = &o->lane.addr;
	bool repeats;

	if (!o->place || !o->place->is_rx || !rail_addr_is_ip(addr))
		return false;
	tei_mutex_lock(&o->place->lock);
	repeats = rail_addr_same(addr, &o->place->addr);
	tei_mutex_unlock(&o->place->lock);
	return repeats || rail_addr_same(addr, &o->lane.rail->nic.own);
}

/* Opens the lane. A new rx lane gets an address that differs from its
 * predecessor's and from the contact address. */
static void opening_try(struct rail_opening *o) TEI_REQUIRES(o->lane.lock)
{
	uint32_t gen = o->lane.gen + 1;
	struct tei_list none;
	int i;

	for (i = 0; i < OPENING_TRIES; i++) {
		if (rail_lane_open(&o->lane, &o->err))
			return;
		if (!opening_repeats(o)) {
			__atomic_store_n(&o->lane.gen, gen, __ATOMIC_RELEASE);
			return;
		}
		tei_list_init(&none);
		rail_lane_close(&o->lane, &none);
	}
	rail_open_err_fn(o->lane.rail)(
		&o->err, TEI_ERR_CONTEXT, "rail",
		"allow the provider to use more ports",
		"%s: rx lane: %s returns only addresses that were used before",
		o->lane.rail->name, o->lane.rail->nic.provider);
}

static void opening_open(struct rail_opening *o) TEI_REQUIRES(o->lane.lock)
{
	struct rail *rail = o->lane.rail;

	if (__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
		opening_try(o);
	__atomic_store_n(&o->over, true, __ATOMIC_RELEASE);
	__atomic_store_n(&rail->dp->health.reopened, true, __ATOMIC_RELEASE);
}

static void *opening_main(void *arg)
{
	struct rail_opening *o = arg;

	tei_mutex_lock(&o->lane.lock);
	opening_open(o);
	tei_mutex_unlock(&o->lane.lock);
	rail_progress_wake(o->lane.rail->dp);
	return NULL;
}

void rail_opening_start(struct rail_opening *o, uint32_t gen)
{
	__atomic_store_n(&o->lane.gen, gen, __ATOMIC_RELEASE);
	__atomic_store_n(&o->over, false, __ATOMIC_RELAXED);
	__atomic_store_n(&o->under_way, true, __ATOMIC_RELAXED);
	o->started = !tei_thread_start(&o->opener, false, opening_main, o);
	if (o->started)
		return;
	opening_open(o);
	rail_progress_wake(o->lane.rail->dp);
}

void rail_opening_stop(struct rail_opening *o)
{
	if (o->started)
		tei_thread_join(o->opener);
	o->started = false;
	__atomic_store_n(&o->under_way, false, __ATOMIC_RELAXED);
}

bool rail_opening_over(struct rail_opening *o)
{
	if (!__atomic_load_n(&o->over, __ATOMIC_ACQUIRE))
		return false;
	rail_opening_stop(o);
	return true;
}

/* --- replacing a lane ---------------------------------------------------- */

static struct rail_opening *reopen_of(const struct rail_lane *lane)
{
	return lane->is_rx ? &lane->rail->next_rx
			   : &lane->rail->next_tx[lane->index];
}

/* Moves the receive buffers of a closed lane to another lane. */
static void reopen_move_bufs(struct rail_lane *to, struct rail_lane *from)
{
	if (!from->recv.bufs)
		return;
	to->recv.bufs = from->recv.bufs;
	to->recv.idle = from->recv.idle;
	to->recv.mem = from->recv.mem;
	to->recv.mr = from->recv.mr;
	from->recv.bufs = NULL;
	from->recv.idle = NULL;
	from->recv.mem = NULL;
	from->recv.mr = NULL;
}

void rail_reopen_start(struct rail_lane *lane)
{
	struct rail_opening *o = reopen_of(lane);
	uint32_t gen;
	bool closed;

	/* while the opening is under way, the opener thread holds the lock */
	if (__atomic_load_n(&o->under_way, __ATOMIC_RELAXED))
		return;
	tei_mutex_lock(&o->lane.lock);
	if (o->under_way ||
	    !__atomic_load_n(&lane->rail->open, __ATOMIC_ACQUIRE)) {
		tei_mutex_unlock(&o->lane.lock);
		return;
	}
	tei_mutex_lock(&lane->lock);
	closed = !lane->ep && !lane->closing.under_way;
	if (closed)
		reopen_move_bufs(&o->lane, lane);
	gen = lane->gen;
	tei_mutex_unlock(&lane->lock);
	if (closed) {
		o->place = lane;
		rail_opening_start(o, gen);
	}
	tei_mutex_unlock(&o->lane.lock);
}

static void reopen_move(struct rail_lane *lane, struct rail_lane *fresh)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(fresh->lock)
{
	reopen_move_bufs(lane, fresh);
	if (!fresh->ep)
		return;
	lane->ep = fresh->ep;
	lane->cq = fresh->cq;
	lane->fids.wait = fresh->fids.wait;
	lane->fids.fabric = fresh->fids.fabric;
	lane->fids.domain = fresh->fids.domain;
	lane->av = fresh->av;
	lane->fids.eq = fresh->fids.eq;
	lane->fids.cntr = fresh->fids.cntr;
	lane->fids.cntr_seen = fresh->fids.cntr_seen;
	lane->wait_fd = fresh->wait_fd;
	lane->addr = fresh->addr;
	__atomic_store_n(&lane->gen, fresh->gen, __ATOMIC_RELEASE);
	__atomic_store_n(&lane->state, RAIL_LANE_ACTIVE, __ATOMIC_RELEASE);
	fresh->ep = NULL;
	fresh->cq = NULL;
	fresh->fids.wait = NULL;
	fresh->fids.fabric = NULL;
	fresh->fids.domain = NULL;
	fresh->av = NULL;
	fresh->fids.eq = NULL;
	fresh->fids.cntr = NULL;
	fresh->wait_fd = -1;
	__atomic_store_n(&fresh->state, RAIL_LANE_CLOSED, __ATOMIC_RELEASE);
}

/* Resets the number of leftovers in the lane's endpoint cache, before a
 * connection is made over the new lane. */
static void reopen_renew_cache(struct rail_lane *lane)
{
	rail_sched_enter(lane->rail->dp);
	rail_cache_renewed(&lane->rail->cache[lane->index]);
	rail_sched_leave(lane->rail->dp);
}

/* Handles that the opening of a lane has failed: the rail is lost until all its
 * lanes that are in use are open. If the rail is lost already, the failure of an
 * rx lane leaves the error of a tx lane as it is. */
static void reopen_failed(struct rail_opening *o) TEI_REQUIRES(o->lane.lock)
{
	struct rail_link *link = &o->lane.rail->link;
	bool tx = !o->lane.is_rx;

	rail_sched_enter(o->lane.rail->dp);
	if (tx || !__atomic_load_n(&link->lost, __ATOMIC_RELAXED)) {
		snprintf(link->lost_text, sizeof(link->lost_text), "%s",
			 tx ? o->err.text : "");
		snprintf(link->lost_hint, sizeof(link->lost_hint), "%s",
			 tx ? o->err.hint : "");
	}
	rail_sched_leave(o->lane.rail->dp);
	__atomic_store_n(&link->lost, true, __ATOMIC_RELAXED);
}

/* Updates rail_link.away, the number of tx lanes that are away, after an opening
 * has ended. A retired lane was counted when it was retired. A lane that is
 * opened for the first time is counted only if this fails: until then, slices
 * that prefer its rail wait for it. */
static void reopen_count(const struct rail_lane *lane, bool there)
{
	struct rail *rail = lane->rail;
	bool first = rail_use_end(rail, lane->index);

	if (there && !first)
		__atomic_fetch_sub(&rail->link.away, 1, __ATOMIC_RELAXED);
	else if (!there && first)
		__atomic_fetch_add(&rail->link.away, 1, __ATOMIC_RELAXED);
}

/* Moves a lane whose opening has ended to its place in the rail. Returns true
 * if the lane is open. Sets *failed if it could not be opened. */
static bool reopen_take(struct rail_opening *o, bool *failed)
{
	struct rail *rail = o->lane.rail;
	struct rail_lane *lane;
	bool there = false;

	if (!__atomic_load_n(&o->over, __ATOMIC_ACQUIRE))
		return false;
	tei_mutex_lock(&o->lane.lock);
	if (o->under_way && __atomic_load_n(&rail->open, __ATOMIC_ACQUIRE)) {
		lane = o->place;
		tei_mutex_lock(&lane->lock);
		if (o->lane.ep && !lane->is_rx)
			reopen_renew_cache(lane);
		reopen_move(lane, &o->lane);
		there = lane->ep != NULL;
		tei_mutex_unlock(&lane->lock);
		/* a rail works without its extra lanes */
		if (!there && rail_width_extra(lane))
			rail->link.extra_failed = true;
		else if (!there)
			reopen_failed(o);
		*failed = !there;
		rail_opening_stop(o);
		if (!lane->is_rx && !rail_width_extra(lane))
			reopen_count(lane, there);
	}
	tei_mutex_unlock(&o->lane.lock);
	return there;
}

void rail_reopen_whole(struct rail *rail)
{
	struct rail_lane *lane;
	uint32_t j;

	if (!rail_lane_active(&rail->rx_lane))
		return;
	for (j = 0; j < rail->nbase; j++) {
		lane = &rail->tx_lanes[j * RAIL_LANE_SLOTS];
		if (rail_use_begun(rail, j) && !rail_lane_active(&lane[0]) &&
		    !rail_lane_active(&lane[1]))
			return;
	}
	__atomic_store_n(&rail->link.lost, false, __ATOMIC_RELAXED);
}

uint32_t rail_reopen_collect(struct rail *rail)
{
	bool rx_failed = false, tx_failed = false;
	uint32_t j, opened = 0;

	if (reopen_take(&rail->next_rx, &rx_failed))
		opened |= RAIL_REOPENED_RX;
	if (rx_failed)
		opened |= RAIL_REOPEN_RX_FAILED;
	for (j = 0; j < rail->ntx; j++) {
		if (rail_use_begin(rail, j))
			rail_reopen_start(&rail->tx_lanes[j * RAIL_LANE_SLOTS]);
		if (reopen_take(&rail->next_tx[j], &tx_failed))
			opened |= RAIL_REOPENED_TX;
	}
	if (__atomic_load_n(&rail->link.lost, __ATOMIC_RELAXED))
		rail_reopen_whole(rail);
	return opened;
}

/* Waits for an opening that is under way and closes the lane that it has
 * opened. */
static void reopen_stop(struct rail_opening *o)
{
	struct rail_lane *lane;
	struct tei_list none;
	bool mine;

	tei_mutex_lock(&o->lane.lock);
	mine = o->under_way;
	__atomic_store_n(&o->under_way, false, __ATOMIC_RELAXED);
	lane = o->place;
	tei_mutex_unlock(&o->lane.lock);
	if (!mine)
		return;
	rail_opening_stop(o);
	tei_list_init(&none);
	tei_mutex_lock(&o->lane.lock);
	rail_lane_close(&o->lane, &none);
	tei_mutex_lock(&lane->lock);
	reopen_move_bufs(lane, &o->lane);
	tei_mutex_unlock(&lane->lock);
	tei_mutex_unlock(&o->lane.lock);
}

void rail_reopen_stop(struct rail *rail, bool target)
{
	uint32_t j;

	if (target)
		reopen_stop(&rail->next_rx);
	for (j = 0; !target && rail->next_tx && j < rail->ntx; j++)
		reopen_stop(&rail->next_tx[j]);
}
