/* SPDX-License-Identifier: BSD-2-Clause */
/* Unit tests of windows and shares, on rail objects without a device. */

#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_window.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"

#define WINDOW_MIB	(UINT64_C(1) << 20)
#define WINDOW_SLICE	(UINT64_C(64) << 10)
#define WINDOW_RAILS	4

struct window_rig {
	struct tei_settings settings;
	struct tei_rail_dp dp;
	struct tei_rail_peer peer;
	struct rail rail[WINDOW_RAILS];
	struct rail_lane lane[WINDOW_RAILS][RAIL_LANE_SLOTS];
	uint64_t now;
};

/* Returns the active lane of the rail. */
static struct rail_lane *window_lane(struct window_rig *rig, uint32_t rail)
{
	return &rig->lane[rail][0];
}

static struct window_rig *window_begin(uint32_t n)
{
	struct window_rig *rig = calloc(1, sizeof(*rig));
	struct tei_err err;
	uint32_t i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(rig);
	CU_ASSERT_EQUAL_FATAL(tei_settings_load(&rig->settings, &err), 0);
	rig->dp.settings = &rig->settings;
	rig->peer.dp = &rig->dp;
	tei_list_init(&rig->peer.faults);
	tei_mutex_init(&rig->dp.sched);
	for (i = 0; i < n; i++) {
		rig->rail[i].dp = &rig->dp;
		rig->rail[i].index = (uint16_t)i;
		rig->dp.rails[i] = &rig->rail[i];
		rail_window_init(&rig->rail[i], 8 * WINDOW_MIB);
		rig->rail[i].tx_lanes = rig->lane[i];
		rig->rail[i].ntx = 1;
		rail_lane_init(window_lane(rig, i), &rig->rail[i], false, 0);
	}
	rig->dp.nrails = n;
	rig->now = TEI_NS_PER_SEC;
	return rig;
}

/* Simulates "ms" milliseconds in which rail 0 completes "rate" bytes per
 * second. */
static void window_serve(struct window_rig *rig, uint64_t rate, uint64_t ms)
{
	struct rail_lane *lane = window_lane(rig, 0);

	tei_mutex_lock(&lane->lock);
	lane->rate.busy_ns = rig->now;
	lane->rate.served_ns = rig->now;
	lane->rate.served = 0;
	lane->inflight = 1;
	for (; ms; ms--) {
		rig->now += TEI_NS_PER_MS;
		rail_window_measure(lane, rate / 1000, rig->now);
	}
	tei_mutex_unlock(&lane->lock);
}

/* Simulates a request of "bytes" bytes that takes "us" µs on the idle lane of
 * rail 0. */
static void window_serve_one(struct window_rig *rig, uint64_t bytes,
			     uint64_t us)
{
	struct rail_lane *lane = window_lane(rig, 0);

	tei_mutex_lock(&lane->lock);
	lane->rate.busy_ns = rig->now;
	lane->rate.served_ns = rig->now;
	lane->rate.served = 0;
	lane->rate.whole = true;
	lane->inflight = 0;
	rig->now += us * TEI_NS_PER_US;
	rail_window_measure(lane, bytes, rig->now);
	tei_mutex_unlock(&lane->lock);
}

static uint64_t window_ms(struct window_rig *rig, uint64_t rate)
{
	return rig->rail[0].load.window * 1000 / rate;
}

static void test_window_follows_rate(void)
{
	struct window_rig *rig = window_begin(1);

	window_serve(rig, 100000000, 1);
	CU_ASSERT_EQUAL(window_ms(rig, 100000000), 8);
	/* the rate is halved, and the window is adapted within 50 ms */
	window_serve(rig, 50000000, 50);
	CU_ASSERT(window_ms(rig, 50000000) <= 9);
	window_serve(rig, 100000000, 50);
	CU_ASSERT(window_ms(rig, 100000000) >= 7);
	free(rig);
}

static void test_window_stays_within_bounds(void)
{
	struct window_rig *rig = window_begin(1);

	window_serve(rig, 1000000, 50);
	CU_ASSERT_EQUAL(rig->rail[0].load.window, 4 * WINDOW_SLICE);
	window_serve(rig, UINT64_C(10000000000), 50);
	CU_ASSERT_EQUAL(rig->rail[0].load.window, 8 * WINDOW_MIB);
	free(rig);
}

