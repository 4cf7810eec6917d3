/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the scheduler with two data planes in one process. Plane "from"
 * submits tasks; their target memory belongs to plane "to". */

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_window.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_peer_run.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"
#include "util/world.h"


#define SCHED_BIG	(32u << 20)
#define SCHED_SMALL	1024u

struct sched_rig {
	struct test_plane from, to;
	struct tei_rail_peer *peer;	/* the peer object in the plane "from"
					 * that represents the plane "to" */
	char *src, *dst;		/* registered memory of the planes
					 * "from" and "to", SCHED_BIG bytes
					 * each */
};

static char *sched_map(size_t len)
{
	char *mem = aligned_alloc(4096, len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(mem);
	memset(mem, 0, len);
	return mem;
}

static void sched_reg(struct test_plane *p, void *mem, uint64_t len)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p->dp, mem, len, "*",
					      TEI_RAIL_REMOTE, &err,
					      &mr), 0);
}

/* Initializes both planes, with a long timeout of tasks and a short timeout of
 * fences. */
static void sched_init(struct sched_rig *rig)
{
	test_plane_init(&rig->from);
	test_plane_init(&rig->to);
	rig->from.settings.failure.retry_cnt = 128;
	rig->from.settings.failure.slice_timeout_s = 60;
	rig->from.settings.failure.fence_ms = 2000;
	rig->to.settings.failure.fence_ms = 50;
}

static void sched_begin(struct sched_rig *rig)
{
	test_plane_open(&rig->from, "127.0.0.1");
	test_plane_open(&rig->to, "127.0.0.2");
	rig->src = sched_map(SCHED_BIG);
	rig->dst = sched_map(SCHED_BIG);
	sched_reg(&rig->from, rig->src, SCHED_BIG);
	rig->peer = test_plane_peer(&rig->from, &rig->to);
}

/* Connects the planes, and fetches the remote key that covers all of dst. */
static void sched_warm(struct sched_rig *rig)
{
	sched_reg(&rig->to, rig->dst, SCHED_BIG);
	CU_ASSERT_EQUAL_FATAL(test_run(rig->from.dp, rig->peer, false, rig->src,
				       rig->dst, 1), TEI_RAIL_END_COMPLETED);
}

static void sched_end(struct sched_rig *rig)
{
	tei_rail_peer_put(rig->peer);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
	free(rig->src);
	free(rig->dst);
}

static struct tei_rail_stats sched_stats(struct test_plane *p)
{
	struct tei_rail_stats s;

	memset(&s, 0, sizeof(s));
	CU_ASSERT_EQUAL(tei_rail_get_stats(p->dp, 0, &s), 0);
	return s;
}

/* Submits small tasks at the given offsets in one call. Returns the number of
 * slices into which they were merged. */
static uint64_t sched_slices(struct sched_rig *rig, const uint32_t *offset,
			     size_t n)
{
	uint64_t before = sched_stats(&rig->from).slices;
	struct test_task t[16];
	size_t i;

	for (i = 0; i < n; i++)
		test_task_init(&t[i], rig->peer, false, rig->src + offset[i],
			       rig->dst + offset[i], SCHED_SMALL);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->from.dp, t, n), 0);
	CU_ASSERT_FATAL(test_wait(t, n));
	for (i = 0; i < n; i++) {
		CU_ASSERT_EQUAL(t[i].end, TEI_RAIL_END_COMPLETED);
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT_EQUAL(t[i].task.done_bytes, SCHED_SMALL);
		CU_ASSERT_EQUAL(memcmp(rig->src + offset[i],
				       rig->dst + offset[i], SCHED_SMALL), 0);
	}
	return sched_stats(&rig->from).slices - before;
}

static void test_adjacent_small_tasks_share_a_slice(void)
{
	struct sched_rig rig;
	uint32_t offset[16], i;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	test_fill(rig.src, 16 * SCHED_SMALL, 3);
	for (i = 0; i < 16; i++)
		offset[i] = i * SCHED_SMALL;
	CU_ASSERT_EQUAL(sched_slices(&rig, offset, 16), 1);
	sched_end(&rig);
}

static void test_separate_small_tasks_get_a_slice_each(void)
{
	struct sched_rig rig;
	uint32_t offset[16], i;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	test_fill(rig.src, 64 * SCHED_SMALL, 4);
	for (i = 0; i < 16; i++)
		offset[i] = i * 2 * SCHED_SMALL;
	CU_ASSERT_EQUAL(sched_slices(&rig, offset, 16), 16);
	/* the tasks are adjacent, but in descending order of their addresses */
	for (i = 0; i < 16; i++)
		offset[i] = (15 - i) * SCHED_SMALL;
	CU_ASSERT_EQUAL(sched_slices(&rig, offset, 16), 16);
	sched_end(&rig);
}

static void test_read_and_write_do_not_share_a_slice(void)
{
	struct test_task t[2];
	struct sched_rig rig;
	uint64_t before;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	memset(rig.src, 1, SCHED_SMALL);
	memset(rig.dst + SCHED_SMALL, 2, SCHED_SMALL);
	before = sched_stats(&rig.from).slices;
	test_task_init(&t[0], rig.peer, false, rig.src, rig.dst, SCHED_SMALL);
	test_task_init(&t[1], rig.peer, true, rig.src + SCHED_SMALL,
		       rig.dst + SCHED_SMALL, SCHED_SMALL);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, 2), 0);
	CU_ASSERT_FATAL(test_wait(t, 2));
	CU_ASSERT_EQUAL(sched_stats(&rig.from).slices - before, 2);
	CU_ASSERT_EQUAL(rig.dst[SCHED_SMALL - 1], 1);
	CU_ASSERT_EQUAL(rig.src[2 * SCHED_SMALL - 1], 2);
	sched_end(&rig);
}

