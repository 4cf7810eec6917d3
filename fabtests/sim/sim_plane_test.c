/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of data planes (prov/rail) in the simulated world. All data planes run
 * in the test's thread and use the simulated fabric. */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_net.h"
#include "fabtests/sim/sim_test.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/settings.h"

#define PLANE_BYTES (8u << 20)
#define PLANE_NICS  2
/* time after which a step of a test has failed, virtual ns */
#define PLANE_WAIT_NS (120 * SIM_SEC)

/* The data plane of one host. */
struct plane {
	struct sim_host *host;
	struct tei_settings settings;
	struct tei_rail_dp *dp;
	struct tei_rail_mr *mr;
	char *mem;
	struct tei_rail_addr at[PLANE_NICS]; /* contact addresses */
	size_t nat;
	struct tei_rail_peer *peer;
};

static struct plane planes[2];
static bool verbs;

struct move {
	struct tei_rail_task task; /* must be the first member */
	uint32_t ends;
	enum tei_rail_end end;
};

static void plane_done(struct tei_rail_task *task, enum tei_rail_end end,
		       const struct tei_err *err)
{
	struct move *m = (struct move *)(void *)task;

	(void)err;
	m->ends++;
	m->end = end;
}

static void plane_notify(void *arg, struct tei_rail_notification *note)
{
	(void)arg;
	tei_rail_notification_free(note);
}

static void plane_resolve(void *arg, struct tei_rail_peer *peer)
{
	(void)arg;
	tei_rail_peer_put(peer);
}

static void plane_changed(void *arg)
{
	(void)arg;
}

static const struct tei_rail_ops plane_ops = {
	.task_done = plane_done,
	.notify = plane_notify,
	.resolve = plane_resolve,
	.rails_changed = plane_changed,
};

/* --- code of a host --- */

static bool plane_ended(void *arg)
{
	return sim_fiber_ended(arg);
}

/* Runs fn(plane) in a fiber of the plane's host. */
static void plane_run(struct plane *p, void *(*fn)(void *))
{
	struct sim_fiber *fiber = sim_fiber_start(p->host, "test", fn, p);

	CU_ASSERT_FATAL(
		sim_run_while(plane_ended, fiber, sim_now() + PLANE_WAIT_NS));
	sim_fiber_join(fiber);
}

static void *plane_open(void *arg)
{
	static const char *const options[] = { "MOONRAIL_PROVIDER=sim" };
	struct plane *p = arg;
	struct tei_rail_dp_attr attr = {
		.settings = &p->settings,
		.ops = &plane_ops,
		.arg = p,
		.incarnation = 100 + sim_host_id(p->host),
	};
	struct tei_rail_desc desc;
	struct tei_err err;
	char name[16];
	size_t i;

	snprintf(name, sizeof(name), "host%u", sim_host_id(p->host));
	attr.name = name;
	CU_ASSERT_EQUAL_FATAL(
		tei_settings_load_options(&p->settings, options, 1, &err), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_dp_open(&attr, &err, &p->dp), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_dp_add_transport(
				      p->dp, verbs ? "rdma" : "tcp", "", &err),
			      0);
	CU_ASSERT_EQUAL(tei_rail_count(p->dp), PLANE_NICS);
	for (i = 0; i < tei_rail_count(p->dp); i++) {
		CU_ASSERT_EQUAL_FATAL(tei_rail_describe(p->dp, i, &desc), 0);
		p->at[p->nat++] = desc.known;
	}
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p->dp, p->mem, PLANE_BYTES, "*",
					      TEI_RAIL_REMOTE, &err, &p->mr),
			      0);
	return NULL;
}

static void *plane_meet(void *arg)
{
	struct plane *p = arg, *to = &planes[p == planes];
	struct tei_err err;
	char name[16];

	snprintf(name, sizeof(name), "host%u", sim_host_id(to->host));
	CU_ASSERT_EQUAL_FATAL(
		tei_rail_peer_get(p->dp, name, 100 + sim_host_id(to->host),
				  to->at, to->nat, &err, &p->peer),
		0);
	return NULL;
}

static void *plane_leave(void *arg)
{
	struct plane *p = arg;

	if (p->peer)
		tei_rail_peer_put(p->peer);
	tei_rail_dp_close(p->dp, SIM_SEC);
	p->dp = NULL;
	return NULL;
}

/* --- the rig --- */

