/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The progress thread polls all lanes of a data plane. After activity it
 * continues to poll for a short time, then arms the file descriptors of the
 * lanes and sleeps.
 *
 * While callers poll the tx lanes, the thread does not poll these lanes. So
 * completions do not wake the thread, and the thread takes no CPU time from the
 * callers. It checks once a millisecond whether the callers still poll; later
 * only every four milliseconds. If a caller goes to sleep, the thread takes
 * over at once.
 */

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/peer/rail_served.h"
#include "prov/rail/rail_dispatch.h"
#include "prov/rail/rail_lane_thread.h"
#include "prov/rail/rail_peer_run.h"
#include "prov/rail/rail_progress.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/wire/rail_resend.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/heap.h"
#include "util/hint.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/world.h"

/* Shortest and longest interval at which the progress thread checks whether
 * callers poll. The interval grows as long as callers poll. */
#define PROGRESS_APP_DRIVEN_NS TEI_NS_PER_MS
#define PROGRESS_TRUST_NS      (4 * PROGRESS_APP_DRIVEN_NS)
/* Longest average time between two polls by callers at which the progress
 * thread leaves the lanes to the callers: for tx lanes, and for rx lanes. */
#define PROGRESS_AWAY_NS	 (PROGRESS_APP_DRIVEN_NS / 4)
#define PROGRESS_TARGETS_AWAY_NS (PROGRESS_APP_DRIVEN_NS / 32)
#define PROGRESS_LITTLE		6	/* the progress thread also leaves the
					 * lanes to callers that spend at most
					 * 1/6 of the time without polling */
/* Longest duration that is counted for one poll by a caller. */
#define PROGRESS_LOOK_NS (4 * PROGRESS_APP_DRIVEN_NS)
#define PROGRESS_RARELY		64	/* iterations between two polls of idle
					 * tx lanes */
#define PROGRESS_SELDOM		16	/* iterations between two polls of
					 * contact lanes */
/* Largest number of polls of the lanes in one iteration while the thread spins,
 * and the time after which no further poll begins. */
#define PROGRESS_LOOKS		8
#define PROGRESS_LOOKS_NS	(50 * TEI_NS_PER_US)
#define PROGRESS_DENSE		4	/* traffic is dense if a sleep lasts
					 * less than this number of usual
					 * spins */
#define PROGRESS_SPIN_MAX	32	/* longest spin, as a multiple of the
					 * usual spin */
/* Shortest and longest pause between two searches for file descriptors of new
 * connections. */
#define PROGRESS_CLOEXEC_MIN_NS	(10 * TEI_NS_PER_MS)
#define PROGRESS_CLOEXEC_MAX_NS	(500 * TEI_NS_PER_MS)
/* Shortest and longest sleep of the thread while slices wait that no lane has
 * taken. After the sleep the thread offers them again. */
#define PROGRESS_RETRY_MIN_NS	(TEI_NS_PER_MS / 4)
#define PROGRESS_RETRY_MAX_NS	(4 * TEI_NS_PER_MS)
/* Interval between attempts to open the lanes of lost rails. */
#define PROGRESS_LOST_NS (25 * RAIL_HEALTH_NS)
/* Longest sleep while tasks are unfinished. */
#define PROGRESS_MAX_SLEEP_NS	(50 * TEI_NS_PER_MS)
/* If the time between two iterations, without intended sleeps, is longer than
 * this, the process was suspended. */
#define PROGRESS_STILL_NS	(1000 * TEI_NS_PER_MS)
/* Longest sleep if no task is unfinished: first value, in general; second
 * value, after a long time without activity. */
#define PROGRESS_IDLE_SLEEP_NS	(250 * TEI_NS_PER_MS)
#define PROGRESS_LONG_SLEEP_NS	(4000 * TEI_NS_PER_MS)
/* Limits of one iteration: the largest number of peers whose state machines run,
 * and the time after which the iteration runs those of no further peer. */
#define PROGRESS_PEERS		64
#define PROGRESS_PEERS_NS	TEI_NS_PER_MS
#define PROGRESS_MAX_FDS	(TEI_RAIL_MAX * 20)
#define PROGRESS_LANES		2	/* index of the first lane's file
					 * descriptor in progress.fds */

