/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the width of a rail pair: its choice with a clock and rates of the
 * test, and transfers over two connections of one pair. */

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/rail_lane_thread.h"
#include "prov/rail/rail_progress.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"
#include "util/world.h"

#define WIDTH_STEP_NS	TEI_NS_PER_MS
#define WIDTH_GB	UINT64_C(1000000000)
#define WIDTH_BIG	(UINT64_C(32) << 20)
#define WIDTH_TASKS	8

/* --- the choice of the width --------------------------------------------- */

/* A pair under constant load. */
struct width_load {
	struct rail_width_ctl ctl;
	uint64_t now;
	uint64_t random;		/* state of the noise */
	uint64_t (*rate)(uint32_t n);	/* rate of the pair at width n,
					 * bytes/s */
	uint32_t noise;			/* amplitude of the noise, per cent */
	uint64_t served;		/* bytes completed */
	uint64_t ns[17];		/* time spent at each width, ns */
	uint32_t trials;
};

static void width_load_init(struct width_load *l, uint32_t most,
			    uint64_t (*rate)(uint32_t n), uint32_t noise)
{
	memset(l, 0, sizeof(*l));
	rail_width_ctl_init(&l->ctl, 1, most);
	l->now = TEI_NS_PER_SEC;
	l->random = 1;
	l->rate = rate;
	l->noise = noise;
	rail_width_ctl_begin(&l->ctl, l->now);
}

/* Lets the load run for some seconds. The noise changes every 100 ms. */
static void width_run(struct width_load *l, uint32_t seconds)
{
	uint64_t end = l->now + seconds * TEI_NS_PER_SEC, bytes;
	uint32_t i, percent = 100;
	bool trial;

	memset(l->ns, 0, sizeof(l->ns));
	l->served = 0;
	l->trials = 0;
	for (i = 0; l->now < end; i++) {
		if (l->noise && i % 100 == 0)
			percent = 100 - l->noise +
				  (uint32_t)(test_random(&l->random) %
					     (2 * l->noise + 1));
		trial = l->ctl.trial;
		bytes = l->rate(l->ctl.n) / 1000 * percent / 100;
		l->ns[l->ctl.n] += WIDTH_STEP_NS;
		l->now += WIDTH_STEP_NS;
		l->served += bytes;
		rail_width_ctl_served(&l->ctl, bytes, i % l->ctl.n, l->now);
		l->trials += l->ctl.trial && !trial;
	}
}

/* Each flow is limited to 0.5 GB/s, and the network to three flows. */
static uint64_t width_limited(uint32_t n)
{
	return (n < 3 ? n : 3) * WIDTH_GB / 2;
}

/* The CPU is the limit, and a second connection costs 5 per cent. */
static uint64_t width_busy(uint32_t n)
{
	return n == 1 ? 4 * WIDTH_GB : 4 * WIDTH_GB * 95 / 100;
}

static uint64_t width_equal(uint32_t n)
{
	(void)n;
	return 2 * WIDTH_GB;
}

static void test_width_rises_while_the_rate_rises(void)
{
	struct width_load l;

	width_load_init(&l, 4, width_limited, 2);
	width_run(&l, 10);
	CU_ASSERT_EQUAL(l.ctl.trial ? l.ctl.from : l.ctl.n, 3);
	width_run(&l, 100);
	CU_ASSERT(l.ns[1] == 0);
	CU_ASSERT(l.ns[3] > 90 * TEI_NS_PER_SEC);
	CU_ASSERT(l.served > 146 * WIDTH_GB);
}

static void test_width_without_gain_stays_at_one_and_costs_little(void)
{
	struct width_load l;

	width_load_init(&l, 4, width_busy, 3);
	width_run(&l, 10);
	CU_ASSERT(l.served > 4 * 10 * WIDTH_GB * 98 / 100);
	width_run(&l, 100);
	CU_ASSERT(l.ns[1] > 97 * TEI_NS_PER_SEC);
	CU_ASSERT(l.ns[3] == 0);
	CU_ASSERT(l.served > 4 * 100 * WIDTH_GB * 99 / 100);
}

static void test_trials_without_success_become_rare(void)
{
	struct width_load l;

	width_load_init(&l, 2, width_equal, 0);
	width_run(&l, 10);
	CU_ASSERT(l.trials >= 2);
	width_run(&l, 100);
	CU_ASSERT(l.trials >= 1 && l.trials <= 4);
}

static void test_width_falls_when_it_no_longer_helps(void)
{
	struct width_load l;

	width_load_init(&l, 4, width_limited, 0);
	width_run(&l, 10);
	CU_ASSERT(l.ctl.n >= 3);
	l.rate = width_equal;
	width_run(&l, 300);
	CU_ASSERT_EQUAL(l.ctl.trial ? l.ctl.from : l.ctl.n, 1);
}

