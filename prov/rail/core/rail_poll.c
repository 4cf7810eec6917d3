/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Polling lanes: reads completion queues, hands each completion to the handler
 * of its operation, and lets the lane take more work.
 */
#include <errno.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_failure.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_lane_threads.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

_Static_assert(offsetof(struct rail_op, ctx) == 0, "op_context is the rail_op");

void rail_lane_log_error(struct rail_lane *lane,
			 const struct fi_cq_err_entry *e,
			 enum tei_log_level level, const char *what,
			 struct tei_rail_peer *peer, const char *text)
{
	struct rail *rail = lane->rail;
	char prov[128] = "";

	__atomic_fetch_add(&rail->errors.errors, 1, __ATOMIC_RELAXED);
	if (!tei_log_enabled(level))
		return;
	if (*text)
		snprintf(prov, sizeof(prov), " (provider: %d, %s)",
			 e->prov_errno, text);
	tei_log_repeated(peer ? &peer->log.err_repeat : &rail->errors.repeat, level,
			 "rail", "%s (%s): %s%s%s: %s%s", rail->name,
			 rail->nic.provider, what, peer ? " " : "",
			 peer ? peer->name : "", fi_strerror(e->err), prov);
}

/* Passes all completions that have the same handler as the first one to this
 * handler, in one call, so that the handler takes its locks only once. Moves
 * the other completions to the front of the array "e" and returns their
 * number. */
static int lane_handle_alike(struct rail_lane *lane, struct fi_cq_msg_entry *e,
			     int n, struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	const struct rail_op_handler *handler =
		((struct rail_op *)e->op_context)->handler;
	struct fi_cq_msg_entry alike[RAIL_CQ_BATCH];
	int i, k = 0, left = 0;

	for (i = 0; i < n; i++) {
		if (((struct rail_op *)e[i].op_context)->handler == handler)
			alike[k++] = e[i];
		else
			e[left++] = e[i];
	}
	handler->complete(lane, alike, k, done);
	return left;
}

static void lane_handle_ok(struct rail_lane *lane, struct fi_cq_msg_entry *e,
			   int n, struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	int i, k = 0;

	for (i = 0; i < n; i++)
		if (e[i].op_context)
			e[k++] = e[i];
	while (k)
		k = lane_handle_alike(lane, e, k, done);
}

static void lane_handle_error(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct fi_cq_err_entry e;
	struct rail_op *op;
	const char *text;
	char buf[96];

	memset(&e, 0, sizeof(e));
	if (fi_cq_readerr(lane->cq, &e, 0) != 1)
		return;
	text = fi_cq_strerror(lane->cq, e.prov_errno, e.err_data, buf,
			      sizeof(buf));
	text = rail_prov_text(e.err, &e.prov_errno, text);
	op = e.op_context;
	if (op)
		op->handler->fail(lane, &e, text, done);
	else
		rail_lane_log_error(lane, &e, TEI_LOG_WARN, "completion queue",
				    NULL, text);
}

/* Reads and handles one batch of completions. Returns true if a completion was
 * read. */
static bool lane_read_cq(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct fi_cq_msg_entry e[RAIL_CQ_BATCH];
	ssize_t n;

	/*
	 * Provider tcp of libfabric 1.17 reads errno even if recv has returned
	 * 0. If errno were EAGAIN from some earlier call, the provider would
	 * keep a connection that ended before it was established, and poll it
	 * forever.
	 */
	errno = 0;
	n = fi_cq_read(lane->cq, e, RAIL_CQ_BATCH);
	if (n > 0) {
		lane_handle_ok(lane, e, (int)n, done);
		return true;
	}
	if (n == -FI_EAVAIL) {
		lane_handle_error(lane, done);
		return true;
	}
	return false;
}

/* Returns true if the counter shows that peers have read or written since the
 * last call. */
