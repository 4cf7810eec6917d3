/* SPDX-License-Identifier: BSD-2-Clause */
/* Posts messages of the peer protocol: the send buffers of a rail, and the
 * state of the connection that carries a message. */

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_conn_state.h"
#include "prov/rail/conn/rail_loss.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/wire/rail_auth.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

/* Number of send buffers reserved for connections that have no buffer in
 * use. */
#define MSG_TX_SPARE 8

struct rail_lane *rail_msg_lane(struct rail *rail, uint32_t index)
{
	struct rail_lane *lane = &rail->tx_lanes[index * RAIL_LANE_SLOTS];
	int i;

	for (i = 0; i < RAIL_LANE_SLOTS; i++)
		if (rail_lane_active(&lane[i]))
			return &lane[i];
	return NULL;
}

/*
 * Takes a send buffer for the connection, or returns NULL if the connection may
 * not have one.
 *
 * A connection may use at most twice as many send buffers as are free, so that
 * a peer that accepts nothing does not take all of them: dynamic thresholds,
 * Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998. Several
 * such peers could still use up the free buffers step by step, so the last
 * buffers are reserved for connections that have no buffer in use.
 */
static struct rail_tx *msg_tx_take(struct rail *rail, struct rail_conn *conn)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_tx *tx;

	if (!rail->send.left || (conn && conn->msgs &&
				 (conn->msgs >= 2 * rail->send.left ||
				  rail->send.left <= MSG_TX_SPARE)))
		return NULL;
	tx = tei_list_first(&rail->send.free, struct rail_tx, link);
	tei_list_del(&tx->link);
	rail->send.left--;
	rail_conn_send(conn, tx);
	return tx;
}

static struct rail_tx *msg_tx_get(struct rail *rail, struct rail_conn *conn)
{
	struct rail_tx *tx;

	rail_sched_enter(rail->dp);
	tx = msg_tx_take(rail, conn);
	rail_sched_leave(rail->dp);
	return tx;
}

void rail_msg_tx_put(struct rail_tx *tx)
{
	__atomic_fetch_sub(&tx->lane->msgs, 1, __ATOMIC_RELAXED);
	tx->lane = NULL;
	rail_conn_sent(tx);
	tei_list_add_tail(&tx->rail->send.free, &tx->link);
	tx->rail->send.left++;
}

/* --- completions --------------------------------------------------------- */

static void msg_complete(struct rail_lane *lane,
			 const struct fi_cq_msg_entry *entry, int n,
			 struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct rail_tx *tx;
	int i;

	(void)done;
	rail_sched_enter(lane->rail->dp);
	for (i = 0; i < n; i++) {
		tx = tei_container_of(entry[i].op_context, struct rail_tx, op);
		if (tx->conn)
			rail_conn_completed(lane, tx->conn);
		rail_msg_tx_put(tx);
	}
	rail_sched_leave(lane->rail->dp);
}

static void msg_fail(struct rail_lane *lane, const struct fi_cq_err_entry *err,
		     const char *text, struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct rail_tx *tx =
		tei_container_of(err->op_context, struct rail_tx, op);

	(void)done;
	rail_loss_log(lane, err, "message to", tx->conn ? tx->conn->peer : NULL,
		      text);
	rail_sched_enter(lane->rail->dp);
	if (tx->conn)
		rail_conn_failed(lane, tx->conn, err->err);
	rail_msg_tx_put(tx);
	rail_sched_leave(lane->rail->dp);
}

void rail_msg_abort(struct rail_op *op, struct rail_done *done)
{
	(void)done;
	rail_msg_tx_put(tei_container_of(op, struct rail_tx, op));
}

static const struct rail_op_handler msg_op = {
	.complete = msg_complete,
	.fail = msg_fail,
	.abort = rail_msg_abort,
};

/* --- posting ------------------------------------------------------------- */

/* What msg_admit found out about a connection. */
struct msg_conn {
	bool busy; /* slices are in flight on the
		    * connection */
	bool ready;
	struct rail_tx *tx;		/* send buffer for the message; NULL if
					 * the connection has no address handle
					 * or may not have a buffer */
};

/* Requests a place in the endpoint cache for the connection, and takes a send
 * buffer if the connection has an address handle. Returns false if no place is
 * free now. */
static bool msg_admit(struct tei_rail_peer *peer, struct rail_lane *lane,
		      uint16_t remote, struct rail_conn *conn, uint64_t now,
		      struct msg_conn *is) TEI_REQUIRES(lane->lock)
{
	bool good;

	is->tx = NULL;
	rail_sched_enter(lane->rail->dp);
	good = rail_cache_admit_msg(lane, conn, now);
	is->busy = conn->inflight != 0;
	is->ready = good && rail_conn_is_ready(peer, conn, lane, remote);
	if (is->ready)
		is->tx = msg_tx_take(lane->rail, conn);
	rail_sched_leave(lane->rail->dp);
	return good;
}

/* Sends the message in the buffer tx to an address of the lane's address
 * vector. Returns 0, -FI_ENOMEM if tx is NULL, or another -FI_E*. Returns tx to
 * the free list on failure. */
