/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Computes the window: how many bytes may be posted on a rail. A rail takes new
 * slices only when it has room, so a faster rail takes more slices and the load
 * is balanced without further action. But a slice that a rail has taken stays
 * on this rail. So the window is the number of bytes that the rail moves in a
 * few milliseconds. This size keeps the rail busy, lets all rails of a task
 * finish together, and keeps the queue short in which a small request must
 * wait.
 */
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_window.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/settings.h"

#define WINDOW_NS	(8 * TEI_NS_PER_MS) /* time whose data the window holds
					     * in addition to the data of the
					     * round-trip time */
#define WINDOW_SLICES	4		    /* smallest window, in slices of
					     * MC_SLICE_SIZE */
/* Time whose data may be posted while bulk data is throttled. */
#define WINDOW_BESIDE_NS (TEI_NS_PER_MS / 2)
/* WINDOW_BESIDE_NS with MOONRAIL_SMALL_FIRST. */
#define WINDOW_FIRST_NS (TEI_NS_PER_MS / 4)
#define WINDOW_STUCK_NS	(100 * TEI_NS_PER_MS) /* time without a completion after
					       * which posted bytes count as
					       * stuck */
#define WINDOW_WHOLE	(256u << 10)	    /* number of completed bytes that
					     * suffice to measure a rate */
#define WINDOW_MEAN_NS	(20 * TEI_NS_PER_MS) /* averaging time of the rate */

static uint64_t window_min(const struct rail *rail)
{
	return WINDOW_SLICES * (uint64_t)rail->dp->settings->sched.slice_size;
}

void rail_window_init(struct rail *rail, uint64_t max)
{
	rail->load.window_max = max;
	rail->load.window = RAIL_WINDOW_FIRST < max ? RAIL_WINDOW_FIRST : max;
	rail->bulk.turn = 1;
}

uint64_t rail_window(const struct rail *rail)
{
	uint64_t window = __atomic_load_n(&rail->load.window, __ATOMIC_RELAXED);
	uint64_t stuck = __atomic_load_n(&rail->load.stuck, __ATOMIC_RELAXED);
	uint64_t min = window_min(rail);
	uint64_t most = rail->load.window_max > stuck + min
				? rail->load.window_max - stuck
				: min;

	return window < most ? window : most;
}

uint64_t rail_window_throttle(const struct rail *rail)
{
	uint64_t rate = __atomic_load_n(&rail->load.free_bps, __ATOMIC_RELAXED);
	uint64_t base = __atomic_load_n(&rail->load.base_ns, __ATOMIC_RELAXED);
	const struct tei_settings *s = rail->dp->settings;
	uint64_t min = s->sched.slice_size, bytes, slice;

	if (!rail->nic.wire || !rate)
		return UINT64_MAX;
	/* subtract the transfer time of the slice, to get the round-trip
	 * time */
	slice = (uint64_t)((double)min / (double)rate * 1e9);
	base = base > slice ? base - slice : 0;
	base += s->sched.small_first ? WINDOW_FIRST_NS : WINDOW_BESIDE_NS;
	bytes = (uint64_t)((double)rate * 1e-9 * (double)base);
	return bytes > min ? bytes : min;
}

/*
 * Updates the unthrottled rate. A rate that was measured while the rail was
 * throttled may raise the unthrottled rate, but not lower it: otherwise, with a
 * target that answers slowly, the limit would shrink more and more.
 */
static void window_free(struct rail *rail, uint64_t rate)
{
	uint64_t free = __atomic_load_n(&rail->load.free_bps, __ATOMIC_RELAXED);

	if (!__atomic_exchange_n(&rail->load.throttled, false,
				 __ATOMIC_RELAXED) ||
	    rate > free)
		__atomic_store_n(&rail->load.free_bps, rate, __ATOMIC_RELAXED);
}

uint64_t rail_window_held(const struct rail *rail)
{
	uint64_t held = rail_posted_bytes(rail);
	uint64_t stuck = __atomic_load_n(&rail->load.stuck, __ATOMIC_RELAXED);

	return held > stuck ? held - stuck : 0;
}

uint64_t rail_window_bulk(const struct rail *rail)
{
	uint64_t stuck =
		__atomic_load_n(&rail->load.stuck_bulk, __ATOMIC_RELAXED);

	return rail->bulk.bytes > stuck ? rail->bulk.bytes - stuck : 0;
}

/*
 * Sets the number of stuck bytes of a lane. Data of a stopped peer stays
 * posted; it does not count against the window, so other peers are not
 * affected.
 */
static void window_stuck(struct rail_lane *lane, uint64_t bytes, uint64_t bulk)
{
	__atomic_fetch_add(&lane->rail->load.stuck, bytes - lane->rate.stuck,
			   __ATOMIC_RELAXED);
	__atomic_fetch_add(&lane->rail->load.stuck_bulk,
			   bulk - lane->rate.stuck_bulk, __ATOMIC_RELAXED);
	lane->rate.stuck = bytes;
	lane->rate.stuck_bulk = bulk;
}

