/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_RECV_H
#define TEI_PROV_RAIL_PEER_RAIL_RECV_H

/* Handlers of received messages, which rail_dispatch.c calls. w: the part of
 * the message that follows the header. */

/* --- rail_key_ctl.c: KEY_REQ, KEY_REP, REVOKE, REVOKED -------------------- */

#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "util/lock.h"

struct rail_done;
struct rail_wire;
void rail_key_on_request(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);
/* table: version of the sender's rail table, which is in the message header. */
void rail_key_on_reply(struct tei_rail_peer *peer, struct rail_wire *w,
		       uint32_t table, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
void rail_key_on_revoke(struct tei_rail_peer *peer, struct rail_wire *w,
			struct rail_done *done) TEI_REQUIRES(rail_sched_held);
void rail_key_on_revoked(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_fence_ctl.c: FENCE, FENCED -------------------------------------- */
void rail_fence_on_request(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);
void rail_fence_on_reply(struct tei_rail_peer *peer, struct rail_wire *w,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_PEER_RAIL_RECV_H */