/* State of the progress thread. */
struct progress {
	struct tei_rail_dp *dp;
	struct rail_drive drive;
	struct rail_drive targets;	/* how often callers poll the rx
					 * lanes */
	uint64_t trust_ns;		/* longest sleep while callers poll,
					 * ns */
	uint64_t active_ns;		/* time of the last activity of tx
					 * lanes */
	uint64_t target_ns;		/* time of the last activity of rx
					 * lanes */
	uint32_t turns;			/* number of calls of progress_lanes */
	uint64_t spin_ns;		/* how long the thread spins after the
					 * time target_ns, ns */
	uint64_t stirred_ns;		/* time of the last wake-up or
					 * submission, or of the last check that
					 * found an unfinished task */
	uint64_t seen_ns;		/* time that progress_now returned last,
					 * or 0 */
	uint64_t slept_ns;		/* time for which the thread was meant
					 * to sleep since seen_ns, ns */
	uint64_t deadline_ns;		/* time of the last check of
					 * deadlines */
	uint64_t probe_ns;		/* time of the last check for silent
					 * peers */
	uint64_t served_ns;		/* time of the last check of the reports
					 * of moved bytes */
	bool served_live;		/* true if tasks were unfinished at the
					 * time served_ns */
	uint64_t cloexec_ns;		/* time of the last check for new file
					 * descriptors */
	uint64_t cloexec_wait_ns;	/* pause before the next search for new
					 * file descriptors, ns */
	uint64_t idle_sleep_ns;		/* length of the next sleep if a lane
					 * has no file descriptor, ns */
	/* length of the next sleep before posting is tried again; 0 if there
	 * was no such sleep since the last event */
	uint64_t retry_sleep_ns;
	bool assigned;			/* lane threads poll some of the lanes */
	bool slept;			/* the last step has requested a sleep,
					 * whose result is in the argument of
					 * the next step */
	int ntargets;			/* number of rx lanes in fds, from
					 * PROGRESS_LANES on */
	/* file descriptors to sleep on: the world's, then the one that reports
	 * changes of links, then those of the lanes */
	struct pollfd fds[PROGRESS_MAX_FDS];
};

/* Returns true if a caller sleeps until its tasks end, so that this thread must
 * poll the lanes. */
static bool progress_relied_on(struct tei_rail_dp *dp)
{
	return __atomic_load_n(&dp->callers.dozing, __ATOMIC_SEQ_CST) != 0;
}

/*
 * Returns the total time that callers have been polling, ns. A poll that takes
 * longer than PROGRESS_LOOK_NS counts as PROGRESS_LOOK_NS, because its caller
 * is stuck or stopped.
 */
static uint64_t drive_looked(const struct rail_polls *polls, uint64_t now)
{
	uint64_t since = __atomic_load_n(&polls->since_ns, __ATOMIC_RELAXED);
	uint64_t open = since && now > since ? now - since : 0;

	if (open > PROGRESS_LOOK_NS)
		open = PROGRESS_LOOK_NS;
	return __atomic_load_n(&polls->took_ns, __ATOMIC_RELAXED) + open;
}

/*
 * Sets d->app_driven to true if callers have polled enough since the last
 * measurement, otherwise to false. The measured value is the time in which no
 * caller polled. It may be at most away_ns per pause between two polls on
 * average, or at most 1/PROGRESS_LITTLE of the time.
 */
static void drive_measure(struct rail_drive *d, const struct rail_polls *polls,
			  uint64_t away_ns, uint64_t now)
{
	uint64_t looked = drive_looked(polls, now), calls;
	uint64_t ns = now - d->since_ns;
	int64_t away;

	if (ns < PROGRESS_APP_DRIVEN_NS)
		return;
	calls = __atomic_load_n(&polls->calls, __ATOMIC_RELAXED);
	away = (int64_t)ns - (int64_t)(looked - d->looked_ns);
	d->app_driven = away <= (int64_t)((calls - d->seen + 1) * away_ns) ||
			away <= (int64_t)(ns / PROGRESS_LITTLE);
	d->looked_ns = looked;
	d->seen = calls;
	d->since_ns = now;
}

bool rail_drive_poll(struct tei_rail_dp *dp, struct rail_drive *d, uint64_t now)
{
	if (progress_relied_on(dp))
		d->app_driven = false;
	else if (__atomic_load_n(&dp->callers.app_driving, __ATOMIC_RELAXED))
		d->app_driven = true;
	else
		drive_measure(d, &dp->callers.polls, PROGRESS_AWAY_NS, now);
	return d->app_driven;
}

/* Measures the polls of the rx lanes, which only callers of
 * tei_rail_progress_all read. Callers must poll rx lanes more often than tx
 * lanes, because between two polls the connections fill up. */
bool rail_drive_poll_rx(struct tei_rail_dp *dp, struct rail_drive *d,
			uint64_t now)
{
	if (progress_relied_on(dp))
		d->app_driven = false;
	else
		drive_measure(d, &dp->callers.rx_polls,
			      PROGRESS_TARGETS_AWAY_NS, now);
	return d->app_driven;
}

static bool progress_rx(struct rail_lane *lane)
{
	struct rail_done done;
	bool any;

	rail_done_init(&done);
	tei_mutex_lock(&lane->lock);
	any = rail_lane_poll_timed(lane, &done);
	tei_mutex_unlock(&lane->lock);
	rail_done_run(lane->rail->dp, &done);
	return any;
}

/* Handles the deferred control messages of the lane: those that callers have
 * read from the lane, and those that arrived while another thread closed the
 * lane. */
static void progress_deferred(struct rail_lane *lane)
{
	struct rail_done done;

	if (!__atomic_load_n(&lane->recv.ndeferred, __ATOMIC_RELAXED))
		return;
	rail_done_init(&done);
	tei_mutex_lock(&lane->lock);
	if (!lane->recv.visited)
		rail_lane_handle_deferred(lane, &done);
	tei_mutex_unlock(&lane->lock);
	rail_done_run(lane->rail->dp, &done);
}

