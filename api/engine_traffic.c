/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts the copies inside this host. */
#include "api/engine_int.h"

static void traffic_add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

void engine_traffic_completed(struct engine_traffic *t, bool read,
			      uint64_t bytes, uint64_t n)
{
	traffic_add(read ? &t->rx_bytes : &t->tx_bytes, bytes);
	traffic_add(&t->completed, n);
	__atomic_store_n(&t->last_ns, tei_now_about_ns(), __ATOMIC_RELAXED);
}

void engine_traffic_count(struct engine_traffic *t, bool read, uint64_t bytes,
			  int status)
{
	bool completed = status == STATUS_COMPLETED;

	engine_traffic_completed(t, read, bytes, completed);
	if (!completed)
		traffic_add(status == STATUS_CANCELED ? &t->canceled
						      : &t->failed, 1);
}