/* Checks the limit of bulk data while small requests are active. */
static void test_bulk_limit_with_small_requests_is_smaller(void)
{
	struct window_rig *rig = window_begin(1);
	struct rail *rail = &rig->rail[0];
	int i;

	rail->nic.wire = true;
	CU_ASSERT_EQUAL(rail_window_throttle(rail), UINT64_MAX);
	window_serve(rig, 25000000, 50);
	CU_ASSERT_EQUAL(rail_window_throttle(rail), WINDOW_SLICE);
	CU_ASSERT(rail_window_throttle(rail) < rail_window(rail) / 3);
	window_serve(rig, 1000000000, 500);
	CU_ASSERT(rail_window_throttle(rail) > 450000);
	CU_ASSERT(rail_window_throttle(rail) <= 500000);
	/* a low rate that was measured while bulk data was throttled does not
	 * lower the limit */
	for (i = 0; i < 50; i++) {
		rail->load.throttled = true;
		window_serve(rig, 300000000, 1);
	}
	CU_ASSERT(rail->load.rate_bps < 500000000);
	CU_ASSERT(rail_window_throttle(rail) > 450000);
	window_serve(rig, 300000000, 2);
	CU_ASSERT(rail_window_throttle(rail) < 250000);
	window_serve(rig, 1000000000, 500);
	/* with MOONRAIL_SMALL_FIRST, the limit is about one slice */
	rig->settings.sched.small_first = true;
	CU_ASSERT(rail_window_throttle(rail) > 225000);
	CU_ASSERT(rail_window_throttle(rail) <= 250000);
	rig->settings.sched.small_first = false;
	/* with a long round-trip time, more data may be posted */
	rail->load.base_ns = 20 * TEI_NS_PER_MS;
	CU_ASSERT(rail_window_throttle(rail) > 19000000);
	rail->nic.wire = false;
	CU_ASSERT_EQUAL(rail_window_throttle(rail), UINT64_MAX);
	free(rig);
}

/* Checks the window after requests that each took less than a millisecond. */
static void test_short_requests_open_window(void)
{
	struct window_rig *rig = window_begin(1);

	window_serve_one(rig, 4096, 10);
	CU_ASSERT_EQUAL(rig->rail[0].load.rate_bps, 0);
	window_serve_one(rig, WINDOW_MIB, 400);
	CU_ASSERT_EQUAL(rig->rail[0].load.window, 8 * WINDOW_MIB);
	free(rig);
}

/*
 * Checks the rate if delayed completions arrive in two batches, the second one
 * just after a measurement. The second batch, in a very short interval, must
 * not count as a high rate.
 */
static void test_rate_ignores_end_of_batch(void)
{
	const uint64_t rate = 25000000;
	struct window_rig *rig = window_begin(1);
	struct rail_lane *lane = window_lane(rig, 0);
	int i;

	for (i = 0; i < 50; i++) {
		window_serve(rig, rate, 40);
		tei_mutex_lock(&lane->lock);
		lane->rate.busy_ns = rig->now;
		lane->rate.whole = true;
		rig->now += 40 * TEI_NS_PER_MS;
		rail_window_measure(lane, WINDOW_MIB / 2, rig->now);
		lane->inflight = 0;
		rig->now += 10 * TEI_NS_PER_US;
		rail_window_measure(lane, WINDOW_MIB / 2, rig->now);
		tei_mutex_unlock(&lane->lock);
		CU_ASSERT(rig->rail[0].load.rate_bps < 3 * rate);
	}
	free(rig);
}

/* Checks what the previous case checks, but before any rate is known, for
 * example because connecting took long. */
static void test_rate_ignores_end_of_first_batch(void)
{
	struct window_rig *rig = window_begin(1);
	struct rail_lane *lane = window_lane(rig, 0);
	struct rail_slice first = { .len = WINDOW_MIB };

	tei_mutex_lock(&lane->lock);
	rail_window_begin(lane, &first, rig->now);
	lane->inflight = 1;
	rig->now += 150 * TEI_NS_PER_MS;
	rail_window_measure(lane, WINDOW_MIB, rig->now);
	lane->inflight = 0;
	rig->now += 5 * TEI_NS_PER_US;
	rail_window_measure(lane, WINDOW_MIB, rig->now);
	tei_mutex_unlock(&lane->lock);
	CU_ASSERT_EQUAL(rig->rail[0].load.rate_bps, 0);
	CU_ASSERT_EQUAL(rig->rail[0].load.window, RAIL_WINDOW_FIRST);
	free(rig);
}

