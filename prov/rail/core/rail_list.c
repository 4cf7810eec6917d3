/* SPDX-License-Identifier: BSD-2-Clause */
/* The rails of a data plane: finds them, and adds up what their lanes carry. */
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/tei_rail.h"

struct rail *rail_at(struct tei_rail_dp *dp, uint32_t index)
{
	return dp->rails[index];
}

uint32_t rail_count(struct tei_rail_dp *dp)
{
	return __atomic_load_n(&dp->nrails, __ATOMIC_ACQUIRE);
}

bool rail_any_open(struct tei_rail_dp *dp)
{
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++)
		if (__atomic_load_n(&rail_at(dp, i)->open, __ATOMIC_ACQUIRE))
			return true;
	return false;
}

uint64_t rail_posted_bytes(const struct rail *rail)
{
	uint64_t bytes = 0;
	uint32_t j;

	for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
		bytes += __atomic_load_n(&rail->tx_lanes[j].inflight_bytes,
					 __ATOMIC_RELAXED);
	return bytes;
}

uint64_t rail_moved(const struct rail *rail)
{
	uint64_t slices = 0;
	uint32_t j;

	for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
		slices += __atomic_load_n(&rail->tx_lanes[j].done.slices,
					  __ATOMIC_RELAXED);
	return slices;
}

bool rail_posted_any(struct tei_rail_dp *dp)
{
	const struct rail *rail;
	uint32_t i, j;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
			if (__atomic_load_n(&rail->tx_lanes[j].inflight,
					    __ATOMIC_RELAXED))
				return true;
	}
	return false;
}

uint32_t tei_rail_wants(struct tei_rail_dp *dp)
{
	return __atomic_load_n(&dp->devices.wants, __ATOMIC_RELAXED);
}
