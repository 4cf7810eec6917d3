/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the cutting of slices, on one rail to several peers. Nothing is
 * posted to a device; the test itself completes one slice after the other. */

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_window.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"

#define SLICE_KIB	UINT64_C(1024)
#define SLICE_MIB	(UINT64_C(1) << 20)
#define SLICE_MIN	(64 * SLICE_KIB)	/* value of MC_SLICE_SIZE in
						 * these tests, bytes */
#define SLICE_BULK	(64 * SLICE_MIB)
#define SLICE_SLOW	UINT64_C(25000000)	/* rate of a slow
						 * rail, bytes/s */
#define SLICE_FAST	UINT64_C(1250000000)
#define SLICE_LOCAL	UINT64_C(5000000000) /* rate of loopback, bytes/s */

enum { SLICE_PEERS = 10, SLICE_TASKS = 128, SLICE_MANY = 1000 };
enum { SLICE_FITS = 1000, SLICE_FIT_TRIES = 5 };
enum {
	SLICE_DEPTH = 512
}; /* depth of the lane in the tests with many small tasks */

struct slice_rig {
	struct test_plane plane;
	struct rail *rail;
	struct rail_lane *lane;
	struct tei_rail_peer *peer[SLICE_PEERS];
	char *mem;			/* local memory of the tasks: SLICE_BULK
					 * registered bytes, which are never
					 * accessed */
	uint64_t served[SLICE_PEERS];
};

static struct tei_rail_peer *slice_peer(struct slice_rig *rig, uint32_t i)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *p = rail_peer_new(rig->plane.dp, "peer", 7 + i);
	struct rail_rkey *k = calloc(1, sizeof(*k) + sizeof(k->part[0]));

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT_PTR_NOT_NULL_FATAL(k);
	p->remotes = calloc(1, sizeof(*p->remotes));
	CU_ASSERT_PTR_NOT_NULL_FATAL(p->remotes);
	p->nremotes = 1;
	p->remotes[0].addr = rig->rail->nic.own;
	p->state = RAIL_PEER_READY;
	CU_ASSERT_EQUAL_FATAL(rail_conn_table(p), 0);
	k->range.base = SLICE_MIB;
	k->range.end = SLICE_MIB + SLICE_BULK;
	k->id = 1;
	k->nparts = 1;
	CU_ASSERT_FATAL(rail_key_add(p, k));
	p->refs = 1;
	return p;
}

/* Sets the state of the first lane of each rail. */
static void slice_lanes(const struct slice_rig *rig,
			enum rail_lane_state state)
{
	uint32_t i;

	for (i = 0; i < rail_count(rig->plane.dp); i++)
		__atomic_store_n(&rail_at(rig->plane.dp, i)->tx_lanes[0].state,
				 state, __ATOMIC_RELEASE);
}

/* Opens a rail on each of the given addresses, and creates peers that these
 * rails reach. The first rail gets the given rate and is the rail under
 * test. */
static void slice_begin_on(struct slice_rig *rig, const char *addresses,
			   uint64_t rate)
{
	struct tei_rail_mr *mr;
	struct tei_err err;
	uint32_t i;

	memset(rig, 0, sizeof(*rig));
	test_plane_init(&rig->plane);
	test_plane_open(&rig->plane, addresses);
	test_plane_still(&rig->plane);
	rig->mem = aligned_alloc(4096, SLICE_BULK);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rig->mem);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig->plane.dp, rig->mem,
					      SLICE_BULK, "*", 0, &err, &mr),
			      0);
	rig->rail = rail_at(rig->plane.dp, 0);
	rig->lane = &rig->rail->tx_lanes[0];
	rig->rail->nic.wire = rate != SLICE_LOCAL;
	rig->rail->load.free_bps = rate;
	rig->rail->load.rate_bps = rate;
	/* the window is what the rail sends in 8 ms */
	rig->rail->load.window = rate / 125;
	if (rig->rail->load.window < 4 * SLICE_MIN)
		rig->rail->load.window = 4 * SLICE_MIN;
	if (rig->rail->load.window > rig->rail->load.window_max)
		rig->rail->load.window = rig->rail->load.window_max;
	slice_lanes(rig, RAIL_LANE_CLOSED);	/* the library takes no slices
						 * for closed lanes, so that
						 * only the test cuts slices */
	rail_sched_enter(rig->plane.dp);
	for (i = 0; i < SLICE_PEERS; i++)
		rig->peer[i] = slice_peer(rig, i);
	rail_sched_leave(rig->plane.dp);
}

static void slice_begin(struct slice_rig *rig, uint64_t rate)
{
	slice_begin_on(rig, "127.0.0.1", rate);
}

/* Opens two rails. near: index of the rail that is nearer to the memory.
 * Returns the registered region. */
static struct tei_rail_mr *slice_begin_two(struct slice_rig *rig, uint64_t rate,
					   uint32_t near)
{
	struct tei_rail_mr *mr;

	slice_begin_on(rig, "127.0.0.1,127.0.0.2", rate);
	CU_ASSERT_EQUAL_FATAL(rail_count(rig->plane.dp), 2);
	rail_sched_enter(rig->plane.dp);
	mr = rail_mr_find(rig->plane.dp, rig->mem, SLICE_BULK);
	CU_ASSERT_PTR_NOT_NULL_FATAL(mr);
	mr->places[0].rank[near] = 0;
	mr->places[0].rank[1 - near] = 1;
	rail_sched_leave(rig->plane.dp);
	return mr;
}

static uint32_t slice_index(const struct slice_rig *rig,
			    const struct tei_rail_peer *peer)
{
	uint32_t i = 0;

	while (i < SLICE_PEERS - 1 && rig->peer[i] != peer)
		i++;
	return i;
}

/* Submits a task for the peer without cutting slices. */
static void slice_submit(struct slice_rig *rig, uint32_t peer, uint64_t len,
			 struct test_task *t)
{
	test_task_init(t, rig->peer[peer], false, rig->mem,
		       (void *)(uintptr_t)SLICE_MIB, len);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->plane.dp, t, 1), 0);
}

/* Cuts all slices that the rail may take now. If this includes a slice of
 * "peer", sets *ahead to the number of bytes that were cut before the peer's
 * first slice. */
