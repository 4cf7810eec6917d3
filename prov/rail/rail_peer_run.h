/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_PEER_RUN_H
#define TEI_PROV_RAIL_RAIL_PEER_RUN_H

/*
 * Runs the control state machines of a peer, one after the other, on the
 * progress thread.
 */

#include <stdint.h>

struct tei_rail_peer;

/* Runs the state machines of a peer. Must be called on the progress thread,
 * without a lock held. Returns the time at which they must run again, or 0 if
 * they need not run before something changes. */
uint64_t rail_peer_run(struct tei_rail_peer *peer, uint64_t now);

#endif /* TEI_PROV_RAIL_RAIL_PEER_RUN_H */
