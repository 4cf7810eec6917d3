/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much a rail holds. Rails pull, so shares come about by themselves; what
 * is left is that what a rail has pulled is its own to the end. A window of a
 * few milliseconds, whatever the rail's rate, keeps it busy, lets all rails of a
 * task end together, and keeps short what a small request finds ahead of it.
 */
#include "prov/rail/rail_health.h"
#include "prov/rail/rail_sched.h"

#define WINDOW_NS	(8 * TEI_NS_PER_MS) /* on top of the way there and back */
#define WINDOW_SLICES	4		    /* of the smallest size, at least */
#define WINDOW_BESIDE_NS (TEI_NS_PER_MS / 2) /* instead, beside small ones */
#define WINDOW_FIRST_NS	(TEI_NS_PER_MS / 4) /* and where these come first */
#define WINDOW_STUCK_NS	(100 * TEI_NS_PER_MS) /* not moved for that long */
#define WINDOW_WHOLE	(256u << 10)	    /* bytes that tell a rate */
#define WINDOW_MEAN_NS	(20 * TEI_NS_PER_MS) /* time that the rate is of */

static uint64_t window_min(const struct rail *rail)
{
	return WINDOW_SLICES * (uint64_t)rail->dp->settings->slice_size;
}

void rail_window_init(struct rail *rail, uint64_t max)
{
	rail->window_max = max;
	rail->window = RAIL_WINDOW_FIRST < max ? RAIL_WINDOW_FIRST : max;
	rail->turn = 1;
}

uint64_t rail_window(const struct rail *rail)
{
	uint64_t window = __atomic_load_n(&rail->window, __ATOMIC_RELAXED);
	uint64_t stuck = __atomic_load_n(&rail->stuck, __ATOMIC_RELAXED);
	uint64_t min = window_min(rail);
	uint64_t most = rail->window_max > stuck + min
				? rail->window_max - stuck
				: min;

	return window < most ? window : most;
}

uint64_t rail_window_beside(const struct rail *rail)
{
	uint64_t rate = __atomic_load_n(&rail->free_bps, __ATOMIC_RELAXED);
	uint64_t base = __atomic_load_n(&rail->base_ns, __ATOMIC_RELAXED);
	const struct tei_settings *s = rail->dp->settings;
	uint64_t min = s->slice_size, bytes, slice;

	if (!rail->wire || !rate)
		return UINT64_MAX;
	/* the way there and back, if what was alone was a whole slice */
	slice = (uint64_t)((double)min / (double)rate * 1e9);
	base = base > slice ? base - slice : 0;
	base += s->small_first ? WINDOW_FIRST_NS : WINDOW_BESIDE_NS;
	bytes = (uint64_t)((double)rate * 1e-9 * (double)base);
	return bytes > min ? bytes : min;
}

/*
 * A rate that this window holds down is none to make it smaller by: where the
 * target is slow to answer it would shrink from round to round.
 */
static void window_free(struct rail *rail, uint64_t rate)
{
	uint64_t free = __atomic_load_n(&rail->free_bps, __ATOMIC_RELAXED);

	if (!__atomic_exchange_n(&rail->beside, false, __ATOMIC_RELAXED) ||
	    rate > free)
		__atomic_store_n(&rail->free_bps, rate, __ATOMIC_RELAXED);
}

uint64_t rail_window_held(const struct rail *rail)
{
	uint64_t held = rail_posted_bytes(rail);
	uint64_t stuck = __atomic_load_n(&rail->stuck, __ATOMIC_RELAXED);

	return held > stuck ? held - stuck : 0;
}

uint64_t rail_window_large(const struct rail *rail)
{
	uint64_t stuck = __atomic_load_n(&rail->stuck_large, __ATOMIC_RELAXED);

	return rail->large_bytes > stuck ? rail->large_bytes - stuck : 0;
}

/*
 * A peer that has stopped keeps its bytes here. They are no measure of what
 * the rail can do, and what others may hold is not less for them.
 */
static void window_stuck(struct rail_lane *lane, uint64_t bytes, uint64_t large)
{
	__atomic_fetch_add(&lane->rail->stuck, bytes - lane->stuck,
			   __ATOMIC_RELAXED);
	__atomic_fetch_add(&lane->rail->stuck_large, large - lane->stuck_large,
			   __ATOMIC_RELAXED);
	lane->stuck = bytes;
	lane->stuck_large = large;
}

static void window_count_stuck(struct rail_lane *lane, uint64_t now)
{
	uint64_t base = __atomic_load_n(&lane->rail->base_ns, __ATOMIC_RELAXED);
	uint64_t bytes = 0, large = 0;
	struct rail_slice *s;

	if (now - lane->mark_ns >= WINDOW_STUCK_NS + 4 * base) {
		lane->stuck_posts = lane->mark_posts;
		lane->mark_posts = lane->posts;
		lane->mark_ns = now;
	}
	tei_list_foreach(s, &lane->posted, struct rail_slice, link) {
		if (s->seq > lane->stuck_posts)
			break;
		bytes += s->len;
		large += s->large ? s->len : 0;
	}
	if (bytes != lane->stuck || large != lane->stuck_large)
		window_stuck(lane, bytes, large);
}