static void slice_fill(struct slice_rig *rig, uint32_t peer, uint64_t *ahead)
{
	struct rail_slice *s[RAIL_BUNDLE];
	struct rail_lane *lane = rig->lane;
	bool found = false;
	int i, n;

	tei_mutex_lock(&lane->lock);
	do {
		rail_sched_enter(rig->plane.dp);
		n = rail_slice_cut(lane, s);
		rail_sched_leave(rig->plane.dp);
		for (i = 0; i < n; i++) {
			if (!found && ahead && s[i]->peer == rig->peer[peer]) {
				*ahead = lane->inflight_bytes;
				found = true;
			}
			tei_list_add_tail(&lane->posted, &s[i]->link);
			lane->inflight++;
			lane->inflight_bytes += s[i]->len;
		}
	} while (n == RAIL_BUNDLE);
	tei_mutex_unlock(&lane->lock);
}

/* Completes the oldest of the posted slices of the peers whose bits are set in
 * "peers". Returns false if these peers have no slice. */
static bool slice_serve(struct slice_rig *rig, uint32_t peers)
{
	struct rail_lane *lane = rig->lane;
	struct rail_slice *s, *first = NULL;
	struct rail_done done;

	rail_done_init(&done);
	tei_mutex_lock(&lane->lock);
	tei_list_foreach(s, &lane->posted, struct rail_slice, link) {
		if (!(peers & 1u << slice_index(rig, s->peer)))
			continue;
		first = s;
		break;
	}
	if (first) {
		tei_list_del(&first->link);
		lane->inflight--;
		lane->inflight_bytes -= first->len;
		rig->served[slice_index(rig, first->peer)] += first->len;
		rail_sched_enter(rig->plane.dp);
		rail_slice_complete(rig->plane.dp, first, tei_now_ns(), &done);
		rail_sched_leave(rig->plane.dp);
	}
	tei_mutex_unlock(&lane->lock);
	rail_done_run(rig->plane.dp, &done);
	return first != NULL;
}

static struct rail_conn *slice_conn(const struct slice_rig *rig,
				    uint32_t peer) TEI_NO_TSA
{
	return rail_conn_get(rig->peer[peer], rig->lane, 0);
}

static uint64_t slice_held(const struct slice_rig *rig, uint32_t peer)
{
	return slice_conn(rig, peer)->bytes;
}

/* Completes all slices that were cut, cancels the remaining tasks and closes
 * the rig. */
static void slice_end(struct slice_rig *rig, struct test_task **t, size_t n)
{
	struct tei_rail_task *task;
	size_t i;

	for (i = 0; i < n; i++) {
		task = &t[i]->task;
		if (!t[i]->ends)
			tei_rail_cancel(rig->plane.dp, &task, 1);
	}
	while (slice_serve(rig, ~0u))
		;
	for (i = 0; i < n; i++)
		CU_ASSERT_EQUAL(test_ends(t[i]), 1);
	CU_ASSERT_EQUAL(rig->rail->bulk.bytes, 0);
	CU_ASSERT_EQUAL(rig->plane.dp->tasks.bulk_left, 0);
	CU_ASSERT_EQUAL(rig->plane.dp->tasks.nlive, 0);
	slice_lanes(rig, RAIL_LANE_ACTIVE);
	for (i = 0; i < SLICE_PEERS; i++) {
		CU_ASSERT_EQUAL(slice_conn(rig, (uint32_t)i)->bulk_bytes, 0);
		CU_ASSERT_EQUAL(slice_held(rig, (uint32_t)i), 0);
		CU_ASSERT_EQUAL(rig->peer[i]->tasks.queued, 0);
		tei_rail_peer_put(rig->peer[i]);
	}
	test_plane_close(&rig->plane);
	free(rig->mem);
}

/* --- a small task while bulk data is sent -------------------------------- */

/* Keeps one bulk task in progress for each of n peers other than peer 1. */
static void slice_more(struct slice_rig *rig, uint32_t n, struct test_task *t)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (!t[i].ends && t[i].task.peer)
			continue;
		slice_submit(rig, i ? i + 1 : 0, SLICE_BULK, &t[i]);
		slice_fill(rig, 1, NULL);
	}
}

/* Submits a small task of peer 1. Returns the number of bytes of other peers
 * that were served before this task. burst: number of completions handled at a
 * time. */
static uint64_t slice_ahead(struct slice_rig *rig, struct test_task *small,
			    uint32_t burst)
{
	uint64_t ahead = UINT64_MAX, waited = 0, before;
	uint32_t i;

	slice_submit(rig, 1, 4 * SLICE_KIB, small);
	slice_fill(rig, 1, &ahead);
	while (!small->ends) {
		before = rig->lane->inflight_bytes;
		for (i = 0; i < burst && !small->ends; i++)
			CU_ASSERT_FATAL(slice_serve(rig, ~0u) || i);
		/* the result includes the bytes that were completed before the
		 * small task was cut */
		if (ahead == UINT64_MAX)
			waited += before - rig->lane->inflight_bytes;
		slice_fill(rig, 1, small->ends ? NULL : &ahead);
	}
	CU_ASSERT_FATAL(ahead < UINT64_MAX);
	return ahead + waited;
}

/*
 * Submits small tasks of peer 1 now and then, while n other peers have bulk
 * tasks. Returns the largest number of bytes that were served before a small
 * task. Sets *first to this number for the first small task, which is not
 * included in the result. With several bulk peers, small tasks that were
 * submitted before the rail had counted these peers are not included either.
 */
static uint64_t slice_worst(uint64_t rate, uint32_t n, uint32_t burst,
			    uint64_t *first)
{
	struct test_task bulk[SLICE_PEERS - 2], small;
	struct test_task *all[SLICE_PEERS - 1];
	uint64_t state = 1, ahead, worst = 0;
	struct slice_rig rig;
	uint32_t i, j, k;

	slice_begin(&rig, rate);
	memset(bulk, 0, sizeof(bulk));
	for (i = 0; i < 40 + 8 * n; i++) {
		slice_more(&rig, n, bulk);
		ahead = slice_ahead(&rig, &small, burst);
		if (!i)
			*first = ahead;
		else if ((n == 1 || i >= 8 * n) && ahead > worst)
			worst = ahead;
		for (k = (uint32_t)(test_random(&state) % 6); k; k--) {
			for (j = 0; j < burst; j++)
				slice_serve(&rig, ~0u);
			slice_fill(&rig, 1, NULL);
		}
	}
	for (j = 0; j < n; j++)
		all[j] = &bulk[j];
	all[n] = &small;
	slice_end(&rig, all, n + 1);
	return worst;
}

static void test_small_task_waits_for_one_bulk_slice_at_most(void)
{
	uint64_t first = 0;

	CU_ASSERT(slice_worst(SLICE_SLOW, 1, 1, &first) <= SLICE_MIN);
	/* before the first small task the rail is not throttled, so this task
	 * waits longer */
	CU_ASSERT(first > SLICE_MIN);
	/* on a fast rail the limit is what the rail sends in half a
	 * millisecond, plus one slice */
	CU_ASSERT(slice_worst(SLICE_FAST, 1, 1, &first) <=
		  SLICE_FAST / 2000 + SLICE_FAST / 4000);
}

