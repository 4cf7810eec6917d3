/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles the completions of slices. */
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_conn_state.h"
#include "prov/rail/conn/rail_loss.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_failure.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_window.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/sched/rail_sched.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

/* Removes a completed slice from the lane's list and counters. */
static void slice_unpost(struct rail_lane *lane, struct rail_slice *slice)
{
	tei_list_del(&slice->link);
	/* if the lane is retired, its connections already belong to the sibling
	 * lane */
	if (lane->state == RAIL_LANE_ACTIVE) {
		slice->conn->posted--;
		slice->conn->blocked_ns = 0;
	}
	rail_conn_moved(slice->conn);
	__atomic_store_n(&lane->inflight, lane->inflight - 1, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->inflight_bytes,
			 lane->inflight_bytes - slice->len, __ATOMIC_RELAXED);
}

static void slice_count_done(struct rail_lane *lane,
			     const struct rail_slice *slice)
{
	uint64_t *bytes = slice->read ? &lane->done.rx_bytes : &lane->done.tx_bytes;

	__atomic_store_n(bytes, *bytes + slice->len, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->done.slices, lane->done.slices + 1, __ATOMIC_RELAXED);
}

static void slice_complete(struct rail_lane *lane,
			   const struct fi_cq_msg_entry *entry, int n,
			   struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	struct rail_slice *s[RAIL_CQ_BATCH];
	uint64_t bytes = 0, now;
	int i;

	for (i = 0; i < n; i++) {
		s[i] = tei_container_of(entry[i].op_context, struct rail_slice,
					op);
		slice_unpost(lane, s[i]);
		rail_conn_completed(lane, s[i]->conn);
		slice_count_done(lane, s[i]);
		bytes += s[i]->len;
	}
	now = tei_now_ns();
	for (i = 0; i < n && lane->rate.alone; i++)
		if (s[i] == lane->rate.alone)
			rail_window_alone(lane, now);
	rail_window_measure(lane, bytes, now);
	rail_sched_enter(dp);
	for (i = 0; i < n; i++)
		rail_slice_complete(dp, s[i], now, done);
	rail_sched_leave(dp);
}

static void slice_failed(struct rail_lane *lane,
			 const struct fi_cq_err_entry *err, const char *text,
			 struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct rail_slice *s =
		tei_container_of(err->op_context, struct rail_slice, op);
	struct tei_rail_dp *dp = lane->rail->dp;

	rail_loss_log(lane, err, s->read ? "read from" : "write to", s->peer,
		      text);
	slice_unpost(lane, s);
	rail_sched_enter(dp);
	rail_conn_failed(lane, s->conn, err->err);
	s->prov_err = err->prov_errno;
	rail_peer_remember_failure(s->peer, lane->rail, err->err,
				   err->prov_errno, text);
	rail_health_error(s, err->err);
	rail_slice_handle_error(dp, s, err->err, done);
	rail_sched_leave(dp);
}

static void slice_abort(struct rail_op *op, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s = tei_container_of(op, struct rail_slice, op);

	s->prov_err = 0;
	rail_slice_handle_error(s->peer->dp, s, FI_ECANCELED, done);
}

const struct rail_op_handler rail_slice_op = {
	.complete = slice_complete,
	.fail = slice_failed,
	.abort = slice_abort,
};