static void test_bytes_in_flight_stay_within_window(void)
{
	const uint64_t window = 256u << 10, slice = 64u << 10;
	struct tei_rail_stats s;
	struct sched_rig rig;

	sched_init(&rig);
	rig.from.settings.sched.slice_size = (uint32_t)slice;
	rig.from.settings.sched.slice_max = (uint32_t)slice;
	sched_begin(&rig);
	rail_window_init(rail_at(rig.from.dp, 0), window);
	sched_warm(&rig);
	test_fill(rig.src, SCHED_BIG, 5);
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 SCHED_BIG), TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst, SCHED_BIG), 0);
	s = sched_stats(&rig.from);
	CU_ASSERT(s.inflight_max > 0);
	/* the last slice of a task may be half as long again */
	CU_ASSERT(s.inflight_max <= window + slice + slice / 2);
	CU_ASSERT_EQUAL(s.inflight_bytes, 0);
	CU_ASSERT_EQUAL(s.tx_bytes, SCHED_BIG + 1);
	CU_ASSERT(s.slices >= SCHED_BIG / (slice + slice / 2));
	sched_end(&rig);
}

/* Tests that a small task overtakes bulk tasks: all tasks except the last one
 * write 1 MiB; the last one is small. */
static void test_small_task_overtakes_large_tasks(void)
{
	struct test_task t[SCHED_BIG >> 20];
	const uint32_t last = (SCHED_BIG >> 20) - 1;
	struct sched_rig rig;
	uint32_t i;

	sched_init(&rig);
	sched_begin(&rig);
	rail_window_init(rail_at(rig.from.dp, 0), 256u << 10);
	sched_warm(&rig);
	for (i = 0; i <= last; i++)
		test_task_init(&t[i], rig.peer, false, rig.src + (i << 20),
			       rig.dst + (i << 20),
			       i < last ? 1u << 20 : SCHED_SMALL);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, last + 1), 0);
	CU_ASSERT_FATAL(test_wait(t, last + 1));
	/* a few bulk tasks may be reported before the small one, but not half
	 * of them */
	CU_ASSERT(t[last].order < t[last / 2].order);
	sched_end(&rig);
}

enum { SCHED_MANY = 250 };

/* Submits a large task and then many small tasks. Returns the number of small
 * tasks that ended after the large one. */
static uint32_t sched_behind_bulk(struct sched_rig *rig, struct test_task *t)
{
	uint32_t i, later = 0;

	test_task_init(&t[0], rig->peer, false, rig->src, rig->dst,
		       128u << 10);
	for (i = 1; i <= SCHED_MANY; i++)
		test_task_init(&t[i], rig->peer, false,
			       rig->src + (1u << 20) + i * SCHED_SMALL,
			       rig->dst + (1u << 20) + i * SCHED_SMALL,
			       SCHED_SMALL);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->from.dp, t, SCHED_MANY + 1), 0);
	CU_ASSERT_FATAL(test_wait(t, SCHED_MANY + 1));
	for (i = 1; i <= SCHED_MANY; i++)
		later += t[i].order > t[0].order;
	return later;
}

static void test_small_tasks_do_not_starve_large_task(void)
{
	struct test_task *t = calloc(SCHED_MANY + 1, sizeof(*t));
	struct sched_rig rig;
	bool fair = false;
	int i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	sched_init(&rig);
	rig.from.settings.sched.merge = false;
	sched_begin(&rig);
	sched_warm(&rig);
	/* repeated, because the callbacks come from two threads, of which one
	 * may be delayed */
	for (i = 0; i < 20 && !fair; i++)
		fair = sched_behind_bulk(&rig, t) > SCHED_MANY / 2;
	CU_ASSERT(fair);
	sched_end(&rig);
	free(t);
}

/* If the provider's queue is full with three slices posted, the connection is
 * limited to three. After a number of slices the limit is doubled. */
static void test_full_provider_queue_limits_later_slices(void) TEI_NO_TSA
{
	struct rail_conn conn = { .posted = 3 };
	struct rail_slice slice = { .len = SCHED_SMALL };
	uint32_t i;

	CU_ASSERT(!rail_conn_block(&conn, 1, true));
	CU_ASSERT_EQUAL(conn.room, 3);
	for (i = 0; i < 64; i++) {
		CU_ASSERT_EQUAL(conn.room, 3);
		rail_conn_take(&conn, &slice);
	}
	CU_ASSERT_EQUAL(conn.room, 6);
	conn.posted = 4;
	CU_ASSERT(!rail_conn_block(&conn, 1, true));
	CU_ASSERT_EQUAL(conn.room, 4);
	for (i = 0; i < 64 * 8; i++)
		rail_conn_take(&conn, &slice);
	CU_ASSERT_EQUAL(conn.room, 0);
}

static void test_task_across_adjacent_regions_completes(void)
{
	struct sched_rig rig;

	sched_init(&rig);
	sched_begin(&rig);
	sched_reg(&rig.to, rig.dst, 12345);
	sched_reg(&rig.to, rig.dst + 12345, SCHED_BIG - 12345);
	test_fill(rig.src, SCHED_BIG, 6);
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 SCHED_BIG), TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst, SCHED_BIG), 0);
	memset(rig.src, 0, SCHED_BIG);
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, true, rig.src,
				 rig.dst + 12000, 1000),
			TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst + 12000, 1000), 0);
	sched_end(&rig);
}