/* Tests that a small task does not wait longer if there are more bulk peers, or
 * if this host handles completions later. */
static void test_small_task_wait_is_independent_of_bulk_peers(void)
{
	uint64_t first = 0;
	uint32_t n, burst;

	for (n = 2; n <= SLICE_PEERS - 2; n++)
		for (burst = 1; burst <= 4; burst++) {
			CU_ASSERT(slice_worst(SLICE_SLOW, n, burst, &first) <=
				  SLICE_MIN);
			CU_ASSERT(slice_worst(SLICE_FAST, n, burst, &first) <=
				  SLICE_FAST / 2000 + SLICE_FAST / 4000);
		}
}

static void test_small_task_on_loopback_waits_for_part_of_window(void)
{
	uint64_t first = 0;

	CU_ASSERT(slice_worst(SLICE_LOCAL, 1, 1, &first) <=
		  8 * SLICE_MIB + SLICE_LOCAL / 4000);
	CU_ASSERT(first > SLICE_LOCAL / 200);
}

/* Tests that bulk data stays limited after a small task has completed, so that
 * a small task that comes much later waits only for a limited number of
 * bytes. */
static void test_throttling_outlasts_the_small_task(void)
{
	struct test_task bulk, small, *all[] = { &bulk, &small };
	struct slice_rig rig;
	uint64_t ahead = 0;
	uint32_t i;

	slice_begin(&rig, SLICE_LOCAL);
	slice_submit(&rig, 1, 64, &small);
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	for (i = 0; i < 1000; i++) {
		if (bulk.ends)
			slice_submit(&rig, 0, SLICE_BULK, &bulk);
		slice_fill(&rig, 1, NULL);
		CU_ASSERT(slice_serve(&rig, ~0u));
	}
	CU_ASSERT_EQUAL(small.ends, 1);
	slice_fill(&rig, 1, NULL);
	slice_submit(&rig, 1, 64, &small);
	slice_fill(&rig, 1, &ahead);
	CU_ASSERT(ahead > 0);
	CU_ASSERT(ahead <= 8 * SLICE_MIB + SLICE_LOCAL / 4000);
	slice_end(&rig, all, 2);
}

/* Tests that throttling does not end sooner if more peers share the limit. */
static void test_throttling_time_is_independent_of_bulk_peers(void)
{
	struct test_task bulk[4], small, *all[5];
	uint64_t bytes = 0, before;
	struct slice_rig rig;
	uint32_t i;

	slice_begin(&rig, SLICE_SLOW);
	memset(bulk, 0, sizeof(bulk));
	slice_more(&rig, 4, bulk);
	for (i = 0; i < 40; i++)
		slice_ahead(&rig, &small, 1);
	while (bytes < 240 * SLICE_MIN / 2) {
		before = rig.lane->inflight_bytes;
		CU_ASSERT_FATAL(slice_serve(&rig, ~0u));
		bytes += before - rig.lane->inflight_bytes;
		slice_fill(&rig, 1, NULL);
	}
	CU_ASSERT(slice_ahead(&rig, &small, 1) <= SLICE_MIN);
	for (i = 0; i < 4; i++)
		all[i] = &bulk[i];
	all[4] = &small;
	slice_end(&rig, all, 5);
}

/* Tests that with MOONRAIL_SMALL_FIRST there is always room on the rail for
 * small tasks: for the first one, and for one that comes much later. */
static void test_small_first_keeps_room_at_all_times(void)
{
	struct test_task bulk[2], small, *all[3] = { bulk, bulk + 1, &small };
	struct slice_rig rig;
	uint32_t i, n;

	slice_begin(&rig, SLICE_SLOW);
	rig.plane.settings.sched.small_first = true;
	memset(bulk, 0, sizeof(bulk));
	for (n = 1; n <= 2; n++) {
		/* long enough for the rail to count the bulk peers */
		for (i = 0; i < 600; i++) {
			slice_more(&rig, n, bulk);
			CU_ASSERT_FATAL(slice_serve(&rig, ~0u));
			slice_fill(&rig, 1, NULL);
		}
		CU_ASSERT(slice_ahead(&rig, &small, 1) <= SLICE_MIN);
	}
	slice_end(&rig, all, 3);
}

/* Keeps small tasks of peer 1 queued, each as long as a slice, while peer 0 has
 * a bulk task. Returns peer 0's share of the bytes. */
static double slice_share(uint64_t rate)
{
	static struct test_task bulk, small[SLICE_TASKS];
	struct test_task *all[SLICE_TASKS + 1];
	struct slice_rig rig;
	uint32_t i, n;

	slice_begin(&rig, rate);
	all[SLICE_TASKS] = &bulk;
	for (i = 0; i < SLICE_TASKS; i++) {
		all[i] = &small[i];
		slice_submit(&rig, 1, SLICE_MIN, &small[i]);
	}
	slice_fill(&rig, 1, NULL);
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	for (n = 0; n < 2000 && !bulk.ends; n++) {
		slice_fill(&rig, 1, NULL);
		CU_ASSERT_FATAL(slice_serve(&rig, ~0u));
		for (i = 0; i < SLICE_TASKS; i++)
			if (small[i].ends)
				slice_submit(&rig, 1, SLICE_MIN, &small[i]);
	}
	slice_end(&rig, all, SLICE_TASKS + 1);
	return (double)rig.served[0] / (double)(rig.served[0] + rig.served[1]);
}

static void test_many_small_tasks_leave_bulk_task_its_share(void)
{
	CU_ASSERT(slice_share(SLICE_SLOW) >= 0.25);
	CU_ASSERT(slice_share(SLICE_FAST) >= 0.24);
}

/* Keeps the queues of small tasks of n peers filled, while these peers also
 * have bulk tasks. Returns the fraction of bulk data in the posted bytes. */
static double slice_share_own(uint32_t n)
{
	static struct test_task bulk[4], small[4][SLICE_TASKS];
	static struct test_task *all[4 * (SLICE_TASKS + 1)];
	uint64_t bulk_bytes = 0, bytes = 0;
	struct slice_rig rig;
	uint32_t i, j, k;

	slice_begin(&rig, SLICE_SLOW);
	memset(bulk, 0, sizeof(bulk));
	memset(small, 0, sizeof(small));
	for (k = 0; k < 2000; k++) {
		for (i = 0; i < n; i++)
			for (j = 0; j < SLICE_TASKS; j++)
				if (!k || small[i][j].ends)
					slice_submit(&rig, i ? i + 1 : 0,
						     SLICE_MIN, &small[i][j]);
		slice_more(&rig, n, bulk);
		slice_fill(&rig, 1, NULL);
		if (k >= 500) {
			bulk_bytes += rig.rail->bulk.bytes;
			bytes += rig.lane->inflight_bytes;
		}
		CU_ASSERT_FATAL(slice_serve(&rig, ~0u));
	}
	for (i = k = 0; i < n; i++) {
		all[k++] = &bulk[i];
		for (j = 0; j < SLICE_TASKS; j++)
			all[k++] = &small[i][j];
	}
	slice_end(&rig, all, k);
	return (double)bulk_bytes / (double)bytes;
}

