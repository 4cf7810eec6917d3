/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that wait for batches without the GIL. */
#include <time.h>

#include "py_moonrail.h"

/* Longest wait between two checks for signals, in microseconds. */
#define PY_SIGNAL_US 100000

int64_t py_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* What a call waits for: one batch, or any of several batches. */
struct wait {
	const batch_id_t *batches;
	size_t count;
	size_t *index;	/* receives the index of the batch that has ended; NULL:
			 * wait for the only batch */
	struct transfer_status *status;
};

/* Waits as described by *w. Runs Python's signal handlers every PY_SIGNAL_US.
 * Returns what py_wait() returns. */
static int wait_for(transfer_engine_t engine, const struct wait *w,
		    int64_t timeout_us)
{
	int64_t until = timeout_us < 0 ? INT64_MAX : py_now_us() + timeout_us;
	int64_t left = timeout_us < 0 ? PY_SIGNAL_US : timeout_us;
	int ret;

	for (;;) {
		if (left > PY_SIGNAL_US)
			left = PY_SIGNAL_US;
		Py_BEGIN_ALLOW_THREADS
		ret = w->index ? te_wait_any(engine, w->batches, w->count, left,
					     w->index, w->status) :
				 te_wait_batch(engine, *w->batches, left,
					       w->status);
		Py_END_ALLOW_THREADS
		if (ret != TE_TIMED_OUT)
			return ret;
		if (PyErr_CheckSignals())
			return -1;
		if (timeout_us < 0)
			continue;
		left = until - py_now_us();
		if (left <= 0)
			return TE_TIMED_OUT;
	}
}

int py_wait(transfer_engine_t engine, batch_id_t batch, int64_t timeout_us,
	    struct transfer_status *status)
{
	const struct wait w = { .batches = &batch,
				.count = 1,
				.status = status };

	return wait_for(engine, &w, timeout_us);
}

int py_wait_any(transfer_engine_t engine, const batch_id_t *batches,
		size_t count, int64_t timeout_us, size_t *index)
{
	const struct wait w = { .batches = batches,
				.count = count,
				.index = index };

	return wait_for(engine, &w, timeout_us);
}