static void test_task_outside_registered_memory_fails(void)
{
	struct sched_rig rig;
	struct test_task t;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	test_task_init(&t, rig.peer, false, rig.src,
		       rig.dst + SCHED_BIG - 1, 2);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, &t, 1), 0);
	CU_ASSERT_FATAL(test_wait(&t, 1));
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_FAILED);
	CU_ASSERT_EQUAL(t.code, TEI_ERR_NOT_REGISTERED);
	/* the source extends beyond registered memory, so the task is refused
	 * at once */
	test_task_init(&t, rig.peer, false, rig.src + SCHED_BIG - 1, rig.dst,
		       2);
	CU_ASSERT_EQUAL(test_submit(rig.from.dp, &t, 1),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(test_ends(&t), 0);
	sched_end(&rig);
}

/* --- faults during transfers --------------------------------------------- */

#define SCHED_TASKS	64
#define SCHED_PART	(SCHED_BIG / SCHED_TASKS)

/* Submits tasks that write all of src to dst and do not overlap. */
static void sched_submit_all(struct sched_rig *rig, struct test_task *t,
			     char poison)
{
	uint32_t i;

	for (i = 0; i < SCHED_TASKS; i++) {
		test_task_init(&t[i], rig->peer, false,
			       rig->src + i * SCHED_PART,
			       rig->dst + i * SCHED_PART, SCHED_PART);
		t[i].poison = poison;
	}
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->from.dp, t, SCHED_TASKS), 0);
}

static uint64_t sched_done(struct test_task *t)
{
	return __atomic_load_n(&t->task.done_bytes, __ATOMIC_RELAXED);
}

static void sched_await_progress(struct test_task *t)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (!sched_done(t) && tei_now_ns() < end)
		sched_yield();
	CU_ASSERT(sched_done(t) > 0);
}

static bool sched_meets(const struct rail_slice *a, const struct tei_list *list)
{
	const struct rail_slice *b;

	tei_list_foreach(b, list, struct rail_slice, link)
		if (a != b && a->local < b->local + b->len &&
		    b->local < a->local + a->len)
			return true;
	return false;
}

/* Checks the lists of slices: no byte may be posted twice, or be both posted
 * and waiting to be posted. */
static void sched_poll(struct sched_rig *rig)
{
	struct rail *rail = rail_at(rig->from.dp, 0);
	struct rail_lane *lane;
	struct rail_slice *s;
	bool twice = false;
	uint32_t i;

	for (i = 0; i < rail->ntx * RAIL_LANE_SLOTS; i++) {
		lane = &rail->tx_lanes[i];
		tei_mutex_lock(&lane->lock);
		rail_sched_enter(rig->from.dp);
		tei_list_foreach(s, &lane->posted, struct rail_slice, link)
			twice |= sched_meets(s, &lane->posted) ||
				 sched_meets(
					 s, &rig->peer->tasks.awaiting_fence) ||
				 sched_meets(s, &rig->peer->tasks.retry);
		rail_sched_leave(rig->from.dp);
		tei_mutex_unlock(&lane->lock);
	}
	CU_ASSERT_FALSE(twice);
}

static bool sched_all_ended(struct test_task *t)
{
	uint32_t i;

	for (i = 0; i < SCHED_TASKS; i++)
		if (!test_ends(&t[i]))
			return false;
	return true;
}

/* Writes src to dst once. Until all tasks have ended, checks the lists of
 * slices and calls "each" repeatedly. */
static void sched_round(struct sched_rig *rig, int value,
			void (*each)(struct sched_rig *rig, void *arg),
			void *arg)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_task t[SCHED_TASKS];
	uint32_t i;

	memset(rig->src, value, SCHED_BIG);
	sched_submit_all(rig, t, 0);
	while (!sched_all_ended(t) && tei_now_ns() < end) {
		sched_poll(rig);
		if (each)
			each(rig, arg);
		sched_yield();
	}
	CU_ASSERT_FATAL(sched_all_ended(t));
	for (i = 0; i < SCHED_TASKS; i++) {
		CU_ASSERT_EQUAL(t[i].end, TEI_RAIL_END_COMPLETED);
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT_EQUAL(sched_done(&t[i]), SCHED_PART);
	}
	CU_ASSERT_EQUAL(memcmp(rig->src, rig->dst, SCHED_BIG), 0);
}

/* Returns the generation of the rx lane, or of the next one if that is being
 * opened. */
static uint32_t sched_target_gen(struct test_plane *p)
{
	struct rail *rail = rail_at(p->dp, 0);
	struct rail_opening *next = &rail->next_rx;
	uint32_t gen;

	tei_mutex_lock(&next->lane.lock);
	gen = __atomic_load_n(&rail->rx_lane.gen, __ATOMIC_ACQUIRE) +
	      next->under_way;
	tei_mutex_unlock(&next->lane.lock);
	return gen;
}

/* Requests a fence of the current generation if no fence is outstanding. */
static void sched_ask_fence(struct sched_rig *rig, void *arg)
{
	uint32_t *asked = arg;
	struct rail_fence_args args = { 0 };
	int16_t r;

	rail_sched_enter(rig->from.dp);
	r = rig->peer->routes.route[0];
	if (*asked < 5 && r >= 0 &&
	    !rail_fence_outstanding(&rig->peer->remotes[r].fence)) {
		args.gen = rig->peer->remotes[r].gen;
		rail_fence_event(rig->peer, (uint16_t)r, RAIL_FENCE_EV_FAILED,
				 &args);
		++*asked;
	}
	rail_sched_leave(rig->from.dp);
}

static void test_tasks_complete_across_fences(void)
{
	struct sched_rig rig;
	uint32_t asked = 0, gen;
	int rounds = 0;

	sched_init(&rig);
	sched_begin(&rig);
	rail_window_init(rail_at(rig.from.dp, 0), 1u << 20);
	sched_warm(&rig);
	gen = sched_target_gen(&rig.to);
	while (asked < 5 && rounds < 100)
		sched_round(&rig, ++rounds, sched_ask_fence, &asked);
	CU_ASSERT_EQUAL(asked, 5);
	sched_round(&rig, ++rounds, NULL, NULL);
	CU_ASSERT(sched_target_gen(&rig.to) > gen);
	CU_ASSERT(sched_target_gen(&rig.to) <= gen + asked);
	/* each byte was counted only once */
	CU_ASSERT_EQUAL(sched_stats(&rig.from).tx_bytes,
			(uint64_t)rounds * SCHED_BIG + 1);
	CU_ASSERT_EQUAL(sched_stats(&rig.from).inflight_bytes, 0);
	sched_end(&rig);
}