/* Tests that bulk data gets the same fraction of the rail with one peer and
 * with four. With more peers the bulk slices are shorter, so a bulk slice must
 * be cut after fewer small tasks. */
static void test_bulk_share_is_independent_of_bulk_peers(void)
{
	CU_ASSERT(slice_share_own(4) >= 0.9 * slice_share_own(1));
}

/* Peers 0 and 2 have bulk tasks, peer 1 has small ones, and peer 2 is slow or
 * stopped. Returns the average number of bytes that peer 0 has in flight,
 * divided by the limit of peer 0. every: number of iterations in which peer 2
 * completes one slice; 0 means that it completes none. */
static double slice_throttled_slow(uint64_t rate, uint32_t every)
{
	struct test_task bulk, slow, small;
	struct test_task *all[] = { &bulk, &slow, &small };
	struct slice_rig rig;
	uint64_t held = 0;
	uint32_t i, n = 0;

	slice_begin(&rig, rate);
	slice_submit(&rig, 2, SLICE_BULK, &slow);
	slice_fill(&rig, 1, NULL);
	slice_submit(&rig, 1, 4 * SLICE_KIB, &small);
	slice_fill(&rig, 1, NULL);
	/* until the small task ends, peer 2 uses the share that a single peer
	 * may use */
	while (!small.ends && slice_serve(&rig, 6))
		slice_fill(&rig, 1, NULL);
	CU_ASSERT(slice_held(&rig, 2) > rail_window_throttle(rig.rail) / 8 * 7);
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	for (i = 1; i < 400 && !bulk.ends; i++) {
		slice_fill(&rig, 1, NULL);
		if (small.ends)
			slice_submit(&rig, 1, 4 * SLICE_KIB, &small);
		CU_ASSERT(slice_serve(&rig, 3));
		if (every && !(i % every))
			slice_serve(&rig, 4);
		slice_fill(&rig, 1, NULL);
		if (i < 100)
			continue;
		held += slice_held(&rig, 0);
		n++;
	}
	CU_ASSERT_FATAL(n > 0);
	slice_end(&rig, all, 3);
	return (double)held / n /
	       (double)(rate == SLICE_FAST ? SLICE_FAST / 2000 : SLICE_MIN);
}

static void test_slow_target_does_not_reduce_share_of_others(void)
{
	CU_ASSERT(slice_throttled_slow(SLICE_SLOW, 0) >= 0.9);
	CU_ASSERT(slice_throttled_slow(SLICE_SLOW, 10) >= 0.45);
	/* peer 0 has three slices posted most of the time, and two in a third
	 * of the samples */
	CU_ASSERT(slice_throttled_slow(SLICE_FAST, 0) >= 0.88);
	CU_ASSERT(slice_throttled_slow(SLICE_FAST, 10) >= 0.45);
}

/* Tests that a stopped peer leaves room for others. Peer 0 has stopped and has
 * many small tasks, and peer 2 has a bulk task. The depth of the lane must
 * still have room for peer 1. */
static void test_stopped_target_leaves_room_for_small_task(void)
{
	static struct test_task many[SLICE_MANY];
	struct test_task *all[SLICE_MANY + 2], bulk, small;
	struct slice_rig rig;
	uint32_t i;

	slice_begin(&rig, SLICE_SLOW);
	rig.rail->caps.tx_depth = SLICE_DEPTH;
	all[SLICE_MANY] = &bulk;
	all[SLICE_MANY + 1] = &small;
	slice_submit(&rig, 2, SLICE_BULK, &bulk);
	slice_fill(&rig, 1, NULL);
	slice_submit(&rig, 1, 64, &small);
	slice_fill(&rig, 1, NULL);
	while (!small.ends && slice_serve(&rig, ~0u))
		slice_fill(&rig, 1, NULL);
	CU_ASSERT(rig.rail->bulk.throttled_left > 0);
	for (i = 0; i < SLICE_MANY; i++) {
		all[i] = &many[i];
		slice_submit(&rig, 0, 64, &many[i]);
	}
	for (i = 0; i < SLICE_DEPTH; i++) {
		slice_fill(&rig, 1, NULL);
		slice_serve(&rig, 4);
	}
	slice_fill(&rig, 1, NULL);
	CU_ASSERT(slice_held(&rig, 0) > 0);
	CU_ASSERT(slice_held(&rig, 0) < SLICE_MANY * 64);
	CU_ASSERT(rig.lane->inflight < SLICE_DEPTH);
	slice_submit(&rig, 1, 64, &small);
	slice_fill(&rig, 1, NULL);
	CU_ASSERT_EQUAL(slice_held(&rig, 1), 64);
	slice_end(&rig, all, SLICE_MANY + 2);
}

/* Submits a bulk task to memory that has one key per page. */
static void slice_submit_pages(struct slice_rig *rig, uint32_t peer,
			       uint64_t len, struct test_task *t)
{
	struct rail_rkey *k;
	uint64_t off;

	rail_sched_enter(rig->plane.dp);
	for (off = 0; off < len; off += 4 * SLICE_KIB) {
		k = calloc(1, sizeof(*k) + sizeof(k->part[0]));
		CU_ASSERT_PTR_NOT_NULL_FATAL(k);
		k->range.base = 2 * SLICE_BULK + off;
		k->range.end = k->range.base + 4 * SLICE_KIB;
		k->id = 2 + off;
		k->nparts = 1;
		CU_ASSERT_FATAL(rail_key_add(rig->peer[peer], k));
	}
	rail_sched_leave(rig->plane.dp);
	test_task_init(t, rig->peer[peer], false, rig->mem,
		       (void *)(uintptr_t)(2 * SLICE_BULK), len);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->plane.dp, t, 1), 0);
}

/* Tests that as many small tasks are served between two short bulk slices as
 * between two usual bulk slices. */