static void planes_begin(uint64_t seed, bool as_verbs)
{
	static bool set;
	struct sim_net_conf conf;
	unsigned int i;

	if (!set) {
		sim_net_provider(NULL);
		sim_world_install();
	}
	set = true;
	verbs = as_verbs;
	if (verbs)
		sim_net_conf_verbs(&conf);
	else
		sim_net_conf_tcp(&conf);
	memset(planes, 0, sizeof(planes));
	sim_begin(seed, 2);
	sim_net_begin(&conf, PLANE_NICS);
	for (i = 0; i < 2; i++) {
		planes[i].host = sim_host_get(i);
		planes[i].mem = sim_arena(PLANE_BYTES, 4096);
		plane_run(&planes[i], plane_open);
	}
	plane_run(&planes[0], plane_meet);
}

static void planes_end(void)
{
	struct sim_net_stats stats;

	plane_run(&planes[0], plane_leave);
	plane_run(&planes[1], plane_leave);
	sim_net_stats_get(SIM_NO_HOST, &stats);
	CU_ASSERT_EQUAL(stats.domains + stats.endpoints + stats.mrs +
				stats.queues + stats.avs + stats.counters,
			0);
	CU_ASSERT_EQUAL(stats.operations, 0);
	sim_net_end();
	sim_end();
}

static struct move moves[16];

/* Submits twelve writes and four reads. Each moves one sixteenth of the memory,
 * less the last five bytes. */
static void *plane_submit(void *arg)
{
	const uint64_t len = PLANE_BYTES / 16;
	struct tei_rail_task *list[16];
	struct plane *p = arg;
	uint32_t i;

	memset(moves, 0, sizeof(moves));
	for (i = 0; i < 16; i++) {
		moves[i].task.peer = p->peer;
		moves[i].task.read = i % 4 == 3;
		moves[i].task.local = p->mem + i * len;
		moves[i].task.remote = (uintptr_t)planes[1].mem + i * len;
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
		planes[0].mem[i] = (char)(i * 13 + (i >> 9));
		planes[1].mem[i] = (char)(i * 11 + (i >> 7) + 1);
	}
}

static void moves_check(void)
{
	const size_t len = PLANE_BYTES / 16;
	unsigned int i;

	for (i = 0; i < 16; i++) {
		CU_ASSERT_EQUAL(moves[i].ends, 1);
		CU_ASSERT_EQUAL(moves[i].end, TEI_RAIL_END_COMPLETED);
		CU_ASSERT(!memcmp(planes[0].mem + i * len,
				  planes[1].mem + i * len, len - 5));
		CU_ASSERT(memcmp(planes[0].mem + i * len + len - 5,
				 planes[1].mem + i * len + len - 5, 5));
	}
}

/* Returns the number of threads of this process. */
static unsigned int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned int n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static uint64_t planes_move(uint64_t seed, bool as_verbs)
{
	unsigned int before = threads();
	uint64_t hash;

	planes_begin(seed, as_verbs);
	moves_fill();
	plane_run(&planes[0], plane_submit);
	CU_ASSERT(sim_run_while(moves_ended, NULL, sim_now() + PLANE_WAIT_NS));
	moves_check();
	CU_ASSERT_EQUAL(threads(), before);
	hash = sim_trace_hash();
	planes_end();
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

/* Submits transfers, and calls fault while they are in progress. */
static void planes_break(bool as_verbs, void (*fault)(void))
{
	planes_begin(2, as_verbs);
	moves_fill();
	plane_run(&planes[0], plane_submit);
	sim_run(sim_now() + 300 * SIM_US);
	fault();
	CU_ASSERT(sim_run_while(moves_ended, NULL, sim_now() + PLANE_WAIT_NS));
	moves_check();
	planes_end();
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

/* While a data plane is closed that cannot send BYE to its peer, its thread
 * must sleep most of the time. */
static void test_close_with_an_unreachable_peer_does_not_spin(void)
{
	unsigned int i, j;
	uint64_t before;

	planes_begin(2, false);
	moves_fill();
	plane_run(&planes[0], plane_submit);
	CU_ASSERT(sim_run_while(moves_ended, NULL, sim_now() + PLANE_WAIT_NS));
	for (i = 0; i < PLANE_NICS; i++)
		for (j = 0; j < PLANE_NICS; j++)
			sim_net_path_block((struct sim_net_nic){ 0, i },
					   (struct sim_net_nic){ 1, j }, true);
	before = sim_events();
	plane_run(&planes[0], plane_leave);
	CU_ASSERT(sim_events() - before < 10000);
	plane_run(&planes[1], plane_leave);
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
