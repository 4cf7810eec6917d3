/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote rail selection: chooses the remote rail of a slice if the local rail
 * reaches several remote rails in its own network.
 *
 * The choice is made among the remote rails that are nearest to the target's
 * memory; the peer sends their ranks with its keys. Local rails that are
 * equally near to the local memory divide these remote rails among themselves:
 *
 * - If both sides have the same number of rails, each local rail uses one
 *   remote rail of its own.
 * - If the local side has fewer rails, each of them uses several remote rails.
 *   It always takes the one with the fewest bytes in flight, so that no remote
 *   rail stays idle.
 * - If the local side has more rails than there are near remote rails, small
 *   requests still go to a near remote rail. Requests of at least
 *   RAIL_FAR_BYTES use the far ones too.
 *
 * No selection is needed if each rail is in a network of its own, or if both
 * sides have the same number of rails and no remote rail is nearer than the
 * others. peer->routes.choice is then false, and rail_select_remote() is not
 * called.
 */
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/sched/rail_select.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/lock.h"

static uint8_t select_rank(const struct rail_rkey *k,
			   const struct rail_remote *remote)
{
	uint16_t i;

	for (i = 0; i < k->nparts; i++)
		if (k->part[i].rail_id == remote->id)
			return k->part[i].rank;
	return UINT8_MAX;
}

/* Lists the usable remote rails in the local rail's network that are nearest to
 * the target's memory. Returns their number. */
static uint32_t select_near(const struct tei_rail_peer *peer,
			    const struct rail *rail, const struct rail_rkey *k,
			    uint16_t near[TEI_RAIL_MAX])
	TEI_REQUIRES(rail_sched_held)
{
	uint8_t rank, least = UINT8_MAX;
	uint32_t n = 0;
	uint16_t r;

	for (r = 0; r < peer->nremotes; r++) {
		rank = select_rank(k, &peer->remotes[r]);
		if (rank > least || rank == UINT8_MAX || n == TEI_RAIL_MAX ||
		    !peer->remotes[r].addr.len ||
		    rail_fence_outstanding(&peer->remotes[r].fence) ||
		    rail_conn_fit(rail, &peer->remotes[r]) != 2 ||
		    rail_health_faulty(peer, rail, r))
			continue;
		if (rank < least)
			n = 0;
		least = rank;
		near[n++] = r;
	}
	return n;
}

/* Counts the local rails that have a route and the same rank for the local
 * memory as this rail, and sets *of to their number. Returns the position of
 * this rail among them. */
static uint32_t select_place(const struct tei_rail_peer *peer,
			     const struct rail *rail, const uint8_t *ranks,
			     uint32_t *of) TEI_REQUIRES(rail_sched_held)
{
	uint32_t i, place = 0;

	*of = 0;
	for (i = 0; i < peer->pairs.rails; i++) {
		if (peer->routes.route[i] < 0 || ranks[i] != ranks[rail->index])
			continue;
		if (i < rail->index)
			place++;
		(*of)++;
	}
	return place;
}

/* Returns true if nothing can be posted on the connection at present, because
 * the connection is being established or its queue is full. If *now is 0, this
 * function sets *now to the time. */
static bool select_blocked(const struct rail_conn *p, uint64_t *now)
{
	if (!p->blocked_ns)
		return false;
	if (!*now)
		*now = tei_now_ns();
	return *now < p->blocked_ns;
}

int16_t rail_select_remote(struct tei_rail_peer *peer, struct rail_lane *lane,
			   const struct rail_rkey *key, const uint8_t *ranks,
			   uint64_t length, uint64_t *now)
{
	const struct rail *rail = lane->rail;
	int16_t best = peer->routes.route[rail->index];
	uint32_t i, n, place, of;
	uint16_t near[TEI_RAIL_MAX];
	uint64_t least = UINT64_MAX;
	struct rail_conn *p;

	if (best < 0 || rail->index >= peer->pairs.rails ||
	    rail_conn_fit(rail, &peer->remotes[best]) != 2)
		return best;
	n = select_near(peer, rail, key, near);
	place = select_place(peer, rail, ranks, &of);
	if (!n || (place >= n && length >= RAIL_FAR_BYTES))
		return best;
	best = (int16_t)near[place % n];
	for (i = place % n; i < n; i += of) {
		p = rail_conn_get(peer, lane, near[i]);
		if (!p || p->bytes >= least || select_blocked(p, now) ||
		    !rail_width_covers(p, lane))
			continue;
		least = p->bytes;
		best = (int16_t)near[i];
	}
	return best;
}
