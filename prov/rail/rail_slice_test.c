/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is cut for whom, on one rail to several peers. Nothing is posted: the
 * test is the wire, which serves one slice after the other.
 */
#include "prov/rail/rail_test.h"

#include <stdlib.h>
#include <string.h>

#include "prov/rail/rail_health.h"
#include "prov/rail/rail_sched.h"

#define SLICE_KIB	UINT64_C(1024)
#define SLICE_MIB	(UINT64_C(1) << 20)
#define SLICE_MIN	(64 * SLICE_KIB)	/* MC_SLICE_SIZE */
#define SLICE_BULK	(64 * SLICE_MIB)
#define SLICE_SLOW	UINT64_C(25000000)	/* bytes/s of a rail */
#define SLICE_FAST	UINT64_C(1250000000)
#define SLICE_LOCAL	UINT64_C(5000000000) /* no wire */

enum { SLICE_PEERS = 10, SLICE_TASKS = 128, SLICE_MANY = 1000 };
enum { SLICE_DEPTH = 512 };		/* of the lane, with so many */

struct slice_rig {
	struct test_plane plane;
	struct rail *rail;
	struct rail_lane *lane;
	struct tei_rail_peer *peer[SLICE_PEERS];
	char *mem;			/* SLICE_BULK, registered, not touched */
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
	p->remotes[0].addr = rig->rail->own;
	p->state = RAIL_PEER_READY;
	CU_ASSERT_EQUAL_FATAL(rail_path_table(p), 0);
	k->base = SLICE_MIB;
	k->len = SLICE_BULK;
	k->id = 1;
	k->nparts = 1;
	CU_ASSERT_FATAL(rail_key_add(p, k));
	p->refs = 1;
	return p;
}

/* The first one of each rail. */
static void slice_lanes(const struct slice_rig *rig,
			enum rail_lane_state state)
{
	uint32_t i;

	for (i = 0; i < rail_count(rig->plane.dp); i++)
		__atomic_store_n(&rail_at(rig->plane.dp, i)->init[0].state,
				 state, __ATOMIC_RELEASE);
}

/* A rail of that rate, and peers that it leads to; the first of those there. */
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
	rig->lane = &rig->rail->init[0];
	rig->rail->wire = rate != SLICE_LOCAL;
	rig->rail->free_bps = rate;
	rig->rail->rate_bps = rate;
	/* 8 ms */
	rig->rail->window = rate / 125;
	if (rig->rail->window < 4 * SLICE_MIN)
		rig->rail->window = 4 * SLICE_MIN;
	if (rig->rail->window > rig->rail->window_max)
		rig->rail->window = rig->rail->window_max;
	slice_lanes(rig, RAIL_LANE_CLOSED);	/* the test alone cuts */
	rail_sched_enter(rig->plane.dp);
	for (i = 0; i < SLICE_PEERS; i++)
		rig->peer[i] = slice_peer(rig, i);
	rail_sched_leave(rig->plane.dp);
}

static void slice_begin(struct slice_rig *rig, uint64_t rate)
{
	slice_begin_on(rig, "127.0.0.1", rate);
}

/* With two rails, of which that one is nearer to the memory, its region. */
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

/* A task of the peer, not cut yet. */
static void slice_submit(struct slice_rig *rig, uint32_t peer, uint64_t len,
			 struct test_task *t)
{
	test_task_init(t, rig->peer[peer], false, rig->mem,
		       (void *)(uintptr_t)SLICE_MIB, len);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->plane.dp, t, 1), 0);
}

/* Cuts what the rail may have now; *ahead: bytes before the first of the peer
 * that was cut by that, where one was. */
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

/* The oldest slice of those peers (a mask) arrives. False: there is none. */
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
		rail_sched_ok(rig->plane.dp, first, tei_now_ns(), &done);
		rail_sched_leave(rig->plane.dp);
	}
	tei_mutex_unlock(&lane->lock);
	rail_done_run(rig->plane.dp, &done);
	return first != NULL;
}

static struct rail_path *slice_path(const struct slice_rig *rig, uint32_t peer)
	TEI_NO_TSA
{
	return rail_path_get(rig->peer[peer], rig->lane, 0);
}

static uint64_t slice_held(const struct slice_rig *rig, uint32_t peer)
{
	return slice_path(rig, peer)->bytes;
}

