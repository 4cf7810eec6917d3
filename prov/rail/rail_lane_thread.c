/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lane threads (rail_lane_thread.h).
 *
 * lane->load.thread says which thread polls a lane. Only the progress thread
 * changes it from 0 to the number of a lane thread, and only that lane thread
 * changes it back. The lane's lock still guards the lane. So the code of the
 * fence, the code that opens and closes lanes, and callers need not know which
 * thread polls a lane.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_lane_threads.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/rail_lane_thread.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/world.h"

/* Default number of progress threads: one for each rail, but at most one for
 * LANE_THREAD_CPUS CPUs, and at most LANE_THREAD_MOST. */
#define LANE_THREAD_CPUS	4
#define LANE_THREAD_MOST	8
#define LANE_THREAD_CONNS	4	/* largest default of
					 * MOONRAIL_CONNECTIONS */
/* time between two checks of the load by the progress thread, and by a lane
 * thread */
#define LANE_THREAD_CHECK_NS	(2 * TEI_NS_PER_MS)
#define LANE_THREAD_KEEP_NS	(4 * TEI_NS_PER_MS)
#define LANE_THREAD_PARTS	16	/* shares are in sixteenths */
#define LANE_THREAD_BUSY	1	/* default of rail_lane_threads.busy */
#define LANE_THREAD_FULL	10	/* default of rail_lane_threads.full */
#define LANE_THREAD_LANES	64	/* largest number of busy lanes that one
					 * check takes into account */
/* longest sleep of a lane thread without lanes */
#define LANE_THREAD_SLEEP_NS	(3600 * TEI_NS_PER_SEC)

/* --- the lanes of a rail ------------------------------------------------- */

static uint32_t lane_thread_lanes(const struct rail *rail)
{
	return 1 + rail->ntx * RAIL_LANE_SLOTS;
}

/* Returns the rx lane for index 0, and then the tx lanes. */
static struct rail_lane *lane_thread_lane(struct rail *rail, uint32_t i)
{
	return i ? &rail->tx_lanes[i - 1] : &rail->rx_lane;
}

/* Returns the duration of the busy polls since *last, and updates *last. */
static uint64_t lane_thread_load(const struct rail_lane *lane, uint64_t *last)
{
	uint64_t busy = __atomic_load_n(&lane->load.busy_ns, __ATOMIC_RELAXED);
	uint64_t load = busy - *last;

	*last = busy;
	return load;
}

/* Returns *share sixteenths of a period of ns nanoseconds. */
static uint64_t lane_thread_part(uint64_t ns, const uint32_t *share)
{
	return ns / LANE_THREAD_PARTS *
	       __atomic_load_n(share, __ATOMIC_RELAXED);
}

/* --- the lane thread ----------------------------------------------------- */

static void lane_thread_poll_rx(struct rail_lane *lane)
{
	struct rail_done done;

	/* The progress thread needs the lock to handle the deferred
	 * messages. */
	if (__atomic_load_n(&lane->recv.ndeferred, __ATOMIC_RELAXED) ||
	    !tei_mutex_trylock(&lane->lock))
		return;
	rail_done_init(&done);
	lane->recv.visited = true;
	rail_lane_poll_timed(lane, &done);
	lane->recv.visited = false;
	tei_mutex_unlock(&lane->lock);
	rail_done_run(lane->rail->dp, &done);
}

/* Polls a lane, unless another thread waits for its lock: a thread that polls
 * without a pause could keep that thread waiting for a long time. */
static void lane_thread_poll_one(struct rail_lane *lane)
{
	if (tei_mutex_wanted(&lane->lock))
		tei_yield();
	else if (lane->is_rx)
		lane_thread_poll_rx(lane);
	else
		rail_lane_run(lane);
}

/* Returns the lane to the progress thread, which then polls it at once. */
static void lane_thread_return(struct rail_lane *lane)
{
	__atomic_store_n(&lane->load.thread, 0, __ATOMIC_RELEASE);
	rail_progress_wake(lane->rail->dp);
}

