/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting the copies inside this host.
 */
#include <time.h>

#include "api/engine_int.h"

/* Precise to a few milliseconds, and cheaper than a small copy. */
static uint64_t traffic_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * TEI_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void traffic_add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

void engine_traffic_count(struct engine_traffic *t, bool read, uint64_t bytes,
			  int status)
{
	traffic_add(read ? &t->rx_bytes : &t->tx_bytes, bytes);
	traffic_add(status == STATUS_COMPLETED ? &t->completed :
		    status == STATUS_CANCELED  ? &t->canceled :
						 &t->failed, 1);
	__atomic_store_n(&t->last_ns, traffic_now(), __ATOMIC_RELAXED);
}
