/* SPDX-License-Identifier: BSD-2-Clause */
/* Lanes opened anew, of a plane whose thread is the test. */
#include "prov/rail/rail_health.h"
#include "prov/rail/rail_test.h"

#include <sched.h>

static bool reopen_await(struct rail *rail)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (tei_now_ns() < end) {
		if (rail_reopen_collect(rail))
			return true;
		sched_yield();
	}
	return false;
}

static void test_a_fence_is_answered_before_the_next_lane_is_open(void)
{
	struct rail_lane *lane;
	struct test_pair pair;
	uint32_t gen;

	test_pair_open(&pair);
	lane = &pair.rail->target;
	gen = lane->gen;
	CU_ASSERT_EQUAL(rail_fence_target(pair.rail, gen), gen + 1);
	CU_ASSERT_PTR_NULL(lane->ep);
	CU_ASSERT(rail_reopen_any(pair.from.dp));
	/* who asks as well is told the same, and nothing is closed for him */
	CU_ASSERT_EQUAL(rail_fence_target(pair.rail, gen), gen + 1);
	CU_ASSERT_FATAL(reopen_await(pair.rail));
	CU_ASSERT(!rail_reopen_any(pair.from.dp));
	CU_ASSERT_PTR_NOT_NULL(lane->ep);
	CU_ASSERT_EQUAL(lane->gen, gen + 1);
	/* an older generation is closed already */
	CU_ASSERT_EQUAL(rail_fence_target(pair.rail, gen), gen + 1);
	CU_ASSERT_PTR_NOT_NULL(lane->ep);
	CU_ASSERT(!rail_reopen_collect(pair.rail));
	test_pair_close(&pair);
}

static void test_a_plane_closes_while_a_lane_opens(void)
{
	struct test_pair pair;

	test_pair_open(&pair);
	rail_fence_target(pair.rail, pair.rail->target.gen);
	CU_ASSERT(rail_reopen_any(pair.from.dp));
	test_pair_close(&pair);
}

/* Lanes of the rail's first pair that take work, and which. */
static struct rail_lane *reopen_active(struct rail *rail)
{
	int i;

	for (i = 0; i < RAIL_LANE_SLOTS; i++)
		if (rail->init[i].state == RAIL_LANE_ACTIVE)
			return &rail->init[i];
	return NULL;
}

static bool reopen_works(struct test_pair *pair)
{
	bool works;

	rail_sched_enter(pair->from.dp);
	works = rail_health_works(pair->peer, 0);
	rail_sched_leave(pair->from.dp);
	return works;
}

static void test_an_initiating_lane_opens_beside_the_thread(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct rail_lane *old, *lane;
	struct rail_path *path;
	struct test_pair pair;
	uint32_t gen;

	test_pair_open(&pair);
	old = reopen_active(pair.rail);
	CU_ASSERT_PTR_NOT_NULL_FATAL(old);
	gen = old->gen;
	CU_ASSERT(reopen_works(&pair));
	rail_fence_renew_lane(old, 0);
	/* nobody has put the new one in its place */
	CU_ASSERT_EQUAL(old->state, RAIL_LANE_RETIRING);
	CU_ASSERT_PTR_NULL(reopen_active(pair.rail));
	CU_ASSERT(!reopen_works(&pair));
	CU_ASSERT_EQUAL(rail_msg_try_on(pair.peer, pair.rail, 0, "", 1, &lane,
					&path), -FI_EAGAIN);
	CU_ASSERT_PTR_NULL(lane);
	/* what is under way is not begun again */
	rail_fence_reopen(pair.rail);
	while (!reopen_active(pair.rail) && tei_now_ns() < end)
		CU_ASSERT(!rail_reopen_collect(pair.rail));
	lane = reopen_active(pair.rail);
	CU_ASSERT_PTR_NOT_NULL_FATAL(lane);
	CU_ASSERT(lane != old);
	CU_ASSERT_EQUAL(lane->gen, gen + 1);
	CU_ASSERT(reopen_works(&pair));
	CU_ASSERT(!pair.rail->lost);
	test_pair_turn(&pair, tei_now_ns());
	CU_ASSERT_EQUAL(old->state, RAIL_LANE_CLOSED);
	test_pair_close(&pair);
}

static void test_a_plane_closes_while_an_initiating_lane_opens(void)
{
	struct test_pair pair;

	test_pair_open(&pair);
	rail_fence_renew_lane(reopen_active(pair.rail), 0);
	CU_ASSERT(pair.rail->next_init[0].under_way);
	test_pair_close(&pair);
}

const struct tei_test_case rail_reopen_cases[] = {
	{ "a_fence_is_answered_before_the_next_lane_is_open",
	  test_a_fence_is_answered_before_the_next_lane_is_open },
	{ "a_plane_closes_while_a_lane_opens",
	  test_a_plane_closes_while_a_lane_opens },
	{ "a_plane_closes_while_an_initiating_lane_opens",
	  test_a_plane_closes_while_an_initiating_lane_opens },
	{ "an_initiating_lane_opens_beside_the_thread",
	  test_an_initiating_lane_opens_beside_the_thread },
	{ NULL, NULL },
};