static bool lane_count_changed(struct rail_lane *lane)
{
	uint64_t now;

	if (!lane->fids.cntr)
		return false;
	now = fi_cntr_read(lane->fids.cntr);
	if (now == lane->fids.cntr_seen)
		return false;
	lane->fids.cntr_seen = now;
	return true;
}

void rail_lane_handle_deferred(struct rail_lane *lane, struct rail_done *done)
{
	struct rail_deferred *a;

	while (!tei_list_empty(&lane->recv.deferred)) {
		a = tei_list_first(&lane->recv.deferred, struct rail_deferred, link);
		tei_list_del(&a->link);
		lane->ops->received(lane, a->buf, a->len, done);
		free(a);
	}
	__atomic_store_n(&lane->recv.ndeferred, 0, __ATOMIC_RELAXED);
}

bool rail_lane_poll(struct rail_lane *lane, struct rail_done *done)
{
	bool any;

	if (!lane->ep)
		return false;
	if (!lane->recv.visited)
		rail_lane_handle_deferred(lane, done);
	/* the receive buffers that the previous poll used are free by now */
	rail_lane_repost(lane);
	any = lane_read_cq(lane, done);
	if (lane->is_rx) {
		any |= lane_count_changed(lane);
	} else if (lane->state == RAIL_LANE_ACTIVE && lane->ops->feed) {
		lane->ops->polled(lane);
		any |= lane->ops->feed(lane, 0, done);
	}
	if (lane->settle_ns && tei_now_ns() > lane->settle_ns)
		__atomic_store_n(&lane->settle_ns, 0, __ATOMIC_RELAXED);
	return any;
}

/* A poll that takes at least this time is assumed to have moved data, even if it has read no
 * completion: remote writes and reads cause no completion at the target. */
#define POLL_BUSY_NS (4 * TEI_NS_PER_US)
/* A poll that takes at least this time is not counted: the kernel has probably
 * run another thread on the CPU meanwhile. */
#define POLL_LONG_NS (2 * TEI_NS_PER_MS)

/* Returns the start time of a poll, or 0 if the load of lanes is not
 * measured. */
static uint64_t lane_busy_begin(const struct rail_lane *lane)
{
	const struct rail_lane_threads *all = lane->rail->dp->lane_threads;

	return all && __atomic_load_n(&all->limit, __ATOMIC_RELAXED) ?
	       tei_now_ns() : 0;
}

/* Adds the duration of a poll to the load of the lane if the poll has moved
 * data. from: result of lane_busy_begin. any: result of the poll. */
static void lane_busy_end(struct rail_lane *lane, uint64_t from, bool any)
	TEI_REQUIRES(lane->lock)
{
	uint64_t took;

	if (!from)
		return;
	took = tei_now_ns() - from;
	if ((any || took >= POLL_BUSY_NS) && took < POLL_LONG_NS)
		__atomic_store_n(&lane->load.busy_ns,
				 lane->load.busy_ns + (took ? took : 1),
				 __ATOMIC_RELAXED);
}

bool rail_lane_poll_timed(struct rail_lane *lane, struct rail_done *done)
{
	uint64_t from = lane_busy_begin(lane);
	bool any = rail_lane_poll(lane, done);

	lane_busy_end(lane, from, any);
	return any;
}

/* Polls the lane once. If there are new slices ("work"), posts them first, and
 * omits the poll if no further work is left, because polling an empty queue
 * costs as much as a post. Returns true if a slice was posted or rail_lane_poll
 * returned true. */
static bool lane_turn(struct rail_lane *lane, bool work, uint64_t now,
		      struct rail_done *done) TEI_REQUIRES(lane->lock)
{
	if (work && lane->state == RAIL_LANE_ACTIVE &&
	    lane->ops->feed(lane, now, done) &&
	    !__atomic_load_n(&lane->rail->dp->tasks.nactive, __ATOMIC_RELAXED))
		return true;
	return rail_lane_poll(lane, done);
}