/* Counts the posted bytes that have not moved for WINDOW_STUCK_NS. */
static void window_count_stuck(struct rail_lane *lane, uint64_t now)
{
	uint64_t base =
		__atomic_load_n(&lane->rail->load.base_ns, __ATOMIC_RELAXED);
	uint64_t bytes = 0, bulk = 0;
	struct rail_slice *s;

	if (now - lane->rate.mark_ns >= WINDOW_STUCK_NS + 4 * base) {
		lane->rate.stuck_posts = lane->rate.mark_posts;
		lane->rate.mark_posts = lane->rate.posts;
		lane->rate.mark_ns = now;
	}
	tei_list_foreach(s, &lane->posted, struct rail_slice, link) {
		if (s->seq > lane->rate.stuck_posts)
			break;
		bytes += s->len;
		bulk += s->bulk ? s->len : 0;
	}
	if (bytes != lane->rate.stuck || bulk != lane->rate.stuck_bulk)
		window_stuck(lane, bytes, bulk);
}

void rail_window_empty(struct rail_lane *lane)
{
	lane->rate.alone = NULL;
	if (lane->rate.stuck)
		window_stuck(lane, 0, 0);
}

void rail_window_begin(struct rail_lane *lane, struct rail_slice *slice,
		       uint64_t now)
{
	rail_window_empty(lane);
	lane->rate.busy_ns = now;
	lane->rate.served_ns = now;
	lane->rate.served = 0;
	lane->rate.whole = true;
	lane->rate.alone = slice;
	lane->rate.alone_ns = now;
}

/*
 * Sets the window to the number of bytes that move at this rate in 2 * base_ns
 * + WINDOW_NS. base_ns is the time of a slice on an idle rail; it counts twice,
 * so that the window grows if it has limited the rate.
 */
static void window_set(struct rail *rail, uint64_t rate)
{
	uint64_t base = __atomic_load_n(&rail->load.base_ns, __ATOMIC_RELAXED);
	uint64_t min = window_min(rail);
	uint64_t window = (uint64_t)((double)rate * 1e-9 *
				     (double)(2 * base + WINDOW_NS));

	if (window < min)
		window = min;
	if (window > rail->load.window_max)
		window = rail->load.window_max;
	__atomic_store_n(&rail->load.window, window, __ATOMIC_RELAXED);
}

/*
 * Averages the rate, weighted by time. Completions arrive in batches, so a
 * short interval alone says little.
 */
static uint64_t window_mean(uint64_t old, uint64_t bytes, uint64_t ns)
{
	double mean = old ? (double)WINDOW_MEAN_NS : 0;

	return (uint64_t)(((double)old * mean + (double)bytes * 1e9) /
			  (mean + (double)ns));
}

/*
 * Measures the service rate: completed bytes per busy time, averaged. An
 * interval lasts at least 1 ms. A shorter interval counts only in two cases:
 * the lane has become idle and a rate is known; or the interval is the whole
 * busy time of the lane and at least WINDOW_WHOLE bytes have completed in it.
 */
void rail_window_measure(struct rail_lane *lane, uint64_t bytes, uint64_t now)
{
	struct rail *rail = lane->rail;
	uint64_t ns = now - lane->rate.busy_ns,
		 rest = now - lane->rate.served_ns;
	uint64_t old = __atomic_load_n(&rail->load.rate_bps, __ATOMIC_RELAXED);
	uint64_t rate;

	lane->rate.served_ns = now;
	lane->rate.served += bytes;
	if (rest >= WINDOW_STUCK_NS) {
		/* only stuck slices were posted for a while */
		lane->rate.served = 0;
		lane->rate.busy_ns = now;
		lane->rate.whole = false;
		return;
	}
	if (ns < TEI_NS_PER_MS &&
	    (!ns || lane->inflight ||
	     (lane->rate.whole ? lane->rate.served < WINDOW_WHOLE : !old)))
		return;
	rate = window_mean(old, lane->rate.served, ns);
	__atomic_store_n(&rail->load.rate_bps, rate, __ATOMIC_RELAXED);
	if (rail->nic.wire)
		window_free(rail, rate);
	lane->rate.served = 0;
	lane->rate.busy_ns = now;
	lane->rate.whole = false;
	window_set(rail, rate);
	window_count_stuck(lane, now);
}

/* Updates the shortest time that a slice on an idle lane has taken. */
void rail_window_alone(struct rail_lane *lane, uint64_t now)
{
	uint64_t ns = now - lane->rate.alone_ns;
	uint64_t base;

	lane->rate.alone = NULL;
	base = __atomic_load_n(&lane->rail->load.base_ns, __ATOMIC_RELAXED);
	if (!base || ns < base)
		__atomic_store_n(&lane->rail->load.base_ns, ns ? ns : 1,
				 __ATOMIC_RELAXED);
}

/* --- shares, and the tail ------------------------------------------------ */
