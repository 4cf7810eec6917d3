/* SPDX-License-Identifier: BSD-2-Clause */
/* The target lane of a plane whose thread is the test. */
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

const struct tei_test_case rail_reopen_cases[] = {
	{ "a_fence_is_answered_before_the_next_lane_is_open",
	  test_a_fence_is_answered_before_the_next_lane_is_open },
	{ "a_plane_closes_while_a_lane_opens",
	  test_a_plane_closes_while_a_lane_opens },
	{ NULL, NULL },
};