/* Arguments and result of a thread that unregisters a region. */
struct sched_dereg {
	struct tei_rail_dp *dp;
	void *mem;
	int ret;
	bool done;			/* atomic: true when the thread has
					 * finished */
	bool started;
	pthread_t thread;
};

static void *sched_dereg_main(void *arg)
{
	struct sched_dereg *d = arg;
	struct tei_err err;

	d->ret = tei_rail_mr_dereg(d->dp, d->mem, 0, &err);
	__atomic_store_n(&d->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Starts to unregister the region while data is in flight. Does nothing in
 * later calls. */
static void sched_dereg_start(struct sched_rig *rig, void *arg)
{
	struct sched_dereg *d = arg;

	if (d->started || !sched_stats(&rig->from).inflight_bytes)
		return;
	d->started = true;
	CU_ASSERT_EQUAL_FATAL(pthread_create(&d->thread, NULL,
					     sched_dereg_main, d), 0);
}

/* Opens another data plane, "holder". It gets the remote key of the region mem
 * of plane "to", and then no longer polls. */
static void sched_hold_still(struct sched_rig *rig, struct test_plane *holder,
			     struct tei_rail_peer **peer, char *mem, char *own)
{
	test_plane_init(holder);
	test_plane_open(holder, "127.0.0.3");
	sched_reg(holder, own, 4096);
	sched_reg(&rig->to, mem, 4096);
	*peer = test_plane_peer(holder, &rig->to);
	CU_ASSERT_EQUAL_FATAL(test_run(holder->dp, *peer, false, own, mem, 1),
			      TEI_RAIL_END_COMPLETED);
	test_plane_still(holder);
}

/* Unregisters a region while other processes write. A silent process holds the
 * key of the region. */
static void sched_fence_holder(struct sched_rig *rig, int *rounds)
{
	static char mem[4096], own[4096];
	struct sched_dereg dereg = { .dp = rig->to.dp, .mem = mem };
	struct tei_rail_peer *peer;
	struct test_plane holder;
	uint32_t gen;
	int first = *rounds;

	sched_hold_still(rig, &holder, &peer, mem, own);
	gen = sched_target_gen(&rig->to);
	while (!__atomic_load_n(&dereg.done, __ATOMIC_ACQUIRE) &&
	       *rounds - first < 1000)
		sched_round(rig, ++*rounds, sched_dereg_start, &dereg);
	CU_ASSERT_FATAL(dereg.started);
	pthread_join(dereg.thread, NULL);
	CU_ASSERT_EQUAL(dereg.ret, 0);
	CU_ASSERT(sched_target_gen(&rig->to) > gen);
	tei_rail_peer_put(peer);
	test_plane_close(&holder);
}

static void test_silent_key_holder_is_fenced_during_writes(void)
{
	struct sched_rig rig;
	int rounds = 0, fences = 0;

	sched_init(&rig);
	rig.to.settings.failure.fence_ms = 5;
	sched_begin(&rig);
	sched_warm(&rig);
	/* repeated until a fence affects slices that are in flight */
	do {
		sched_fence_holder(&rig, &rounds);
	} while (!sched_stats(&rig.from).errors && ++fences < 30);
	CU_ASSERT(sched_stats(&rig.from).errors > 0);
	sched_round(&rig, ++rounds, NULL, NULL);
	CU_ASSERT_EQUAL(sched_stats(&rig.from).tx_bytes,
			(uint64_t)rounds * SCHED_BIG + 1);
	sched_end(&rig);
}

static void test_lanes_of_a_rail_share_a_task(void)
{
	struct rail_conn *conn;
	struct sched_rig rig;
	struct rail *rail;
	uint32_t i;

	sched_init(&rig);
	rig.from.settings.lanes.per_rail = 3;
	sched_begin(&rig);
	rail = rail_at(rig.from.dp, 0);
	CU_ASSERT_EQUAL_FATAL(rail->ntx, 3);
	/* the depth of the lanes is so small that one lane is soon full */
	rail->caps.tx_depth = 4;
	sched_warm(&rig);
	test_fill(rig.src, SCHED_BIG, 11);
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 SCHED_BIG), TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst, SCHED_BIG), 0);
	CU_ASSERT_EQUAL(tei_rail_peer_warmup(rig.peer, TEST_WAIT_NS, NULL), 0);
	CU_ASSERT_EQUAL(sched_stats(&rig.from).lanes, 4);
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, true, rig.src, rig.dst,
				 SCHED_BIG), TEI_RAIL_END_COMPLETED);
	test_plane_still(&rig.from);
	rail_sched_enter(rig.from.dp);
	for (i = 0; i < 3; i++) {
		conn = rail_conn_get(rig.peer,
				     &rail->tx_lanes[i * RAIL_LANE_SLOTS], 0);
		CU_ASSERT_FATAL(conn != NULL);
		CU_ASSERT(conn->connected);
		CU_ASSERT_EQUAL(conn->inflight, 0);
	}
	rail_sched_leave(rig.from.dp);
	CU_ASSERT_EQUAL(sched_stats(&rig.from).inflight_bytes, 0);
	sched_end(&rig);
}

/* Writes bytes that name the rail until this rail has carried one, so that its
 * connection is established. Until then, the other rail carries them. */