/* Polls a tx lane. If the lane had activity, receives user messages, and
 * callers do not read the rx lanes, sets *target to true, as for an rx lane. */
static bool progress_initiating(const struct progress *pr,
				struct rail_lane *lane, bool *target)
{
	bool any = rail_lane_run(lane);

	*target |= any && !pr->targets.app_driven &&
		   __atomic_load_n(&lane->receives, __ATOMIC_RELAXED);
	return any;
}

/* Returns true if this thread must poll the tx lane in this iteration. */
static bool progress_wanted(struct progress *pr, struct rail_lane *lane)
{
	if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) ==
		    RAIL_LANE_CLOSED ||
	    rail_lane_assigned(lane))
		return false;
	if (__atomic_load_n(&lane->settle_ns, __ATOMIC_RELAXED) ||
	    rail_cache_closes(lane))
		return true;
	/* callers that read rx lanes also poll the tx lanes that receive user
	 * messages */
	if (!pr->targets.app_driven &&
	    (__atomic_load_n(&lane->msgs, __ATOMIC_RELAXED) ||
	     __atomic_load_n(&lane->receives, __ATOMIC_RELAXED)))
		return true;
	if (pr->drive.app_driven)
		return false;
	return __atomic_load_n(&lane->inflight, __ATOMIC_RELAXED) ||
	       (__atomic_load_n(&pr->dp->tasks.nactive, __ATOMIC_RELAXED) &&
		rail_lane_takes(lane)) ||
	       !(pr->turns % PROGRESS_RARELY);
}

/* Polls the lanes. Returns true if any lane had activity. Sets *target to true
 * if an rx lane had activity. */
static bool progress_lanes(struct progress *pr, bool *target)
{
	struct tei_rail_dp *dp = pr->dp;
	uint32_t i, j;
	struct rail *rail;
	bool any = false;

	pr->turns++;
	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (!__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE)) {
			progress_deferred(&rail->rx_lane);
			progress_deferred(&rail->contact.opening.lane);
			continue;
		}
		if (!pr->targets.app_driven &&
		    !rail_lane_assigned(&rail->rx_lane))
			*target |= progress_rx(&rail->rx_lane);
		else
			progress_deferred(&rail->rx_lane);
		if (!(pr->turns % PROGRESS_SELDOM) &&
		    rail_lane_active(&rail->contact.opening.lane))
			any |= progress_rx(&rail->contact.opening.lane);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
			if (progress_wanted(pr, &rail->tx_lanes[j]))
				any |= progress_initiating(
					pr, &rail->tx_lanes[j], target);
	}
	return any | *target;
}

/* Moves peers that are due, at most PROGRESS_PEERS, from dp->peers.timed to the
 * attention list. */
static void peers_due(struct tei_rail_dp *dp, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_heap_node *first;
	struct tei_rail_peer *p;
	uint32_t n;

	for (n = 0; n < PROGRESS_PEERS; n++) {
		first = tei_heap_first(&dp->peers.timed);
		if (!first || first->key > now)
			return;
		p = tei_container_of(first, struct tei_rail_peer, timed);
		tei_heap_remove(&dp->peers.timed, first);
		tei_list_add_tail(&dp->peers.attn, &p->attn_link);
	}
}

/* Returns the time at which the next peer is due, or 0 if there is none. */
static uint64_t peers_next(const struct tei_rail_dp *dp, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	const struct tei_heap_node *first = tei_heap_first(&dp->peers.timed);

	if (!tei_list_empty(&dp->peers.attn))
		return now;
	return first ? first->key : 0;
}

/* Takes a peer off the attention list and runs its control state machines. If
 * they are due again at a later time, adds the peer to the heap dp->peers.timed;
 * if they are due at once, the peer is on the attention list again. */
static void peers_run_one(struct tei_rail_peer *p, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_dp *dp = p->dp;
	uint64_t due;

	tei_list_del(&p->attn_link);
	rail_sched_leave(dp);
	due = rail_peer_run(p, now);
	rail_sched_enter(dp);
	/* the state machines, or another thread, may have put the peer on the
	 * attention list again */
	if (!tei_list_empty(&p->attn_link))
		return;
	/* a resolver to which no user refers is freed even if its state
	 * machines are still due */
	if (((!due || p->addrs.resolver) && rail_peer_maybe_free(p)) || !due)
		return;
	/* if memory is short, the state machines run in the next iteration */
	if (!tei_heap_add(&dp->peers.timed, &p->timed, due))
		tei_list_add_tail(&dp->peers.attn, &p->attn_link);
}

/*
 * Runs the state machines of the peers that are due: of at most PROGRESS_PEERS
 * peers, and for about PROGRESS_PEERS_NS. The next iteration, which polls the
 * lanes first, runs those of further peers. Returns the time at which the next
 * peer is due, or 0 if there is none.
 */