/* All that was cut arrives, and the rest is cancelled. */
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
	CU_ASSERT_EQUAL(rig->rail->large_bytes, 0);
	CU_ASSERT_EQUAL(rig->plane.dp->large_left, 0);
	CU_ASSERT_EQUAL(rig->plane.dp->nlive, 0);
	slice_lanes(rig, RAIL_LANE_ACTIVE);
	for (i = 0; i < SLICE_PEERS; i++) {
		CU_ASSERT_EQUAL(slice_path(rig, (uint32_t)i)->large_bytes, 0);
		CU_ASSERT_EQUAL(slice_held(rig, (uint32_t)i), 0);
		CU_ASSERT_EQUAL(rig->peer[i]->queued, 0);
		tei_rail_peer_put(rig->peer[i]);
	}
	test_plane_close(&rig->plane);
	free(rig->mem);
}

/* --- a small one beside large ones --------------------------------------- */

/* A large task for each of n peers but 1 that has none. */
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

/* Peer 1 has a small task: the bytes of others that were ahead of it. Up to
 * burst completions are seen at a time. */
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
		/* what went before it was cut was ahead as well */
		if (ahead == UINT64_MAX)
			waited += before - rig->lane->inflight_bytes;
		slice_fill(rig, 1, small->ends ? NULL : &ahead);
	}
	CU_ASSERT_FATAL(ahead < UINT64_MAX);
	return ahead + waited;
}

/* Peer 1 has a small task now and then, and n others have large ones: the most
 * bytes that any but the first found ahead of it, or but those that came before
 * the rail knew how many take of it. */
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

static void test_a_small_task_waits_for_a_slice_of_another_peers(void)
{
	uint64_t first = 0;

	CU_ASSERT(slice_worst(SLICE_SLOW, 1, 1, &first) <= SLICE_MIN);
	/* nobody knew of it */
	CU_ASSERT(first > SLICE_MIN);
	/* or for what such a rail moves in half a millisecond, and a slice */
	CU_ASSERT(slice_worst(SLICE_FAST, 1, 1, &first) <=
		  SLICE_FAST / 2000 + SLICE_FAST / 4000);
}

/* However many there are, and however late this host looks. */
static void test_a_small_task_waits_for_no_more_beside_more_peers(void)
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

static void test_on_loopback_a_small_task_waits_for_less_than_a_window(void)
{
	uint64_t first = 0;

	CU_ASSERT(slice_worst(SLICE_LOCAL, 1, 1, &first) <=
		  8 * SLICE_MIB + SLICE_LOCAL / 4000);
	CU_ASSERT(first > SLICE_LOCAL / 200);
}

/* One that comes much later than the one before finds no whole window. */
static void test_small_ones_are_remembered_for_a_while(void)
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

/* Nor is that any shorter where more peers have large ones, of less each time. */
static void test_small_ones_are_remembered_as_long_beside_more_peers(void)
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

/* Be it the first or one that comes long after all others. */
static void test_small_ones_have_room_at_all_times_if_told(void)
{
	struct test_task bulk[2], small, *all[3] = { bulk, bulk + 1, &small };
	struct slice_rig rig;
	uint32_t i, n;

	slice_begin(&rig, SLICE_SLOW);
	rig.plane.settings.small_first = true;
	memset(bulk, 0, sizeof(bulk));
	for (n = 1; n <= 2; n++) {
		/* until the rail knows how many take of it */
		for (i = 0; i < 600; i++) {
			slice_more(&rig, n, bulk);
			CU_ASSERT_FATAL(slice_serve(&rig, ~0u));
			slice_fill(&rig, 1, NULL);
		}
		CU_ASSERT(slice_ahead(&rig, &small, 1) <= SLICE_MIN);
	}
	slice_end(&rig, all, 3);
}

/* Peer 1 has so many tasks of a whole slice that its queue is never empty: what
 * part of the rail's bytes are peer 0's, who has a large one. */
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

static void test_many_small_tasks_leave_a_large_one_its_share(void)
{
	CU_ASSERT(slice_share(SLICE_SLOW) >= 0.25);
	CU_ASSERT(slice_share(SLICE_FAST) >= 0.24);
}

/* n peers have so many, and a large one each: what part of the bytes in hand is
 * of those. */
