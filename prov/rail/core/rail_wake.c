/* SPDX-License-Identifier: BSD-2-Clause */
/* Wakes the progress thread, and the threads that wait on dp->cond. */

#include "prov/rail/core/rail_dp.h"
#include "util/world.h"

void rail_progress_wake(struct tei_rail_dp *dp)
{
	tei_loop_wake(&dp->thread.loop);
}

void rail_progress_stir(struct tei_rail_dp *dp)
{
	if (__atomic_load_n(&dp->thread.rests_ns, __ATOMIC_RELAXED))
		rail_progress_wake(dp);
}

void rail_progress_signal(struct tei_rail_dp *dp)
{
	tei_cond_broadcast(&dp->cond);
}
