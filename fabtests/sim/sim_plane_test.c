/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of data planes (prov/rail) in the simulated world and over the
 * simulated fabric. All data planes run in one thread. */

#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_net.h"
#include "fabtests/sim/sim_planes.h"
#include "fabtests/sim/sim_test.h"
#include "prov/rail/tei_rail.h"

#define PLANE_BYTES (8u << 20)
#define PLANE_NICS  2

/* The parameters of the data planes of the present test. */
static struct sim_planes_conf plane_conf = {
	.hosts = 2,
	.nics = PLANE_NICS,
	.bytes = PLANE_BYTES,
};

static void planes_begin(uint64_t seed, bool verbs)
{
	plane_conf.seed = seed;
	plane_conf.verbs = verbs;
	sim_planes_begin(&plane_conf);
}

static struct sim_plane_task moves[16];

/* Submits twelve writes and four reads. Each moves another sixteenth of the
 * memory, except its last five bytes. */
static void *plane_submit(void *arg)
{
	const uint64_t len = PLANE_BYTES / 16;
	struct tei_rail_task *list[16];
	struct sim_plane *p = arg;
	uint32_t i;

	memset(moves, 0, sizeof(moves));
	for (i = 0; i < 16; i++) {
		moves[i].task.peer = p->peers[1];
		moves[i].task.read = i % 4 == 3;
		moves[i].task.local = p->mem + i * len;
		moves[i].task.remote = (uintptr_t)sim_planes[1].mem + i * len;
		moves[i].task.length = len - 5;
		list[i] = &moves[i].task;
	}
	CU_ASSERT_EQUAL(tei_rail_submit(p->dp, list, 16), 0);
	return NULL;
}

static bool moves_ended(void *arg)
{
	unsigned int i;

	(void)arg;
	for (i = 0; i < 16; i++)
		if (!moves[i].ends)
			return false;
	return true;
}

static void moves_fill(void)
{
	unsigned int i;

	for (i = 0; i < PLANE_BYTES; i++) {
		sim_planes[0].mem[i] = (char)(i * 13 + (i >> 9));
		sim_planes[1].mem[i] = (char)(i * 11 + (i >> 7) + 1);
	}
}

static void moves_check(void)
{
	const size_t len = PLANE_BYTES / 16;
	unsigned int i;

	for (i = 0; i < 16; i++) {
		CU_ASSERT_EQUAL(moves[i].ends, 1);
		CU_ASSERT_EQUAL(moves[i].end, TEI_RAIL_END_COMPLETED);
		CU_ASSERT(!memcmp(sim_planes[0].mem + i * len,
				  sim_planes[1].mem + i * len, len - 5));
		CU_ASSERT(memcmp(sim_planes[0].mem + i * len + len - 5,
				 sim_planes[1].mem + i * len + len - 5, 5));
	}
}

static uint64_t planes_move(uint64_t seed, bool as_verbs)
{
	unsigned int before = sim_test_threads();
	uint64_t hash;

	planes_begin(seed, as_verbs);
	moves_fill();
	sim_plane_run(&sim_planes[0], plane_submit);
	CU_ASSERT(sim_run_while(moves_ended, NULL,
				sim_now() + SIM_PLANES_WAIT_NS));
	moves_check();
	CU_ASSERT_EQUAL(sim_test_threads(), before);
	hash = sim_trace_hash();
	sim_planes_end();
	return hash;
}

static void test_bytes_move_over_tcp_in_one_thread(void)
{
	planes_move(1, false);
}

static void test_bytes_move_over_verbs_in_one_thread(void)
{
	planes_move(1, true);
}

static void test_same_seed_gives_same_trace(void)
{
	CU_ASSERT_EQUAL(planes_move(5, false), planes_move(5, false));
	CU_ASSERT_EQUAL(planes_move(5, true), planes_move(5, true));
	CU_ASSERT_NOT_EQUAL(planes_move(5, false), planes_move(6, false));
}

/* Submits transfers and calls `fault` while they are in progress. Checks that
 * all of them complete nevertheless. */
static void planes_break(bool as_verbs, void (*fault)(void))
{
	planes_begin(2, as_verbs);
	moves_fill();
	sim_plane_run(&sim_planes[0], plane_submit);
	sim_run(sim_now() + 300 * SIM_US);
	fault();
	CU_ASSERT(sim_run_while(moves_ended, NULL,
				sim_now() + SIM_PLANES_WAIT_NS));
	moves_check();
	sim_planes_end();
}

static const struct sim_net_nic first_nic[2] = { { 0, 0 }, { 1, 0 } };

static void fault_reset(void)
{
	sim_net_reset(first_nic[0], first_nic[1]);
}

static void fault_block(void)
{
	sim_net_path_block(first_nic[0], first_nic[1], true);
	sim_net_path_block(first_nic[1], first_nic[0], true);
}

static void fault_block_answers(void)
{
	sim_net_path_block(first_nic[1], first_nic[0], true);
}

static void fault_link(void)
{
	sim_net_nic_link(first_nic[1], false);
}

static void test_bytes_move_in_spite_of_a_reset(void)
{
	planes_break(false, fault_reset);
	planes_break(true, fault_reset);
}

static void test_bytes_move_in_spite_of_a_silent_path(void)
{
	planes_break(false, fault_block);
	planes_break(true, fault_block);
}

static void test_bytes_move_in_spite_of_lost_answers(void)
{
	planes_break(false, fault_block_answers);
	planes_break(true, fault_block_answers);
}

static void test_bytes_move_in_spite_of_a_pulled_cable(void)
{
	planes_break(false, fault_link);
	planes_break(true, fault_link);
}

/* Closes a data plane that cannot send BYE to its peer. The number of events
 * shows that its thread sleeps most of the time meanwhile. */
static void test_close_with_an_unreachable_peer_does_not_spin(void)
{
	unsigned int i, j;
	uint64_t before;

	planes_begin(2, false);
	moves_fill();
	sim_plane_run(&sim_planes[0], plane_submit);
	CU_ASSERT(sim_run_while(moves_ended, NULL,
				sim_now() + SIM_PLANES_WAIT_NS));
	for (i = 0; i < PLANE_NICS; i++)
		for (j = 0; j < PLANE_NICS; j++)
			sim_net_path_block((struct sim_net_nic){ 0, i },
					   (struct sim_net_nic){ 1, j }, true);
	before = sim_events();
	sim_plane_run(&sim_planes[0], sim_plane_leave);
	CU_ASSERT(sim_events() - before < 10000);
	sim_plane_run(&sim_planes[1], sim_plane_leave);
	sim_net_end();
	sim_end();
}

const struct tei_test_case sim_plane_cases[] = {
	{ "bytes_move_over_tcp_in_one_thread",
	  test_bytes_move_over_tcp_in_one_thread },
	{ "bytes_move_over_verbs_in_one_thread",
	  test_bytes_move_over_verbs_in_one_thread },
	{ "same_seed_gives_same_trace", test_same_seed_gives_same_trace },
	{ "bytes_move_in_spite_of_a_reset",
	  test_bytes_move_in_spite_of_a_reset },
	{ "bytes_move_in_spite_of_a_silent_path",
	  test_bytes_move_in_spite_of_a_silent_path },
	{ "bytes_move_in_spite_of_lost_answers",
	  test_bytes_move_in_spite_of_lost_answers },
	{ "bytes_move_in_spite_of_a_pulled_cable",
	  test_bytes_move_in_spite_of_a_pulled_cable },
	{ "close_with_an_unreachable_peer_does_not_spin",
	  test_close_with_an_unreachable_peer_does_not_spin },
	{ NULL, NULL },
};