static void test_small_tasks_overtake_page_sized_bulk_slices(void)
{
	static struct test_task small[SLICE_TASKS];
	struct test_task *all[SLICE_TASKS + 1], bulk;
	uint32_t i, n, ends = 0;
	struct slice_rig rig;

	slice_begin(&rig, SLICE_FAST);
	all[SLICE_TASKS] = &bulk;
	slice_submit_pages(&rig, 0, 4 * SLICE_MIB, &bulk);
	for (i = 0; i < SLICE_TASKS; i++) {
		all[i] = &small[i];
		slice_submit(&rig, 0, 64, &small[i]);
	}
	for (n = 0; n < 1000; n++) {
		slice_fill(&rig, 0, NULL);
		CU_ASSERT_FATAL(slice_serve(&rig, ~0u));
		for (i = 0; i < SLICE_TASKS; i++) {
			if (!small[i].ends)
				continue;
			ends++;
			slice_submit(&rig, 0, 64, &small[i]);
		}
	}
	CU_ASSERT(ends >= 800);
	CU_ASSERT(rig.served[0] >= 30 * 4 * SLICE_KIB);
	slice_end(&rig, all, SLICE_TASKS + 1);
}

/* Tests that small tasks are served when the bulk task is next but its
 * connection has used up its share of bulk data. */
static void test_small_tasks_do_not_wait_for_throttled_bulk_task(void)
{
	struct test_task bulk, small[40], *all[41];
	struct slice_rig rig;
	uint64_t held;
	uint32_t i;

	slice_begin(&rig, SLICE_SLOW);
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	slice_submit(&rig, 0, 64, &small[0]);
	slice_fill(&rig, 0, NULL);
	all[0] = &small[0];
	all[40] = &bulk;
	CU_ASSERT_EQUAL(rig.rail->bulk.bytes, SLICE_MIN);
	for (i = 1; i < 40; i++) {
		all[i] = &small[i];
		held = slice_held(&rig, 0);
		slice_submit(&rig, 0, 64, &small[i]);
		slice_fill(&rig, 0, NULL);
		CU_ASSERT_EQUAL(slice_held(&rig, 0), held + 64);
	}
	/* the bulk task is served as soon as its connection may take bulk data
	 * again */
	while (rig.rail->bulk.bytes == SLICE_MIN)
		CU_ASSERT_FATAL(slice_serve(&rig, 1));
	slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(rig.rail->bulk.bytes, SLICE_MIN);
	slice_end(&rig, all, 41);
}

/*
 * Peers 0 and 2 to 8 have had bulk tasks while small tasks of peer 1 were
 * active. Returns peer 0's part of the bulk limit afterwards. after: duration
 * of a time without traffic, which the rail notices at the next completion. If
 * after is 0, so much bulk data is cut instead that the rail is no longer
 * throttled.
 */
static double slice_room_after(uint64_t after)
{
	struct test_task bulk[8], small, *all[9];
	struct tei_rail_task *task;
	struct slice_rig rig;
	uint64_t held;
	uint32_t i;

	slice_begin(&rig, SLICE_SLOW);
	memset(bulk, 0, sizeof(bulk));
	for (i = 0; i < 80; i++) {
		slice_more(&rig, 8, bulk);
		slice_ahead(&rig, &small, 1);
	}
	CU_ASSERT(slice_held(&rig, 0) <= SLICE_MIN / 8);
	all[8] = &small;
	for (i = 0; i < 8; i++) {
		all[i] = &bulk[i];
		task = &bulk[i].task;
		if (!bulk[i].ends)
			tei_rail_cancel(rig.plane.dp, &task, 1);
	}
	while (slice_serve(&rig, ~0u))
		;
	rail_sched_enter(rig.plane.dp);
	if (!after)
		rig.rail->bulk.throttled_left = 0;
	rail_sched_leave(rig.plane.dp);
	slice_submit(&rig, 0, SLICE_BULK, &bulk[0]);
	slice_ahead(&rig, &small, 1);
	rig.lane->rate.served_ns += after;
	for (i = 0; i < 8; i++) {
		slice_ahead(&rig, &small, 1);
		slice_serve(&rig, 1);
		slice_fill(&rig, 1, NULL);
	}
	held = slice_held(&rig, 0);
	slice_end(&rig, all, 9);
	return (double)held / (double)SLICE_MIN;
}

static void test_idle_peers_lose_their_bulk_share(void)
{
	CU_ASSERT(slice_room_after(0) >= 0.9);
	CU_ASSERT(slice_room_after(TEI_NS_PER_SEC) >= 0.9);
	/* the share of an idle peer is kept until the accounting round ends;
	 * this takes a whole window of bulk data */
	CU_ASSERT(slice_room_after(1) <= 0.2);
}

/* --- without small tasks ------------------------------------------------- */

static void test_bulk_task_without_small_tasks_fills_window(void)
{
	struct test_task bulk, small, *all[] = { &bulk, &small };
	struct slice_rig rig;

	slice_begin(&rig, SLICE_SLOW);
	/* a small task throttles the rail only if a bulk task waits */
	slice_submit(&rig, 1, 4 * SLICE_KIB, &small);
	slice_fill(&rig, 1, NULL);
	while (slice_serve(&rig, ~0u))
		;
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(slice_held(&rig, 0) > 2 * SLICE_MIN);
	slice_end(&rig, all, 2);
}

/* Tests that a short task that is the last part of a bulk request does not
 * count as a small request. */
static void test_part_of_bulk_request_is_not_small(void)
{
	struct test_task bulk, part, *all[] = { &bulk, &part };
	struct tei_rail_task *list = &part.task;
	struct tei_rail_group *group;
	struct slice_rig rig;
	uint64_t ahead = 0;

	slice_begin(&rig, SLICE_SLOW);
	group = tei_rail_group_new(rig.peer[1]);
	slice_submit(&rig, 1, SLICE_BULK, &bulk);
	test_task_init(&part, rig.peer[1], false, rig.mem,
		       (void *)(uintptr_t)SLICE_MIB, 4 * SLICE_KIB);
	part.task.whole = SLICE_MIB;
	part.task.whole_length = SLICE_MIB;
	CU_ASSERT_EQUAL_FATAL(tei_rail_submit_group(rig.plane.dp, group, &list,
						    1), 0);
	slice_fill(&rig, 1, &ahead);
	CU_ASSERT_EQUAL(rig.rail->bulk.throttled_left, 0);
	CU_ASSERT(slice_held(&rig, 1) > 2 * SLICE_MIN);
	CU_ASSERT_EQUAL(rig.rail->bulk.bytes, slice_held(&rig, 1));
	list->group = NULL;
	tei_rail_group_free(group);
	slice_end(&rig, all, 2);
}

/* Tests that a task fails if a region that its group has used was unregistered
 * before the task was submitted. */