/* Returns the lane if its load since the last check was small. */
static void lane_thread_review(struct rail_lane *lane, uint64_t now)
{
	uint64_t ns = now - lane->load.since_ns, load;

	if (ns < LANE_THREAD_KEEP_NS)
		return;
	lane->load.since_ns = now;
	load = lane_thread_load(lane, &lane->load.kept_ns);
	if (load < ns / LANE_THREAD_PARTS)
		lane_thread_return(lane);
}

/* Polls the lanes that are assigned to the thread, or returns them if stop is
 * true. Returns their number. */
static uint32_t lane_thread_poll(struct rail_lane_thread *t, bool stop,
				 uint64_t now)
{
	struct rail_lane *lane;
	uint32_t i, j, n = 0;
	struct rail *rail;

	for (i = 0; i < rail_count(t->dp); i++) {
		rail = rail_at(t->dp, i);
		for (j = 0; j < lane_thread_lanes(rail); j++) {
			lane = lane_thread_lane(rail, j);
			if (__atomic_load_n(&lane->load.thread,
					    __ATOMIC_ACQUIRE) != t->number)
				continue;
			n++;
			if (stop) {
				lane_thread_return(lane);
				continue;
			}
			lane_thread_poll_one(lane);
			lane_thread_review(lane, now);
		}
	}
	return n;
}

static enum tei_loop_next lane_thread_step(void *arg, struct tei_loop_sleep *s)
{
	struct rail_lane_thread *t = arg;
	bool stop = __atomic_load_n(&t->dp->lane_threads->stop,
				    __ATOMIC_ACQUIRE);

	if (!lane_thread_poll(t, stop, tei_now_ns())) {
		s->fds = t->fds;
		s->nfds = 1;
		s->ns = LANE_THREAD_SLEEP_NS;
		s->sleep = true;
	}
	return stop ? TEI_LOOP_END : TEI_LOOP_CONTINUE;
}

/* --- assigning ----------------------------------------------------------- */

/* Loads of the lanes during a period of ns nanoseconds. */
struct lane_thread_loads {
	struct {
		struct rail_lane *lane;
		uint64_t ns;
	} lanes[LANE_THREAD_LANES];	/* busy lanes that are not assigned */
	uint32_t n;
	uint64_t ns;
	uint64_t *used;			/* load of each lane thread */
	bool any;			/* a lane is assigned */
};

static void lane_thread_measure(struct rail_lane_threads *all,
				struct rail_lane *lane,
				struct lane_thread_loads *loads)
{
	uint64_t load = lane_thread_load(lane, &lane->load.seen_ns);
	uint32_t t = __atomic_load_n(&lane->load.thread, __ATOMIC_ACQUIRE);

	if (t) {
		loads->used[t - 1] += load;
		loads->any = true;
		return;
	}
	if (!load || load < lane_thread_part(loads->ns, &all->busy) ||
	    !rail_lane_active(lane) || loads->n == LANE_THREAD_LANES)
		return;
	loads->lanes[loads->n].lane = lane;
	loads->lanes[loads->n++].ns = load;
}

/* Starts another lane thread. Returns false if it cannot be started. Then no
 * further attempt is made. */
static bool lane_thread_start(struct rail_lane_threads *all,
			      struct rail_lane_thread *t)
{
	int ret;

	snprintf(t->name, sizeof(t->name), "tei-lane-%u", t->number);
	t->loop.name = t->name;
	ret = tei_loop_start(&t->loop, lane_thread_step, t);
	if (ret) {
		TEI_WARN("rail", "lane thread %u could not be started: %s; progress threads of this engine: %u",
			 t->number, strerror(ret), all->n + 1);
		all->failed = true;
		return false;
	}
	__atomic_store_n(&t->running, true, __ATOMIC_RELEASE);
	rail_numa_bind_loop(t->dp, &t->loop);
	all->n++;
	TEI_INFO("rail", "lane thread %u started because of the load of the rails",
		 t->number);
	return true;
}

