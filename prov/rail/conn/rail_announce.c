/* SPDX-License-Identifier: BSD-2-Clause */
/* Announces to the peers that the local rails have changed. */
#include "prov/rail/conn/rail_announce.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"

void rail_peer_announce(struct tei_rail_dp *dp)
{
	struct tei_rail_peer *p;

	rail_sched_enter(dp);
	__atomic_store_n(&dp->peers.table, dp->peers.table + 1,
			 __ATOMIC_RELAXED);
	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link) {
		if (p->state == RAIL_PEER_GONE)
			continue;
		rail_conn_table(p);
		p->hello.announce = true;
		rail_peer_attend(p);
		rail_peer_activate(p);
	}
	rail_sched_leave(dp);
	if (!__atomic_load_n(&dp->thread.no_callbacks, __ATOMIC_ACQUIRE))
		dp->ops->rails_changed(dp->arg);
}