static uint64_t progress_peers(struct tei_rail_dp *dp, uint64_t now)
{
	struct tei_list todo;
	uint64_t next =
		__atomic_load_n(&dp->peers.attn_next_ns, __ATOMIC_RELAXED);
	uint64_t from;
	uint32_t n;

	if (!next || now < next)
		return next;
	tei_list_init(&todo);
	rail_sched_enter(dp);
	peers_due(dp, now);
	tei_list_splice_tail(&todo, &dp->peers.attn);
	from = tei_now_ns();
	for (n = 0; n < PROGRESS_PEERS && !tei_list_empty(&todo); n++) {
		peers_run_one(tei_list_first(&todo, struct tei_rail_peer,
					     attn_link), now);
		if (tei_now_ns() - from > PROGRESS_PEERS_NS)
			break;
	}
	/* the peers that are left come before those that were added meanwhile */
	tei_list_splice_tail(&todo, &dp->peers.attn);
	tei_list_splice_tail(&dp->peers.attn, &todo);
	next = peers_next(dp, now);
	__atomic_store_n(&dp->peers.attn_next_ns, next, __ATOMIC_RELAXED);
	rail_sched_leave(dp);
	return next;
}

/* Every PROGRESS_MAX_SLEEP_NS, puts the peers with unfinished tasks on the
 * attention list, so that rail_peer_run checks the deadlines of their tasks. If
 * the data plane sends no reports of moved bytes, also removes the other peers
 * from dp->tasks.recent, which rail_served_mark does otherwise. */
static void progress_deadlines(struct progress *pr, uint64_t now)
{
	struct tei_rail_dp *dp = pr->dp;
	struct tei_rail_peer *p, *tmp;

	if (now - pr->deadline_ns < PROGRESS_MAX_SLEEP_NS ||
	    !__atomic_load_n(&dp->tasks.nlive, __ATOMIC_RELAXED))
		return;
	pr->deadline_ns = now;
	rail_sched_enter(dp);
	tei_list_foreach_safe (p, tmp, &dp->tasks.recent, struct tei_rail_peer,
			       tasks.recent_link) {
		if (!tei_list_empty(&p->tasks.live))
			rail_peer_attend(p);
		else if (!dp->conf.reports)
			tei_list_del(&p->tasks.recent_link);
	}
	rail_sched_leave(dp);
}

/* If the lane is ready to sleep, adds its file descriptor to pr->fds and
 * increments *n. If the lane has no file descriptor, sets *blind to true.
 * Returns false if the lane has work to do. */
static bool progress_arm(struct progress *pr, struct rail_lane *lane, int *n,
			 bool *blind)
{
	bool ok = true;

	/* the lane thread wakes this thread when it returns the lane */
	if (rail_lane_assigned(lane))
		return true;
	tei_mutex_lock(&lane->lock);
	if (lane->ep) {
		rail_lane_drain_eq(lane);
		if (lane->wait_fd < 0)
			*blind = true;
		else if (!rail_lane_sleep_ready(lane))
			ok = false;
		else if (*n < PROGRESS_MAX_FDS) {
			pr->fds[*n].fd = lane->wait_fd;
			pr->fds[(*n)++].events = POLLIN;
		}
	}
	tei_mutex_unlock(&lane->lock);
	return ok;
}

/* Calls progress_arm for tx lanes of the rail: if "receives" is true, for the
 * tx lanes that receive user messages, otherwise for all others. Returns false
 * if a lane has work to do. */
static bool progress_arm_initiating(struct progress *pr, struct rail *rail,
				    bool receives, int *n, bool *blind)
{
	struct rail_lane *lane;
	uint32_t i;

	for (i = 0; i < rail->ntx * RAIL_LANE_SLOTS; i++) {
		lane = &rail->tx_lanes[i];
		if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) !=
			    RAIL_LANE_CLOSED &&
		    __atomic_load_n(&lane->receives, __ATOMIC_RELAXED) ==
			    receives &&
		    !progress_arm(pr, lane, n, blind))
			return false;
	}
	return true;
}

/* Calls progress_arm for the lanes of the rail at which user messages arrive.
 * Returns false if a lane has work to do. */
static bool progress_arm_rx(struct progress *pr, struct rail *rail, int *n,
			    bool *blind)
{
	return progress_arm(pr, &rail->rx_lane, n, blind) &&
	       progress_arm_initiating(pr, rail, true, n, blind);
}

/* Arms the lanes on which the thread will sleep. *n: number of used entries of
 * pr->fds. Sets *blind to true if a lane has no file descriptor. Returns false
 * if a lane has work to do. */
static bool progress_arm_all(struct progress *pr, int *n, bool *blind)
{
	struct rail *rail;
	uint32_t i;

	for (i = 0; i < rail_count(pr->dp); i++) {
		rail = rail_at(pr->dp, i);
		if (__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) &&
		    !pr->targets.app_driven &&
		    !progress_arm_rx(pr, rail, n, blind))
			return false;
	}
	pr->ntargets = *n - PROGRESS_LANES;
	for (i = 0; i < rail_count(pr->dp); i++) {
		rail = rail_at(pr->dp, i);
		if (__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) &&
		    rail_lane_active(&rail->contact.opening.lane) &&
		    !progress_arm(pr, &rail->contact.opening.lane, n, blind))
			return false;
	}
	for (i = 0; i < rail_count(pr->dp) && !pr->drive.app_driven; i++) {
		rail = rail_at(pr->dp, i);
		if (!__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
			continue;
		/* tx lanes that receive messages were armed with the rx
		 * lanes */
		if ((pr->targets.app_driven &&
		     !progress_arm_initiating(pr, rail, true, n, blind)) ||
		    !progress_arm_initiating(pr, rail, false, n, blind))
			return false;
	}
	return true;
}