static void test_task_of_failed_group_fails(void)
{
	struct tei_rail_group *group;
	struct tei_rail_task *list;
	struct slice_rig rig;
	struct test_task t;

	slice_begin(&rig, SLICE_SLOW);
	group = tei_rail_group_new(rig.peer[1]);
	CU_ASSERT_PTR_NOT_NULL_FATAL(group);
	group->region_gone = true;
	test_task_init(&t, rig.peer[1], false, rig.mem,
		       (void *)(uintptr_t)SLICE_MIB, 4 * SLICE_KIB);
	list = &t.task;
	CU_ASSERT_EQUAL_FATAL(tei_rail_submit_group(rig.plane.dp, group, &list,
						    1), 0);
	CU_ASSERT_EQUAL(test_ends(&t), 1);
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_FAILED);
	CU_ASSERT_EQUAL(t.code, TEI_ERR_NOT_REGISTERED);
	tei_rail_group_free(group);
	slice_end(&rig, NULL, 0);
}

/* Returns the number of bytes that rail 1, which is far from the memory, takes
 * now. Then completes all slices of rail 1. */
static uint64_t slice_far(struct slice_rig *rig)
{
	struct rail_lane *near = rig->lane;
	uint64_t held;

	rig->lane = &rail_at(rig->plane.dp, 1)->tx_lanes[0];
	slice_fill(rig, 0, NULL);
	held = slice_held(rig, 0);
	while (slice_serve(rig, ~0u))
		;
	rig->lane = near;
	return held;
}

static void test_far_rail_is_unused_while_near_window_has_room(void)
{
	struct test_task bulk, more, *all[] = { &bulk, &more };
	struct slice_rig rig;

	slice_begin_two(&rig, SLICE_FAST, 0);
	rail_sched_enter(rig.plane.dp);
	rig.rail->bulk.throttled_left = 8192;
	rail_sched_leave(rig.plane.dp);
	slice_submit(&rig, 0, 4 * SLICE_MIB, &bulk);
	while (!bulk.ends) {
		slice_fill(&rig, 0, NULL);
		CU_ASSERT(slice_held(&rig, 0) < rail_window(rig.rail) / 4);
		CU_ASSERT_EQUAL(slice_far(&rig), 0);
		CU_ASSERT_FATAL(slice_serve(&rig, ~0u));
	}
	/* two tasks that are together longer than the window of the near rail
	 * use the far rail as well */
	slice_submit(&rig, 0, 8 * SLICE_MIB, &bulk);
	slice_submit(&rig, 0, 8 * SLICE_MIB, &more);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(slice_held(&rig, 0) < rail_window(rig.rail) / 4);
	CU_ASSERT(slice_far(&rig) > 0);
	slice_end(&rig, all, 2);
}

/* --- slices that are refused, fail or are abandoned ---------------------- */

/* Checks that all posted bytes of the peer are counted as bulk data. */
static void slice_counted(const struct slice_rig *rig, uint32_t peer)
{
	CU_ASSERT_EQUAL(slice_conn(rig, peer)->bulk_bytes,
			slice_held(rig, peer));
	CU_ASSERT_EQUAL(rig->rail->bulk.bytes, slice_held(rig, peer));
}

static void test_refused_slice_is_not_counted_as_posted(void)
{
	struct test_task bulk, *all[] = { &bulk };
	struct rail_done done;
	struct slice_rig rig;

	slice_begin(&rig, SLICE_SLOW);
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	rail_done_init(&done);
	tei_mutex_lock(&rig.lane->lock);
	/* as if the previous post had returned -FI_EAGAIN */
	slice_conn(&rig, 0)->blocked_now = true;
	CU_ASSERT(!rail_sched_pull(rig.lane, 0, &done));
	tei_mutex_unlock(&rig.lane->lock);
	rail_done_run(rig.plane.dp, &done);
	CU_ASSERT(!tei_list_empty(&rig.peer[0]->tasks.retry));
	CU_ASSERT_EQUAL(slice_held(&rig, 0), 0);
	slice_counted(&rig, 0);
	slice_conn(&rig, 0)->blocked_ns = 0;
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(tei_list_empty(&rig.peer[0]->tasks.retry));
	CU_ASSERT(slice_held(&rig, 0) > 2 * SLICE_MIN);
	slice_counted(&rig, 0);
	slice_end(&rig, all, 1);
}

/* Fails all posted slices, as happens when a lane is closed. */
static void slice_break(struct slice_rig *rig)
{
	struct rail_slice *s, *tmp;
	struct rail_done done;

	rail_done_init(&done);
	tei_mutex_lock(&rig->lane->lock);
	rail_sched_enter(rig->plane.dp);
	tei_list_foreach_safe(s, tmp, &rig->lane->posted, struct rail_slice,
			      link) {
		tei_list_del(&s->link);
		rig->lane->inflight--;
		rig->lane->inflight_bytes -= s->len;
		rail_slice_handle_error(rig->plane.dp, s, FI_ECANCELED, &done);
	}
	rail_sched_leave(rig->plane.dp);
	tei_mutex_unlock(&rig->lane->lock);
	rail_done_run(rig->plane.dp, &done);
}

static void test_failed_slice_is_not_counted_as_posted(void)
{
	struct test_task bulk, *all[] = { &bulk };
	struct rail_done done;
	struct slice_rig rig;

	slice_begin(&rig, SLICE_SLOW);
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(slice_held(&rig, 0) > 2 * SLICE_MIN);
	slice_counted(&rig, 0);
	slice_break(&rig);
	CU_ASSERT(!tei_list_empty(&rig.peer[0]->tasks.awaiting_fence));
	CU_ASSERT_EQUAL(slice_held(&rig, 0), 0);
	slice_counted(&rig, 0);
	rail_done_init(&done);
	rail_sched_enter(rig.plane.dp);
	rail_fence_event(rig.peer[0], 0, RAIL_FENCE_EV_CLOSED,
			 &(struct rail_fence_args){ .done = &done });
	rail_sched_leave(rig.plane.dp);
	rail_done_run(rig.plane.dp, &done);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(tei_list_empty(&rig.peer[0]->tasks.retry));
	CU_ASSERT(slice_held(&rig, 0) > 2 * SLICE_MIN);
	slice_counted(&rig, 0);
	slice_end(&rig, all, 1);
}