static void test_width_limit_is_kept(void)
{
	struct width_load l;

	width_load_init(&l, 2, width_limited, 0);
	width_run(&l, 60);
	CU_ASSERT(l.ns[2] > 50 * TEI_NS_PER_SEC);
	CU_ASSERT(l.ns[3] == 0);
	width_load_init(&l, 1, width_limited, 0);
	width_run(&l, 60);
	CU_ASSERT(l.ns[1] == 60 * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(l.trials, 0);
}

static void test_width_falls_to_one_when_the_load_ends(void)
{
	struct width_load l;

	width_load_init(&l, 4, width_limited, 0);
	width_run(&l, 10);
	CU_ASSERT(l.ctl.n >= 2);
	rail_width_ctl_idle(&l.ctl, l.now + RAIL_WIDTH_IDLE_NS);
	CU_ASSERT(l.ctl.n >= 2);
	rail_width_ctl_idle(&l.ctl, l.now + RAIL_WIDTH_IDLE_NS + 1);
	CU_ASSERT_EQUAL(l.ctl.n, 1);
	CU_ASSERT_FALSE(l.ctl.trial);
	/* the same, if nothing was checked before the next load */
	l.now += 2 * RAIL_WIDTH_IDLE_NS;
	rail_width_ctl_begin(&l.ctl, l.now);
	width_run(&l, 10);
	CU_ASSERT(l.ctl.n >= 2);
	l.now += 2 * RAIL_WIDTH_IDLE_NS;
	rail_width_ctl_begin(&l.ctl, l.now);
	CU_ASSERT_EQUAL(l.ctl.n, 1);
}

static void test_pause_ends_a_trial(void)
{
	struct width_load l;

	width_load_init(&l, 2, width_equal, 0);
	while (!l.ctl.trial) {
		l.now += WIDTH_STEP_NS;
		rail_width_ctl_served(&l.ctl, WIDTH_GB / 500, 0, l.now);
	}
	CU_ASSERT_EQUAL(l.ctl.n, 2);
	rail_width_ctl_begin(&l.ctl, l.now + RAIL_WIDTH_GAP_NS);
	CU_ASSERT_TRUE(l.ctl.trial);
	rail_width_ctl_begin(&l.ctl, l.now + RAIL_WIDTH_GAP_NS + 1);
	CU_ASSERT_FALSE(l.ctl.trial);
	CU_ASSERT_EQUAL(l.ctl.n, 1);
	CU_ASSERT_EQUAL(l.ctl.wait, 2 * RAIL_WIDTH_WAIT);
}

static void test_trials_of_a_load_with_pauses_become_rare(void)
{
	struct width_load l;
	uint32_t i, trials = 0;

	/* a second is too short for two intervals and a trial */
	width_load_init(&l, 2, width_equal, 0);
	for (i = 0; i < 600; i++) {
		l.now += RAIL_WIDTH_GAP_NS + 1;
		rail_width_ctl_begin(&l.ctl, l.now);
		width_run(&l, 1);
		trials += l.trials;
	}
	CU_ASSERT(trials >= 2 && trials <= 12);
}

/* Lets the load run on lane 0 until a trial begins, and then for ns. */
static void width_run_alone(struct width_load *l, uint64_t ns)
{
	uint64_t end = UINT64_MAX;

	while (l->now < end) {
		l->now += WIDTH_STEP_NS;
		rail_width_ctl_served(&l->ctl, l->rate(1) / 1000, 0, l->now);
		if (l->ctl.trial && end == UINT64_MAX)
			end = l->now + ns;
	}
}

static void test_trial_waits_for_the_new_connection(void)
{
	struct width_load l;
	uint32_t i;

	width_load_init(&l, 2, width_limited, 0);
	width_run_alone(&l, RAIL_WIDTH_JOIN_NS - WIDTH_STEP_NS);
	CU_ASSERT_TRUE(l.ctl.trial);
	for (i = 0; i < 2000 && l.ctl.trial; i++) {
		l.now += WIDTH_STEP_NS;
		rail_width_ctl_served(&l.ctl, width_limited(2) / 1000,
				      (i + 1) % 2, l.now);
	}
	CU_ASSERT_EQUAL(l.ctl.n, 2);
	CU_ASSERT_FALSE(l.ctl.trial);
	/* the connection does not come up */
	width_load_init(&l, 2, width_limited, 0);
	width_run_alone(&l, RAIL_WIDTH_JOIN_NS);
	CU_ASSERT_FALSE(l.ctl.trial);
	CU_ASSERT_EQUAL(l.ctl.n, 1);
}

static void test_failure_returns_the_width_to_one(void)
{
	struct width_load l;
	uint32_t backoff;

	width_load_init(&l, 4, width_limited, 0);
	width_run(&l, 10);
	CU_ASSERT(l.ctl.n >= 2);
	backoff = l.ctl.backoff;
	rail_width_ctl_failed(&l.ctl);
	CU_ASSERT_EQUAL(l.ctl.n, 1);
	CU_ASSERT_FALSE(l.ctl.trial);
	CU_ASSERT_EQUAL(l.ctl.wait, 2 * backoff);
	/* further failures of the same connection count once */
	rail_width_ctl_failed(&l.ctl);
	CU_ASSERT_EQUAL(l.ctl.wait, 2 * backoff);
}

static void test_number_of_lanes_follows_settings_and_cpus(void)
{
	struct tei_settings s;
	struct tei_err err;

	CU_ASSERT_EQUAL_FATAL(tei_settings_load(&s, &err), 0);
	s.sched.connections = 0;
	s.sched.connections_min = 1;
	s.sched.progress_threads = 0;
	s.lanes.per_rail = 1;
	CU_ASSERT_EQUAL(rail_lanes_most(&s, 2), 1);
	CU_ASSERT_EQUAL(rail_lanes_most(&s, 8), 2);
	CU_ASSERT_EQUAL(rail_lanes_most(&s, 64), 4);
	s.sched.progress_threads = 2;
	CU_ASSERT_EQUAL(rail_lanes_most(&s, 64), 2);
	s.sched.connections = 1;
	CU_ASSERT_EQUAL(rail_lanes_most(&s, 64), 1);
	s.sched.connections = 6;
	CU_ASSERT_EQUAL(rail_lanes_most(&s, 2), 6);
	s.lanes.per_rail = 8;
	CU_ASSERT_EQUAL(rail_lanes_most(&s, 2), 8);
	s.lanes.per_rail = 1;
	s.sched.connections = 0;
	s.sched.connections_min = 2;
	CU_ASSERT_EQUAL(rail_lanes_most(&s, 2), 2);
}

/* --- transfers over two connections -------------------------------------- */

struct width_rig {
	struct test_plane from, to;
	struct tei_rail_peer *peer;
	struct rail *rail;
	char *src, *dst;		/* WIDTH_BIG bytes each */
};

static char *width_memory(struct test_plane *p)
{
	char *mem = aligned_alloc(4096, WIDTH_BIG);
	struct tei_rail_mr *mr;
	struct tei_err err;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mem);
	memset(mem, 0, WIDTH_BIG);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p->dp, mem, WIDTH_BIG, "*",
					      TEI_RAIL_REMOTE, &err, &mr),
			      0);
	return mem;
}