/* Is called when a lane's file descriptor has ended a sleep. Adapts the time
 * for which the thread spins (pr->spin_ns). */
static void progress_woken(struct progress *pr, uint64_t slept_ns)
{
	uint64_t now = tei_now_ns();
	uint64_t spin = pr->dp->settings->sched.spin_us * TEI_NS_PER_US;
	bool target = false;
	int i;

	for (i = 0; i < pr->ntargets; i++)
		target |= pr->fds[PROGRESS_LANES + i].revents != 0;
	pr->active_ns = now;
	if (!target)
		return;
	/*
	 * Remote writes and reads cause no completion at the target. The target
	 * notices them only because the lane's file descriptor becomes
	 * readable. If this happens soon after the thread fell asleep, traffic
	 * is dense, and a longer spin saves wake-ups.
	 */
	pr->target_ns = now;
	if (now - slept_ns > PROGRESS_DENSE * spin)
		pr->spin_ns = spin;
	else if (pr->spin_ns < PROGRESS_SPIN_MAX * spin)
		pr->spin_ns *= 2;
}

/* Returns how long the thread sleeps while callers poll: at most "wait". The
 * length doubles with each such sleep, up to PROGRESS_TRUST_NS. */
static uint64_t progress_trusted(struct progress *pr, uint64_t wait)
{
	if (wait > pr->trust_ns)
		wait = pr->trust_ns;
	if (pr->trust_ns < PROGRESS_TRUST_NS)
		pr->trust_ns *= 2;
	return wait;
}

/*
 * Returns true if no rail waits for a repair that only an iteration of this
 * thread starts: an endpoint that could not be opened, a link that is down, or
 * a contact address that another process holds. All other events wake the
 * thread through a file descriptor or have a due time.
 */
static bool progress_sleep_ready(struct tei_rail_dp *dp)
{
	struct rail *rail;
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (__atomic_load_n(&rail->link.lost, __ATOMIC_RELAXED) ||
		    __atomic_load_n(&rail->link.down, __ATOMIC_RELAXED) ||
		    __atomic_load_n(&rail->contact.state, __ATOMIC_RELAXED) ==
			    RAIL_CONTACT_LANE_TAKEN)
			return false;
	}
	return true;
}

/*
 * Returns how long the thread sleeps without unfinished tasks: twice as long as
 * the data plane has been idle so far, within limits. A sleep of more than
 * PROGRESS_IDLE_SLEEP_NS is announced in dp->thread.rests_ns, so that the next
 * submission or message wakes the thread, which must then check for stalls.
 */
static uint64_t progress_idle_sleep(struct progress *pr, uint64_t now)
{
	struct tei_rail_dp *dp = pr->dp;
	uint64_t last, sleep_ns;

	rail_sched_enter(dp);
	if (dp->tasks.stirred) {
		dp->tasks.stirred = false;
		pr->stirred_ns = now;
	}
	last = pr->active_ns > pr->target_ns ? pr->active_ns : pr->target_ns;
	if (last < pr->stirred_ns)
		last = pr->stirred_ns;
	sleep_ns = now > last ? 2 * (now - last) : 0;
	if (sleep_ns > PROGRESS_LONG_SLEEP_NS)
		sleep_ns = PROGRESS_LONG_SLEEP_NS;
	if (sleep_ns <= PROGRESS_IDLE_SLEEP_NS || !progress_sleep_ready(dp))
		sleep_ns = PROGRESS_IDLE_SLEEP_NS;
	else
		__atomic_store_n(&dp->thread.rests_ns, now + sleep_ns,
				 __ATOMIC_RELAXED);
	rail_sched_leave(dp);
	return sleep_ns;
}

/* Handles the end of a sleep and the event that ended it. */
static void progress_slept(struct progress *pr, const struct tei_loop_sleep *s)
{
	uint64_t took = s->until_ns - s->from_ns;
	struct tei_rail_dp *dp = pr->dp;
	bool link = s->nready && pr->fds[1].revents;

	pr->slept = false;
	pr->slept_ns = took < s->ns ? took : s->ns;
	__atomic_store_n(&dp->thread.rests_ns, 0, __ATOMIC_RELAXED);
	if (s->nready > link)
		progress_woken(pr, s->from_ns);
	if (s->woken || link)
		pr->stirred_ns = s->until_ns;
	if (link)
		dp->health.checked_ns = 0; /* the next iteration examines the
					    * links */
	__atomic_store_n(&dp->thread.trusts, false, __ATOMIC_SEQ_CST);
}

/*
 * Returns how long the thread sleeps, at most "wait". If slices wait that no
 * lane has taken, the sleep is short, so that the thread soon offers them to
 * the lanes again: it lasts PROGRESS_RETRY_MIN_NS after an event of a lane, and
 * every further sleep is longer. Longer sleeps do no harm, because an event of
 * a lane ends a sleep early. Only a lane that becomes ready without an event
 * has to wait.
 */