static double slice_share_own(uint32_t n)
{
	static struct test_task bulk[4], small[4][SLICE_TASKS];
	static struct test_task *all[4 * (SLICE_TASKS + 1)];
	uint64_t large = 0, bytes = 0;
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
			large += rig.rail->large_bytes;
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
	return (double)large / (double)bytes;
}

/* What is cut of a large one is less then, and so it is cut more often. */
static void test_large_tasks_keep_their_turn_beside_more_peers(void)
{
	CU_ASSERT(slice_share_own(4) >= 0.9 * slice_share_own(1));
}

/* Large tasks to peers 0 and 2, of which 2 is slow, or stands still, and small
 * ones to 1: what peer 0 has in hand on average, by what it may have. */
static double slice_beside_slow(uint64_t rate, uint32_t every)
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
	/* it has all that one may have by itself, now that there are small ones */
	while (!small.ends && slice_serve(&rig, 6))
		slice_fill(&rig, 1, NULL);
	CU_ASSERT(slice_held(&rig, 2) > rail_window_beside(rig.rail) / 8 * 7);
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

static void test_a_slow_target_does_not_take_what_others_may_have(void)
{
	CU_ASSERT(slice_beside_slow(SLICE_SLOW, 0) >= 0.9);
	CU_ASSERT(slice_beside_slow(SLICE_SLOW, 10) >= 0.45);
	/* three slices, of which one is missing in a third of the looks */
	CU_ASSERT(slice_beside_slow(SLICE_FAST, 0) >= 0.88);
	CU_ASSERT(slice_beside_slow(SLICE_FAST, 10) >= 0.45);
}

/* Peer 0 has stopped with many small tasks, which a large one of peer 2 waits
 * beside: what the rail's depth still holds for peer 1. */
static void test_a_stopped_target_leaves_a_slot_beside_large_tasks(void)
{
	static struct test_task many[SLICE_MANY];
	struct test_task *all[SLICE_MANY + 2], bulk, small;
	struct slice_rig rig;
	uint32_t i;

	slice_begin(&rig, SLICE_SLOW);
	rig.rail->tx_depth = SLICE_DEPTH;
	all[SLICE_MANY] = &bulk;
	all[SLICE_MANY + 1] = &small;
	slice_submit(&rig, 2, SLICE_BULK, &bulk);
	slice_fill(&rig, 1, NULL);
	slice_submit(&rig, 1, 64, &small);
	slice_fill(&rig, 1, NULL);
	while (!small.ends && slice_serve(&rig, ~0u))
		slice_fill(&rig, 1, NULL);
	CU_ASSERT(rig.rail->beside_left > 0);
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

/* The peer gets a large task to memory that has a key for each page. */
static void slice_submit_pages(struct slice_rig *rig, uint32_t peer,
			       uint64_t len, struct test_task *t)
{
	struct rail_rkey *k;
	uint64_t off;

	rail_sched_enter(rig->plane.dp);
	for (off = 0; off < len; off += 4 * SLICE_KIB) {
		k = calloc(1, sizeof(*k) + sizeof(k->part[0]));
		CU_ASSERT_PTR_NOT_NULL_FATAL(k);
		k->base = 2 * SLICE_BULK + off;
		k->len = 4 * SLICE_KIB;
		k->id = 2 + off;
		k->nparts = 1;
		CU_ASSERT_FATAL(rail_key_add(rig->peer[peer], k));
	}
	rail_sched_leave(rig->plane.dp);
	test_task_init(t, rig->peer[peer], false, rig->mem,
		       (void *)(uintptr_t)(2 * SLICE_BULK), len);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->plane.dp, t, 1), 0);
}

/* As many small tasks of the same peer go as before slices of a usual length. */
static void test_small_tasks_go_before_pages_of_a_large_one(void)
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

/* A large one of the same peer, whose turn it is, has all that it may have. */
static void test_small_tasks_wait_for_no_large_one_that_may_not_go(void)
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
	CU_ASSERT_EQUAL(rig.rail->large_bytes, SLICE_MIN);
	for (i = 1; i < 40; i++) {
		all[i] = &small[i];
		held = slice_held(&rig, 0);
		slice_submit(&rig, 0, 64, &small[i]);
		slice_fill(&rig, 0, NULL);
		CU_ASSERT_EQUAL(slice_held(&rig, 0), held + 64);
	}
	/* and it has its turn when it may */
	while (rig.rail->large_bytes == SLICE_MIN)
		CU_ASSERT_FATAL(slice_serve(&rig, 1));
	slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(rig.rail->large_bytes, SLICE_MIN);
	slice_end(&rig, all, 41);
}