/* Returns the first slot of the lane with that number. */
static struct rail_lane *width_lane(const struct width_rig *rig, uint32_t i)
{
	return &rig->rail->tx_lanes[i * RAIL_LANE_SLOTS];
}

static bool width_lane_opens(const struct width_rig *rig, uint32_t i)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (!rail_msg_lane(rig->rail, i) && tei_now_ns() < end)
		tei_relax();
	return rail_msg_lane(rig->rail, i);
}

/* Opens two planes with that smallest width, and connects them. The largest
 * width is two. */
static void width_begin(struct width_rig *rig, uint32_t least)
{
	memset(rig, 0, sizeof(*rig));
	test_plane_init(&rig->from);
	test_plane_init(&rig->to);
	rig->from.settings.sched.connections = 2;
	rig->from.settings.sched.connections_min = least;
	rig->from.settings.failure.retry_cnt = 128;
	rig->from.settings.failure.slice_timeout_s = 60;
	test_plane_open(&rig->from, "127.0.0.1");
	test_plane_open(&rig->to, "127.0.0.2");
	rig->rail = rail_at(rig->from.dp, 0);
	rig->src = width_memory(&rig->from);
	rig->dst = width_memory(&rig->to);
	rig->peer = test_plane_peer(&rig->from, &rig->to);
	CU_ASSERT_EQUAL_FATAL(test_run(rig->from.dp, rig->peer, false, rig->src,
				       rig->dst, 1),
			      TEI_RAIL_END_COMPLETED);
}

static void width_end(struct width_rig *rig)
{
	tei_rail_peer_put(rig->peer);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
	free(rig->src);
	free(rig->dst);
}

static uint64_t width_moved(const struct width_rig *rig, uint32_t i)
{
	const struct rail_lane *lane = width_lane(rig, i);

	return __atomic_load_n(&lane[0].done.tx_bytes, __ATOMIC_RELAXED) +
	       __atomic_load_n(&lane[1].done.tx_bytes, __ATOMIC_RELAXED);
}

/* Cuts the connections of the active slot of the lane if slices are posted
 * there. Returns true if it did. */
static bool width_cut(const struct width_rig *rig, uint32_t i)
{
	struct rail_lane *lane = rail_msg_lane(rig->rail, i);
	struct rail_done done;
	bool cut;

	if (!lane)
		return false;
	rail_done_init(&done);
	tei_mutex_lock(&lane->lock);
	cut = lane->state == RAIL_LANE_ACTIVE && lane->inflight;
	if (cut)
		rail_disconnect(lane, &done);
	tei_mutex_unlock(&lane->lock);
	rail_done_run(rig->from.dp, &done);
	return cut;
}

static uint32_t width_connections(const struct width_rig *rig)
{
	struct tei_rail_path_info paths[TEI_RAIL_MAX];

	CU_ASSERT_EQUAL_FATAL(tei_rail_peer_paths(rig->peer, NULL, paths), 1);
	return paths[0].connections;
}

