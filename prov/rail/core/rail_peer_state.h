/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_PEER_STATE_H
#define TEI_PROV_RAIL_CORE_RAIL_PEER_STATE_H

/*
 * Queries of the state of a peer, and the lists in which the data plane puts a
 * peer.
 */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "util/lock.h"

/* Returns true if no request for the peer waits to be cut into slices, and no
 * slice waits to be posted again. */
bool rail_slice_none(const struct tei_rail_peer *peer);

/* Puts the peer on dp->tasks.active if it has slices to post, or requests a
 * hello if the peer is not READY yet. */
void rail_peer_activate(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Puts the peer on dp->peers.attn, due now, and wakes the progress thread. */
void rail_peer_attend(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if the peer is GONE and no slice that was posted to it can land
 * any more (RAIL_GONE_OVER or RAIL_GONE_LEFT). */
bool rail_peer_over(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if tasks or slices for the peer are in progress. */
bool rail_peer_busy(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if the peer is not busy and has no references. */
bool rail_peer_unused(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Returns peer->nremotes. Acquires dp->sched, because any thread may change the
 * number as long as peer->remotes holds contact addresses. */
uint16_t rail_peer_remotes(const struct tei_rail_peer *peer);

/* Returns true if the peer is presumed dead. */
bool rail_presumed(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_CORE_RAIL_PEER_STATE_H */
