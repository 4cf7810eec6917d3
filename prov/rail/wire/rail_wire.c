/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the header of the messages of the peer protocol. */
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"

void rail_msg_begin(struct tei_rail_peer *peer, struct rail_wire *w,
		    uint8_t *buf, enum rail_msg_type type, uint16_t flags)
{
	w->p = buf;
	w->pos = 0;
	w->cap = RAIL_MSG_MAX;
	w->bad = false;
	rail_wire_put(w, RAIL_WIRE_MAGIC, 4);
	rail_wire_put(w, RAIL_WIRE_VERSION, 1);
	rail_wire_put(w, type, 1);
	rail_wire_put(w, flags, 2);
	rail_wire_put(w, 0, 4);
	rail_wire_put(w,
		      __atomic_load_n(&peer->dp->peers.table, __ATOMIC_RELAXED),
		      4);
	rail_wire_put(w, peer->dp->incarnation, 8);
	rail_wire_put(w, peer->incarnation, 8);
	rail_wire_put(w, 0, 8);		/* filled in by rail_auth_sign */
	rail_wire_put(w, 0, 8);
	rail_wire_put(w, 0, 8);
}

size_t rail_msg_end(struct rail_wire *w)
{
	size_t len = w->pos;

	if (w->bad)
		return 0;
	w->pos = 8;
	rail_wire_put(w, len, 4);
	return len;
}