static void sched_warm_rail(struct sched_rig *rig, uint32_t index)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_stats s = { .tx_bytes = 0 };
	struct test_task t;

	while (!s.tx_bytes && tei_now_ns() < end) {
		test_task_init(&t, rig->peer, false, rig->src, rig->dst, 1);
		t.task.rail = (uint8_t)(1 + index);
		CU_ASSERT_EQUAL_FATAL(test_submit(rig->from.dp, &t, 1), 0);
		CU_ASSERT_FATAL(test_wait(&t, 1));
		CU_ASSERT_EQUAL(tei_rail_get_stats(rig->from.dp, index, &s), 0);
	}
	CU_ASSERT(s.tx_bytes > 0);
}

/* The writes of an endpoint whose refusals are counted. */
struct sched_writes {
	struct fid_ep *ep;
	struct fi_ops_rma *before, after;
	uint64_t refused;	/* atomic: bytes for which the provider had no
				 * room (FI_EAGAIN) */
};
static struct sched_writes sched_writes[2];

static ssize_t sched_count_write(struct fid_ep *ep,
				 const struct fi_msg_rma *msg, uint64_t flags)
{
	struct sched_writes *w = &sched_writes[ep == sched_writes[1].ep];
	ssize_t ret = w->before->writemsg(ep, msg, flags);

	if (ret == -FI_EAGAIN)
		__atomic_fetch_add(&w->refused, msg->rma_iov[0].len,
				   __ATOMIC_RELAXED);
	return ret;
}

/* Counts the bytes that the provider of that rail refuses from now on. The lane
 * is open. */
static void sched_count_refused(struct sched_rig *rig, uint32_t index)
{
	struct rail_lane *lane = rail_msg_lane(rail_at(rig->from.dp, index), 0);
	struct sched_writes *w = &sched_writes[index];

	CU_ASSERT_PTR_NOT_NULL_FATAL(lane);
	tei_mutex_lock(&lane->lock);
	w->ep = lane->ep;
	w->before = lane->ep->rma;
	w->after = *w->before;
	w->after.writemsg = sched_count_write;
	w->refused = 0;
	lane->ep->rma = &w->after;
	tei_mutex_unlock(&lane->lock);
}

static uint64_t sched_refused(uint32_t index)
{
	return __atomic_load_n(&sched_writes[index].refused, __ATOMIC_RELAXED);
}

/* Tests tasks that name the rail to use. One task names a rail that does not
 * exist. Another rail carries bytes of a task only if the provider of the named
 * rail has refused them. */
static void test_task_uses_the_rail_that_it_names(void)
{
	const uint64_t len = SCHED_BIG / 8;
	uint64_t sent[2] = { 0, 0 }, moved;
	struct tei_rail_stats s[2];
	uint8_t rails[TEI_RAIL_MAX];
	struct test_task t[8];
	struct sched_rig rig;
	uint32_t i;

	sched_init(&rig);
	test_plane_open(&rig.from, "127.0.0.1,127.0.0.3");
	test_plane_open(&rig.to, "127.0.0.2");
	rig.src = sched_map(SCHED_BIG);
	rig.dst = sched_map(SCHED_BIG);
	sched_reg(&rig.from, rig.src, SCHED_BIG);
	rig.peer = test_plane_peer(&rig.from, &rig.to);
	rig.from.dp->times.stuck_ns = TEST_WAIT_NS;
	sched_warm(&rig);
	for (i = 0; i < 2; i++)
		sched_warm_rail(&rig, i);
	CU_ASSERT_EQUAL(tei_rail_peer_rails(rig.peer, rails), 2);
	CU_ASSERT(rails[0] == 0 && rails[1] == 1);
	for (i = 0; i < 2; i++) {
		sched_count_refused(&rig, i);
		CU_ASSERT_EQUAL(tei_rail_get_stats(rig.from.dp, i, &s[i]), 0);
		sent[i] = s[i].tx_bytes;
	}
	test_fill(rig.src, SCHED_BIG, 12);
	for (i = 0; i < 8; i++) {
		test_task_init(&t[i], rig.peer, false, rig.src + i * len,
			       rig.dst + i * len, len);
		t[i].task.rail = i < 6 ? 2 : 1;
	}
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, 8), 0);
	CU_ASSERT_FATAL(test_wait(t, 8));
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst, SCHED_BIG), 0);
	for (i = 0; i < 2; i++)
		CU_ASSERT_EQUAL(tei_rail_get_stats(rig.from.dp, i, &s[i]), 0);
	moved = s[1].tx_bytes - sent[1];
	CU_ASSERT_EQUAL(s[0].tx_bytes - sent[0] + moved, 8 * len);
	CU_ASSERT(moved + sched_refused(1) >= 6 * len);
	CU_ASSERT(moved <= 6 * len + sched_refused(0));
	test_task_init(&t[0], rig.peer, true, rig.src, rig.dst, len);
	t[0].task.rail = 9;
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, 1), 0);
	CU_ASSERT_FATAL(test_wait(t, 1));
	CU_ASSERT_EQUAL(t[0].end, TEI_RAIL_END_COMPLETED);
	sched_end(&rig);
}

/* Tests that the writes of a key holder are fenced even if it ended without BYE
 * and was forgotten. */