/*
 * Checks that the data of a stopped peer does not reduce the window for other
 * peers, and does not count as a low rate.
 */
static void test_window_ignores_stuck_bytes(void)
{
	struct rail_slice stuck = { .len = 5 * WINDOW_MIB, .seq = 1 };
	const uint64_t rate = 100000000;
	struct window_rig *rig = window_begin(1);
	struct rail_lane *lane = window_lane(rig, 0);

	tei_mutex_lock(&lane->lock);
	tei_list_init(&lane->posted);
	tei_list_add_tail(&lane->posted, &stuck.link);
	lane->rate.posts = 1;
	tei_mutex_unlock(&lane->lock);
	lane->inflight_bytes = stuck.len;
	window_serve(rig, rate, 50);
	CU_ASSERT_EQUAL(rail_window_held(&rig->rail[0]), stuck.len);
	window_serve(rig, rate, 300);
	CU_ASSERT_EQUAL(rail_window_held(&rig->rail[0]), 0);
	CU_ASSERT_EQUAL(rail_window(&rig->rail[0]), rig->rail[0].load.window);
	/* the window and the stuck bytes together do not exceed window_max */
	window_serve(rig, 100 * rate, 100);
	CU_ASSERT_EQUAL(rail_window(&rig->rail[0]), 3 * WINDOW_MIB);
	/* a second without completions does not change the rate */
	rig->now += TEI_NS_PER_SEC;
	tei_mutex_lock(&lane->lock);
	rail_window_measure(lane, WINDOW_SLICE, rig->now);
	tei_mutex_unlock(&lane->lock);
	CU_ASSERT(rig->rail[0].load.rate_bps > 50 * rate);
	/* all slices have returned, and the next one is posted */
	tei_mutex_lock(&lane->lock);
	rail_window_begin(lane, &stuck, rig->now);
	tei_mutex_unlock(&lane->lock);
	CU_ASSERT_EQUAL(rail_window_held(&rig->rail[0]), stuck.len);
	CU_ASSERT_EQUAL(rail_window(&rig->rail[0]), 8 * WINDOW_MIB);
	free(rig);
}

/* Checks that the window grows if the round-trip time is long and the rate is
 * high, so that the first window limits the rate. */
static void test_window_grows_with_round_trip_time(void)
{
	const uint64_t way_ms = 50, real = 200000000;
	struct window_rig *rig = window_begin(1);
	struct rail_lane *lane = window_lane(rig, 0);
	uint64_t rate;
	int i;

	tei_mutex_lock(&lane->lock);
	lane->rate.alone_ns = rig->now - way_ms * TEI_NS_PER_MS;
	rail_window_alone(lane, rig->now);
	/* a slice that waited behind others does not increase base_ns */
	lane->rate.alone_ns = rig->now - 9 * way_ms * TEI_NS_PER_MS;
	rail_window_alone(lane, rig->now);
	tei_mutex_unlock(&lane->lock);
	CU_ASSERT_EQUAL(rig->rail[0].load.base_ns, way_ms * TEI_NS_PER_MS);
	rig->rail[0].load.window_max = 64 * WINDOW_MIB;
	for (i = 0; i < 100; i++) {
		rate = rig->rail[0].load.window * 1000 / way_ms;
		window_serve(rig, rate < real ? rate : real, 1);
	}
	CU_ASSERT(rig->rail[0].load.window >= real / 1000 * way_ms);
	free(rig);
}

/*
 * Simulates n rails that share one task. rate: the rate of each rail, bytes/s.
 * window: the window of each rail, bytes. known: whether the scheduler knows
 * the rates. Returns the time between the moment when the first rail is idle
 * and the moment when the last one is, divided by the total time.
 */