/* Returns the width of the only pair. */
static struct rail_width *width_of(const struct width_rig *rig)
	TEI_REQUIRES(rail_sched_held)
{
	return rail_conn_get(rig->peer, width_lane(rig, 0), 0)->width;
}

/* Sets the width of the pair to two, as if a trial had succeeded just now. */
static void width_set_two(const struct width_rig *rig)
{
	struct rail_slice s = { .bulk = true, .len = 1 };
	struct rail_width *w;

	s.lane = width_lane(rig, 0);
	rail_sched_enter(rig->from.dp);
	w = width_of(rig);
	if (w->ctl.n < 2) {
		w->ctl.known = 2;
		w->ctl.wait = 0;
		w->ctl.settle = false;
		w->ctl.since_ns = 1;
		w->ctl.served = RAIL_WIDTH_BYTES;
		rail_width_served(w, &s, tei_now_ns());
	}
	CU_ASSERT_EQUAL(w->ctl.n, 2);
	w->ctl.trial = false;
	w->ctl.last_ns = tei_now_ns();
	rail_sched_leave(rig->from.dp);
}

/* The actions of width_move while the data moves, and their results. cut: unless
 * it is negative, the connections of the lane with that number are cut as soon as
 * slices are posted on it. widen: the width of the pair is two until then, even
 * if the machine is so slow that the load counts as ended. */
struct width_act {
	int cut;
	bool widen;
	bool was_cut;
	bool used_two;			/* the pair had two connections; valid
					 * if "widen" is true */
};

static void width_do(struct width_rig *rig, struct width_act *act)
{
	if (act->widen && !act->was_cut) {
		width_set_two(rig);
		act->used_two |= width_connections(rig) == 2;
	}
	if (act->cut >= 0 && !act->was_cut)
		act->was_cut = width_cut(rig, (uint32_t)act->cut);
}

/* Writes all of src to dst in WIDTH_TASKS tasks and checks every byte. */
static void width_move(struct width_rig *rig, uint64_t seed,
		       struct width_act *act)
{
	const uint64_t len = WIDTH_BIG / WIDTH_TASKS;
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_task t[WIDTH_TASKS];
	uint32_t i, ended = 0;

	test_fill(rig->src, WIDTH_BIG, seed);
	for (i = 0; i < WIDTH_TASKS; i++)
		test_task_init(&t[i], rig->peer, false, rig->src + i * len,
			       rig->dst + i * len, len);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->from.dp, t, WIDTH_TASKS), 0);
	while (ended < WIDTH_TASKS && tei_now_ns() < end) {
		width_do(rig, act);
		tei_rail_progress(rig->from.dp);
		for (i = ended = 0; i < WIDTH_TASKS; i++)
			ended += test_ends(&t[i]) != 0;
	}
	CU_ASSERT_EQUAL_FATAL(ended, WIDTH_TASKS);
	for (i = 0; i < WIDTH_TASKS; i++) {
		CU_ASSERT_EQUAL(t[i].end, TEI_RAIL_END_COMPLETED);
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
	}
	CU_ASSERT_EQUAL(memcmp(rig->src, rig->dst, WIDTH_BIG), 0);
}

/* Does what width_move does. If "cut" is not negative, cuts the connections of
 * the lane with that number as soon as slices are posted on it. Returns true if
 * it did. */
static bool width_write(struct width_rig *rig, uint64_t seed, int cut)
{
	struct width_act act = { .cut = cut };

	width_move(rig, seed, &act);
	return act.was_cut;
}

/* Returns the number of open lanes of the rail, including the rx lane. */
static uint64_t width_lanes_open(const struct width_rig *rig)
{
	struct tei_rail_stats s;

	CU_ASSERT_EQUAL(tei_rail_get_stats(rig->from.dp, 0, &s), 0);
	return s.lanes;
}

static void test_bulk_data_uses_both_connections(void)
{
	struct width_rig rig;
	uint64_t moved;

	width_begin(&rig, 2);
	CU_ASSERT_TRUE_FATAL(width_lane_opens(&rig, 1));
	CU_ASSERT_EQUAL(width_moved(&rig, 1), 0);
	width_write(&rig, 1, -1);
	width_write(&rig, 2, -1);
	moved = width_moved(&rig, 1);
	/* both connections have the same share of the window */
	CU_ASSERT(moved > WIDTH_BIG / 4);
	CU_ASSERT(width_moved(&rig, 0) > WIDTH_BIG / 4);
	CU_ASSERT_EQUAL(width_connections(&rig), 2);
	/* small requests stay on the first lane */
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 4096),
			TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(width_moved(&rig, 1), moved);
	width_end(&rig);
}

static void test_extra_lane_is_not_opened_without_need(void)
{
	struct width_rig rig;

	width_begin(&rig, 1);
	CU_ASSERT_EQUAL(rig.rail->ntx, 2);
	width_write(&rig, 1, -1);
	CU_ASSERT_EQUAL(width_lanes_open(&rig), 2);
	CU_ASSERT_EQUAL(width_connections(&rig), 1);
	rail_sched_enter(rig.from.dp);
	CU_ASSERT_EQUAL(rig.peer->pairs.lanes, 1);
	rail_sched_leave(rig.from.dp);
	width_end(&rig);
}