/* Returns the lane thread that takes a lane: one without lanes, a new one, or
 * the one with the lowest load. Returns NULL if there is none. */
static struct rail_lane_thread *lane_thread_choose(
	struct rail_lane_threads *all, const struct lane_thread_loads *loads)
{
	uint32_t limit = __atomic_load_n(&all->limit, __ATOMIC_RELAXED);
	uint32_t i, best = 0, n = all->n < limit ? all->n : limit;

	for (i = 1; i < n; i++)
		if (loads->used[i] < loads->used[best])
			best = i;
	if ((!n || loads->used[best]) && n < limit && !all->failed &&
	    lane_thread_start(all, &all->list[n]))
		return &all->list[n];
	return n ? &all->list[best] : NULL;
}

static void lane_thread_assign(struct rail_lane_thread *t,
			       struct rail_lane *lane, uint64_t now)
{
	__atomic_fetch_add(&lane->load.assigned, 1, __ATOMIC_RELAXED);
	lane->load.kept_ns = lane->load.seen_ns;
	lane->load.since_ns = now;
	__atomic_store_n(&lane->load.thread, t->number, __ATOMIC_RELEASE);
	tei_loop_wake(&t->loop);
}

/*
 * Assigns lanes of one polling thread (the progress thread, or a caller) if its
 * busy lanes take most of its time. rx, tx: whether that thread polls the rx
 * lanes, and the tx lanes. The busiest of these lanes stays. Stops if the
 * chosen lane thread would then have more load than the polling thread has
 * before this lane is assigned.
 */
static void lane_thread_spread(struct rail_lane_threads *all,
			       struct lane_thread_loads *loads, bool rx,
			       bool tx, uint64_t now)
{
	uint64_t total = 0, most = 0, *used;
	uint32_t i, n = 0, keep = 0;
	struct rail_lane_thread *t;

	for (i = 0; i < loads->n; i++) {
		if (!(loads->lanes[i].lane->is_rx ? rx : tx))
			continue;
		total += loads->lanes[i].ns;
		if (!n++ || loads->lanes[i].ns > most) {
			most = loads->lanes[i].ns;
			keep = i;
		}
	}
	if (n < 2 || total < lane_thread_part(loads->ns, &all->full))
		return;
	for (i = 0; i < loads->n; i++) {
		if (i == keep || !(loads->lanes[i].lane->is_rx ? rx : tx))
			continue;
		t = lane_thread_choose(all, loads);
		if (!t)
			return;
		used = &loads->used[t->number - 1];
		if (*used + loads->lanes[i].ns > total)
			return;
		*used += loads->lanes[i].ns;
		total -= loads->lanes[i].ns;
		lane_thread_assign(t, loads->lanes[i].lane, now);
		loads->any = true;
	}
}

static bool lane_thread_any(struct tei_rail_dp *dp)
{
	struct rail *rail;
	uint32_t i, j;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		for (j = 0; j < lane_thread_lanes(rail); j++)
			if (rail_lane_assigned(lane_thread_lane(rail, j)))
				return true;
	}
	return false;
}

/* Returns the number of extra lanes of the rail that are in use. */
static uint32_t lane_thread_extra(const struct rail *rail)
{
	uint32_t lanes = __atomic_load_n(&rail->load.lanes, __ATOMIC_RELAXED);

	return lanes > rail->nbase ? lanes - rail->nbase : 0;
}

/* Returns the number of lane threads to which lanes may be assigned. Each extra
 * lane in use counts as a rail. */
static uint32_t lane_thread_limit(struct tei_rail_dp *dp,
				  const struct rail_lane_threads *all)
{
	uint32_t i, rails = 0;
	struct rail *rail;

	if (!all->by_rails)
		return all->room;
	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (rail_published(rail))
			rails += 1 + lane_thread_extra(rail);
	}
	if (rails < 2)
		return 0;
	return rails - 1 < all->room ? rails - 1 : all->room;
}

