/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests lanes that a closer thread closes. The test acts as the progress
 * thread. */

#include <sched.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

/* An endpoint whose closing waits until the test calls closing_let. */
struct closing_ep {
	struct fi_ops ops, *real;
	struct fid *fid;
	bool let;			/* atomic: the endpoint may be closed */
};

static struct closing_ep closing_held;

static int closing_close(struct fid *fid)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct closing_ep *h = &closing_held;

	while (!__atomic_load_n(&h->let, __ATOMIC_ACQUIRE) &&
	       tei_now_ns() < end)
		sched_yield();
	fid->ops = h->real;
	return fi_close(fid);
}

static void closing_hold(struct rail_lane *lane)
{
	struct closing_ep *h = &closing_held;

	h->let = false;
	h->fid = &lane->ep->fid;
	h->real = h->fid->ops;
	h->ops = *h->real;
	h->ops.close = closing_close;
	h->fid->ops = &h->ops;
}

static void closing_let(void)
{
	__atomic_store_n(&closing_held.let, true, __ATOMIC_RELEASE);
}

static bool closing_collects(struct rail *rail, struct rail_lane *lane)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (rail_closing_under_way(lane) && tei_now_ns() < end) {
		rail_fence_run(rail->dp);
		sched_yield();
	}
	return !rail_closing_under_way(lane);
}

static void test_fence_is_answered_after_lane_is_closed(void)
{
	struct rail_lane *lane;
	struct test_pair pair;
	static uint8_t buf[RAIL_MSG_MAX];
	uint64_t now = tei_now_ns(), end = now + TEST_WAIT_NS;
	struct test_task t;
	uint32_t gen;

	test_pair_open(&pair);
	lane = &pair.rail->rx_lane;
	gen = lane->gen;
	closing_hold(lane);
	CU_ASSERT_EQUAL(rail_fence_request(pair.rail, gen), 0);
	/* a hello must not be sent now: a rail table without the lane would say
	 * that the rail is closed */
	pair.peer->hello.warm_wanted = true;
	pair.peer->hello.warm_left = 1;
	CU_ASSERT_EQUAL(rail_ctl_warm(pair.peer, now, buf),
			now + RAIL_CTL_RETRY_NS);
	CU_ASSERT_EQUAL(pair.peer->hello.warm_left, 1);
	pair.peer->hello.warm_wanted = false;
	/* while the lane is being closed, tasks complete and the fence is not
	 * answered */
	test_task_init(&t, pair.peer, false, pair.src, pair.dst, 1);
	CU_ASSERT_EQUAL(test_submit(pair.from.dp, &t, 1), 0);
	while (!test_ends(&t) && tei_now_ns() < end)
		test_pair_turn(&pair, tei_now_ns());
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(rail_fence_request(pair.rail, gen), 0);
	CU_ASSERT_EQUAL(rail_fence_request(pair.rail, gen - 1), gen);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_RETIRING);
	CU_ASSERT(rail_fence_rx_any(pair.from.dp));
	/* no new lane is opened before the old one has been closed */
	rail_fence_rx_event(pair.rail, RAIL_FENCE_RX_EV_RETRY);
	CU_ASSERT(!pair.rail->next_rx.under_way);
	closing_let();
	CU_ASSERT_FATAL(closing_collects(pair.rail, lane));
	CU_ASSERT_EQUAL(rail_fence_request(pair.rail, gen), gen + 1);
	CU_ASSERT(pair.rail->next_rx.under_way);
	test_pair_close(&pair);
}

static void test_posted_slice_is_final_after_lane_is_closed(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct rail_slice s = { .len = 4096 };
	struct test_pair pair;
	struct rail_lane *lane;
	struct tei_list aborted;
	bool over;

	test_pair_open(&pair);
	lane = &pair.rail->tx_lanes[0];
	tei_list_init(&aborted);
	tei_mutex_lock(&lane->lock);
	tei_list_add_tail(&lane->posted, &s.link);
	lane->inflight = 1;
	lane->inflight_bytes = s.len;
	closing_hold(lane);
	rail_closing_start(lane);
	CU_ASSERT_PTR_NULL(lane->ep);
	CU_ASSERT(!rail_closing_collect(lane, &aborted));
	CU_ASSERT(tei_list_empty(&aborted));
	CU_ASSERT(rail_posted_any(pair.from.dp));
	closing_let();
	while (!(over = rail_closing_collect(lane, &aborted)) &&
	       tei_now_ns() < end)
		sched_yield();
	CU_ASSERT_FATAL(over);
	CU_ASSERT_PTR_EQUAL(tei_list_first(&aborted, struct rail_slice, link),
			    &s);
	CU_ASSERT(!rail_posted_any(pair.from.dp));
	CU_ASSERT_EQUAL(rail_posted_bytes(pair.rail), 0);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_CLOSED);
	CU_ASSERT(!rail_closing_collect(lane, &aborted));
	tei_mutex_unlock(&lane->lock);
	tei_list_del(&s.link);
	test_pair_close(&pair);
}

static void *closing_let_soon(void *arg)
{
	(void)arg;
	sched_yield();
	closing_let();
	return NULL;
}

/* Checks that tear-down waits for lanes that are being closed. */
static void test_plane_with_closing_lanes_closes(void)
{
	struct test_pair pair;
	pthread_t thread;

	test_pair_open(&pair);
	closing_hold(&pair.rail->rx_lane);
	rail_fence_request(pair.rail, pair.rail->rx_lane.gen);
	rail_lane_shutdown(&pair.rail->tx_lanes[0], true);
	CU_ASSERT(rail_closing_under_way(&pair.rail->rx_lane));
	CU_ASSERT_FATAL(!pthread_create(&thread, NULL, closing_let_soon, NULL));
	test_pair_close(&pair);
	pthread_join(thread, NULL);
}

const struct tei_test_case rail_closing_cases[] = {
	{ "fence_is_answered_after_lane_is_closed",
	  test_fence_is_answered_after_lane_is_closed },
	{ "plane_with_closing_lanes_closes",
	  test_plane_with_closing_lanes_closes },
	{ "posted_slice_is_final_after_lane_is_closed",
	  test_posted_slice_is_final_after_lane_is_closed },
	{ NULL, NULL },
};