/* Sets the width of the pair to two. Opening the extra lane may take so long
 * that the load counts as ended meanwhile. */
static void width_widen(const struct width_rig *rig)
{
	width_set_two(rig);
	CU_ASSERT_TRUE_FATAL(width_lane_opens(rig, 1));
	width_set_two(rig);
}

/* Sets the width of the pair to two, and writes until the second connection is
 * established. Returns false if it is not. It may close again at once. */
static bool width_uses_two(struct width_rig *rig)
{
	struct width_act act = { .cut = -1, .widen = true };
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint64_t seed = 10;

	do {
		width_widen(rig);
		width_move(rig, ++seed, &act);
	} while (!act.used_two && tei_now_ns() < end);
	return act.used_two;
}

static void width_is_narrow(const struct width_rig *rig)
{
	rail_sched_enter(rig->from.dp);
	CU_ASSERT_EQUAL(__atomic_load_n(&rig->rail->load.lanes,
					__ATOMIC_RELAXED),
			1);
	CU_ASSERT_TRUE(tei_list_empty(&rig->from.dp->tasks.wide));
	rail_sched_leave(rig->from.dp);
}

static void test_idle_pair_closes_its_extra_connection_and_lane(void)
{
	struct width_rig rig;
	uint64_t end;

	width_begin(&rig, 1);
	CU_ASSERT_TRUE(width_uses_two(&rig));
	end = tei_now_ns() + TEST_WAIT_NS;
	while (width_connections(&rig) > 1 && tei_now_ns() < end)
		tei_relax();
	CU_ASSERT_EQUAL(width_connections(&rig), 1);
	width_is_narrow(&rig);
	width_write(&rig, 2, -1);
	while (width_lanes_open(&rig) > 2 && tei_now_ns() < end)
		tei_relax();
	CU_ASSERT_EQUAL(width_lanes_open(&rig), 2);
	/* the lane is opened again when it is needed */
	CU_ASSERT_TRUE(width_uses_two(&rig));
	width_end(&rig);
}

/* Cuts one of the two connections while both carry data. The fence covers the
 * slices of both, and no byte is lost. */
static void width_check_cut(int lane)
{
	struct tei_rail_peer_stats stats;
	struct width_rig rig;
	uint32_t i, cuts = 0;

	width_begin(&rig, 2);
	CU_ASSERT_TRUE_FATAL(width_lane_opens(&rig, 1));
	for (i = 0; i < 50 && cuts < 3; i++)
		cuts += width_write(&rig, i + 1, lane);
	CU_ASSERT_EQUAL(cuts, 3);
	tei_rail_peer_get_stats(rig.peer, &stats);
	CU_ASSERT(stats.fences > 0);
	CU_ASSERT(stats.retries > 0);
	width_end(&rig);
}

static void test_write_survives_cut_of_the_extra_connection(void)
{
	width_check_cut(1);
}

static void test_write_survives_cut_of_the_first_connection(void)
{
	width_check_cut(0);
}

static void test_failed_connection_narrows_the_pair(void)
{
	struct width_act act = { .cut = 1, .widen = true };
	struct width_rig rig;
	uint32_t i, n;

	width_begin(&rig, 1);
	for (i = 0; i < 20 && !act.was_cut; i++) {
		CU_ASSERT_TRUE(width_uses_two(&rig));
		width_move(&rig, i + 1, &act);
	}
	CU_ASSERT_TRUE(act.was_cut);
	rail_sched_enter(rig.from.dp);
	n = width_of(&rig)->ctl.n;
	CU_ASSERT_EQUAL(width_of(&rig)->bytes, 0);
	CU_ASSERT_EQUAL(width_of(&rig)->bulk, 0);
	rail_sched_leave(rig.from.dp);
	CU_ASSERT_EQUAL(n, 1);
	width_is_narrow(&rig);
	width_end(&rig);
}

/* --- an extra connection that does not work -------------------------------- */

static int width_error;			/* atomic: error of each post on the
					 * extra lane, -FI_E* */

static ssize_t width_refuse_write(struct fid_ep *ep,
				  const struct fi_msg_rma *msg, uint64_t flags)
{
	(void)ep;
	(void)msg;
	(void)flags;
	return __atomic_load_n(&width_error, __ATOMIC_RELAXED);
}

/* Makes each write on the extra lane fail with that error. A lane that replaces
 * the extra lane is not changed. Returns the generation of the lane. */