/* Peers 0 and 2 to 8 have had large tasks beside small ones of 1: what 0 has of
 * the room that one may have. after: a time without any, which the rail notices
 * as it serves the next; 0: many without small ones. */
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
		rig.rail->beside_left = 0;
	rail_sched_leave(rig.plane.dp);
	slice_submit(&rig, 0, SLICE_BULK, &bulk[0]);
	slice_ahead(&rig, &small, 1);
	rig.lane->served_ns += after;
	for (i = 0; i < 8; i++) {
		slice_ahead(&rig, &small, 1);
		slice_serve(&rig, 1);
		slice_fill(&rig, 1, NULL);
	}
	held = slice_held(&rig, 0);
	slice_end(&rig, all, 9);
	return (double)held / (double)SLICE_MIN;
}

static void test_who_took_long_ago_is_forgotten(void)
{
	CU_ASSERT(slice_room_after(0) >= 0.9);
	CU_ASSERT(slice_room_after(TEI_NS_PER_SEC) >= 0.9);
	/* not at once: what is counted is of a window */
	CU_ASSERT(slice_room_after(1) <= 0.2);
}

/* --- when there is nothing to make room for ------------------------------ */

static void test_large_tasks_have_the_window_without_small_ones(void)
{
	struct test_task bulk, small, *all[] = { &bulk, &small };
	struct slice_rig rig;

	slice_begin(&rig, SLICE_SLOW);
	/* no large one waits */
	slice_submit(&rig, 1, 4 * SLICE_KIB, &small);
	slice_fill(&rig, 1, NULL);
	while (slice_serve(&rig, ~0u))
		;
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(slice_held(&rig, 0) > 2 * SLICE_MIN);
	slice_end(&rig, all, 2);
}

/* The last of a large request's parts is no small request. */
static void test_the_end_of_a_large_request_is_no_small_one(void)
{
	struct test_task bulk, part, *all[] = { &bulk, &part };
	struct tei_rail_task *list = &part.task;
	struct slice_rig rig;
	uint64_t ahead = 0;

	slice_begin(&rig, SLICE_SLOW);
	slice_submit(&rig, 1, SLICE_BULK, &bulk);
	test_task_init(&part, rig.peer[1], false, rig.mem,
		       (void *)(uintptr_t)SLICE_MIB, 4 * SLICE_KIB);
	part.task.whole = SLICE_MIB;
	part.task.whole_length = SLICE_MIB;
	CU_ASSERT_EQUAL_FATAL(tei_rail_submit(rig.plane.dp, &list, 1), 0);
	slice_fill(&rig, 1, &ahead);
	CU_ASSERT_EQUAL(rig.rail->beside_left, 0);
	CU_ASSERT(slice_held(&rig, 1) > 2 * SLICE_MIN);
	CU_ASSERT_EQUAL(rig.rail->large_bytes, slice_held(&rig, 1));
	slice_end(&rig, all, 2);
}

/* What rail 1, which is far, takes now; all of that arrives. */
static uint64_t slice_far(struct slice_rig *rig)
{
	struct rail_lane *near = rig->lane;
	uint64_t held;

	rig->lane = &rail_at(rig->plane.dp, 1)->init[0];
	slice_fill(rig, 0, NULL);
	held = slice_held(rig, 0);
	while (slice_serve(rig, ~0u))
		;
	rig->lane = near;
	return held;
}

static void test_far_rails_keep_off_where_the_near_window_has_room(void)
{
	struct test_task bulk, more, *all[] = { &bulk, &more };
	struct slice_rig rig;

	slice_begin_two(&rig, SLICE_FAST, 0);
	rail_sched_enter(rig.plane.dp);
	rig.rail->beside_left = 8192;
	rail_sched_leave(rig.plane.dp);
	slice_submit(&rig, 0, 4 * SLICE_MIB, &bulk);
	while (!bulk.ends) {
		slice_fill(&rig, 0, NULL);
		CU_ASSERT(slice_held(&rig, 0) < rail_window(rig.rail) / 4);
		CU_ASSERT_EQUAL(slice_far(&rig), 0);
		CU_ASSERT_FATAL(slice_serve(&rig, ~0u));
	}
	/* not alone with what is more than the window */
	slice_submit(&rig, 0, 8 * SLICE_MIB, &bulk);
	slice_submit(&rig, 0, 8 * SLICE_MIB, &more);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(slice_held(&rig, 0) < rail_window(rig.rail) / 4);
	CU_ASSERT(slice_far(&rig) > 0);
	slice_end(&rig, all, 2);
}

