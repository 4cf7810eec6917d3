/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the lane threads. Loopback addresses stand for the rails. */

#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_lane_threads.h"
#include "prov/rail/rail_lane_thread.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/thread.h"

#define LANE_TEST_RAILS	"127.0.0.1,127.0.0.2"
#define LANE_TEST_NS	(16 * TEI_NS_PER_MS)
#define LANE_TEST_BYTES (8u << 20)

/* --- which lanes are assigned -------------------------------------------- */

/* Opens a plane with two rails and stops its progress thread, which the test
 * replaces. threads: value of MC_WORKERS_PER_CTX. */
static void lane_open(struct test_plane *p, uint32_t threads)
{
	test_plane_init(p);
	p->settings.sched.progress_threads = threads;
	test_plane_open(p, LANE_TEST_RAILS);
	test_plane_still(p);
	test_plane_use(p);
	/* the lane threads that the test starts must run */
	if (p->dp->lane_threads)
		__atomic_store_n(&p->dp->lane_threads->stop, false,
				 __ATOMIC_RELEASE);
}

/* Adds a number of sixteenths of LANE_TEST_NS to the load of a lane. */
static void lane_load(struct rail_lane *lane, uint64_t parts)
{
	__atomic_fetch_add(&lane->load.busy_ns, parts * TEI_NS_PER_MS,
			   __ATOMIC_RELAXED);
}

static uint32_t lane_assigned(const struct rail_lane *lane)
{
	return __atomic_load_n(&lane->load.assigned, __ATOMIC_RELAXED);
}

/* Returns how many times lanes of the plane were assigned. */
static uint32_t lane_assigned_all(const struct test_plane *p)
{
	uint32_t i, j, n = 0;
	struct rail *rail;

	for (i = 0; i < rail_count(p->dp); i++) {
		rail = rail_at(p->dp, i);
		n += lane_assigned(&rail->rx_lane);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
			n += lane_assigned(&rail->tx_lanes[j]);
	}
	return n;
}

/* Checks the loads LANE_TEST_NS after the last check. Returns how many lanes
 * this check has assigned. */
static uint32_t lane_check(struct test_plane *p, bool tx_elsewhere)
{
	uint64_t now = p->dp->lane_threads->checked_ns + LANE_TEST_NS;
	uint32_t before = lane_assigned_all(p);

	rail_lane_threads_check(p->dp, tx_elsewhere, now);
	return lane_assigned_all(p) - before;
}

/* Waits until no lane of the plane is assigned. */
static void lane_wait_returned(struct test_plane *p)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	bool any = true;
	struct rail *rail;
	uint32_t i, j;

	while (any && tei_now_ns() < end) {
		any = false;
		for (i = 0; i < rail_count(p->dp); i++) {
			rail = rail_at(p->dp, i);
			any |= rail_lane_assigned(&rail->rx_lane);
			for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
				any |= rail_lane_assigned(&rail->tx_lanes[j]);
		}
		tei_sleep_ns(TEI_NS_PER_MS);
	}
	CU_ASSERT_FALSE(any);
}

static void test_number_of_threads_follows_setting_and_cpus(void)
{
	/* not set: one thread for four CPUs, at most eight */
	CU_ASSERT_EQUAL(rail_lane_threads_most(0, 1), 1);
	CU_ASSERT_EQUAL(rail_lane_threads_most(0, 7), 1);
	CU_ASSERT_EQUAL(rail_lane_threads_most(0, 8), 2);
	CU_ASSERT_EQUAL(rail_lane_threads_most(0, 16), 4);
	CU_ASSERT_EQUAL(rail_lane_threads_most(0, 512), 8);
	/* set: the CPUs do not matter */
	CU_ASSERT_EQUAL(rail_lane_threads_most(1, 512), 1);
	CU_ASSERT_EQUAL(rail_lane_threads_most(3, 1), 3);
	CU_ASSERT_EQUAL(rail_lane_threads_most(16, 1), 16);
}

static void test_one_progress_thread_has_no_lane_threads(void)
{
	struct test_plane p;

	lane_open(&p, 1);
	CU_ASSERT_PTR_NULL(p.dp->lane_threads);
	CU_ASSERT_FALSE(rail_lane_threads_check(p.dp, false, tei_now_ns()));
	test_plane_close(&p);
}

