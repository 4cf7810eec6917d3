/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_SCHED_RAIL_FENCE_H
#define TEI_PROV_RAIL_SCHED_RAIL_FENCE_H

/* Fences of remote rails, and the lanes that are retired for them. */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "util/lock.h"

struct rail;

/* Requests a fence of the remote rail for generations up to gen. */
void rail_fence_want(struct tei_rail_peer *peer, uint16_t remote, uint32_t gen)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if a fence of one of the peer's rails is outstanding. */
bool rail_fence_wanted(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* The functions below are called by the thread without a lock. */
/* Opens the rail's rx lane if it could not be opened before. */
void rail_fence_reopen(struct rail *rail);

/* Announces to the peers that the rail's rx lane is open again. */
void rail_fence_reopened(struct rail *rail);

/* Collects the rx lanes that have been closed, and opens the next ones. */
void rail_fence_run(struct tei_rail_dp *dp);

/*
 * Closes the rail's rx lane if its generation is gen or older, and opens a
 * replacement. Returns the lane generation of the replacement. Returns 0 if the
 * lane is not closed yet; the answers to the peers are then sent when it is
 * closed.
 */
uint32_t rail_fence_target(struct rail *rail, uint32_t gen);

#endif /* TEI_PROV_RAIL_SCHED_RAIL_FENCE_H */