bool rail_lane_threads_check(struct tei_rail_dp *dp, bool tx_elsewhere,
			     uint64_t now)
{
	struct rail_lane_threads *all = dp->lane_threads;
	uint64_t used[RAIL_LANE_THREADS_MAX] = { 0 };
	struct lane_thread_loads loads = { .used = used };
	uint32_t i, j, limit;
	struct rail *rail;

	if (!all)
		return false;
	loads.ns = now - all->checked_ns;
	if (loads.ns < LANE_THREAD_CHECK_NS)
		return all->n && lane_thread_any(dp);
	all->checked_ns = now;
	limit = lane_thread_limit(dp, all);
	__atomic_store_n(&all->limit, limit, __ATOMIC_RELAXED);
	if (!limit && !all->n)
		return false;
	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		for (j = 0; j < lane_thread_lanes(rail); j++)
			lane_thread_measure(all, lane_thread_lane(rail, j),
					    &loads);
	}
	if (tx_elsewhere) {
		lane_thread_spread(all, &loads, true, false, now);
		lane_thread_spread(all, &loads, false, true, now);
	} else {
		lane_thread_spread(all, &loads, true, true, now);
	}
	return loads.any;
}

/* --- start and stop ------------------------------------------------------ */

uint32_t rail_lane_threads_most(uint32_t setting, uint32_t cpus)
{
	if (!setting)
		setting = cpus / LANE_THREAD_CPUS < LANE_THREAD_MOST ?
			  cpus / LANE_THREAD_CPUS : LANE_THREAD_MOST;
	if (setting > 1 + RAIL_LANE_THREADS_MAX)
		setting = 1 + RAIL_LANE_THREADS_MAX;
	return setting ? setting : 1;
}

uint32_t rail_lanes_most(const struct tei_settings *s, uint32_t cpus)
{
	uint32_t base = s->lanes.per_rail, n = s->sched.connections;

	if (!n) {
		n = rail_lane_threads_most(s->sched.progress_threads, cpus) /
		    base;
		if (n > LANE_THREAD_CONNS)
			n = LANE_THREAD_CONNS;
		if (n < s->sched.connections_min)
			n = s->sched.connections_min;
	}
	return n > base ? n : base;
}

int rail_lane_threads_open(struct tei_rail_dp *dp, struct tei_err *err)
{
	uint32_t setting = dp->settings->sched.progress_threads, i, n;
	struct rail_lane_threads *all;

	dp->conf.lanes = rail_lanes_most(dp->settings, rail_numa_cpus(dp));
	n = rail_lane_threads_most(setting, rail_numa_cpus(dp)) - 1;
	if (!n)
		return 0;
	all = calloc(1, sizeof(*all) + n * sizeof(all->list[0]));
	if (!all)
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "no memory for lane threads");
	all->by_rails = !setting;
	all->busy = LANE_THREAD_BUSY;
	all->full = LANE_THREAD_FULL;
	for (i = 0; i < n; i++) {
		all->list[i].dp = dp;
		all->list[i].number = i + 1;
		all->list[i].fds[0].fd = -1;
	}
	all->room = n;
	dp->lane_threads = all;
	return 0;
}

void rail_lane_threads_eager(struct tei_rail_dp *dp)
{
	struct rail_lane_threads *all = dp->lane_threads;

	if (!all)
		return;
	__atomic_store_n(&all->busy, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&all->full, 0, __ATOMIC_RELAXED);
}

void rail_lane_threads_stop(struct tei_rail_dp *dp)
{
	struct rail_lane_threads *all = dp->lane_threads;
	uint32_t i;

	if (!all)
		return;
	__atomic_store_n(&all->stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < all->n; i++)
		tei_loop_stop(&all->list[i].loop);
}

void rail_lane_threads_close(struct tei_rail_dp *dp)
{
	uint32_t i;

	for (i = 0; dp->lane_threads && i < dp->lane_threads->n; i++)
		tei_loop_close(&dp->lane_threads->list[i].loop);
	free(dp->lane_threads);
	dp->lane_threads = NULL;
}
