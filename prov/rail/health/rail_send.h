/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_HEALTH_RAIL_SEND_H
#define TEI_PROV_RAIL_HEALTH_RAIL_SEND_H

/* Chooses a rail pair for a message, and sends the message. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rail;
struct rail_conn;
struct rail_lane;
struct tei_rail_peer;

/* Number of low bits of peer->life.received that hold the index of the local
 * rail. The higher bits hold the index of the remote rail plus 1. */
#define RAIL_RECEIVED_SHIFT	8

/* Sends a message over the first rail that accepts it. attempt: how often the
 * message was sent before, which determines the order in which the rails are
 * tried. Returns 0, -FI_EAGAIN while connections are being made or their queues
 * are full, or another negative error if there is no route. */
int rail_msg_send(struct tei_rail_peer *peer, const void *msg, size_t len,
		  uint32_t attempt);

/* Returns -FI_EHOSTUNREACH only if no local rail can reach any rail of the
 * peer. In all other cases changes -FI_EHOSTUNREACH to -FI_EAGAIN, because a
 * link, a route or a lane may work again later. Other values of ret are
 * returned unchanged. */
int rail_msg_verdict(struct tei_rail_peer *peer, int ret);

/* Sends a message over the route of the rail, with the rail's tx lane of index
 * lane_index. */
int rail_msg_send_on(struct tei_rail_peer *peer, struct rail *rail,
		     uint32_t lane_index, const void *msg, size_t len);

/* Does what rail_msg_send_on does, but does not poll the lane and does not call
 * rail_renew_if_stuck. Sets *lane and *conn, so that the caller can do both.
 * Any thread. */
int rail_msg_try_on(struct tei_rail_peer *peer, struct rail *rail,
		    uint32_t lane_index, const void *msg, size_t len,
		    struct rail_lane **lane, struct rail_conn **conn);

/* Does what rail_msg_try_on does, but for the given remote rail; -1 stands for
 * the route. */
int rail_msg_try_pair(struct tei_rail_peer *peer, struct rail *rail,
		      uint32_t lane_index, int16_t remote, const void *msg,
		      size_t len, struct rail_lane **lane,
		      struct rail_conn **conn);

/* Returns true if no fault of the rail's route to the peer is known. */
bool rail_msg_works(struct tei_rail_peer *peer, const struct rail *rail);

#endif /* TEI_PROV_RAIL_HEALTH_RAIL_SEND_H */
