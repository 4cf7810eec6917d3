/* SPDX-License-Identifier: BSD-2-Clause */
/* The faults of rail pairs: finds and creates faults, and determines which
 * pairs and routes can be used. The health checks change and free faults. */

#include <stdlib.h>

#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "util/list.h"


struct rail_fault *rail_pair_fault(const struct tei_rail_peer *peer,
				   const struct rail *rail, uint16_t remote)
{
	struct rail_fault *f;

	tei_list_foreach (f, &peer->faults, struct rail_fault, peer_link)
		if (f->rail == rail && f->remote == remote)
			return f;
	return NULL;
}

struct rail_fault *rail_pair_make_fault(struct tei_rail_peer *peer,
					struct rail *rail, uint16_t remote)
{
	struct rail_fault *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->peer = peer;
	f->rail = rail;
	f->remote = remote;
	tei_list_add_tail(&peer->dp->health.faults, &f->link);
	tei_list_add_tail(&peer->faults, &f->peer_link);
	__atomic_fetch_add(&peer->dp->health.nfaults, 1, __ATOMIC_RELAXED);
	return f;
}

bool rail_health_open(const struct tei_rail_peer *peer, const struct rail *rail,
		      uint16_t remote, uint64_t bytes)
{
	const struct rail_fault *f = rail_pair_fault(peer, rail, remote);

	return !f || f->stage == RAIL_FAULT_ASKED ||
	       (f->stage == RAIL_FAULT_RAMPING && bytes < f->share);
}

bool rail_health_works(const struct tei_rail_peer *peer, uint32_t rail)
{
	const struct rail *r = rail_at(peer->dp, rail);
	uint32_t away = __atomic_load_n(&r->link.away, __ATOMIC_RELAXED);

	return peer->routes.route[rail] >= 0 &&
	       (!away || away < rail_use_count(r)) &&
	       !__atomic_load_n(&r->link.down, __ATOMIC_RELAXED) &&
	       (tei_list_empty(&peer->faults) ||
		rail_health_open(peer, r, (uint16_t)peer->routes.route[rail],
				 0));
}

bool rail_health_faulty(const struct tei_rail_peer *peer,
			const struct rail *rail, uint16_t remote)
{
	const struct rail_fault *f = rail_pair_fault(peer, rail, remote);

	return f && f->stage != RAIL_FAULT_ASKED;
}

bool rail_health_doubtful(const struct tei_rail_peer *peer,
			  const struct rail *rail, uint16_t remote)
{
	const struct rail_fault *f = rail_pair_fault(peer, rail, remote);

	return f && f->stage != RAIL_FAULT_RAMPING;
}