static uint64_t progress_retry_sleep(struct progress *pr, uint64_t wait)
{
	struct tei_rail_dp *dp = pr->dp;

	if (pr->drive.app_driven ||
	    !__atomic_load_n(&dp->tasks.nactive, __ATOMIC_RELAXED)) {
		pr->retry_sleep_ns = 0;
		return wait;
	}
	pr->retry_sleep_ns = pr->retry_sleep_ns ?
			     pr->retry_sleep_ns * 5 / 4 : PROGRESS_RETRY_MIN_NS;
	if (pr->retry_sleep_ns > PROGRESS_RETRY_MAX_NS)
		pr->retry_sleep_ns = PROGRESS_RETRY_MAX_NS;
	return pr->retry_sleep_ns < wait ? pr->retry_sleep_ns : wait;
}

/* Requests a sleep until a lane or a link has an event, a peer is due or
 * another thread wakes this thread. Requests no sleep if a lane has work to do.
 * next: time at which the next step is due, or 0 if there is no such time. */
static void progress_sleep(struct progress *pr, uint64_t next, uint64_t now,
			   struct tei_loop_sleep *s)
{
	struct tei_rail_dp *dp = pr->dp;
	uint64_t wait = PROGRESS_MAX_SLEEP_NS;
	bool blind = false;
	int n = PROGRESS_LANES;

	pr->fds[1].fd = dp->link.fd;
	pr->fds[1].events = POLLIN;
	if (pr->drive.app_driven || pr->targets.app_driven) {
		/* a caller that calls tei_rail_sleep_begin from here on reads
		 * this flag and wakes this thread */
		__atomic_store_n(&dp->thread.trusts, true, __ATOMIC_SEQ_CST);
		if (progress_relied_on(dp))
			pr->drive.app_driven = pr->targets.app_driven = false;
	}
	if (!progress_arm_all(pr, &n, &blind)) {
		__atomic_store_n(&dp->thread.trusts, false, __ATOMIC_SEQ_CST);
		return;
	}
	if (__atomic_load_n(&dp->tasks.nlive, __ATOMIC_RELAXED))
		pr->stirred_ns = now;
	else
		wait = progress_idle_sleep(pr, now);
	if (next && next < now + wait)
		wait = next > now ? next - now : 0;
	if (pr->drive.app_driven || pr->targets.app_driven)
		wait = progress_trusted(pr, wait);
	wait = progress_retry_sleep(pr, wait);
	if (blind) {
		/* without a file descriptor of the lane to sleep on, the thread
		 * polls less and less often */
		pr->idle_sleep_ns = pr->idle_sleep_ns ?
				    pr->idle_sleep_ns * 5 / 4 : 20000;
		if (pr->idle_sleep_ns > 2 * TEI_NS_PER_MS)
			pr->idle_sleep_ns = 2 * TEI_NS_PER_MS;
		if (wait > pr->idle_sleep_ns)
			wait = pr->idle_sleep_ns;
	}
	s->fds = pr->fds;
	s->nfds = (uint32_t)n;
	s->ns = wait;
	s->sleep = pr->slept = true;
}

/* Returns true if the thread continues to poll without sleeping. Two periods
 * count: spin_ns after the last activity of rx lanes (target_ns); and, while
 * operations are posted, spin_us after the last activity of any lane
 * (active_ns). The first period does not count while callers poll the rx lanes,
 * and the second one while callers poll the tx lanes. */
static bool progress_spins(const struct progress *pr, uint64_t now)
{
	struct tei_rail_dp *dp = pr->dp;

	if (!pr->targets.app_driven && now - pr->target_ns < pr->spin_ns)
		return true;
	return !pr->drive.app_driven &&
	       now - pr->active_ns <
		       dp->settings->sched.spin_us * TEI_NS_PER_US &&
	       rail_posted_any(dp);
}

/* Returns the present time. If this process or the whole machine was suspended
 * since the last call, first extends all deadlines by the length of the
 * suspension. Deadlines must therefore only be compared with times that this
 * function has returned. */
static uint64_t progress_now(struct progress *pr)
{
	uint64_t now = tei_now_ns();
	uint64_t turn = pr->seen_ns ? now - pr->seen_ns : 0;
	uint64_t still = turn > pr->slept_ns ? turn - pr->slept_ns : 0;

	pr->seen_ns = now;
	pr->slept_ns = 0;
	if (still < PROGRESS_STILL_NS)
		return now;
	TEI_INFO("rail", "this process was suspended for %llu ms; the deadlines of its tasks are extended by this time",
		 (unsigned long long)(still / TEI_NS_PER_MS));
	rail_deadline_stood_still(pr->dp, still, now);
	return now;
}

/* Records the result of polling the lanes at time now. */
static void progress_saw(struct progress *pr, bool any, bool target,
			 uint64_t now)
{
	if (target)
		pr->target_ns = now;
	if (!any)
		return;
	pr->active_ns = now;
	pr->idle_sleep_ns = 0;
	pr->retry_sleep_ns = 0;
}

