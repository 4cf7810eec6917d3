/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_MSG_H
#define TEI_PROV_RAIL_CONN_RAIL_MSG_H

/* Posting messages of the peer protocol on connections. */

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"

struct rail;
struct rail_conn;
struct rail_tx;

/*
 * Posts the message on the connection, establishing it if necessary. Returns 0,
 * -FI_EAGAIN if the caller must try again later, or -FI_EHOSTUNREACH if the
 * provider refused the message. Only in the last case, *refused is set to the
 * provider's error (FI_E*).
 */
int rail_msg_post_on(struct tei_rail_peer *peer, struct rail_lane *lane,
		     struct rail_conn *conn, const void *msg, size_t len,
		     int *refused) TEI_REQUIRES(lane->lock);

/* Returns the rail's active tx lane with that lane number, or NULL. Any
 * thread. */
struct rail_lane *rail_msg_lane(struct rail *rail, uint32_t lane_index);

/* Sends a message from an rx lane to an address in the lane's address vector.
 * handler: handler of the completion, because the message belongs to no
 * connection of this process. Returns 0, -FI_EAGAIN if no send buffer is free,
 * or another error if the connection is lost. Any thread. */
int rail_msg_post_reverse(struct tei_rail_peer *peer, struct rail_lane *lane,
			  const struct rail_op_handler *handler, fi_addr_t addr,
			  const void *msg, size_t len) TEI_REQUIRES(lane->lock);
/* The abort function of all handlers of messages: returns the send buffer to
 * the free list. */
void rail_msg_abort(struct rail_op *op, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* rail_msg_link returns the state of the connection on the rail's route to the
 * peer. Checks all sockets of the lane. Any thread. */
enum rail_msg_link {
	RAIL_MSG_UNLINKED,
	RAIL_MSG_LINKING,	/* a message has been sent on the connection,
				 * and its result is unknown */
	RAIL_MSG_LINKED,
};

enum rail_msg_link rail_msg_link(struct tei_rail_peer *peer, struct rail *rail,
				 uint32_t lane_index);

/* Sends a message from any lane to an address of the lane's address vector.
 * Returns 0 or -FI_E*; -FI_EAGAIN may also mean that no send buffer is free. */
int rail_msg_post(struct tei_rail_peer *peer, struct rail_lane *lane,
		  uint16_t remote, fi_addr_t addr, const void *msg, size_t len);

/* Returns the send buffer to the free list, and uncounts its message. */
void rail_msg_tx_put(struct rail_tx *tx) TEI_REQUIRES(rail_sched_held);

/* Returns true if no message is under way on any tx lane of the rail. */
bool rail_msg_idle(struct rail *rail);

#endif /* TEI_PROV_RAIL_CONN_RAIL_MSG_H */