static uint32_t width_refuse(const struct width_rig *rig, int error)
{
	struct rail_lane *lane = rail_msg_lane(rig->rail, 1);
	static struct fi_ops_rma ops;
	uint32_t gen;

	__atomic_store_n(&width_error, error, __ATOMIC_RELAXED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(lane);
	tei_mutex_lock(&lane->lock);
	CU_ASSERT_PTR_NOT_NULL_FATAL(lane->ep);
	ops = *lane->ep->rma;
	ops.writemsg = width_refuse_write;
	lane->ep->rma = &ops;
	gen = lane->gen;
	tei_mutex_unlock(&lane->lock);
	return gen;
}

/* Returns true if the extra lane is still the one with that generation. */
static bool width_lane_is(const struct width_rig *rig, uint32_t gen)
{
	const struct rail_lane *lane = rail_msg_lane(rig->rail, 1);

	return lane &&
	       __atomic_load_n(&lane->gen, __ATOMIC_ACQUIRE) == gen;
}

/* Writes for ns while each write on the extra lane fails with that error.
 * Checks that the base connection carries all data, without a fault. Returns
 * the width afterwards. least: smallest width of the pair. */
static uint32_t width_with_error(uint32_t least, int error, uint64_t ns)
{
	struct tei_rail_peer_stats stats;
	struct width_rig rig;
	uint64_t end, seed = 0;
	uint32_t gen, n;

	width_begin(&rig, least);
	if (least < 2)
		width_widen(&rig);
	CU_ASSERT_TRUE_FATAL(width_lane_opens(&rig, 1));
	gen = width_refuse(&rig, error);
	if (least < 2)
		width_set_two(&rig);
	end = tei_now_ns() + ns;
	do {
		width_write(&rig, ++seed, -1);
		rail_sched_enter(rig.from.dp);
		CU_ASSERT_FALSE(rail_health_faulty(rig.peer, rig.rail, 0));
		n = width_of(&rig)->ctl.n;
		rail_sched_leave(rig.from.dp);
	} while ((least == 2 || n > 1) && tei_now_ns() < end);
	CU_ASSERT_TRUE(width_lane_is(&rig, gen));
	tei_rail_peer_get_stats(rig.peer, &stats);
	CU_ASSERT_EQUAL(stats.fences, 0);
	CU_ASSERT_EQUAL(stats.retries, 0);
	CU_ASSERT_EQUAL(width_moved(&rig, 1), 0);
	width_end(&rig);
	return n;
}

static void test_extra_connection_that_never_comes_up_narrows_the_pair(void)
{
	CU_ASSERT_EQUAL(width_with_error(1, -FI_EAGAIN,
					 10 * RAIL_WIDTH_JOIN_NS), 1);
}

static void test_extra_connection_that_never_comes_up_makes_no_fault(void)
{
	CU_ASSERT_EQUAL(width_with_error(2, -FI_EAGAIN, 2 * TEI_NS_PER_SEC), 2);
}

static void test_failed_post_on_an_extra_lane_narrows_the_pair(void)
{
	CU_ASSERT_EQUAL(width_with_error(1, -FI_ENETUNREACH, TEST_WAIT_NS), 1);
	CU_ASSERT_EQUAL(width_with_error(1, -FI_ENOMEM, TEST_WAIT_NS), 1);
	CU_ASSERT_EQUAL(width_with_error(2, -FI_ENOMEM, TEI_NS_PER_SEC), 2);
}

/* Unregisters the target's memory while both connections write to it. No byte
 * may arrive afterwards. */
static void test_unregistration_fences_both_connections(void)
{
	const uint64_t len = WIDTH_BIG / WIDTH_TASKS;
	struct test_task t[WIDTH_TASKS];
	struct width_rig rig;
	struct tei_err err;
	char *copy;
	uint32_t i;

	width_begin(&rig, 2);
	CU_ASSERT_TRUE_FATAL(width_lane_opens(&rig, 1));
	width_write(&rig, 1, -1);
	copy = malloc(WIDTH_BIG);
	CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
	memset(rig.src, 2, WIDTH_BIG);
	for (i = 0; i < WIDTH_TASKS; i++)
		test_task_init(&t[i], rig.peer, false, rig.src + i * len,
			       rig.dst + i * len, len);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, WIDTH_TASKS), 0);
	while (!__atomic_load_n(&width_lane(&rig, 1)->inflight,
				__ATOMIC_RELAXED) &&
	       !test_ends(&t[0]))
		tei_rail_progress(rig.from.dp);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig.to.dp, rig.dst, 0, &err), 0);
	memcpy(copy, rig.dst, WIDTH_BIG);
	CU_ASSERT_TRUE(test_wait(t, WIDTH_TASKS));
	CU_ASSERT_EQUAL(memcmp(copy, rig.dst, WIDTH_BIG), 0);
	free(copy);
	width_end(&rig);
}

static uint32_t width_most_of(struct tei_rail_peer *peer, uint32_t rail)
{
	struct rail_width *w;
	uint32_t most = 0;

	rail_sched_enter(peer->dp);
	w = rail_width_new(peer, rail_at(peer->dp, rail));
	if (w)
		most = w->ctl.most;
	rail_width_free(w);
	rail_sched_leave(peer->dp);
	return most;
}

/* Tests that a rail which has replaced another one gets all lanes that the CPUs
 * allow. */