static void test_forgotten_key_holder_is_fenced(void)
{
	static char mem[4096], own[4096];
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_peer *peer, *known;
	struct test_plane holder;
	struct sched_rig rig;
	struct tei_err err;
	uint32_t gen;

	sched_init(&rig);
	/* The holder never answers. If the unregistration waited for its
	 * answer, it would take longer than the whole test. */
	rig.to.settings.failure.fence_ms = 30000;
	sched_begin(&rig);
	rig.to.dp->times.probe_ns = 300 * TEI_NS_PER_MS;
	sched_warm(&rig);
	sched_hold_still(&rig, &holder, &peer, mem, own);
	do {
		rail_sched_enter(rig.to.dp);
		known = rail_peer_find(rig.to.dp, holder.dp->incarnation);
		rail_sched_leave(rig.to.dp);
	} while (known && tei_now_ns() < end);
	CU_ASSERT_PTR_NULL(known);
	gen = sched_target_gen(&rig.to);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig.to.dp, mem, 0, &err), 0);
	CU_ASSERT(sched_target_gen(&rig.to) > gen);
	tei_rail_peer_put(peer);
	test_plane_close(&holder);
	sched_end(&rig);
}

static void test_answering_key_holder_is_not_fenced(void)
{
	struct sched_rig rig;
	struct tei_err err;
	uint32_t gen;

	sched_init(&rig);
	rig.to.settings.failure.fence_ms = 30000;
	sched_begin(&rig);
	sched_warm(&rig);
	gen = sched_target_gen(&rig.to);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig.to.dp, rig.dst, 0, &err), 0);
	CU_ASSERT_EQUAL(sched_target_gen(&rig.to), gen);
	rail_sched_enter(rig.from.dp);
	CU_ASSERT_EQUAL(rig.peer->keys.rkeys.n, 0);
	rail_sched_leave(rig.from.dp);
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 1), TEI_RAIL_END_FAILED);
	sched_end(&rig);
}

static void test_unregistered_memory_is_no_longer_written(void)
{
	struct test_task t[SCHED_TASKS];
	struct sched_rig rig;
	struct tei_err err;
	uint32_t i;

	sched_init(&rig);
	rig.to.settings.failure.fence_ms = 2000;
	sched_begin(&rig);
	sched_warm(&rig);
	memset(rig.src, 1, SCHED_BIG);
	sched_submit_all(&rig, t, 0);
	sched_await_progress(&t[0]);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig.to.dp, rig.dst, 0, &err), 0);
	memset(rig.dst, 2, SCHED_BIG);
	CU_ASSERT_FATAL(test_wait(t, SCHED_TASKS));
	for (i = 0; i < SCHED_TASKS; i++) {
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT(t[i].end == TEI_RAIL_END_COMPLETED ||
			  t[i].end == TEI_RAIL_END_FAILED);
	}
	CU_ASSERT_PTR_NULL(memchr(rig.dst, 1, SCHED_BIG));
	sched_end(&rig);
}

/* Unregisters the target memory during writes, fills it with other bytes and
 * registers it again. A task that has completed must have all its bytes there,
 * or must have had them when the memory was unregistered. Returns the number of
 * tasks that have failed because of it. */
static uint32_t sched_registered_again(struct sched_rig *rig)
{
	struct test_task t[SCHED_TASKS];
	uint32_t i, failed = 0;
	struct tei_err err;
	char *part;

	sched_submit_all(rig, t, 0);
	sched_await_progress(&t[0]);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig->to.dp, rig->dst, 0, &err), 0);
	memset(rig->dst, 2, SCHED_BIG);
	sched_reg(&rig->to, rig->dst, SCHED_BIG);
	CU_ASSERT_FATAL(test_wait(t, SCHED_TASKS));
	for (i = 0; i < SCHED_TASKS; i++) {
		part = rig->dst + (size_t)i * SCHED_PART;
		failed += t[i].code == TEI_ERR_NOT_REGISTERED;
		if (t[i].end == TEI_RAIL_END_COMPLETED)
			CU_ASSERT_PTR_NULL(memchr(part, 3 - part[0],
						  SCHED_PART));
	}
	return failed;
}

/* On a busy machine, all writes may have completed before the memory is
 * unregistered, so this is repeated until a task has failed. */
static void test_law1_memory_registered_again_holds_whole_writes_only(void)
{
	struct sched_rig rig;
	uint32_t i, failed = 0;

	sched_init(&rig);
	rig.to.settings.failure.fence_ms = 2000;
	sched_begin(&rig);
	rail_window_init(rail_at(rig.from.dp, 0), 256u << 10);
	sched_warm(&rig);
	memset(rig.src, 1, SCHED_BIG);
	for (i = 0; i < 20 && !failed; i++)
		failed = sched_registered_again(&rig);
	CU_ASSERT(failed > 0);
	sched_end(&rig);
}

/* --- this process is suspended ------------------------------------------- */

#define SCHED_TIMEOUT_S	2u
#define SCHED_JUMP_NS	(3 * SCHED_TIMEOUT_S * TEI_NS_PER_SEC)

static uint64_t sched_ahead_ns;	/* time by which the clock of the test is ahead
				 * of the real one */
static int64_t sched_reads;	/* number of reads of the clock until it jumps */

static uint64_t sched_now_about(void)
{
	return tei_world_real.now_about_ns() +
	       __atomic_load_n(&sched_ahead_ns, __ATOMIC_SEQ_CST);
}

static uint64_t sched_now(void)
{
	if (__atomic_fetch_sub(&sched_reads, 1, __ATOMIC_SEQ_CST) == 1)
		__atomic_fetch_add(&sched_ahead_ns, SCHED_JUMP_NS,
				   __ATOMIC_SEQ_CST);
	return tei_world_real.now_ns() +
	       __atomic_load_n(&sched_ahead_ns, __ATOMIC_SEQ_CST);
}

/* Suspends this process for longer than MC_SLICE_TIMEOUT, between any two of
 * the times that its threads read during writes: a jump of the clock looks the
 * same. */
