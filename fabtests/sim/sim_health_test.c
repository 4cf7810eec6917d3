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

#define HEALTH_BYTES (8u << 20)
#define HEALTH_ROUNDS 48
/* longest pause between two rounds of probes without its jitter, ns */
#define HEALTH_PAUSE_NS (250 * SIM_MS)
/* shortest and longest pause after the first round, ns */
#define HEALTH_FIRST_NS	     (7 * SIM_MS)
#define HEALTH_FIRST_MOST_NS (60 * SIM_MS)

static struct sim_planes_conf health_conf = {
	.seed = 3,
	.hosts = 3,
	.nics = 2,
	.bytes = HEALTH_BYTES,
	.bandwidth = 1000000000,
};

static struct sim_plane_task health_task;
static uint32_t health_to; /* target of the task */

static void *health_submit(void *arg)
{
	struct tei_rail_task *task = &health_task.task;
	struct sim_plane *p = arg;

	memset(&health_task, 0, sizeof(health_task));
	task->peer = p->peers[health_to];
	task->local = p->mem;
	task->remote = (uintptr_t)sim_planes[health_to].mem;
	task->length = HEALTH_BYTES;
	CU_ASSERT_EQUAL(tei_rail_submit(p->dp, &task, 1), 0);
	return NULL;
}

static bool health_ended(void *arg)
{
	(void)arg;
	return health_task.ends;
}

/* Starts to write the memory of host 0 to host `to`. */
static void health_start(uint32_t to)
{
	health_to = to;
	sim_plane_run(&sim_planes[0], health_submit);
}

static void health_finish(void)
{
	CU_ASSERT_FATAL(sim_run_while(health_ended, NULL,
				      sim_now() + SIM_PLANES_WAIT_NS));
	CU_ASSERT_EQUAL(health_task.end, TEI_RAIL_END_COMPLETED);
}

static void health_write(uint32_t to)
{
	health_start(to);
	health_finish();
}

/* the NICs 1 of the hosts 0 and 1 */
static const struct sim_net_nic health_nic[2] = { { 0, 1 }, { 1, 1 } };

static void health_block_nic(uint32_t nic, bool blocked)
{
	struct sim_net_nic from = { 0, nic }, to = { 1, nic };

	sim_net_path_block(from, to, blocked);
	sim_net_path_block(to, from, blocked);
}

/* Blocks both directions between the NICs 1 of the hosts 0 and 1, or unblocks
 * them. */
static void health_block(bool blocked)
{
	health_block_nic(1, blocked);
}

static uint32_t health_endpoints(void)
{
	struct sim_net_stats stats;

	sim_net_stats_get(0, &stats);
	return stats.endpoints;
}

/* Returns the statistics of the rail of NIC 1 of host 0. */
static struct tei_rail_stats health_rail(void)
{
	struct tei_rail_stats stats;

	CU_ASSERT_EQUAL(tei_rail_get_stats(sim_planes[0].dp, 1, &stats), 0);
	return stats;
}

/* Number of bytes that host 0 has written over its NIC 1. */
static uint64_t health_moved(void)
{
	return health_rail().tx_bytes;
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
	health_write(1);
	usual = health_endpoints();
	health_block(true);
	health_write(1);
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
	health_write(1);
	usual = health_endpoints();
	health_block(true);
	health_write(1);
	health_await(usual, true);
	was = health_moved();
	health_write(1);
	CU_ASSERT_EQUAL(health_moved(), was);
	health_block(false);
	end = sim_now() + SIM_PLANES_WAIT_NS;
	while (health_moved() == was && sim_now() < end)
		health_write(1);
	CU_ASSERT(health_moved() > was);
	health_await(usual, false);
	sim_run(sim_now() + 10 * SIM_SEC);
	CU_ASSERT_EQUAL(health_endpoints(), usual);
	sim_planes_end();
}

/* A rail that works again gets a growing share of the bytes at first. If there
 * are none to share, this phase ends by itself. */
static void test_ramp_up_without_traffic_ends(void)
{
	uint64_t from;

	sim_planes_begin(&health_conf);
	health_write(1);
	health_block(true);
	health_write(1);
	sim_run(sim_now() + 10 * SIM_MS);
	health_block(false);
	from = sim_now();
	while (health_rail().state != TEI_RAIL_PROBING &&
	       sim_now() < from + SIM_PLANES_WAIT_NS)
		sim_run(sim_now() + SIM_MS / 10);
	CU_ASSERT_EQUAL(health_rail().state, TEI_RAIL_PROBING);
	from = sim_now();
	while (health_rail().state != TEI_RAIL_UP &&
	       sim_now() < from + SIM_PLANES_WAIT_NS)
		sim_run(sim_now() + SIM_MS);
	CU_ASSERT(sim_now() >= from + SIM_SEC / 2);
	CU_ASSERT(sim_now() <= from + 2 * SIM_SEC);
	sim_planes_end();
}

