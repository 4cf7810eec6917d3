/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_REVERSE_H
#define TEI_PROV_RAIL_PEER_RAIL_REVERSE_H

/* User messages, and reverse-path sends of user messages. */

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"

struct rail;
struct rail_wire;

/*
 * The address to which an rx lane may send user messages for a peer
 * (rail_reverse.c). Owned by the peer. When the peer is freed, the rail owns
 * this object until the address has been removed from the address vector.
 * Changes need dp->sched and the lock of the rx lane; reading needs only the
 * lock of the rx lane.
 */
struct rail_reverse {
	struct tei_list link;		/* entry of rail->reverse_left, the
					 * addresses of freed peers */
	fi_addr_t addr;			/* the peer's address in the address
					 * vector of the rx lane */
	uint32_t gen;			/* generation of the rx lane for
					 * which addr is valid; 0 if addr is
					 * not valid */
	struct tei_rail_addr to;
	uint64_t received_ns; /* atomic: time at which the rx lane
			       * last received a message from the
			       * peer */
	bool good;	      /* atomic: true if the reverse path may be used */
};

/* Returns true if the rail supports reverse-path sends. */
bool rail_reverse_fits(const struct rail *rail);

/* Records that a user message arrived at the rx lane over a connection of the
 * peer. If the peer could have used the reverse path instead, a REVERSE is sent
 * to it. */
void rail_reverse_missed(struct tei_rail_peer *peer,
			 const struct rail_lane *lane)
	TEI_REQUIRES(rail_sched_held);

/* Records that a message arrived at the rx lane, which shows that the
 * connection to this lane is alive. */
void rail_reverse_received(struct tei_rail_peer *peer,
			   const struct rail_lane *lane)
	TEI_REQUIRES(rail_sched_held);

/* Handles a REVERSE that the peer sent to that rx lane. */
void rail_reverse_notified(struct tei_rail_peer *peer, struct rail_lane *lane,
			   struct rail_wire *w) TEI_REQUIRES(lane->lock)
	TEI_REQUIRES(rail_sched_held);

/* Sends a user message over the reverse path. Returns 0, -FI_EAGAIN if there
 * is no buffer, or another error if there is no usable reverse path. Any
 * thread. */
int rail_reverse_send(struct tei_rail_peer *peer, struct rail *rail,
		      const void *msg, size_t len);

/* rail_reverse_free releases the reverse paths of a peer that is about to be
 * freed. rail_reverse_fini does so for a rail. */
void rail_reverse_free(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
void rail_reverse_fini(struct rail *rail);

/* Adds a received user message to done. */
void rail_user_received(struct tei_rail_peer *peer, const struct rail_wire *w,
			struct rail_done *done) TEI_REQUIRES(rail_sched_held);

/* Notifies the resolvers of that address that the process has incarnation
 * inc. */
void rail_user_seen(struct tei_rail_dp *dp, uint64_t inc,
		    const struct tei_rail_addr *addr)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_PEER_RAIL_REVERSE_H */