static void test_law3_suspension_at_any_time_fails_no_task(void)
{
	struct tei_world world = tei_world_real;
	struct test_task t[SCHED_TASKS];
	struct sched_rig rig;
	uint32_t i, k, failed = 0;

	world.now_ns = sched_now;
	world.now_about_ns = sched_now_about;
	tei_world = &world;
	sched_init(&rig);
	rig.from.settings.failure.slice_timeout_s = SCHED_TIMEOUT_S;
	sched_begin(&rig);
	sched_warm(&rig);
	for (i = 0; i < 40; i++) {
		sched_submit_all(&rig, t, 0);
		__atomic_store_n(&sched_reads, 1 + i, __ATOMIC_SEQ_CST);
		CU_ASSERT_FATAL(test_wait(t, SCHED_TASKS));
		for (k = 0; k < SCHED_TASKS; k++)
			failed += t[k].end != TEI_RAIL_END_COMPLETED;
	}
	CU_ASSERT_EQUAL(failed, 0);
	sched_end(&rig);
	tei_world = &tei_world_real;
}

static void test_queued_tasks_are_cancelled_at_once(void)
{
	struct tei_rail_task *list[4];
	struct test_task t[4];
	struct sched_rig rig;
	uint32_t i;

	sched_init(&rig);
	sched_begin(&rig);
	test_plane_still(&rig.to);
	for (i = 0; i < 4; i++) {
		test_task_init(&t[i], rig.peer, false, rig.src + i, rig.dst + i,
			       1);
		list[i] = &t[i].task;
	}
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, 4), 0);
	tei_rail_cancel(rig.from.dp, list, 4);
	tei_rail_cancel(rig.from.dp, list, 4);
	for (i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT_EQUAL(t[i].end, TEI_RAIL_END_CANCELED);
	}
	sched_end(&rig);
}

static void test_queued_tasks_past_their_deadline_fail_at_once(void)
{
	struct tei_rail_task *list[4];
	struct test_task t[4];
	struct sched_rig rig;
	uint32_t i;

	sched_init(&rig);
	sched_begin(&rig);
	test_plane_still(&rig.to);
	for (i = 0; i < 4; i++) {
		test_task_init(&t[i], rig.peer, false, rig.src + i, rig.dst + i,
			       1);
		list[i] = &t[i].task;
	}
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, 4), 0);
	tei_rail_cancel(rig.from.dp, list, 1);
	/* the task that was cancelled has ended and is not changed */
	tei_rail_expire(rig.from.dp, list, 4);
	tei_rail_cancel(rig.from.dp, list, 4);
	for (i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT_EQUAL(t[i].end, i ? TEI_RAIL_END_FAILED :
					      TEI_RAIL_END_CANCELED);
		CU_ASSERT_EQUAL(t[i].code, i ? TEI_ERR_TIMED_OUT :
					       TEI_ERR_CANCELED);
	}
	sched_end(&rig);
}

/*
 * Queues three tasks to a peer that never answers, and cancels the first one,
 * which made its last progress progress_ns ago. The other two have made no
 * progress for twice MC_SLICE_TIMEOUT. Returns how many of these two tasks the
 * deadline check then ends.
 */
static uint32_t sched_ends_behind(uint64_t progress_ns)
{
	struct tei_rail_task *first;
	struct test_task t[3];
	struct sched_rig rig;
	uint64_t limit, now;
	uint32_t i, ends;

	sched_init(&rig);
	sched_begin(&rig);
	test_plane_still(&rig.to);
	test_plane_still(&rig.from);
	limit = rig.from.settings.failure.slice_timeout_s * TEI_NS_PER_SEC;
	for (i = 0; i < 3; i++)
		test_task_init(&t[i], rig.peer, false, rig.src + i, rig.dst + i,
			       1);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, 3), 0);
	now = tei_now_ns() + 2 * limit;
	t[0].task.progress_ns = now - progress_ns;
	first = &t[0].task;
	tei_rail_cancel(rig.from.dp, &first, 1);
	rail_peer_run(rig.peer, now);
	ends = test_ends(&t[1]) + test_ends(&t[2]);
	rail_peer_run(rig.peer, now + limit);
	for (i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT_EQUAL(t[i].end, i ? TEI_RAIL_END_FAILED :
					      TEI_RAIL_END_CANCELED);
	}
	sched_end(&rig);
	return ends;
}

static void test_law3_queued_task_waits_while_the_queue_ahead_moves(void)
{
	CU_ASSERT_EQUAL(sched_ends_behind(TEI_NS_PER_SEC), 0);
}

static void test_law3_queued_task_fails_when_the_queue_ahead_stalls(void)
{
	CU_ASSERT_EQUAL(sched_ends_behind(61 * TEI_NS_PER_SEC), 2);
}

static void test_expired_posted_tasks_release_their_memory(void)
{
	struct tei_rail_task *list[SCHED_TASKS];
	struct test_task t[SCHED_TASKS];
	struct sched_rig rig;
	uint32_t i;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	memset(rig.src, 1, SCHED_BIG);
	sched_submit_all(&rig, t, 0x77);
	sched_await_progress(&t[0]);
	for (i = 0; i < SCHED_TASKS; i++)
		list[i] = &t[SCHED_TASKS - 1 - i].task;
	tei_rail_expire(rig.from.dp, list, SCHED_TASKS);
	CU_ASSERT_FATAL(test_wait(t, SCHED_TASKS));
	for (i = 0; i < SCHED_TASKS; i++) {
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT(t[i].end == TEI_RAIL_END_COMPLETED ||
			  t[i].end == TEI_RAIL_END_FAILED);
	}
	CU_ASSERT_EQUAL(t[SCHED_TASKS - 1].end, TEI_RAIL_END_FAILED);
	CU_ASSERT_EQUAL(t[SCHED_TASKS - 1].code, TEI_ERR_TIMED_OUT);
	/* when this write has completed, all earlier writes have arrived */
	rig.src[0] = 1;
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 1), TEI_RAIL_END_COMPLETED);
	CU_ASSERT_PTR_NULL(memchr(rig.dst, 0x77, SCHED_BIG));
	sched_end(&rig);
}

