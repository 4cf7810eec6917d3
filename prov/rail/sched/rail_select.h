/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_SCHED_RAIL_SELECT_H
#define TEI_PROV_RAIL_SCHED_RAIL_SELECT_H

/* Chooses the remote rail for a slice. */

#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"

struct rail_rkey;

/*
 * Selects the remote rail for a slice that the lane will carry. key: remote key
 * of the remote memory; ranks: ranks of the rails for the local memory; length:
 * bytes of the whole request. If *now is 0 and the function needs the time, it
 * sets *now to the time. Returns the index of the remote rail in peer->remotes,
 * or -1 if no remote rail can be reached.
 */
int16_t rail_select_remote(struct tei_rail_peer *peer, struct rail_lane *lane,
			   const struct rail_rkey *key, const uint8_t *ranks,
			   uint64_t length, uint64_t *now)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_SCHED_RAIL_SELECT_H */