static double window_tail(const uint64_t *rate, uint32_t n, uint64_t window,
			  bool known)
{
	static const uint8_t ranks[TEI_RAIL_MAX];
	struct window_rig *rig = window_begin(n);
	double at[WINDOW_RAILS] = { 0 }, now = 0, end[WINDOW_RAILS] = { 0 };
	double first, last;
	uint64_t left = 64 * WINDOW_MIB, hold;
	struct rail_window_sum sum;
	bool any = true;
	uint32_t i;

	for (i = 0; i < n; i++)
		rig->rail[i].load.rate_bps = known ? rate[i] : 0;
	for (; any; now += 1e-5) {
		any = left;
		for (i = 0; i < n; i++) {
			hold = at[i] > now ?
			       (uint64_t)((at[i] - now) * (double)rate[i]) : 0;
			window_lane(rig, i)->inflight_bytes = hold;
			any |= hold;
		}
		for (i = 0; i < n && left; i++) {
			hold = window_lane(rig, i)->inflight_bytes;
			rail_sched_enter(&rig->dp);
			rail_window_sum(&rig->rail[i], &rig->peer, NULL, ranks,
					hold, &sum);
			rail_sched_leave(&rig->dp);
			if (hold >= window ||
			    rail_window_over(&sum, hold, left, WINDOW_SLICE))
				continue;
			if (at[i] < now)
				at[i] = now;
			at[i] += (double)WINDOW_SLICE / (double)rate[i];
			window_lane(rig, i)->inflight_bytes += WINDOW_SLICE;
			left -= WINDOW_SLICE;
			end[i] = at[i];
		}
	}
	first = last = end[0];
	for (i = 1; i < n; i++) {
		first = end[i] < first ? end[i] : first;
		last = end[i] > last ? end[i] : last;
	}
	free(rig);
	return (last - first) / last;
}

static void test_rails_sharing_a_task_finish_together(void)
{
	static const uint64_t equal[] = { 100000000, 100000000 };
	static const uint64_t both[] = { 25000000, 75000000 };
	static const uint64_t four[] = { 12500000, 12500000, 25000000,
					 50000000 };

	/* with large windows, the rails finish together if their rates are
	 * known */
	CU_ASSERT(window_tail(equal, 2, 8 * WINDOW_MIB, true) < 0.02);
	CU_ASSERT(window_tail(both, 2, 8 * WINDOW_MIB, true) < 0.02);
	CU_ASSERT(window_tail(four, 4, 8 * WINDOW_MIB, true) < 0.02);
	/* with small windows, the rails finish together even if their rates are
	 * unknown */
	CU_ASSERT(window_tail(equal, 2, 4 * WINDOW_SLICE, false) < 0.05);
	CU_ASSERT(window_tail(both, 2, 4 * WINDOW_SLICE, false) < 0.05);
}

static void test_idle_rail_always_takes_a_slice(void)
{
	struct rail_window_sum sum = { .rails = 2, .bytes = 0, .share = 0.01 };

	CU_ASSERT(!rail_window_over(&sum, 0, 1, 1));
	CU_ASSERT(rail_window_over(&sum, WINDOW_SLICE, 1, 1));
	/* a single rail also takes the slice */
	sum.rails = 1;
	CU_ASSERT(!rail_window_over(&sum, WINDOW_SLICE, 1, 1));
}

const struct tei_test_case rail_window_cases[] = {
	{ "window_follows_rate", test_window_follows_rate },
	{ "window_stays_within_bounds", test_window_stays_within_bounds },
	{ "bulk_limit_with_small_requests_is_smaller",
	  test_bulk_limit_with_small_requests_is_smaller },
	{ "short_requests_open_window", test_short_requests_open_window },
	{ "rate_ignores_end_of_batch", test_rate_ignores_end_of_batch },
	{ "rate_ignores_end_of_first_batch",
	  test_rate_ignores_end_of_first_batch },
	{ "window_ignores_stuck_bytes", test_window_ignores_stuck_bytes },
	{ "window_grows_with_round_trip_time",
	  test_window_grows_with_round_trip_time },
	{ "rails_sharing_a_task_finish_together",
	  test_rails_sharing_a_task_finish_together },
	{ "idle_rail_always_takes_a_slice",
	  test_idle_rail_always_takes_a_slice },
	{ NULL, NULL },
};