/*
 * Polls the lanes a few more times before the next iteration, because the rest
 * of an iteration takes longer than a poll that finds nothing. Stops when a
 * poll finds activity, so that messages are answered at once, or after
 * PROGRESS_LOOKS_NS.
 */
static void progress_more_looks(struct progress *pr, uint64_t now)
{
	uint64_t from = now;
	bool target = false, any = false;
	int i;

	for (i = 1; i < PROGRESS_LOOKS && !any; i++) {
		any = progress_lanes(pr, &target);
		now = progress_now(pr);
		if (now - from > PROGRESS_LOOKS_NS)
			break;
	}
	progress_saw(pr, any, target, now);
	progress_peers(pr->dp, now);
}

static uint32_t progress_cloexec_rail(struct rail *rail)
{
	uint32_t i, marked;

	if (!__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
		return 0;
	marked = rail_cloexec_lane(&rail->rx_lane);
	if (rail_lane_active(&rail->contact.opening.lane))
		marked += rail_cloexec_lane(&rail->contact.opening.lane);
	for (i = 0; i < rail->ntx * RAIL_LANE_SLOTS; i++)
		if (__atomic_load_n(&rail->tx_lanes[i].state,
				    __ATOMIC_ACQUIRE) != RAIL_LANE_CLOSED)
			marked += rail_cloexec_lane(&rail->tx_lanes[i]);
	return marked;
}

/*
 * Marks the file descriptors of new connections close-on-exec. Connections
 * appear only while lanes are active, so one check after the last activity is
 * enough. After a check that has found no new file descriptor, the interval
 * doubles. Returns the time at which the next check is due, or 0 if no check is
 * due before the next activity.
 */
static uint64_t progress_cloexec(struct progress *pr, uint64_t now)
{
	uint64_t last = pr->active_ns > pr->target_ns ? pr->active_ns :
							pr->target_ns;
	uint32_t i, marked = 0;

	if (last < pr->cloexec_ns && !pr->drive.app_driven &&
	    !pr->targets.app_driven && !pr->assigned)
		return 0;
	if (now < pr->cloexec_ns + pr->cloexec_wait_ns)
		return pr->cloexec_ns + pr->cloexec_wait_ns;
	for (i = 0; i < rail_count(pr->dp); i++)
		marked += progress_cloexec_rail(rail_at(pr->dp, i));
	pr->cloexec_ns = now;
	pr->cloexec_wait_ns *= 2;
	if (marked || pr->cloexec_wait_ns < PROGRESS_CLOEXEC_MIN_NS)
		pr->cloexec_wait_ns = PROGRESS_CLOEXEC_MIN_NS;
	if (pr->cloexec_wait_ns > PROGRESS_CLOEXEC_MAX_NS)
		pr->cloexec_wait_ns = PROGRESS_CLOEXEC_MAX_NS;
	return 0;
}

/* About once a second, calls rail_served_mark, so that the totals of moved
 * bytes are sent to the peers. Returns the time at which this function must be
 * called again, or 0 if no further call is needed before the next activity. */
static uint64_t progress_served(struct progress *pr, uint64_t now)
{
	uint64_t last = pr->active_ns > pr->target_ns ? pr->active_ns :
							pr->target_ns;

	if (last < pr->stirred_ns)
		last = pr->stirred_ns;
	if (!pr->dp->conf.reports ||
	    (last < pr->served_ns && !pr->served_live && !pr->drive.app_driven))
		return 0;
	if (now < pr->served_ns + RAIL_SERVED_NS)
		return pr->served_ns + RAIL_SERVED_NS;
	pr->served_live =
		__atomic_load_n(&pr->dp->tasks.nlive, __ATOMIC_RELAXED);
	pr->served_ns = now;
	rail_served_mark(pr->dp);
	return pr->served_live ? now + RAIL_SERVED_NS : 0;
}

/* Activates the lanes that opener threads have opened. */
static void progress_reopened(struct tei_rail_dp *dp)
{
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++) {
		rail_fence_collect(rail_at(dp, i));
		rail_contact_lane_collect(rail_at(dp, i));
	}
}

/* Tries again to open the lanes of a lost rail, and extra lanes that could not be
 * opened and are still needed. First gives back the places that extra lanes
 * without an endpoint have borrowed for their connections. */
static void progress_lost(struct rail *rail, uint64_t now)
{
	bool lost = __atomic_load_n(&rail->link.lost, __ATOMIC_RELAXED);

	if ((!lost && !rail->link.extra_failed) ||
	    !__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) ||
	    now < rail->link.lost_next_ns)
		return;
	rail->link.lost_next_ns = now + PROGRESS_LOST_NS;
	if (rail->link.extra_failed)
		rail->link.extra_failed = !rail_renew_release(rail);
	if (!lost) {
		rail_renew_widen(rail);
		return;
	}
	rail_renew_reopen(rail);
	rail_fence_rx_event(rail, RAIL_FENCE_RX_EV_RETRY);
	rail_reopen_whole(rail);
	rail_sched_enter(rail->dp);
	rail_health_state(rail);
	rail_sched_leave(rail->dp);
}

/* Opens the extra lanes that are needed. */
static void progress_widened(struct tei_rail_dp *dp)
{
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++)
		if (__atomic_load_n(&rail_at(dp, i)->open, __ATOMIC_ACQUIRE))
			rail_renew_widen(rail_at(dp, i));
}