static void test_replaced_rail_does_not_reduce_the_largest_width(void)
{
	struct test_plane from, to;
	struct tei_rail_peer *peer;

	test_plane_init(&from);
	test_plane_init(&to);
	from.settings.sched.connections = 2;
	test_plane_open(&from, "127.0.0.1,127.0.0.3");
	test_plane_open(&to, "127.0.0.2");
	peer = test_plane_peer(&from, &to);
	CU_ASSERT_EQUAL(width_most_of(peer, 1), 2);
	/* the number of lanes no longer comes from the user */
	from.settings.sched.connections = 0;
	CU_ASSERT_EQUAL(width_most_of(peer, 1), 1);
	rail_sched_enter(from.dp);
	__atomic_store_n(&rail_at(from.dp, 0)->hidden, true, __ATOMIC_RELAXED);
	rail_sched_leave(from.dp);
	CU_ASSERT_EQUAL(width_most_of(peer, 1), 2);
	tei_rail_peer_put(peer);
	test_plane_close(&from);
	test_plane_close(&to);
}

static void test_small_endpoint_cache_allows_no_extra_lanes(void)
{
	struct test_plane p;
	uint32_t cap;

	for (cap = 3; cap <= 4; cap++) {
		test_plane_init(&p);
		p.settings.sched.connections = 2;
		p.settings.lanes.max_conns = cap;
		test_plane_open(&p, "127.0.0.1");
		CU_ASSERT_EQUAL(rail_at(p.dp, 0)->ntx, cap == 4 ? 2 : 1);
		test_plane_close(&p);
	}
}

/* --- places in the endpoint cache ---------------------------------------- */

static void test_extra_lanes_borrow_a_quarter_of_the_places(void)
{
	struct rail_conn conn[8];
	struct rail_lane *extra;
	struct rail_cache *c;
	struct width_rig rig;
	uint64_t now = tei_now_ns();
	uint32_t i;

	width_begin(&rig, 1);
	test_plane_still(&rig.from);
	c = rig.rail->cache;
	extra = width_lane(&rig, 1);
	c[0].cap = 8;
	CU_ASSERT_PTR_EQUAL(c[1].lender, &c[0]);
	memset(conn, 0, sizeof(conn));
	tei_mutex_lock(&extra->lock);
	rail_sched_enter(rig.from.dp);
	for (i = 0; i < 8; i++) {
		conn[i].peer = rig.peer;
		conn[i].remote = 0;
		tei_list_init(&conn[i].wait_link);
	}
	for (i = 0; i < 2; i++)
		CU_ASSERT_TRUE(rail_cache_admit_msg(extra, &conn[i], now));
	CU_ASSERT_EQUAL(c[0].lent, 2);
	CU_ASSERT_FALSE(rail_cache_admit_msg(extra, &conn[2], now));
	rail_sched_leave(rig.from.dp);
	tei_mutex_unlock(&extra->lock);
	/* the lender needs its places, which the extra lane returns under its
	 * own lock */
	tei_mutex_lock(&width_lane(&rig, 0)->lock);
	rail_sched_enter(rig.from.dp);
	CU_ASSERT_EQUAL(c[0].held.count, 1);
	for (i = 2; i < 8; i++)
		CU_ASSERT_TRUE(rail_cache_admit_msg(width_lane(&rig, 0),
						    &conn[i], now + i));
	CU_ASSERT_EQUAL(c[0].lent, 2);
	CU_ASSERT_EQUAL(c[0].held.count, 6);
	CU_ASSERT_EQUAL(c[1].held.count, 2);
	rail_sched_leave(rig.from.dp);
	tei_mutex_unlock(&width_lane(&rig, 0)->lock);
	CU_ASSERT_TRUE(rail_cache_closes(extra));
	tei_mutex_lock(&extra->lock);
	extra->state = RAIL_LANE_ACTIVE;
	rail_cache_close(extra);
	extra->state = RAIL_LANE_CLOSED;
	tei_mutex_unlock(&extra->lock);
	CU_ASSERT_FALSE(rail_cache_closes(extra));
	rail_sched_enter(rig.from.dp);
	CU_ASSERT_EQUAL(c[0].lent, 1);
	CU_ASSERT_EQUAL(c[1].held.count, 1);
	for (i = 0; i < 8; i++)
		rail_cache_forget(&conn[i]);
	CU_ASSERT_EQUAL(c[0].lent, 0);
	rail_sched_leave(rig.from.dp);
	width_end(&rig);
}

/* Does what the progress thread does, except that nothing is opened again, until
 * the extra lane has no endpoint and is not being opened. */
static bool width_await_closed(struct width_rig *rig)
{
	const struct rail_lane *lane = width_lane(rig, 1);
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	bool closed = false;

	while (!closed && tei_now_ns() < end) {
		rail_renew_run(rig->from.dp, tei_now_ns());
		rail_reopen_collect(rig->rail);
		tei_relax();
		closed = lane[0].state == RAIL_LANE_CLOSED &&
			 lane[1].state == RAIL_LANE_CLOSED &&
			 !__atomic_load_n(&rig->rail->next_tx[1].under_way,
					  __ATOMIC_RELAXED);
	}
	return closed;
}