static ssize_t msg_post_to(struct tei_rail_peer *peer, struct rail_lane *lane,
			   const struct rail_op_handler *handler,
			   uint16_t remote, struct rail_tx *tx, fi_addr_t addr,
			   const void *msg, size_t len) TEI_REQUIRES(lane->lock)
{
	struct rail *rail = lane->rail;
	ssize_t ret;

	if (!tx)
		return -FI_ENOMEM;
	memcpy(tx->buf, msg, len);
	tx->buf[RAIL_WIRE_FLAGS_AT + 1] |= (uint8_t)(rail->index + 1);
	rail_auth_sign(peer, tx->buf, len);
	tx->op.handler = handler;
	tx->lane = lane;
	tx->incarnation = peer->incarnation;
	tx->remote = remote;
	__atomic_fetch_add(&lane->msgs, 1, __ATOMIC_RELAXED);
	ret = fi_send(lane->ep, tx->buf, len,
		      rail->send.mr ? fi_mr_desc(rail->send.mr) : NULL, addr,
		      &tx->op.ctx);
	if (ret) {
		rail_sched_enter(rail->dp);
		rail_msg_tx_put(tx);
		rail_sched_leave(rail->dp);
	}
	return ret;
}

/* Handles a post that the provider refused, because it found no route. */
static void msg_refused(struct rail_conn *conn, uint64_t now)
{
	rail_conn_block(conn, now, false);
	conn->since_ns = 0; /* the connection is not being established */
	__atomic_store_n(&conn->suspect, true, __ATOMIC_RELAXED);
}

int rail_msg_post_on(struct tei_rail_peer *peer, struct rail_lane *lane,
		     struct rail_conn *conn, const void *msg, size_t len,
		     int *refused)
{
	uint16_t remote = conn->remote;
	uint64_t now = tei_now_ns();
	struct msg_conn is;
	ssize_t ret = 0;

	if (lane->state != RAIL_LANE_ACTIVE || conn->blocked_ns > now ||
	    !msg_admit(peer, lane, remote, conn, now, &is))
		return -FI_EAGAIN;
	rail_cache_close(lane);
	if (!is.ready)
		ret = rail_conn_ready(peer, conn, lane, remote, 0);
	if (ret == -FI_EAGAIN)
		return (int)ret;
	if (!ret) {
		conn->used = true;
		if (!is.ready)
			is.tx = msg_tx_get(lane->rail, conn);
		ret = msg_post_to(peer, lane, &msg_op, remote, is.tx,
				  conn->fi_addr, msg, len);
	}
	switch (ret) {
	case 0:
		conn->since_ns = 0;
		conn->asked_ns = now;
		conn->backoff_us = 0;
		__atomic_store_n(&conn->suspect, false, __ATOMIC_RELAXED);
		return 0;
	case -FI_EAGAIN:
		__atomic_store_n(&conn->suspect,
				 rail_conn_block(conn, now, is.busy),
				 __ATOMIC_RELAXED);
		return (int)ret;
	case -FI_ENOMEM:	/* no buffer is free; the connection is not at
				 * fault */
		return -FI_EAGAIN;
	default:
		msg_refused(conn, now);
		*refused = (int)-ret;
		return -FI_EHOSTUNREACH;
	}
}

int rail_msg_post(struct tei_rail_peer *peer, struct rail_lane *lane,
		  uint16_t remote, fi_addr_t addr, const void *msg, size_t len)
{
	ssize_t ret = -FI_EHOSTUNREACH;

	tei_mutex_lock(&lane->lock);
	if (lane->ep)
		ret = msg_post_to(peer, lane, &msg_op, remote,
				  msg_tx_get(lane->rail, NULL), addr, msg, len);
	tei_mutex_unlock(&lane->lock);
	return ret == -FI_ENOMEM ? -FI_EAGAIN : (int)ret;
}

int rail_msg_post_reverse(struct tei_rail_peer *peer, struct rail_lane *lane,
			  const struct rail_op_handler *handler, fi_addr_t addr,
			  const void *msg, size_t len)
{
	struct rail_lane *forth = rail_msg_lane(lane->rail, 0);
	struct rail_conn *conn = NULL;
	struct rail_tx *tx = NULL;
	int16_t remote;
	ssize_t ret;

	/* the send buffer counts towards the limit of the connection to the
	 * route's remote rail */
	rail_sched_enter(peer->dp);
	remote = peer->routes.route[lane->rail->index];
	if (forth && remote >= 0)
		conn = rail_conn_get(peer, forth, (uint16_t)remote);
	if (conn)
		tx = msg_tx_take(lane->rail, conn);
	rail_sched_leave(peer->dp);
	if (!tx)
		return -FI_EAGAIN;
	ret = msg_post_to(peer, lane, handler, (uint16_t)remote, tx, addr, msg,
			  len);
	return ret == -FI_EAGAIN ? -FI_ENOTCONN : (int)ret;
}

enum rail_msg_link rail_msg_link(struct tei_rail_peer *peer, struct rail *rail,
				 uint32_t index)
{
	struct rail_lane *lane = rail_msg_lane(rail, index);
	enum rail_msg_link link = RAIL_MSG_UNLINKED;
	struct rail_conn *conn = NULL;

	rail_sched_enter(peer->dp);
	if (lane && peer->routes.route[rail->index] >= 0)
		conn = rail_conn_get(peer, lane,
				     (uint16_t)peer->routes.route[rail->index]);
	if (conn && conn->msgs)
		link = RAIL_MSG_LINKING;
	rail_sched_leave(peer->dp);
	if (!conn)
		return link;
	tei_mutex_lock(&lane->lock);
	if (rail_conn_lives(lane, conn))
		link = RAIL_MSG_LINKED;
	tei_mutex_unlock(&lane->lock);
	return link;
}

bool rail_msg_idle(struct rail *rail)
{
	bool idle = true;
	int i;

	rail_sched_enter(rail->dp);
	for (i = 0; i < RAIL_TX_MSGS; i++)
		idle &= !rail->send.bufs[i].lane ||
			rail->send.bufs[i].lane->is_rx;
	rail_sched_leave(rail->dp);
	return idle;
}