void rail_progress_reopen(struct tei_rail_dp *dp, uint64_t now)
{
	uint32_t i;

	if (__atomic_load_n(&dp->health.reopened, __ATOMIC_RELAXED) &&
	    __atomic_exchange_n(&dp->health.reopened, false, __ATOMIC_ACQUIRE))
		progress_reopened(dp);
	if (__atomic_load_n(&dp->health.widened, __ATOMIC_RELAXED) &&
	    __atomic_exchange_n(&dp->health.widened, false, __ATOMIC_ACQUIRE))
		progress_widened(dp);
	/* the caller runs the health checks next, and these set
	 * dp->health.checked_ns */
	if (now - dp->health.checked_ns < RAIL_HEALTH_NS)
		return;
	rail_use_for_tasks(dp, true);
	for (i = 0; i < rail_count(dp); i++) {
		rail_contact_lane_run(rail_at(dp, i), now);
		progress_lost(rail_at(dp, i), now);
	}
}

/* Assigns lanes to lane threads. The activity of an assigned lane does not keep
 * this thread from sleeping. It counts as activity only for the work that is done
 * after a long time without activity. */
static void progress_assign(struct progress *pr, uint64_t now)
{
	bool before = pr->assigned;

	pr->assigned = rail_lane_threads_check(pr->dp, pr->drive.app_driven,
					       now);
	if (pr->assigned)
		pr->stirred_ns = now;
	else if (before)
		pr->active_ns = now;
}

/* Does one iteration of the progress thread. If nothing is left to be done,
 * requests a sleep in *s. */
static void progress_turn(struct progress *pr, struct tei_loop_sleep *s)
{
	struct tei_rail_dp *dp = pr->dp;
	uint64_t now, next, due, served;
	bool any, target = false;

	now = tei_now_ns();
	rail_drive_poll(dp, &pr->drive, now);
	rail_drive_poll_rx(dp, &pr->targets, now);
	if (!pr->drive.app_driven && !pr->targets.app_driven)
		pr->trust_ns = PROGRESS_APP_DRIVEN_NS;
	any = progress_lanes(pr, &target);
	now = progress_now(pr);	/* all deadlines of this iteration are compared
				 * with this time */
	progress_assign(pr, now);
	rail_fence_regions(dp);
	progress_deadlines(pr, now);
	if (now - pr->probe_ns >= PROGRESS_MAX_SLEEP_NS) {
		pr->probe_ns = now;
		rail_peer_probe(dp, now);
	}
	served = progress_served(pr, now);
	next = rail_ctl_sooner(served, progress_peers(dp, now));
	rail_fence_run(dp);
	due = rail_renew_run(dp, now);
	if (due && (!next || due < next))
		next = due;
	due = rail_cache_tidy(dp, now);
	if (due && (!next || due < next))
		next = due;
	rail_progress_reopen(dp, now);
	due = rail_health_run(dp, now);
	if (due && (!next || due < next))
		next = due;
	progress_saw(pr, any, target, now);
	due = progress_cloexec(pr, now);
	if (due && (!next || due < next))
		next = due;
	if (any || progress_spins(pr, now))
		progress_more_looks(pr, now);
	else
		progress_sleep(pr, next, now, s);
}

/* Runs one step of the progress loop (struct tei_loop). arg: struct progress,
 * which the last step frees. */
static enum tei_loop_next progress_step(void *arg, struct tei_loop_sleep *s)
{
	struct progress *pr = arg;

	if (pr->slept)
		progress_slept(pr, s);
	if (__atomic_load_n(&pr->dp->thread.stop, __ATOMIC_ACQUIRE)) {
		free(pr);
		return TEI_LOOP_END;
	}
	progress_turn(pr, s);
	return TEI_LOOP_CONTINUE;
}

int rail_progress_start(struct tei_rail_dp *dp, struct tei_err *err)
{
	struct progress *pr = calloc(1, sizeof(*pr));
	int ret;

	if (!pr)
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "no memory for the progress thread");
	pr->dp = dp;
	pr->trust_ns = PROGRESS_APP_DRIVEN_NS;
	pr->stirred_ns = tei_now_ns();
	pr->spin_ns = dp->settings->sched.spin_us * TEI_NS_PER_US;
	dp->thread.loop.name = "tei-progress";
	ret = tei_loop_start(&dp->thread.loop, progress_step, pr);
	if (ret) {
		free(pr);
		return tei_err_fail(err, TEI_ERR_CONTEXT, "rail",
				    tei_hint(ret == EMFILE || ret == ENFILE
						     ? TEI_HINT_OBJECT
						     : TEI_HINT_THREAD,
					     ret),
				    "progress thread: %s", strerror(ret));
	}
	return 0;
}

void rail_progress_stop(struct tei_rail_dp *dp)
{
	if (dp->thread.loop.started) {
		__atomic_store_n(&dp->thread.stop, true, __ATOMIC_RELEASE);
		tei_loop_stop(&dp->thread.loop);
	}
	rail_lane_threads_stop(dp);
}
