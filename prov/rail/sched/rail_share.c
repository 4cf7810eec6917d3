/* SPDX-License-Identifier: BSD-2-Clause */
/* Divides the last bytes of a task among the rails, so that all rails finish
 * together. */
#include "prov/rail/health/rail_health.h"
#include "prov/rail/sched/rail_sched.h"

static uint64_t share_rate(const struct rail *rail, uint64_t unknown)
{
	uint64_t rate = __atomic_load_n(&rail->rate_bps, __ATOMIC_RELAXED);

	return rate ? rate : unknown;
}

void rail_window_sum(const struct rail *rail, const struct tei_rail_peer *peer,
		     const struct tei_rail_mr *mr, const uint8_t *ranks,
		     uint64_t bytes, struct rail_window_sum *sum)
{
	uint64_t own = share_rate(rail, 0);
	struct rail *r;
	uint32_t i;

	sum->rails = 1;
	sum->bytes = bytes;
	sum->share = 1;
	for (i = 0; i < rail_count(peer->dp); i++) {
		if (i == rail->index || !rail_health_works(peer, i) ||
		    ranks[i] > ranks[rail->index])
			continue;
		r = rail_at(peer->dp, i);
		if (rail_hmem_foreign(mr, r))
			continue;
		sum->rails++;
		sum->bytes += rail_window_held(r);
		sum->share += own ? (double)share_rate(r, own) / (double)own :
				    1;
	}
	sum->share = 1 / sum->share;
}

/*
 * Returns true if the rail must leave the last bytes of a task to other rails.
 * All data in flight and all remaining data is shared by the rails in
 * proportion to their rates; a rail that holds more than its share would finish
 * last. A rail without data in flight always takes a slice, so a wrong estimate
 * costs only time.
 */
bool rail_window_over(const struct rail_window_sum *sum, uint64_t bytes,
		      uint64_t left, uint64_t len)
{
	return bytes && sum->rails > 1 &&
	       (double)bytes + (double)len / 2 >
		       sum->share * (double)(sum->bytes + left);
}
