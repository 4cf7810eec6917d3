/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_ATOMIC_CTL_H
#define TEI_PROV_RAIL_PEER_RAIL_ATOMIC_CTL_H

/* Sends atomic operations to peers, and executes and answers those of peers. */

#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "util/lock.h"

struct rail_done;
struct rail_wire;

void rail_atomic_free(struct tei_rail_peer *peer);

/* Stores the session number that the peer's hello contains; 0 means that the
 * hello contains none. */
void rail_atomic_session(struct tei_rail_peer *peer, uint64_t session,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held);

/* rail_atomic_asked handles a received ATOMIC, and rail_atomic_answered a
 * received ATOMIC_REP. Progress thread. */
void rail_atomic_asked(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);
void rail_atomic_answered(struct tei_rail_peer *peer, struct rail_wire *w,
			  struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_PEER_RAIL_ATOMIC_CTL_H */