static void test_busiest_lane_stays_with_the_progress_thread(void)
{
	struct rail_lane *a, *b;
	struct test_plane p;

	lane_open(&p, 3);
	a = &rail_at(p.dp, 0)->rx_lane;
	b = &rail_at(p.dp, 1)->rx_lane;
	lane_load(a, 5);
	lane_load(b, 6);
	CU_ASSERT_EQUAL(lane_check(&p, false), 1);
	CU_ASSERT_EQUAL(lane_assigned(a), 1);
	CU_ASSERT_EQUAL(lane_assigned(b), 0);
	CU_ASSERT_EQUAL(p.dp->lane_threads->n, 1);
	test_plane_close(&p);
}

static void test_light_load_stays_with_the_progress_thread(void)
{
	struct test_plane p;

	lane_open(&p, 3);
	/* one lane cannot be divided */
	lane_load(&rail_at(p.dp, 0)->rx_lane, 16);
	CU_ASSERT_EQUAL(lane_check(&p, false), 0);
	/* one thread can carry both lanes */
	lane_load(&rail_at(p.dp, 0)->rx_lane, 4);
	lane_load(&rail_at(p.dp, 1)->rx_lane, 4);
	CU_ASSERT_EQUAL(lane_check(&p, false), 0);
	/* the second lane is hardly used */
	lane_load(&rail_at(p.dp, 0)->rx_lane, 15);
	__atomic_fetch_add(&rail_at(p.dp, 1)->rx_lane.load.busy_ns, 1000,
			   __ATOMIC_RELAXED);
	CU_ASSERT_EQUAL(lane_check(&p, false), 0);
	CU_ASSERT_EQUAL(p.dp->lane_threads->n, 0);
	test_plane_close(&p);
}

static void test_lanes_of_callers_are_counted_separately(void)
{
	struct rail_lane *rx, *tx;
	struct test_plane p;

	lane_open(&p, 3);
	rx = &rail_at(p.dp, 0)->rx_lane;
	tx = &rail_at(p.dp, 0)->tx_lanes[0];
	lane_load(rx, 9);
	lane_load(tx, 9);
	CU_ASSERT_EQUAL(lane_check(&p, true), 0);
	lane_load(rx, 9);
	lane_load(tx, 9);
	CU_ASSERT_EQUAL(lane_check(&p, false), 1);
	test_plane_close(&p);
}

static void test_each_busy_lane_gets_a_thread_up_to_the_limit(void)
{
	struct test_plane p;
	struct rail *rail;
	uint32_t i;

	lane_open(&p, 3);
	for (i = 0; i < 2; i++) {
		rail = rail_at(p.dp, i);
		lane_load(&rail->rx_lane, 4);
		lane_load(&rail->tx_lanes[0], 4);
	}
	CU_ASSERT_EQUAL(lane_check(&p, false), 3);
	CU_ASSERT_EQUAL(p.dp->lane_threads->n, 2);
	test_plane_close(&p);
}

static void test_number_of_rails_limits_the_default(void)
{
	struct test_plane p;
	struct rail *rail;
	uint32_t i, n;

	lane_open(&p, 3);
	p.dp->lane_threads->by_rails = true;
	for (n = 2; n; n--) {
		__atomic_store_n(&rail_at(p.dp, 1)->hidden, n == 1,
				 __ATOMIC_RELEASE);
		for (i = 0; i < 2; i++) {
			rail = rail_at(p.dp, i);
			lane_load(&rail->rx_lane, 4);
			lane_load(&rail->tx_lanes[0], 4);
		}
		/* with two rails, the lane thread takes lanes until it would
		 * have more load than the progress thread */
		CU_ASSERT_EQUAL(lane_check(&p, false), n == 2 ? 2 : 0);
		CU_ASSERT_EQUAL(p.dp->lane_threads->limit, n - 1);
		CU_ASSERT_EQUAL(p.dp->lane_threads->n, 1);
		lane_wait_returned(&p);
	}
	test_plane_close(&p);
}