/* --- what is not posted, breaks or is given up --------------------------- */

/* The peer's bytes are those of a large task, and all of them. */
static void slice_counted(const struct slice_rig *rig, uint32_t peer)
{
	CU_ASSERT_EQUAL(slice_path(rig, peer)->large_bytes,
			slice_held(rig, peer));
	CU_ASSERT_EQUAL(rig->rail->large_bytes, slice_held(rig, peer));
}

static void test_what_the_provider_refuses_is_not_held(void)
{
	struct test_task bulk, *all[] = { &bulk };
	struct rail_done done;
	struct slice_rig rig;

	slice_begin(&rig, SLICE_SLOW);
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	rail_done_init(&done);
	tei_mutex_lock(&rig.lane->lock);
	/* as after -FI_EAGAIN to the slice before */
	slice_path(&rig, 0)->blocked_now = true;
	CU_ASSERT(!rail_sched_pull(rig.lane, 0, &done));
	tei_mutex_unlock(&rig.lane->lock);
	rail_done_run(rig.plane.dp, &done);
	CU_ASSERT(!tei_list_empty(&rig.peer[0]->retry));
	CU_ASSERT_EQUAL(slice_held(&rig, 0), 0);
	slice_counted(&rig, 0);
	slice_path(&rig, 0)->blocked_ns = 0;
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(tei_list_empty(&rig.peer[0]->retry));
	CU_ASSERT(slice_held(&rig, 0) > 2 * SLICE_MIN);
	slice_counted(&rig, 0);
	slice_end(&rig, all, 1);
}

/* As when a lane is closed: all that it had posted comes back. */
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
		rail_sched_broken(rig->plane.dp, s, FI_ECANCELED, &done);
	}
	rail_sched_leave(rig->plane.dp);
	tei_mutex_unlock(&rig->lane->lock);
	rail_done_run(rig->plane.dp, &done);
}

static void test_what_breaks_is_not_held(void)
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
	CU_ASSERT(!tei_list_empty(&rig.peer[0]->limbo));
	CU_ASSERT_EQUAL(slice_held(&rig, 0), 0);
	slice_counted(&rig, 0);
	rail_done_init(&done);
	rail_sched_enter(rig.plane.dp);
	rail_sched_fenced(rig.peer[0], 0, 0, &done);
	rail_sched_leave(rig.plane.dp);
	rail_done_run(rig.plane.dp, &done);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT(tei_list_empty(&rig.peer[0]->retry));
	CU_ASSERT(slice_held(&rig, 0) > 2 * SLICE_MIN);
	slice_counted(&rig, 0);
	slice_end(&rig, all, 1);
}

static void test_what_is_abandoned_waits_no_more(void)
{
	struct test_task bulk, small, *all[] = { &bulk, &small };
	struct tei_err err = { .code = TEI_ERR_CONTEXT };
	struct rail_done done;
	struct slice_rig rig;

	slice_begin(&rig, SLICE_SLOW);
	slice_submit(&rig, 0, SLICE_BULK, &bulk);
	slice_submit(&rig, 0, 64, &small);
	CU_ASSERT_EQUAL(rig.peer[0]->queued, 2);
	rail_done_init(&done);
	rail_sched_enter(rig.plane.dp);
	rail_sched_abandon(&bulk.task, &err, &done);
	rail_sched_abandon(&small.task, &err, &done);
	rail_sched_leave(rig.plane.dp);
	rail_done_run(rig.plane.dp, &done);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(slice_held(&rig, 0), 0);
	slice_end(&rig, all, 2);
}

/* --- memory of a GPU ----------------------------------------------------- */

/* The better placed rail does not take it, so it goes by the other one. */
static void test_a_rail_that_takes_none_is_not_waited_for(void)
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