static void test_abandoned_task_leaves_the_queue(void)
{
	struct test_task bulk, small, *all[] = { &bulk, &small };
	struct tei_err err = { .code = TEI_ERR_CONTEXT };
	struct rail_done done;
	struct slice_rig rig;

	slice_begin(&rig, SLICE_SLOW);
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	slice_submit(&rig, 0, 64, &small);
	CU_ASSERT_EQUAL(rig.peer[0]->tasks.queued, 2);
	rail_done_init(&done);
	rail_sched_enter(rig.plane.dp);
	rail_task_drop(&bulk.task, &err, &done);
	rail_task_drop(&small.task, &err, &done);
	rail_sched_leave(rig.plane.dp);
	rail_done_run(rig.plane.dp, &done);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(slice_held(&rig, 0), 0);
	slice_end(&rig, all, 2);
}

/* --- GPU memory ---------------------------------------------------------- */

/* Tests that the far rail carries a GPU task if the nearer rail does not accept
 * GPU memory. */
static void test_gpu_task_does_not_wait_for_rail_without_hmem(void)
{
	struct test_task bulk, *all[] = { &bulk };
	struct rail_window_sum sum;
	struct tei_rail_mr *mr;
	struct slice_rig rig;

	mr = slice_begin_two(&rig, SLICE_SLOW, 1);
	rail_sched_enter(rig.plane.dp);
	CU_ASSERT(rail_health_works(rig.peer[0], 1));
	rail_sched_leave(rig.plane.dp);
	slice_submit(&rig, 0, SLICE_MIB, &bulk);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(slice_held(&rig, 0), 0);
	rail_sched_enter(rig.plane.dp);
	mr->gpu = true;
	mr->part[0].n = 1;
	rail_window_sum(rig.rail, rig.peer[0], mr, mr->places[0].rank, 0, &sum);
	rail_sched_leave(rig.plane.dp);
	CU_ASSERT_EQUAL(sum.rails, 1);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(slice_held(&rig, 0) > 0);
	rail_sched_enter(rig.plane.dp);
	mr->gpu = false;
	mr->part[0].n = 0;
	rail_sched_leave(rig.plane.dp);
	slice_end(&rig, all, 1);
}

/* Moves all posted slices to the retry list. Assigns all but the last of them
 * to the region "foreign", which this rail does not accept. */
static void slice_back_foreign(struct slice_rig *rig, struct tei_rail_mr *foreign)
{
	struct rail_slice *s;

	tei_mutex_lock(&rig->lane->lock);
	rail_sched_enter(rig->plane.dp);
	while (!tei_list_empty(&rig->lane->posted)) {
		s = tei_list_first(&rig->lane->posted, struct rail_slice, link);
		tei_list_del(&s->link);
		rig->lane->inflight--;
		rig->lane->inflight_bytes -= s->len;
		rail_conn_put(s);
		rig->peer[0]->tasks.posted--;
		tei_list_add_tail(&rig->peer[0]->tasks.retry, &s->link);
		if (!tei_list_empty(&rig->lane->posted))
			s->mr = foreign;
	}
	rail_peer_activate(rig->peer[0]);
	rail_sched_leave(rig->plane.dp);
	tei_mutex_unlock(&rig->lane->lock);
}

/* Selects the next slice of peer 0 for the first rail. Returns false if there
 * is none. */
static bool slice_pick(struct slice_rig *rig, struct rail_pick *pick)
{
	uint64_t now = 0;
	bool found;

	tei_mutex_lock(&rig->lane->lock);
	rail_sched_enter(rig->plane.dp);
	found = rail_pick(rig->lane, rig->peer[0], 0, &now, pick);
	rail_sched_leave(rig->plane.dp);
	tei_mutex_unlock(&rig->lane->lock);
	return found;
}

/* Checks that slices on the retry list that this rail must not carry do not
 * block a slice behind them. Uses n tasks of one slice each, of which the rail
 * may carry only the last one. */
static void slice_passed_by(size_t n)
{
	static struct test_task task[SLICE_TASKS];
	struct tei_rail_mr foreign = { .gpu = true }, *mr;
	struct test_task *all[SLICE_TASKS];
	struct slice_rig rig;
	struct rail_pick pick;
	struct rail_slice *s;
	size_t i;

	slice_begin(&rig, SLICE_FAST);
	rig.plane.settings.sched.merge = false;
	for (i = 0; i < n; i++) {
		all[i] = &task[i];
		slice_submit(&rig, 0, 64, &task[i]);
	}
	slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL_FATAL(rig.lane->inflight, n);
	rail_sched_enter(rig.plane.dp);
	mr = rail_mr_find(rig.plane.dp, rig.mem, SLICE_BULK);
	rail_sched_leave(rig.plane.dp);
	slice_back_foreign(&rig, &foreign);
	CU_ASSERT_EQUAL(slice_pick(&rig, &pick), n <= 64);
	CU_ASSERT_EQUAL(pick.visited, n <= 64 ? n : 64);
	for (i = 0; i < n && !rig.lane->inflight; i++)
		slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(rig.lane->inflight, 1);
	CU_ASSERT(slice_serve(&rig, 1));
	CU_ASSERT_EQUAL(test_ends(&task[n - 1]), 1);
	rail_sched_enter(rig.plane.dp);
	tei_list_foreach (s, &rig.peer[0]->tasks.retry, struct rail_slice, link)
		s->mr = mr;
	rail_sched_leave(rig.plane.dp);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(rig.lane->inflight, n - 1);
	slice_end(&rig, all, n);
}

static void test_retry_skips_slices_of_other_rails(void)
{
	slice_passed_by(2);
	slice_passed_by(SLICE_TASKS);
}

/* --- the queues ---------------------------------------------------------- */

/* Submits n tasks for peer 0. All but the last one name the second rail as the
 * rail that should move their bytes. */
static void slice_submit_named(struct slice_rig *rig, uint64_t len,
			       struct test_task *t, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		test_task_init(&t[i], rig->peer[0], false, rig->mem,
			       (void *)(uintptr_t)SLICE_MIB, len);
		t[i].task.rail = i + 1 < n ? 2 : 0;
		CU_ASSERT_EQUAL_FATAL(test_submit(rig->plane.dp, &t[i], 1), 0);
	}
}

static void test_pick_examines_each_queue_entry_once(void)
{
	struct test_task small[6], bulk[4], *all[10];
	struct slice_rig rig;
	struct rail_pick pick;
	size_t i;

	slice_begin_two(&rig, SLICE_FAST, 0);
	rig.plane.dp->times.stuck_ns = UINT64_MAX;
	slice_submit_named(&rig, 4 * SLICE_KIB, small, 6);
	slice_submit_named(&rig, SLICE_MIB, bulk, 4);
	for (i = 0; i < 10; i++)
		all[i] = i < 6 ? &small[i] : &bulk[i - 6];
	CU_ASSERT_FATAL(slice_pick(&rig, &pick));
	CU_ASSERT_EQUAL(pick.source, RAIL_PICK_SMALL);
	CU_ASSERT_PTR_EQUAL(pick.task, &small[5].task);
	CU_ASSERT_EQUAL(pick.len, 4 * SLICE_KIB);
	CU_ASSERT_EQUAL(pick.visited, 10);
	slice_fill(&rig, 0, NULL);
	while (slice_serve(&rig, ~0u))
		slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(test_ends(&small[5]), 1);
	CU_ASSERT_EQUAL(test_ends(&bulk[3]), 1);
	/* the tasks that are left all name the second rail */
	CU_ASSERT(!slice_pick(&rig, &pick));
	CU_ASSERT_EQUAL(pick.visited, 8);
	CU_ASSERT_EQUAL(pick.source, RAIL_PICK_NONE);
	slice_end(&rig, all, 10);
}