/* Polls the lane, and polls again as long as other threads have made a poll
 * request (lane->kick). work: there are new slices. now: a recent time if the
 * caller knows one, else 0. */
static bool lane_run(struct rail_lane *lane, bool work, uint64_t now)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	struct rail_done done;
	bool any = false, happened;
	uint64_t from;

	rail_done_init(&done);
	do {
		if (!tei_mutex_trylock(&lane->lock)) {
			/*
			 * The thread that holds the lock polls the lane for the
			 * calling thread. If there are more callers than CPUs,
			 * the other thread, or the peer's process, may be
			 * waiting for the CPU of the calling thread; so the
			 * calling thread yields.
			 */
			if (!work) {
				tei_yield();
				break;
			}
			__atomic_store_n(&lane->kick, true, __ATOMIC_SEQ_CST);
			if (!tei_mutex_trylock(&lane->lock))
				break;
		}
		from = lane_busy_begin(lane);
		happened = lane_turn(lane, work, now, &done);
		lane_busy_end(lane, from, happened);
		any |= happened;
		tei_mutex_unlock(&lane->lock);
		now = 0;
	} while (__atomic_load_n(&lane->kick, __ATOMIC_SEQ_CST) &&
		 __atomic_exchange_n(&lane->kick, false, __ATOMIC_SEQ_CST));
	rail_done_run(dp, &done);
	return any;
}

bool rail_lane_run(struct rail_lane *lane)
{
	return lane_run(lane, false, 0);
}

void rail_lane_kick(struct rail_lane *lane, uint64_t now)
{
	lane_run(lane, true, now);
}

uint32_t rail_first_lane(const struct rail *rail)
{
	static uint32_t numbers;	/* atomic: number of threads that have a
					 * number */
	static _Thread_local uint32_t number; /* number of the calling thread,
					       * from 1 on; 0 if it has none
					       * yet */

	if (rail->nbase < 2)
		return 0;
	if (!number)
		number = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
	return number % rail->nbase * RAIL_LANE_SLOTS;
}

void rail_sched_kick(struct tei_rail_dp *dp, uint64_t now)
{
	uint32_t n = rail_count(dp), first = 0, from, lanes, i, j;
	struct rail_lane *lane;
	bool unused = false;
	struct rail *rail;

	if (n > 1)
		first = __atomic_fetch_add(&dp->tasks.turn, 1, __ATOMIC_RELAXED);
	for (i = 0; i < n; i++) {
		rail = rail_at(dp, (first + i) % n);
		from = rail_first_lane(rail);
		lanes = rail->ntx * RAIL_LANE_SLOTS;
		for (j = 0; j < lanes; j++) {
			lane = &rail->tx_lanes[(from + j) % lanes];
			if (rail_lane_takes(lane) &&
			    __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) ==
				    RAIL_LANE_ACTIVE)
				rail_lane_kick(lane, now);
			else
				unused |= rail_use_none(rail, lane->index);
		}
	}
	if (unused)
		rail_use_for_tasks(dp, false);
}

void rail_lane_drop_deferred(struct rail_lane *lane)
{
	struct rail_deferred *a, *tmp;

	tei_list_foreach_safe (a, tmp, &lane->recv.deferred, struct rail_deferred,
			       link)
		free(a);
	tei_list_init(&lane->recv.deferred);
	__atomic_store_n(&lane->recv.ndeferred, 0, __ATOMIC_RELAXED);
}

void rail_op_abort_all(struct tei_rail_dp *dp, struct tei_list *aborted)
{
	struct rail_slice *s, *tmp;
	struct rail_done done;

	rail_done_init(&done);
	rail_sched_enter(dp);
	tei_list_foreach_safe (s, tmp, aborted, struct rail_slice, link) {
		tei_list_del(&s->link);
		s->op.handler->abort(&s->op, &done);
	}
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
}
