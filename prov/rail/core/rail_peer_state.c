/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of a peer that every layer may query, and the lists on which a peer
 * waits for the progress thread or for a lane with room.
 */
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "util/heap.h"
#include "util/list.h"

bool rail_peer_busy(const struct tei_rail_peer *p)
{
	return !tei_list_empty(&p->tasks.live) ||
	       !tei_list_empty(&p->tasks.awaiting_fence) ||
	       !tei_list_empty(&p->tasks.retry) || p->tasks.posted;
}

bool rail_peer_unused(const struct tei_rail_peer *p)
{
	return !p->refs && !rail_peer_busy(p);
}

bool rail_peer_over(const struct tei_rail_peer *p)
{
	return p->state == RAIL_PEER_GONE && p->gone != RAIL_GONE_PERHAPS;
}

uint16_t rail_peer_remotes(const struct tei_rail_peer *p)
{
	uint16_t n;

	rail_sched_enter(p->dp);
	n = p->nremotes;
	rail_sched_leave(p->dp);
	return n;
}

bool rail_presumed(const struct tei_rail_peer *p)
{
	return p->life.presumed_ns > p->alive_ns;
}

void rail_peer_attend(struct tei_rail_peer *p)
{
	tei_heap_remove(&p->dp->peers.timed, &p->timed);
	if (tei_list_empty(&p->attn_link))
		tei_list_add_tail(&p->dp->peers.attn, &p->attn_link);
	__atomic_store_n(&p->dp->peers.attn_next_ns, 1, __ATOMIC_RELAXED);
	rail_progress_wake(p->dp);
}

bool rail_slice_none(const struct tei_rail_peer *peer)
{
	return tei_list_empty(&peer->tasks.queue) &&
	       tei_list_empty(&peer->tasks.small) &&
	       tei_list_empty(&peer->tasks.retry);
}

void rail_peer_activate(struct tei_rail_peer *peer)
{
	if (rail_slice_none(peer))
		return;
	if (peer->state != RAIL_PEER_READY) {
		peer->hello.wanted = true;
		rail_peer_attend(peer);
		return;
	}
	if (tei_list_empty(&peer->active_link)) {
		tei_list_add_tail(&peer->dp->tasks.active, &peer->active_link);
		__atomic_store_n(&peer->dp->tasks.nactive,
				 peer->dp->tasks.nactive + 1, __ATOMIC_RELAXED);
	}
}
