/* SPDX-License-Identifier: BSD-2-Clause */
/* Wakes the progress thread, and the threads that wait on dp->cond. */

#include <unistd.h>

#include "prov/rail/core/rail_dp.h"

void rail_progress_wake(struct tei_rail_dp *dp)
{
	uint64_t one = 1;
	ssize_t ret;

	if (__atomic_exchange_n(&dp->thread.wake_pending, true,
				__ATOMIC_SEQ_CST))
		return;
	ret = write(dp->thread.wake_fd, &one, sizeof(one));
	(void)ret;	/* the write fails only if the counter is full, and then
			 * a wake-up is pending already */
}

void rail_progress_stir(struct tei_rail_dp *dp)
{
	if (__atomic_load_n(&dp->thread.rests_ns, __ATOMIC_RELAXED))
		rail_progress_wake(dp);
}

void rail_progress_signal(struct tei_rail_dp *dp)
{
	pthread_cond_broadcast(&dp->cond);
}
