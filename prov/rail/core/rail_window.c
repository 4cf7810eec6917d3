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

#define WINDOW_NS	(8 * TEI_NS_PER_MS) /* the window holds the bytes that
					     * the rail moves in this time and
					     * in the round-trip time */
#define WINDOW_SLICES	4		    /* size of the smallest window, in
					     * slices of MC_SLICE_SIZE bytes */
/* While bulk data is throttled, the bulk data posted on a rail is limited to
 * what the rail moves in WINDOW_BESIDE_NS. */
#define WINDOW_BESIDE_NS (TEI_NS_PER_MS / 2)
/* Replaces WINDOW_BESIDE_NS if MOONRAIL_SMALL_FIRST is set. */
#define WINDOW_FIRST_NS (TEI_NS_PER_MS / 4)
#define WINDOW_STUCK_NS	(100 * TEI_NS_PER_MS) /* time after which posted bytes
					       * that have not completed count
					       * as stuck */
#define WINDOW_WHOLE	(256u << 10)	/* number of completed bytes from which
					 * the rate is computed even if the
					 * interval is shorter than 1 ms */
#define WINDOW_MEAN_NS	(20 * TEI_NS_PER_MS) /* time constant of the mean of the
					      * rate */

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
	/* base_ns is the time of a whole slice: subtract the slice's transfer
	 * time, so that the round-trip time remains */
	slice = (uint64_t)((double)min / (double)rate * 1e9);
	base = base > slice ? base - slice : 0;
	base += s->sched.small_first ? WINDOW_FIRST_NS : WINDOW_BESIDE_NS;
	bytes = (uint64_t)((double)rate * 1e-9 * (double)base);
	return bytes > min ? bytes : min;
}

/*
 * Updates the unthrottled rate (free_bps). A rate that was measured while the
 * rail was throttled may raise the unthrottled rate, but not lower it.
 * Otherwise, if a target answers slowly, the throttled rail would measure a
 * lower rate, this rate would lower the limit of rail_window_throttle, and the
 * rail would slow down further.
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
 * Sets the number of stuck bytes of a lane. Data for a peer that has stopped
 * stays posted. The stuck bytes are not counted against the window, so that
 * this data does not slow down other peers.
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

/* Counts the bytes of slices that were posted at least WINDOW_STUCK_NS ago and
 * have not completed. */
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

/* Returns the number of bytes that the other lanes of the rail have completed
 * since they were created. */
static uint64_t window_others(const struct rail_lane *lane)
{
	const struct rail *rail = lane->rail;
	const struct rail_lane_done *done;
	uint64_t bytes = 0;
	uint32_t j;

	for (j = 0; rail->ntx > 1 && j < rail->ntx * RAIL_LANE_SLOTS; j++) {
		if (rail->tx_lanes[j].index == lane->index)
			continue;
		done = &rail->tx_lanes[j].done;
		bytes += __atomic_load_n(&done->tx_bytes, __ATOMIC_RELAXED) +
			 __atomic_load_n(&done->rx_bytes, __ATOMIC_RELAXED);
	}
	return bytes;
}

/* Begins a measuring interval. */
static void window_interval(struct rail_lane *lane, uint64_t now)
{
	lane->rate.served = 0;
	lane->rate.others = window_others(lane);
	lane->rate.busy_ns = now;
}

void rail_window_begin(struct rail_lane *lane, struct rail_slice *slice,
		       uint64_t now)
{
	rail_window_empty(lane);
	window_interval(lane, now);
	lane->rate.served_ns = now;
	lane->rate.whole = true;
	lane->rate.alone = slice;
	lane->rate.alone_ns = now;
}

/*
 * Sets the window to the number of bytes that the rail moves, at the rate
 * "rate", in WINDOW_NS plus twice base_ns. base_ns is the time of a slice on an
 * idle rail. It is counted twice, so that the window grows if the window itself
 * has limited the measured rate.
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
 * Returns the mean of the old rate and the rate of an interval (bytes completed
 * in ns), weighted by time. The mean is needed because completions arrive in
 * batches, so the rate of one short interval varies much.
 */
static uint64_t window_mean(uint64_t old, uint64_t bytes, uint64_t ns)
{
	double mean = old ? (double)WINDOW_MEAN_NS : 0;

	return (uint64_t)(((double)old * mean + (double)bytes * 1e9) /
			  (mean + (double)ns));
}

/*
 * Measures the service rate of the rail: the mean, over the measuring intervals
 * of its lanes, of the bytes that all lanes of the rail complete in an
 * interval. An interval ends after 1 ms. It ends earlier if the lane
 * has become idle and enough is known: in the first interval since the lane
 * became busy, at least WINDOW_WHOLE bytes must have completed; in a later
 * interval, a rate must be known already.
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
		/* The last completion is so long ago that all posted slices
		 * were stuck. The time since then is not busy time: begin a new
		 * interval. */
		window_interval(lane, now);
		lane->rate.whole = false;
		return;
	}
	if (ns < TEI_NS_PER_MS &&
	    (!ns || lane->inflight ||
	     (lane->rate.whole ? lane->rate.served < WINDOW_WHOLE : !old)))
		return;
	rate = window_mean(old,
			   lane->rate.served + window_others(lane) -
				   lane->rate.others,
			   ns);
	__atomic_store_n(&rail->load.rate_bps, rate, __ATOMIC_RELAXED);
	if (rail->nic.wire)
		window_free(rail, rate);
	window_interval(lane, now);
	lane->rate.whole = false;
	window_set(rail, rate);
	window_count_stuck(lane, now);
}

/* Updates base_ns, the shortest time in which a slice that was posted on an
 * idle lane has completed. */
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