static void test_thread_that_waits_for_a_lane_gets_its_lock(void)
{
	struct rail_lane *a, *b;
	struct test_plane p;

	lane_open(&p, 3);
	a = &rail_at(p.dp, 0)->tx_lanes[0];
	b = &rail_at(p.dp, 1)->tx_lanes[0];
	/* as if another thread waited; a poll would clear the poll request */
	__atomic_store_n(&a->lock.waiters, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&a->kick, true, __ATOMIC_SEQ_CST);
	lane_load(a, 5);
	lane_load(b, 6);
	CU_ASSERT_EQUAL(lane_check(&p, false), 1);
	lane_wait_returned(&p);
	CU_ASSERT_EQUAL(lane_assigned(a), 1);
	CU_ASSERT_TRUE(__atomic_load_n(&a->kick, __ATOMIC_SEQ_CST));
	/* nothing waits any longer */
	__atomic_store_n(&a->lock.waiters, 0, __ATOMIC_SEQ_CST);
	lane_load(a, 5);
	lane_load(b, 6);
	CU_ASSERT_EQUAL(lane_check(&p, false), 1);
	lane_wait_returned(&p);
	CU_ASSERT_FALSE(__atomic_load_n(&a->kick, __ATOMIC_SEQ_CST));
	test_plane_close(&p);
}

/* --- callers ------------------------------------------------------------- */

#define LANE_TEST_TX	4

/* The lane with which one thread begins, for a rail with LANE_TEST_TX tx lanes
 * and for a rail with one. */
struct lane_caller {
	pthread_t thread;
	uint32_t first, only;
};

static void *lane_caller_main(void *arg)
{
	struct rail rail = { .nbase = 1 };
	struct lane_caller *c = arg;

	c->only = rail_first_lane(&rail);
	rail.nbase = LANE_TEST_TX;
	c->first = rail_first_lane(&rail);
	CU_ASSERT_EQUAL(rail_first_lane(&rail), c->first);
	return NULL;
}

static void test_callers_begin_with_different_tx_lanes(void)
{
	struct lane_caller c[LANE_TEST_TX];
	uint32_t i, used = 0;

	for (i = 0; i < LANE_TEST_TX; i++) {
		CU_ASSERT_EQUAL_FATAL(tei_thread_start(&c[i].thread, false,
						       lane_caller_main, &c[i]),
				      0);
		tei_thread_join(c[i].thread);
		CU_ASSERT_EQUAL(c[i].only, 0);
		CU_ASSERT_EQUAL(c[i].first % RAIL_LANE_SLOTS, 0);
		used |= 1u << (c[i].first / RAIL_LANE_SLOTS);
	}
	CU_ASSERT_EQUAL(used, (1u << LANE_TEST_TX) - 1);
}

/* --- bytes and messages over assigned lanes ------------------------------ */

struct lane_rig {
	struct test_plane from, to;
	struct tei_rail_peer *peer;
	char *src, *dst;
};

static char *lane_memory(struct test_plane *p)
{
	char *mem = calloc(1, LANE_TEST_BYTES);
	struct tei_rail_mr *mr;
	struct tei_err err;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mem);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p->dp, mem, LANE_TEST_BYTES, "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
	return mem;
}

static void lane_plane(struct test_plane *p, const char *rails)
{
	test_plane_init(p);
	p->settings.sched.progress_threads = 3;
	test_plane_open(p, rails);
	rail_lane_threads_eager(p->dp);
}

static void lane_rig_open(struct lane_rig *rig)
{
	lane_plane(&rig->from, LANE_TEST_RAILS);
	lane_plane(&rig->to, "127.0.0.3,127.0.0.4");
	rig->src = lane_memory(&rig->from);
	rig->dst = lane_memory(&rig->to);
	rig->peer = test_plane_peer(&rig->from, &rig->to);
	test_connect(rig->from.dp, rig->peer, rig->src, rig->dst);
}

static void lane_rig_close(struct lane_rig *rig)
{
	tei_rail_peer_put(rig->peer);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
	free(rig->src);
	free(rig->dst);
}

