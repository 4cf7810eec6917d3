/* SPDX-License-Identifier: BSD-2-Clause */
/* Posts slices: takes slices for a lane that has room, and posts them to the
 * endpoint of the lane. */

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_window.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/sched/rail_sched.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

static ssize_t post_write(struct rail_lane *lane, struct rail_slice *s,
			  void **desc)
{
	struct iovec iov = { .iov_base = s->local, .iov_len = s->len };
	struct fi_rma_iov rma = {
		.addr = s->rma_addr,
		.len = s->len,
		.key = s->rma_key,
	};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = desc,
		.iov_count = 1,
		.addr = s->conn->fi_addr,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = &s->op.ctx,
	};

	if (s->read)
		return fi_readmsg(lane->ep, &msg, FI_COMPLETION);
	return fi_writemsg(lane->ep, &msg,
			   FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

static ssize_t post_slice(struct rail_lane *lane, struct rail_slice *s,
			  uint64_t now) TEI_REQUIRES(lane->lock)
{
	struct rail *rail = lane->rail;
	const struct rail_mr_part *part;
	uint64_t total, max;
	void *desc = NULL;
	ssize_t ret;

	if (s->conn_fresh) {
		/* the connection must lead to exactly this generation of the
		 * remote rail, because this generation is fenced if the slice
		 * fails later */
		ret = rail_conn_ready(s->peer, s->conn, lane, s->remote_idx,
				      s->remote_gen);
		if (ret)
			return ret;
	}
	part = &s->mr->part[rail->index];
	if (part->desc)
		desc = part->desc[(uint64_t)(s->local - s->mr->addr) >>
				  part->shift];
	s->conn->used = true;
	ret = s->ext ? rail_iov_post(lane, s) : post_write(lane, s, &desc);
	if (ret)
		return ret;
	if (!lane->inflight)
		rail_window_begin(lane, s, now ? now : tei_now_ns());
	if (!s->conn->posted)
		rail_conn_moved(s->conn);
	s->conn->posted++;
	s->conn->since_ns = 0;
	s->conn->backoff_us = 0;
	s->seq = ++lane->rate.posts;
	tei_list_add_tail(&lane->posted, &s->link);
	__atomic_store_n(&lane->inflight, lane->inflight + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->inflight_bytes, lane->inflight_bytes + s->len,
			 __ATOMIC_RELAXED);
	total = rail_posted_bytes(rail);
	max = __atomic_load_n(&rail->load.inflight_max, __ATOMIC_RELAXED);
	while (total > max && !__atomic_compare_exchange_n(
				      &rail->load.inflight_max, &max, total,
				      true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return 0;
}

/* Reverts the counts for a slice that could not be posted. None of its bytes
 * was sent. */
static void post_undo(struct rail_slice *s, ssize_t err, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *peer = s->peer;

	peer->tasks.posted--;
	rail_conn_put(s);
	/* the slice can use another lane, which then shows whether the error
	 * concerns the rail pair */
	if (err != -FI_EAGAIN && rail_width_extra(s->lane)) {
		rail_width_failed(s->conn->width);
		err = -FI_EAGAIN;
	}
	if (err != -FI_EAGAIN) {
		s->last_err = (int)-err;
		s->prov_err = 0;
	}
	if (err == -FI_EAGAIN ||
	    rail_health_refused(peer, s->lane->rail, s->remote_idx,
				s->last_err)) {
		tei_list_add_head(&peer->tasks.retry, &s->link);
		if (rail_slice_dead(s)) {
			rail_slice_drop(peer->dp, s, false, done);
			return;
		}
		if (rail_slice_unregistered(s, done))
			return;
		if (err != -FI_EAGAIN)
			rail_sched_count(s);
		rail_peer_activate(peer);
		return;
	}
	tei_list_init(&s->link);
	rail_sched_again(peer, s, done);
}

/* Handles that a connection of the lane is not established. A rail pair works
 * without its extra connections, so they cause neither a renewal nor a fault:
 * their pair becomes narrower after some time. */
static void post_stuck(const struct rail_lane *lane, struct rail_conn *conn,
		       uint64_t now) TEI_REQUIRES(rail_sched_held)
{
	if (rail_width_extra(lane)) {
		if (now > conn->since_ns + RAIL_WIDTH_JOIN_NS)
			rail_width_failed(conn->width);
		return;
	}
	if (conn->peer->pairs.stuck)
		return;
	conn->peer->pairs.stuck = true;
	rail_peer_attend(conn->peer);
}

/* Marks the connections of slices that could not be posted as blocked for a
 * while. */
static void post_block(const struct rail_lane *lane, struct rail_conn **conn,
		       int n) TEI_REQUIRES(rail_sched_held)
{
	uint64_t now = tei_now_ns();
	int i;

	for (i = 0; i < n; i++) {
		if (!conn[i] || !conn[i]->blocked_now)
			continue;
		conn[i]->blocked_now = false;
		if (rail_conn_block(conn[i], now, conn[i]->inflight != 0))
			post_stuck(lane, conn[i], now);
	}
}

bool rail_sched_pull(struct rail_lane *lane, uint64_t now,
		     struct rail_done *done)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	struct rail_slice *s[RAIL_BUNDLE];
	struct rail_conn *conn[RAIL_BUNDLE];
	ssize_t ret[RAIL_BUNDLE];
	bool any = false, blocked = false;
	int i, n;

	if (!__atomic_load_n(&dp->tasks.nactive, __ATOMIC_RELAXED))
		return false;
	do {
		rail_sched_enter(dp);
		n = rail_slice_cut(lane, s);
		rail_sched_leave(dp);
		rail_cache_close(lane);
		for (i = 0; i < n; i++) {
			conn[i] = NULL;
			ret[i] = s[i]->conn->blocked_now
					 ? -FI_EAGAIN
					 : post_slice(lane, s[i], now);
			if (!ret[i]) {
				any = true;
				continue;
			}
			blocked = true;
			conn[i] = s[i]->conn;
			conn[i]->blocked_now = true;
		}
		if (!blocked)
			continue;
		rail_sched_enter(dp);
		for (i = n - 1; i >= 0; i--)
			if (ret[i])
				post_undo(s[i], ret[i], done);
		post_block(lane, conn, n);
		rail_sched_leave(dp);
	} while (n == RAIL_BUNDLE && !blocked);
	return any;
}