/* What is posted is to be posted again, all but the last one from that memory. */
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
		rail_path_back(s);
		rig->peer[0]->posted--;
		tei_list_add_tail(&rig->peer[0]->retry, &s->link);
		if (!tei_list_empty(&rig->lane->posted))
			s->mr = foreign;
	}
	rail_peer_activate(rig->peer[0]);
	rail_sched_leave(rig->plane.dp);
	tei_mutex_unlock(&rig->lane->lock);
}

/* Nor do slices of it, to be posted again, hold up those of the host's behind
 * them: n tasks of one slice each, of which the last is the host's. */
static void slice_passed_by(size_t n)
{
	static struct test_task task[SLICE_TASKS];
	struct tei_rail_mr foreign = { .gpu = true }, *mr;
	struct test_task *all[SLICE_TASKS];
	struct slice_rig rig;
	struct rail_slice *s;
	size_t i;

	slice_begin(&rig, SLICE_FAST);
	rig.plane.settings.merge = false;
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
	for (i = 0; i < n && !rig.lane->inflight; i++)
		slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(rig.lane->inflight, 1);
	CU_ASSERT(slice_serve(&rig, 1));
	CU_ASSERT_EQUAL(test_ends(&task[n - 1]), 1);
	rail_sched_enter(rig.plane.dp);
	tei_list_foreach(s, &rig.peer[0]->retry, struct rail_slice, link)
		s->mr = mr;
	rail_sched_leave(rig.plane.dp);
	slice_fill(&rig, 0, NULL);
	CU_ASSERT_EQUAL(rig.lane->inflight, n - 1);
	slice_end(&rig, all, n);
}

static void test_slices_of_another_rail_are_passed_by(void)
{
	slice_passed_by(2);
	slice_passed_by(SLICE_TASKS);
}

const struct tei_test_case rail_slice_cases[] = {
	{ "a_small_task_waits_for_a_slice_of_another_peers",
	  test_a_small_task_waits_for_a_slice_of_another_peers },
	{ "small_ones_have_room_at_all_times_if_told",
	  test_small_ones_have_room_at_all_times_if_told },
	{ "a_small_task_waits_for_no_more_beside_more_peers",
	  test_a_small_task_waits_for_no_more_beside_more_peers },
	{ "many_small_tasks_leave_a_large_one_its_share",
	  test_many_small_tasks_leave_a_large_one_its_share },
	{ "large_tasks_keep_their_turn_beside_more_peers",
	  test_large_tasks_keep_their_turn_beside_more_peers },
	{ "small_ones_are_remembered_as_long_beside_more_peers",
	  test_small_ones_are_remembered_as_long_beside_more_peers },
	{ "a_slow_target_does_not_take_what_others_may_have",
	  test_a_slow_target_does_not_take_what_others_may_have },
	{ "on_loopback_a_small_task_waits_for_less_than_a_window",
	  test_on_loopback_a_small_task_waits_for_less_than_a_window },
	{ "small_ones_are_remembered_for_a_while",
	  test_small_ones_are_remembered_for_a_while },
	{ "a_stopped_target_leaves_a_slot_beside_large_tasks",
	  test_a_stopped_target_leaves_a_slot_beside_large_tasks },
	{ "small_tasks_go_before_pages_of_a_large_one",
	  test_small_tasks_go_before_pages_of_a_large_one },
	{ "small_tasks_wait_for_no_large_one_that_may_not_go",
	  test_small_tasks_wait_for_no_large_one_that_may_not_go },
	{ "who_took_long_ago_is_forgotten",
	  test_who_took_long_ago_is_forgotten },
	{ "large_tasks_have_the_window_without_small_ones",
	  test_large_tasks_have_the_window_without_small_ones },
	{ "the_end_of_a_large_request_is_no_small_one",
	  test_the_end_of_a_large_request_is_no_small_one },
	{ "far_rails_keep_off_where_the_near_window_has_room",
	  test_far_rails_keep_off_where_the_near_window_has_room },
	{ "what_the_provider_refuses_is_not_held",
	  test_what_the_provider_refuses_is_not_held },
	{ "what_breaks_is_not_held", test_what_breaks_is_not_held },
	{ "what_is_abandoned_waits_no_more",
	  test_what_is_abandoned_waits_no_more },
	{ "a_rail_that_takes_none_is_not_waited_for",
	  test_a_rail_that_takes_none_is_not_waited_for },
	{ "slices_of_another_rail_are_passed_by",
	  test_slices_of_another_rail_are_passed_by },
	{ NULL, NULL },
};