/* Writes and reads the whole memory and compares the bytes. */
static void lane_move(struct lane_rig *rig, uint64_t seed)
{
	test_fill(rig->src, LANE_TEST_BYTES, seed);
	CU_ASSERT_EQUAL(test_run(rig->from.dp, rig->peer, false, rig->src,
				 rig->dst, LANE_TEST_BYTES),
			TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig->src, rig->dst, LANE_TEST_BYTES), 0);
	memset(rig->src, 0, LANE_TEST_BYTES);
	CU_ASSERT_EQUAL(test_run(rig->from.dp, rig->peer, true, rig->src,
				 rig->dst, LANE_TEST_BYTES),
			TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig->src, rig->dst, LANE_TEST_BYTES), 0);
}

/* Sends a notification and waits until the peer has acknowledged it. */
static void lane_notify(struct lane_rig *rig)
{
	struct tei_rail_note note = { .name = "name", .msg = "text",
				      .msg_len = 4 };
	struct tei_err err;

	CU_ASSERT_EQUAL(tei_rail_notify(rig->peer, &note, TEST_WAIT_NS, &err),
			0);
}

static void test_bytes_move_over_assigned_lanes(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, i;
	struct lane_rig rig;

	lane_rig_open(&rig);
	/* notifications are control messages, which the lane threads defer */
	for (i = 0; (i < 4 || !lane_assigned_all(&rig.from) ||
		     !lane_assigned_all(&rig.to)) && tei_now_ns() < end; i++) {
		lane_move(&rig, i);
		lane_notify(&rig);
	}
	CU_ASSERT_NOT_EQUAL(lane_assigned_all(&rig.from), 0);
	CU_ASSERT_NOT_EQUAL(lane_assigned_all(&rig.to), 0);
	lane_rig_close(&rig);
}

static void test_idle_lanes_return_to_the_progress_thread(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, i;
	struct lane_rig rig;

	lane_rig_open(&rig);
	for (i = 0; !lane_assigned_all(&rig.from) && tei_now_ns() < end; i++)
		lane_move(&rig, i);
	lane_wait_returned(&rig.from);
	lane_wait_returned(&rig.to);
	/* the progress thread polls the returned lanes */
	lane_move(&rig, 99);
	lane_notify(&rig);
	lane_rig_close(&rig);
}

static void test_memory_is_unregistered_while_lanes_are_assigned(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, i;
	struct lane_rig rig;
	struct tei_err err;

	lane_rig_open(&rig);
	for (i = 0; !lane_assigned_all(&rig.to) && tei_now_ns() < end; i++) {
		lane_move(&rig, i);
		lane_notify(&rig);
	}
	lane_move(&rig, 1);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig.to.dp, rig.dst, TEST_WAIT_NS,
					  &err), 0);
	lane_rig_close(&rig);
}

const struct tei_test_case rail_lane_thread_cases[] = {
	{ "number_of_threads_follows_setting_and_cpus",
	  test_number_of_threads_follows_setting_and_cpus },
	{ "one_progress_thread_has_no_lane_threads",
	  test_one_progress_thread_has_no_lane_threads },
	{ "busiest_lane_stays_with_the_progress_thread",
	  test_busiest_lane_stays_with_the_progress_thread },
	{ "light_load_stays_with_the_progress_thread",
	  test_light_load_stays_with_the_progress_thread },
	{ "lanes_of_callers_are_counted_separately",
	  test_lanes_of_callers_are_counted_separately },
	{ "each_busy_lane_gets_a_thread_up_to_the_limit",
	  test_each_busy_lane_gets_a_thread_up_to_the_limit },
	{ "number_of_rails_limits_the_default",
	  test_number_of_rails_limits_the_default },
	{ "thread_that_waits_for_a_lane_gets_its_lock",
	  test_thread_that_waits_for_a_lane_gets_its_lock },
	{ "callers_begin_with_different_tx_lanes",
	  test_callers_begin_with_different_tx_lanes },
	{ "bytes_move_over_assigned_lanes",
	  test_bytes_move_over_assigned_lanes },
	{ "idle_lanes_return_to_the_progress_thread",
	  test_idle_lanes_return_to_the_progress_thread },
	{ "memory_is_unregistered_while_lanes_are_assigned",
	  test_memory_is_unregistered_while_lanes_are_assigned },
	{ NULL, NULL },
};