/* Does what the progress thread does until the extra lane is open. The time of
 * the test passes quickly. */
static bool width_await_open(struct width_rig *rig, uint64_t now)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (!rail_msg_lane(rig->rail, 1) && tei_now_ns() < end) {
		now += TEI_NS_PER_SEC;
		rail_renew_run(rig->from.dp, now);
		rail_progress_reopen(rig->from.dp, now);
		tei_relax();
	}
	return rail_msg_lane(rig->rail, 1);
}

static uint32_t width_lent(const struct width_rig *rig)
{
	uint32_t n;

	rail_sched_enter(rig->from.dp);
	n = rig->rail->cache[0].lent;
	rail_sched_leave(rig->from.dp);
	return n;
}

static void test_extra_lane_that_cannot_be_opened_returns_its_places(void)
{
	static char none[] = "none";
	struct width_rig rig;
	struct rail_lane *lane;
	uint64_t now;
	char *name;

	width_begin(&rig, 2);
	CU_ASSERT_TRUE_FATAL(width_lane_opens(&rig, 1));
	width_write(&rig, 1, -1);
	test_plane_still(&rig.from);
	CU_ASSERT_EQUAL(width_lent(&rig), 1);
	/* no provider has the name */
	name = test_rail_rename(rig.rail, none);
	lane = rail_msg_lane(rig.rail, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(lane);
	rail_renew_lane(lane, 0);
	CU_ASSERT_TRUE(width_await_closed(&rig));
	now = tei_now_ns() + TEI_NS_PER_SEC;
	rail_progress_reopen(rig.from.dp, now);
	CU_ASSERT_EQUAL(width_lent(&rig), 0);
	CU_ASSERT_FALSE(__atomic_load_n(&rig.rail->link.lost, __ATOMIC_RELAXED));
	test_rail_rename(rig.rail, name);
	CU_ASSERT_TRUE(width_await_open(&rig, now));
	width_write(&rig, 2, -1);
	width_end(&rig);
}

const struct tei_test_case rail_width_cases[] = {
	{ "width_rises_while_the_rate_rises",
	  test_width_rises_while_the_rate_rises },
	{ "width_without_gain_stays_at_one_and_costs_little",
	  test_width_without_gain_stays_at_one_and_costs_little },
	{ "trials_without_success_become_rare",
	  test_trials_without_success_become_rare },
	{ "width_falls_when_it_no_longer_helps",
	  test_width_falls_when_it_no_longer_helps },
	{ "width_limit_is_kept", test_width_limit_is_kept },
	{ "width_falls_to_one_when_the_load_ends",
	  test_width_falls_to_one_when_the_load_ends },
	{ "pause_ends_a_trial", test_pause_ends_a_trial },
	{ "trials_of_a_load_with_pauses_become_rare",
	  test_trials_of_a_load_with_pauses_become_rare },
	{ "trial_waits_for_the_new_connection",
	  test_trial_waits_for_the_new_connection },
	{ "failure_returns_the_width_to_one",
	  test_failure_returns_the_width_to_one },
	{ "number_of_lanes_follows_settings_and_cpus",
	  test_number_of_lanes_follows_settings_and_cpus },
	{ "bulk_data_uses_both_connections",
	  test_bulk_data_uses_both_connections },
	{ "extra_lane_is_not_opened_without_need",
	  test_extra_lane_is_not_opened_without_need },
	{ "idle_pair_closes_its_extra_connection_and_lane",
	  test_idle_pair_closes_its_extra_connection_and_lane },
	{ "write_survives_cut_of_the_extra_connection",
	  test_write_survives_cut_of_the_extra_connection },
	{ "write_survives_cut_of_the_first_connection",
	  test_write_survives_cut_of_the_first_connection },
	{ "failed_connection_narrows_the_pair",
	  test_failed_connection_narrows_the_pair },
	{ "small_endpoint_cache_allows_no_extra_lanes",
	  test_small_endpoint_cache_allows_no_extra_lanes },
	{ "replaced_rail_does_not_reduce_the_largest_width",
	  test_replaced_rail_does_not_reduce_the_largest_width },
	{ "extra_connection_that_never_comes_up_narrows_the_pair",
	  test_extra_connection_that_never_comes_up_narrows_the_pair },
	{ "extra_connection_that_never_comes_up_makes_no_fault",
	  test_extra_connection_that_never_comes_up_makes_no_fault },
	{ "failed_post_on_an_extra_lane_narrows_the_pair",
	  test_failed_post_on_an_extra_lane_narrows_the_pair },
	{ "unregistration_fences_both_connections",
	  test_unregistration_fences_both_connections },
	{ "extra_lane_that_cannot_be_opened_returns_its_places",
	  test_extra_lane_that_cannot_be_opened_returns_its_places },
	{ "extra_lanes_borrow_a_quarter_of_the_places",
	  test_extra_lanes_borrow_a_quarter_of_the_places },
	{ NULL, NULL },
};
