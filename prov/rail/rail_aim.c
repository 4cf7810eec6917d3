/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which remote rail a slice goes to, where a rail of ours reaches several in
 * its own network: one that is near the target's memory, as the peer said with
 * its keys, and of those the one with the least under way. Rails of ours that
 * are equally near share them out between them, so that with as many rails here
 * as there each pair is its own, and with fewer none there stands idle. Where
 * there are more here than near ones there, small requests still go to a near
 * one, and large ones take far ones as well.
 *
 * Without a choice (rails in networks of their own, or as many here as there
 * and none of them nearer) this is not entered.
 */
#include "prov/rail/rail_health.h"
#include "prov/rail/rail_sched.h"

/* Remotes in the rail's own network, and rails of ours that reach the first of
 * them so. */
static void aim_count(const struct tei_rail_peer *peer, const struct rail *rail,
		      uint32_t *ours, uint32_t *theirs)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail_remote *one = NULL;
	uint16_t r;
	uint32_t i;

	*ours = *theirs = 0;
	for (r = 0; r < peer->nremotes; r++) {
		if (rail_path_fit(rail, &peer->remotes[r]) != 2)
			continue;
		if (!one)
			one = &peer->remotes[r];
		(*theirs)++;
	}
	for (i = 0; one && i < peer->path_rails; i++)
		*ours += peer->route[i] >= 0 &&
			 rail_path_fit(rail_at(peer->dp, i), one) == 2;
}

void rail_aim_table(struct tei_rail_peer *peer)
{
	uint32_t i, ours, theirs;

	peer->choice = false;
	for (i = 0; i < peer->path_rails; i++) {
		if (peer->route[i] < 0)
			continue;
		aim_count(peer, rail_at(peer->dp, i), &ours, &theirs);
		peer->choice |= theirs > 1 && (peer->ranked || theirs > ours);
	}
}

static uint8_t aim_rank(const struct rail_rkey *k,
			const struct rail_remote *remote)
{
	uint16_t i;

	for (i = 0; i < k->nparts; i++)
		if (k->part[i].rail_id == remote->id)
			return k->part[i].rank;
	return UINT8_MAX;
}

/* Remotes that the rail may choose from, the nearest; returns how many. */
static uint32_t aim_near(const struct tei_rail_peer *peer,
			 const struct rail *rail, const struct rail_rkey *k,
			 uint16_t near[TEI_RAIL_MAX])
	TEI_REQUIRES(rail_sched_held)
{
	uint8_t rank, least = UINT8_MAX;
	uint32_t n = 0;
	uint16_t r;

	for (r = 0; r < peer->nremotes; r++) {
		rank = aim_rank(k, &peer->remotes[r]);
		if (rank > least || rank == UINT8_MAX || n == TEI_RAIL_MAX ||
		    !peer->remotes[r].addr.len ||
		    peer->remotes[r].fence.wanted ||
		    rail_path_fit(rail, &peer->remotes[r]) != 2 ||
		    rail_health_broken(peer, rail, r))
			continue;
		if (rank < least)
			n = 0;
		least = rank;
		near[n++] = r;
	}
	return n;
}

/* The rail's place among those of ours that are as near to our memory. */
static uint32_t aim_place(const struct tei_rail_peer *peer,
			  const struct rail *rail, const uint8_t *ranks,
			  uint32_t *of)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t i, place = 0;

	*of = 0;
	for (i = 0; i < peer->path_rails; i++) {
		if (peer->route[i] < 0 || ranks[i] != ranks[rail->index])
			continue;
		if (i < rail->index)
			place++;
		(*of)++;
	}
	return place;
}

/* It connects, or is full, and takes nothing now. */
static bool aim_blocked(const struct rail_path *p, uint64_t *now)
{
	if (!p->blocked_ns)
		return false;
	if (!*now)
		*now = tei_now_ns();
	return *now < p->blocked_ns;
}

int16_t rail_aim(struct tei_rail_peer *peer, struct rail_lane *lane,
		 const struct rail_rkey *key, const uint8_t *ranks,
		 uint64_t length, uint64_t *now)
{
	const struct rail *rail = lane->rail;
	int16_t best = peer->route[rail->index];
	uint32_t i, n, place, of;
	uint16_t near[TEI_RAIL_MAX];
	uint64_t least = UINT64_MAX;
	struct rail_path *p;

	if (best < 0 || rail->index >= peer->path_rails ||
	    rail_path_fit(rail, &peer->remotes[best]) != 2)
		return best;
	n = aim_near(peer, rail, key, near);
	place = aim_place(peer, rail, ranks, &of);
	if (!n || (place >= n && length >= RAIL_FAR_BYTES))
		return best;
	best = (int16_t)near[place % n];
	for (i = place % n; i < n; i += of) {
		p = rail_path_get(peer, lane, near[i]);
		if (!p || p->bytes >= least || aim_blocked(p, now))
			continue;
		least = p->bytes;
		best = (int16_t)near[i];
	}
	return best;
}