/* Tests that a cut examines at most 64 entries of a long queue. */
static void test_pick_examines_part_of_a_long_queue(void)
{
	static struct test_task task[SLICE_TASKS];
	struct test_task *all[SLICE_TASKS];
	struct slice_rig rig;
	struct rail_pick pick;
	size_t i;

	slice_begin_two(&rig, SLICE_FAST, 0);
	rig.plane.dp->times.stuck_ns = UINT64_MAX;
	slice_submit_named(&rig, 64, task, SLICE_TASKS);
	for (i = 0; i < SLICE_TASKS; i++)
		all[i] = &task[i];
	CU_ASSERT(!slice_pick(&rig, &pick));
	CU_ASSERT_EQUAL(pick.visited, 64);
	slice_end(&rig, all, SLICE_TASKS);
}

/* Returns the shortest time of SLICE_FIT_TRIES measurements of SLICE_FITS calls
 * of rail_iov_fit for the first byte of a task with n local and n remote
 * entries, ns; 0 if memory is short. Other measurements may contain times in
 * which this thread did not run. */
static uint64_t slice_fit_ns(const struct rail *rail, uint32_t n)
{
	struct tei_rail_task_ext *x = tei_rail_task_ext_new(n, n);
	const struct rail_rkey key = { .range = { .base = 0,
						  .end = UINT64_MAX } };
	uint64_t from, took, least = UINT64_MAX, fit = 0;
	uint32_t i, k;

	if (!x)
		return 0;
	for (i = 0; i < 2 * n; i++) {
		x->piece[i].addr = 128 * (uint64_t)i;
		x->piece[i].len = 64;
	}
	tei_rail_task_ext_lay(x->piece, n);
	tei_rail_task_ext_lay(x->piece + n, n);
	for (k = 0; k < SLICE_FIT_TRIES; k++) {
		from = tei_now_ns();
		for (i = 0; i < SLICE_FITS; i++)
			fit += rail_iov_fit(x, 0, &key, rail);
		took = tei_now_ns() - from;
		least = took < least ? took : least;
	}
	CU_ASSERT_EQUAL(fit, SLICE_FIT_TRIES * SLICE_FITS * 4 * 64);
	free(x);
	return least;
}

/* Tests that the cost of a slice does not grow with the number of entries that
 * follow it. Otherwise a task with many entries would cost the square of their
 * number: here 16384 times as much. */
static void test_slice_cost_is_independent_of_entries_behind_it(void)
{
	struct rail *rail = calloc(1, sizeof(*rail));
	uint64_t few, many;

	CU_ASSERT_FATAL(rail != NULL);
	rail->caps.iov_limit = 4;
	rail->caps.rma_limit = 4;
	few = slice_fit_ns(rail, 64);
	many = slice_fit_ns(rail, 1u << 20);
	CU_ASSERT(few && many < 1000 * few);
	free(rail);
}

const struct tei_test_case rail_slice_cases[] = {
	{ "small_task_waits_for_one_bulk_slice_at_most",
	  test_small_task_waits_for_one_bulk_slice_at_most },
	{ "small_first_keeps_room_at_all_times",
	  test_small_first_keeps_room_at_all_times },
	{ "small_task_wait_is_independent_of_bulk_peers",
	  test_small_task_wait_is_independent_of_bulk_peers },
	{ "many_small_tasks_leave_bulk_task_its_share",
	  test_many_small_tasks_leave_bulk_task_its_share },
	{ "bulk_share_is_independent_of_bulk_peers",
	  test_bulk_share_is_independent_of_bulk_peers },
	{ "throttling_time_is_independent_of_bulk_peers",
	  test_throttling_time_is_independent_of_bulk_peers },
	{ "slow_target_does_not_reduce_share_of_others",
	  test_slow_target_does_not_reduce_share_of_others },
	{ "small_task_on_loopback_waits_for_part_of_window",
	  test_small_task_on_loopback_waits_for_part_of_window },
	{ "throttling_outlasts_the_small_task",
	  test_throttling_outlasts_the_small_task },
	{ "stopped_target_leaves_room_for_small_task",
	  test_stopped_target_leaves_room_for_small_task },
	{ "small_tasks_overtake_page_sized_bulk_slices",
	  test_small_tasks_overtake_page_sized_bulk_slices },
	{ "small_tasks_do_not_wait_for_throttled_bulk_task",
	  test_small_tasks_do_not_wait_for_throttled_bulk_task },
	{ "idle_peers_lose_their_bulk_share",
	  test_idle_peers_lose_their_bulk_share },
	{ "bulk_task_without_small_tasks_fills_window",
	  test_bulk_task_without_small_tasks_fills_window },
	{ "task_of_failed_group_fails", test_task_of_failed_group_fails },
	{ "part_of_bulk_request_is_not_small",
	  test_part_of_bulk_request_is_not_small },
	{ "far_rail_is_unused_while_near_window_has_room",
	  test_far_rail_is_unused_while_near_window_has_room },
	{ "refused_slice_is_not_counted_as_posted",
	  test_refused_slice_is_not_counted_as_posted },
	{ "failed_slice_is_not_counted_as_posted",
	  test_failed_slice_is_not_counted_as_posted },
	{ "abandoned_task_leaves_the_queue",
	  test_abandoned_task_leaves_the_queue },
	{ "gpu_task_does_not_wait_for_rail_without_hmem",
	  test_gpu_task_does_not_wait_for_rail_without_hmem },
	{ "retry_skips_slices_of_other_rails",
	  test_retry_skips_slices_of_other_rails },
	{ "pick_examines_each_queue_entry_once",
	  test_pick_examines_each_queue_entry_once },
	{ "slice_cost_is_independent_of_entries_behind_it",
	  test_slice_cost_is_independent_of_entries_behind_it },
	{ "pick_examines_part_of_a_long_queue",
	  test_pick_examines_part_of_a_long_queue },
	{ NULL, NULL },
};