void rail_window_empty(struct rail_lane *lane)
{
	lane->alone = NULL;
	if (lane->stuck)
		window_stuck(lane, 0, 0);
}

void rail_window_begin(struct rail_lane *lane, struct rail_slice *slice,
		       uint64_t now)
{
	rail_window_empty(lane);
	lane->busy_ns = now;
	lane->served_ns = now;
	lane->served = 0;
	lane->whole = true;
	lane->alone = slice;
	lane->alone_ns = now;
}

/*
 * Twice what is under way at that rate when nothing waits (so that a rate that
 * the window itself has held down grows), and WINDOW_NS's worth.
 */
static void window_set(struct rail *rail, uint64_t rate)
{
	uint64_t base = __atomic_load_n(&rail->base_ns, __ATOMIC_RELAXED);
	uint64_t min = window_min(rail);
	uint64_t window = (uint64_t)((double)rate * 1e-9 *
				     (double)(2 * base + WINDOW_NS));

	if (window < min)
		window = min;
	if (window > rail->window_max)
		window = rail->window_max;
	__atomic_store_n(&rail->window, window, __ATOMIC_RELAXED);
}

/*
 * Each time weighs what it lasted: completions come in batches, and what is
 * left of one a moment after the last look is no rate by itself.
 */
static uint64_t window_mean(uint64_t old, uint64_t bytes, uint64_t ns)
{
	double mean = old ? (double)WINDOW_MEAN_NS : 0;

	return (uint64_t)(((double)old * mean + (double)bytes * 1e9) /
			  (mean + (double)ns));
}

/*
 * Service rate: bytes per busy time, smoothed, in times of at least 1 ms, and
 * what is left when the lane is idle, once a rate is known; but of a busy time
 * that is shorter as a whole only if there are enough bytes.
 */
void rail_window_measure(struct rail_lane *lane, uint64_t bytes, uint64_t now)
{
	struct rail *rail = lane->rail;
	uint64_t ns = now - lane->busy_ns, rest = now - lane->served_ns;
	uint64_t old = __atomic_load_n(&rail->rate_bps, __ATOMIC_RELAXED);
	uint64_t rate;

	lane->served_ns = now;
	lane->served += bytes;
	if (rest >= WINDOW_STUCK_NS) {
		/* only what is stuck was there for a while */
		lane->served = 0;
		lane->busy_ns = now;
		lane->whole = false;
		return;
	}
	if (ns < TEI_NS_PER_MS &&
	    (!ns || lane->inflight ||
	     (lane->whole ? lane->served < WINDOW_WHOLE : !old)))
		return;
	rate = window_mean(old, lane->served, ns);
	__atomic_store_n(&rail->rate_bps, rate, __ATOMIC_RELAXED);
	if (rail->wire)
		window_free(rail, rate);
	lane->served = 0;
	lane->busy_ns = now;
	lane->whole = false;
	window_set(rail, rate);
	window_count_stuck(lane, now);
}

/* The quickest that a slice with none ahead of it has ever come back. */
void rail_window_alone(struct rail_lane *lane, uint64_t now)
{
	uint64_t ns = now - lane->alone_ns;
	uint64_t base;

	lane->alone = NULL;
	base = __atomic_load_n(&lane->rail->base_ns, __ATOMIC_RELAXED);
	if (!base || ns < base)
		__atomic_store_n(&lane->rail->base_ns, ns ? ns : 1,
				 __ATOMIC_RELAXED);
}

/* --- shares, and the tail ------------------------------------------------ */

static uint64_t window_rate(const struct rail *rail, uint64_t unknown)
{
	uint64_t rate = __atomic_load_n(&rail->rate_bps, __ATOMIC_RELAXED);

	return rate ? rate : unknown;
}

void rail_window_sum(const struct rail *rail, const struct tei_rail_peer *peer,
		     const struct tei_rail_mr *mr, const uint8_t *ranks,
		     uint64_t bytes, struct rail_window_sum *sum)
{
	uint64_t own = window_rate(rail, 0);
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
		sum->share += own ? (double)window_rate(r, own) / (double)own :
				    1;
	}
	sum->share = 1 / sum->share;
}

/*
 * What is under way and what is left are one heap that the rails work off
 * together. One that holds more than its share of it would end after the
 * others, so it leaves the rest to them; with nothing in hand it always takes,
 * so that a wrong estimate costs time and nothing else.
 */
bool rail_window_over(const struct rail_window_sum *sum, uint64_t bytes,
		      uint64_t left, uint64_t len)
{
	return bytes && sum->rails > 1 &&
	       (double)bytes + (double)len / 2 >
		       sum->share * (double)(sum->bytes + left);
}
