/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Closes lanes on short-lived closer threads.
 *
 * Closing an endpoint ends everything that is posted on it. A provider may need
 * tens of milliseconds for this, for example to free megabytes of receive
 * buffers. So a closer thread does it, and the progress thread continues to
 * serve the other rails.
 *
 * As soon as closing starts, the lane has no endpoint, so that no thread posts
 * or polls there. Its posted slices stay in its list and may still use local
 * memory. They are aborted when the progress thread or tear-down collects the
 * closed lane; until then no lane is opened in its place. The thread that
 * collects the lane joins the closer thread. Only tear-down waits for the
 * closer thread.
 */
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_window.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/thread.h"

/* --- on the closer thread ------------------------------------------------ */

/* Moves the lane's libfabric objects to lane->closing. The endpoint is closed
 * first: a closed endpoint no longer accesses memory. */
static void closing_detach(struct rail_lane *lane) TEI_REQUIRES(lane->lock)
{
	struct fid **fid = lane->closing.fid;

	*fid++ = lane->ep ? &lane->ep->fid : NULL;
	*fid++ = lane->fids.cntr ? &lane->fids.cntr->fid : NULL;
	*fid++ = lane->cq ? &lane->cq->fid : NULL;
	*fid++ = lane->av ? &lane->av->fid : NULL;
	*fid++ = lane->fids.eq ? &lane->fids.eq->fid : NULL;
	*fid++ = lane->fids.wait ? &lane->fids.wait->fid : NULL;
	*fid++ = lane->fids.domain ? &lane->fids.domain->fid : NULL;
	*fid = lane->fids.fabric ? &lane->fids.fabric->fid : NULL;
	lane->ep = NULL;
	lane->fids.cntr = NULL;
	lane->cq = NULL;
	lane->av = NULL;
	lane->fids.eq = NULL;
	lane->fids.wait = NULL;
	lane->fids.domain = NULL;
	lane->fids.fabric = NULL;
	lane->wait_fd = -1;
	__atomic_store_n(&lane->receives, false, __ATOMIC_RELAXED);
}

/* Closes the lane's libfabric objects. Runs on the closer thread, or on the
 * calling thread if no closer thread could be started. */
static void closing_close(struct rail_lane *lane)
{
	static const char *const what[RAIL_LANE_FIDS] = {
		"endpoint", "counter", "completion queue", "address vector",
		"event queue", "wait set", "domain", "fabric",
	};
	struct rail_closing *c = &lane->closing;
	int i, ret;

	for (i = 0; i < RAIL_LANE_FIDS; i++) {
		ret = c->fid[i] ? fi_close(c->fid[i]) : 0;
		c->fid[i] = NULL;
		if (ret)
			TEI_WARN("rail", "%s: cannot close the %s: %s",
				 lane->rail->name, what[i], fi_strerror(-ret));
	}
	__atomic_store_n(&c->over, true, __ATOMIC_RELEASE);
	rail_progress_wake(lane->rail->dp);
}

static void *closing_main(void *lane)
{
	closing_close(lane);
	return NULL;
}

void rail_closing_start(struct rail_lane *lane)
{
	struct rail_closing *c = &lane->closing;

	if (c->under_way || !lane->ep)
		return;
	closing_detach(lane);
	__atomic_store_n(&lane->state, RAIL_LANE_RETIRING, __ATOMIC_RELEASE);
	__atomic_store_n(&c->over, false, __ATOMIC_RELAXED);
	__atomic_store_n(&c->under_way, true, __ATOMIC_RELEASE);
	c->started = !tei_thread_start(&c->closer, false, closing_main, lane);
	if (!c->started)
		closing_close(lane);
}

bool rail_closing_under_way(const struct rail_lane *lane)
{
	return __atomic_load_n(&lane->closing.under_way, __ATOMIC_ACQUIRE);
}

/* --- posted operations --------------------------------------------------- */

/* Frees the send buffers of messages that were lost with the lane. */
static void closing_reclaim_tx(struct rail_lane *lane)
{
	struct rail *rail = lane->rail;
	struct rail_done none; /* stays empty, because an aborted message
				* reports nothing */
	int i;

	rail_done_init(&none);
	rail_sched_enter(rail->dp);
	for (i = 0; i < RAIL_TX_MSGS; i++)
		if (rail->send.bufs[i].lane == lane)
			rail->send.bufs[i].op.handler->abort(
				&rail->send.bufs[i].op, &none);
	rail_sched_leave(rail->dp);
}

/* Marks the lane as closed and moves its posted slices to "aborted". */
static void closing_end(struct rail_lane *lane, struct tei_list *aborted)
	TEI_REQUIRES(lane->lock)
{
	__atomic_store_n(&lane->state, RAIL_LANE_CLOSED, __ATOMIC_RELEASE);
	__atomic_store_n(&lane->inflight, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->inflight_bytes, 0, __ATOMIC_RELAXED);
	rail_window_empty(lane);
	tei_list_splice_tail(aborted, &lane->posted);
	closing_reclaim_tx(lane);
}

static void closing_join(struct rail_closing *c)
{
	if (c->started)
		tei_thread_join(c->closer);
	c->started = false;
	__atomic_store_n(&c->under_way, false, __ATOMIC_RELEASE);
}

bool rail_closing_collect(struct rail_lane *lane, struct tei_list *aborted)
{
	struct rail_closing *c = &lane->closing;

	if (!c->under_way || !__atomic_load_n(&c->over, __ATOMIC_ACQUIRE))
		return false;
	closing_join(c);
	closing_end(lane, aborted);
	return true;
}

void rail_lane_close(struct rail_lane *lane, struct tei_list *aborted)
{
	if (lane->closing.under_way) {
		closing_join(&lane->closing);
	} else {
		closing_detach(lane);
		closing_close(lane);
	}
	closing_end(lane, aborted);
}
