/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of the times at which data planes check a rail that has failed, and of
 * the sleep of an idle data plane. Virtual time makes the measurements exact.
 *
 * Each round of probes has an endpoint of its own. So the number of endpoints of
 * the host shows when a round begins and when it has ended.
 */
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_net.h"
#include "fabtests/sim/sim_planes.h"
#include "fabtests/sim/sim_test.h"
#include "prov/rail/tei_rail.h"

#define HEALTH_BYTES (1u << 20)
#define HEALTH_ROUNDS 48
/* longest pause between two rounds of probes without its jitter, ns */
#define HEALTH_PAUSE_NS (250 * SIM_MS)
/* shortest and longest pause after the first round, ns */
#define HEALTH_FIRST_NS	     (7 * SIM_MS)
#define HEALTH_FIRST_MOST_NS (60 * SIM_MS)

static struct sim_planes_conf health_conf = {
	.seed = 3,
	.hosts = 2,
	.nics = 2,
	.bytes = HEALTH_BYTES,
};

static struct sim_plane_task health_task;

static void *health_submit(void *arg)
{
	struct tei_rail_task *task = &health_task.task;
	struct sim_plane *p = arg;

	memset(&health_task, 0, sizeof(health_task));
	task->peer = p->peers[1];
	task->local = p->mem;
	task->remote = (uintptr_t)sim_planes[1].mem;
	task->length = HEALTH_BYTES;
	CU_ASSERT_EQUAL(tei_rail_submit(p->dp, &task, 1), 0);
	return NULL;
}

static bool health_ended(void *arg)
{
	(void)arg;
	return health_task.ends;
}

/* Writes the memory of host 0 to host 1. */
static void health_write(void)
{
	sim_plane_run(&sim_planes[0], health_submit);
	CU_ASSERT_FATAL(sim_run_while(health_ended, NULL,
				      sim_now() + SIM_PLANES_WAIT_NS));
	CU_ASSERT_EQUAL(health_task.end, TEI_RAIL_END_COMPLETED);
}

/* Blocks both directions between the NICs 1 of the hosts, or unblocks them. */
static void health_block(bool blocked)
{
	static const struct sim_net_nic nic[2] = { { 0, 1 }, { 1, 1 } };

	sim_net_path_block(nic[0], nic[1], blocked);
	sim_net_path_block(nic[1], nic[0], blocked);
}

static uint32_t health_endpoints(void)
{
	struct sim_net_stats stats;

	sim_net_stats_get(0, &stats);
	return stats.endpoints;
}

/* Number of bytes that host 0 has written over its NIC 1. */
static uint64_t health_moved(void)
{
	struct tei_rail_stats stats;

	CU_ASSERT_EQUAL(tei_rail_get_stats(sim_planes[0].dp, 1, &stats), 0);
	return stats.tx_bytes;
}

/* Runs until the number of endpoints of host 0 is larger than `usual` if `more`
 * is true, else until it is `usual`. Returns the time, ns. */
static uint64_t health_await(uint32_t usual, bool more)
{
	uint64_t end = sim_now() + SIM_PLANES_WAIT_NS;

	while ((health_endpoints() > usual) != more && sim_now() < end)
		sim_run(sim_now() + SIM_MS / 10);
	CU_ASSERT_FATAL((health_endpoints() > usual) == more);
	return sim_now();
}

static int health_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/*
 * The pauses between rounds of probes grow, because a rail that has failed for a
 * short time should be used again soon. They have a jitter. Without it, processes
 * that have lost a rail at the same time would always probe at the same times.
 */
static void test_rounds_without_an_answer_back_off_with_jitter(void)
{
	uint64_t pause[HEALTH_ROUNDS], ended;
	const uint32_t late = HEALTH_ROUNDS / 4; /* rounds before the pause has
						  * reached its limit */
	uint32_t usual, i;

	sim_planes_begin(&health_conf);
	health_write();
	usual = health_endpoints();
	health_block(true);
	health_write();
	for (i = 0; i < HEALTH_ROUNDS; i++) {
		health_await(usual, true);
		ended = health_await(usual, false);
		pause[i] = health_await(usual, true) - ended;
	}
	CU_ASSERT(pause[0] >= HEALTH_FIRST_NS &&
		  pause[0] <= HEALTH_FIRST_MOST_NS);
	qsort(pause + late, HEALTH_ROUNDS - late, sizeof(*pause),
	      health_compare);
	CU_ASSERT(pause[late] >= HEALTH_PAUSE_NS / 4 * 3 - SIM_MS);
	CU_ASSERT(pause[HEALTH_ROUNDS - 1] <=
		  HEALTH_PAUSE_NS / 4 * 5 + 20 * SIM_MS);
	CU_ASSERT(pause[HEALTH_ROUNDS - 1] - pause[late] > HEALTH_PAUSE_NS / 6);
	sim_planes_end();
}

/* A rail that works again is found by a probe and carries bytes, and the
 * endpoint of the probe is closed. */
static void test_a_rail_that_works_again_carries_bytes(void)
{
	uint64_t end, was;
	uint32_t usual;

	sim_planes_begin(&health_conf);
	health_write();
	usual = health_endpoints();
	health_block(true);
	health_write();
	health_await(usual, true);
	was = health_moved();
	health_write();
	CU_ASSERT_EQUAL(health_moved(), was);
	health_block(false);
	end = sim_now() + SIM_PLANES_WAIT_NS;
	while (health_moved() == was && sim_now() < end)
		health_write();
	CU_ASSERT(health_moved() > was);
	health_await(usual, false);
	sim_run(sim_now() + 10 * SIM_SEC);
	CU_ASSERT_EQUAL(health_endpoints(), usual);
	sim_planes_end();
}

/* Returns the number of events in the next second. */
static uint64_t health_events(void)
{
	uint64_t before = sim_events();

	sim_run(sim_now() + SIM_SEC);
	return sim_events() - before;
}

/* The thread of a data plane sleeps longer and longer if it has no work, so an
 * idle host has few events. After work it sleeps for short times again. */
static void test_idle_data_plane_sleeps_longer_until_it_has_work(void)
{
	uint64_t first, idle;

	sim_planes_begin(&health_conf);
	health_write();
	first = health_events();
	sim_run(sim_now() + 60 * SIM_SEC);
	idle = health_events();
	/* two data planes wake up at most twice each */
	CU_ASSERT(idle > 0 && idle <= 8);
	CU_ASSERT(first > 10 * idle);
	health_write();
	CU_ASSERT(health_events() > 10 * idle);
	sim_planes_end();
}

const struct tei_test_case sim_health_cases[] = {
	{ "rounds_without_an_answer_back_off_with_jitter",
	  test_rounds_without_an_answer_back_off_with_jitter },
	{ "a_rail_that_works_again_carries_bytes",
	  test_a_rail_that_works_again_carries_bytes },
	{ "idle_data_plane_sleeps_longer_until_it_has_work",
	  test_idle_data_plane_sleeps_longer_until_it_has_work },
	{ NULL, NULL },
};
