/* SPDX-License-Identifier: BSD-2-Clause */
/* Updates the state of a connection when operations on it complete or fail. */

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn_state.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_failure.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "util/clock.h"

#define CONN_SETTLE_NS (50 * TEI_NS_PER_MS)

/* Records in conn->connected, after an operation on the connection has
 * completed or failed, whether the connection is established. Does nothing if
 * the lane is retired, because the connection then belongs to the sibling
 * lane. */
static void conn_set_connected(const struct rail_lane *lane,
			       struct rail_conn *conn, bool connected)
{
	if (lane->state != RAIL_LANE_ACTIVE || !conn->ready ||
	    conn->lane_gen != lane->gen)
		return;
	if (connected && !conn->connected) {
		__atomic_store_n(
			&conn->peer->renew.rails[lane->rail->index].linked,
			true, __ATOMIC_RELAXED);
		__atomic_store_n(&conn->failed_attempts, 0, __ATOMIC_RELAXED);
	}
	conn->connected = connected;
}

/* Returns true if the error means that this connection of the lane has
 * ended. */
static bool conn_is_lost(const struct rail_lane *lane,
			 const struct rail_conn *conn, int err)
{
	return rail_err_ends_conn(err) && lane->state == RAIL_LANE_ACTIVE &&
	       conn->ready && conn->lane_gen == lane->gen;
}

/*
 * Drops the connection's place in the endpoint cache, and keeps the lane polled
 * for CONN_SETTLE_NS.
 *
 * ofi_rxm notices in two steps that a connection has ended. The second step
 * happens in a poll of the empty queue, some milliseconds after the first step.
 * Between the two steps, ofi_rxm accepts posts to the peer, and all of them
 * fail. Without polls of the lane, this state would last as long as messages
 * are sent only from time to time.
 */
static void conn_drop(struct rail_lane *lane, struct rail_conn *conn)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	rail_cache_drop(conn);
	__atomic_store_n(&lane->settle_ns, tei_now_ns() + CONN_SETTLE_NS,
			 __ATOMIC_RELAXED);
}

void rail_conn_completed(const struct rail_lane *lane, struct rail_conn *conn)
{
	conn_set_connected(lane, conn, true);
}

void rail_conn_failed(struct rail_lane *lane, struct rail_conn *conn, int err)
{
	conn_set_connected(lane, conn, false);
	if (conn_is_lost(lane, conn, err))
		conn_drop(lane, conn);
}
