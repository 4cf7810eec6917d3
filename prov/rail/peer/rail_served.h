/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_SERVED_H
#define TEI_PROV_RAIL_PEER_RAIL_SERVED_H

/*
 * Reports of how many bytes a process has written to a peer and read from it.
 *
 * A target has no part in one-sided transfers and cannot count their bytes. So
 * each initiator counts the bytes and sends its totals to the target (BYTES):
 * at most once a second, and only if they have changed. The totals are
 * cumulative, so the next message makes up for a lost one. The target does not
 * verify the totals, but shows those of each peer separately.
 */

#include "util/lock.h"

#include <stdint.h>

#define RAIL_SERVED_NS	1000000000	/* shortest time between two reports to
					 * a peer, ns */

struct rail_wire;
struct tei_rail_dp;
struct tei_rail_peer;

/* Marks the peers for which this process has moved more bytes than it has last
 * reported to them. Progress thread, no lock held. */
void rail_served_mark(struct tei_rail_dp *dp);

/* Sends BYTES, the report of moved bytes, if it is due. Returns the time at
 * which this function must be called again, ns, or 0, as all steps in
 * rail_ctl.h do. */
uint64_t rail_ctl_served(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);

extern struct tei_mutex rail_sched_held;

/* Handles the peer's report of how many bytes it has moved for this process. */
void rail_served_reported(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_PEER_RAIL_SERVED_H */