/* Starts a write, makes the path between the NICs 1 silent, and also the other
 * path for the time silent_ns. Returns the time from then on until the rail is
 * found to have failed, ns. */
static uint64_t health_verdict(uint64_t silent_ns)
{
	uint64_t from, verdict;

	sim_planes_begin(&health_conf);
	health_write(1);
	health_start(1);
	sim_run(sim_now() + SIM_MS);
	health_block(true);
	if (silent_ns) {
		health_block_nic(0, true);
		sim_run(sim_now() + silent_ns);
		health_block_nic(0, false);
	}
	from = sim_now();
	CU_ASSERT_EQUAL(health_rail().state, TEI_RAIL_UP);
	while (health_rail().state == TEI_RAIL_UP && sim_now() < from + SIM_SEC)
		sim_run(sim_now() + SIM_MS / 10);
	verdict = sim_now() - from;
	health_finish();
	CU_ASSERT(health_task.end_ns <= from + 250 * SIM_MS);
	sim_planes_end();
	return verdict;
}

/*
 * A path that becomes silent while it carries slices is found after 40 ms, so
 * that a short delay is no fault, and before the tasks have waited for long. If
 * the peer was silent on all rails, no single rail is at fault, so the time is
 * measured from the next sign of life.
 */
static void test_silent_path_is_found_after_40_ms(void)
{
	static const uint64_t silent_ms[] = { 0, 100 };
	uint64_t verdict;
	size_t i;

	for (i = 0; i < sizeof(silent_ms) / sizeof(silent_ms[0]); i++) {
		verdict = health_verdict(silent_ms[i] * SIM_MS);
		CU_ASSERT(verdict >= 40 * SIM_MS);
		CU_ASSERT(verdict <= 160 * SIM_MS);
	}
}

/* All slices of a connection fail together when it is reset. These errors are
 * one fault, so the state of the rail changes once to DOWN and back. */
static void test_burst_of_errors_makes_one_fault(void)
{
	struct tei_rail_stats was, now;

	sim_planes_begin(&health_conf);
	health_write(1);
	was = health_rail();
	health_start(1);
	sim_run(sim_now() + SIM_MS);
	sim_net_reset(health_nic[0], health_nic[1]);
	health_finish();
	sim_run(sim_now() + 10 * SIM_SEC);
	now = health_rail();
	CU_ASSERT(now.errors - was.errors > 5);
	/* to DOWN, PROBING and UP */
	CU_ASSERT_EQUAL(now.state_changes - was.state_changes, 3);
	CU_ASSERT_EQUAL(now.state, TEI_RAIL_UP);
	sim_planes_end();
}

/* If only the path to one peer fails, the rail is UP as long as it carries bytes
 * to other peers, and the peer is reached over the other rail. */
static void test_rail_that_carries_to_other_peers_is_up(void)
{
	uint64_t was;
	int i;

	sim_planes_begin(&health_conf);
	health_write(1);
	health_write(2);
	health_block(true);
	health_write(1);
	CU_ASSERT_NOT_EQUAL(health_rail().state, TEI_RAIL_UP);
	for (i = 0; i < 50; i++) {
		was = health_moved();
		health_write(2);
		CU_ASSERT(health_moved() > was);
		was = health_moved();
		health_write(1);
		CU_ASSERT_EQUAL(health_moved(), was);
		CU_ASSERT(i < 5 || health_rail().state == TEI_RAIL_UP);
	}
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
	health_write(1);
	first = health_events();
	sim_run(sim_now() + 60 * SIM_SEC);
	idle = health_events();
	/* two data planes wake up at most twice each */
	CU_ASSERT(idle > 0 && idle <= 8);
	CU_ASSERT(first > 10 * idle);
	health_write(1);
	CU_ASSERT(health_events() > 10 * idle);
	sim_planes_end();
}

const struct tei_test_case sim_health_cases[] = {
	{ "rounds_without_an_answer_back_off_with_jitter",
	  test_rounds_without_an_answer_back_off_with_jitter },
	{ "a_rail_that_works_again_carries_bytes",
	  test_a_rail_that_works_again_carries_bytes },
	{ "ramp_up_without_traffic_ends", test_ramp_up_without_traffic_ends },
	{ "silent_path_is_found_after_40_ms",
	  test_silent_path_is_found_after_40_ms },
	{ "burst_of_errors_makes_one_fault",
	  test_burst_of_errors_makes_one_fault },
	{ "rail_that_carries_to_other_peers_is_up",
	  test_rail_that_carries_to_other_peers_is_up },
	{ "idle_data_plane_sleeps_longer_until_it_has_work",
	  test_idle_data_plane_sleeps_longer_until_it_has_work },
	{ NULL, NULL },
};