static void test_cancelled_posted_tasks_release_their_memory(void)
{
	struct tei_rail_task *list[SCHED_TASKS];
	struct test_task t[SCHED_TASKS];
	struct sched_rig rig;
	uint32_t i;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	memset(rig.src, 1, SCHED_BIG);
	sched_submit_all(&rig, t, 0x77);
	sched_await_progress(&t[0]);
	for (i = 0; i < SCHED_TASKS; i++)
		list[i] = &t[SCHED_TASKS - 1 - i].task;
	tei_rail_cancel(rig.from.dp, list, SCHED_TASKS);
	CU_ASSERT_FATAL(test_wait(t, SCHED_TASKS));
	for (i = 0; i < SCHED_TASKS; i++) {
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT(t[i].end == TEI_RAIL_END_COMPLETED ||
			  t[i].end == TEI_RAIL_END_CANCELED);
	}
	CU_ASSERT_EQUAL(t[SCHED_TASKS - 1].end, TEI_RAIL_END_CANCELED);
	/* when this write has completed, all earlier writes have arrived */
	rig.src[0] = 1;
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 1), TEI_RAIL_END_COMPLETED);
	CU_ASSERT_PTR_NULL(memchr(rig.dst, 0x77, SCHED_BIG));
	sched_end(&rig);
}

static void test_tasks_end_when_peer_says_bye(void)
{
	struct test_task t[SCHED_TASKS];
	struct sched_rig rig;
	uint32_t i;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	sched_submit_all(&rig, t, 0);
	sched_await_progress(&t[0]);
	test_plane_close(&rig.to);
	CU_ASSERT_FATAL(test_wait(t, SCHED_TASKS));
	for (i = 0; i < SCHED_TASKS; i++) {
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT(t[i].end == TEI_RAIL_END_COMPLETED ||
			  t[i].end == TEI_RAIL_END_FAILED);
	}
	CU_ASSERT(tei_rail_peer_gone(rig.peer) ||
		  t[SCHED_TASKS - 1].end == TEI_RAIL_END_COMPLETED);
	test_plane_open(&rig.to, NULL);
	sched_end(&rig);
}

static void test_tasks_end_when_data_plane_closes(void)
{
	struct test_task t[SCHED_TASKS];
	struct sched_rig rig;
	uint32_t i;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	sched_submit_all(&rig, t, 0);
	sched_await_progress(&t[0]);
	tei_rail_peer_put(rig.peer);
	test_plane_close(&rig.from);
	for (i = 0; i < SCHED_TASKS; i++) {
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT(t[i].end != TEI_RAIL_END_CANCELED);
	}
	test_plane_close(&rig.to);
	free(rig.src);
	free(rig.dst);
}

const struct tei_test_case rail_sched_cases[] = {
	{ "adjacent_small_tasks_share_a_slice",
	  test_adjacent_small_tasks_share_a_slice },
	{ "separate_small_tasks_get_a_slice_each",
	  test_separate_small_tasks_get_a_slice_each },
	{ "read_and_write_do_not_share_a_slice",
	  test_read_and_write_do_not_share_a_slice },
	{ "bytes_in_flight_stay_within_window",
	  test_bytes_in_flight_stay_within_window },
	{ "small_task_overtakes_large_tasks",
	  test_small_task_overtakes_large_tasks },
	{ "small_tasks_do_not_starve_large_task",
	  test_small_tasks_do_not_starve_large_task },
	{ "full_provider_queue_limits_later_slices",
	  test_full_provider_queue_limits_later_slices },
	{ "task_across_adjacent_regions_completes",
	  test_task_across_adjacent_regions_completes },
	{ "task_outside_registered_memory_fails",
	  test_task_outside_registered_memory_fails },
	{ "tasks_complete_across_fences", test_tasks_complete_across_fences },
	{ "silent_key_holder_is_fenced_during_writes",
	  test_silent_key_holder_is_fenced_during_writes },
	{ "lanes_of_a_rail_share_a_task", test_lanes_of_a_rail_share_a_task },
	{ "task_uses_the_rail_that_it_names",
	  test_task_uses_the_rail_that_it_names },
	{ "forgotten_key_holder_is_fenced",
	  test_forgotten_key_holder_is_fenced },
	{ "answering_key_holder_is_not_fenced",
	  test_answering_key_holder_is_not_fenced },
	{ "unregistered_memory_is_no_longer_written",
	  test_unregistered_memory_is_no_longer_written },
	{ "law1_memory_registered_again_holds_whole_writes_only",
	  test_law1_memory_registered_again_holds_whole_writes_only },
	{ "law3_suspension_at_any_time_fails_no_task",
	  test_law3_suspension_at_any_time_fails_no_task },
	{ "queued_tasks_are_cancelled_at_once",
	  test_queued_tasks_are_cancelled_at_once },
	{ "queued_tasks_past_their_deadline_fail_at_once",
	  test_queued_tasks_past_their_deadline_fail_at_once },
	{ "law3_queued_task_waits_while_the_queue_ahead_moves",
	  test_law3_queued_task_waits_while_the_queue_ahead_moves },
	{ "law3_queued_task_fails_when_the_queue_ahead_stalls",
	  test_law3_queued_task_fails_when_the_queue_ahead_stalls },
	{ "expired_posted_tasks_release_their_memory",
	  test_expired_posted_tasks_release_their_memory },
	{ "cancelled_posted_tasks_release_their_memory",
	  test_cancelled_posted_tasks_release_their_memory },
	{ "tasks_end_when_peer_says_bye", test_tasks_end_when_peer_says_bye },
	{ "tasks_end_when_data_plane_closes",
	  test_tasks_end_when_data_plane_closes },
	{ NULL, NULL },
};
