/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of the scheduler that tei_rail.h declares. A task waits in the
 * queue of its peer until a lane that has room takes slices from it
 * (rail_pick.c, rail_slice.c, rail_post.c). */

#include <stdio.h>

#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/sched/rail_atomic.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"

/* Checks the iov entries or the atomic of a task with an extension. Sets *mr to
 * the region that contains the first local byte. */
static int sched_check_ext(struct tei_rail_dp *dp, struct tei_rail_task *t,
			   struct tei_rail_mr **mr)
	TEI_REQUIRES(rail_sched_held)
{
	int ret;

	*mr = NULL;
	if (t->ext->nlocal) {
		ret = rail_iov_check(dp, t->ext, t->read);
		*mr = t->ext->piece[0].mr;
		return ret;
	}
	if (!t->local)
		return 0;
	*mr = rail_mr_find(dp, t->local, t->length);
	return *mr && !(*mr)->gpu && !(t->read && (*mr)->read_only) ?
		       0 : TEI_ERR_NOT_REGISTERED;
}

static int sched_check(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		       size_t n) TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_mr *mr = NULL;
	size_t i;

	for (i = 0; i < n; i++) {
		if (tasks[i]->peer->tasks.queued + n > RAIL_PEER_QUEUE_MAX)
			return TEI_ERR_TOO_MANY;
		if (tasks[i]->ext) {
			if (sched_check_ext(dp, tasks[i], &tasks[i]->mr))
				return TEI_ERR_NOT_REGISTERED;
			continue;
		}
		if (tasks[i]->held) {
			tasks[i]->mr = rail_mr_find_held(dp, tasks[i]->local,
							 tasks[i]->length);
			if (!tasks[i]->mr)
				return TEI_ERR_NOT_REGISTERED;
			continue;
		}
		if (!mr || mr == dp->placeholder ||
		    tasks[i]->local < mr->addr ||
		    tasks[i]->local + tasks[i]->length > mr->addr + mr->len)
			mr = rail_mr_find(dp, tasks[i]->local,
					  tasks[i]->length);
		if (!mr && !(tei_rail_wants(dp) & TEI_RAIL_WANTS_LOCAL))
			mr = dp->placeholder;
		if (!mr || (tasks[i]->read && mr->read_only))
			return TEI_ERR_NOT_REGISTERED;
		tasks[i]->mr = mr;
	}
	return 0;
}

/* Returns the time from which MC_SLICE_TIMEOUT counts for a new task. */
static uint64_t sched_since(struct tei_rail_peer *peer,
			    const struct tei_rail_task *t, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t limit =
		peer->dp->settings->failure.slice_timeout_s * TEI_NS_PER_SEC;
	uint64_t since = t->since_ns;

	/* A peer without tasks makes no progress, which is no sign of a fault,
	 * so the time without tasks usually does not count. It counts only for
	 * a task that began to wait (since_ns) before an earlier task of the
	 * peer timed out, if this task is submitted within MC_SLICE_TIMEOUT
	 * after that timeout and the peer has given no sign of life since that
	 * timeout. */
	if (tei_list_empty(&peer->tasks.live) &&
	    (!peer->tasks.still_ns || peer->alive_ns > peer->tasks.still_ns ||
	     since > peer->tasks.still_ns ||
	     now > peer->tasks.still_ns + limit))
		peer->tasks.moved_ns = now;
	if (!since || since > now)
		return now;
	return since > peer->tasks.moved_ns ? since : peer->tasks.moved_ns;
}

bool rail_task_bulk(const struct tei_rail_task *t)
{
	uint32_t slice = t->peer->dp->settings->sched.slice_size;

	return t->length > slice || t->whole_length > slice;
}

void rail_task_unqueue(struct tei_rail_task *t)
{
	struct tei_rail_dp *dp = t->peer->dp;

	tei_list_del(&t->queue_link);
	t->peer->tasks.queued--;
	dp->tasks.bulk_left -= rail_task_bulk(t) ? t->length - t->cut : 0;
}

static void sched_enqueue(struct tei_rail_dp *dp, struct tei_rail_task *t,
			  uint64_t now) TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *peer = t->peer;

	t->progress_ns = sched_since(peer, t, now);
	t->ahead_ns = 0;
	tei_list_add_tail(&peer->tasks.live, &t->live_link);
	if (tei_list_empty(&peer->tasks.recent_link))
		tei_list_add_tail(&dp->tasks.recent, &peer->tasks.recent_link);
	peer->tasks.queued++;
	__atomic_store_n(&dp->tasks.nlive, dp->tasks.nlive + 1,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&dp->tasks.nheld, dp->tasks.nheld + 1,
			 __ATOMIC_RELAXED);
	if (t->mr)
		t->mr->tasks++;
	if (t->ext) {
		rail_iov_hold(t->ext);
		if (t->ext->atomic) {
			rail_atomic_enqueue(t);
			return;
		}
	}
	dp->tasks.bulk_left += rail_task_bulk(t) ? t->length : 0;
	tei_list_add_tail(rail_task_bulk(t) ? &peer->tasks.queue
					    : &peer->tasks.small,
			  &t->queue_link);
	rail_peer_activate(peer);
}

int tei_rail_submit(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		    size_t n)
{
	struct tei_err err = { .code = TEI_ERR_CONTEXT };
	uint64_t now = tei_now_ns();
	struct rail_done done;
	uint64_t rests_ns;
	size_t i;
	int ret;

	if (!rail_any_open(dp))
		return TEI_ERR_NO_DEVICE;
	rail_done_init(&done);
	rail_sched_enter(dp);
	ret = sched_check(dp, tasks, n);
	dp->tasks.stirred = true;
	rests_ns = __atomic_load_n(&dp->thread.rests_ns, __ATOMIC_RELAXED);
	for (i = 0; i < n && !ret; i++) {
		sched_enqueue(dp, tasks[i], now);
		if (tasks[i]->peer->state != RAIL_PEER_GONE)
			continue;
		snprintf(err.text, sizeof(err.text),
			 "the process behind this segment has gone");
		snprintf(err.peer, sizeof(err.peer), "%.95s",
			 tasks[i]->peer->name);
		rail_task_end(dp, tasks[i], TEI_RAIL_END_FAILED, &err, &done);
	}
	rail_sched_leave(dp);
	if (ret)
		return ret;
	rail_sched_kick(dp, now);
	/* No completion will wake the thread for queued tasks. During a long
	 * sleep, the thread would notice too late that a completion is
	 * missing. */
	if (rests_ns ||
	    (__atomic_load_n(&dp->tasks.nactive, __ATOMIC_RELAXED) &&
	     !rail_posted_any(dp)))
		rail_progress_wake(dp);
	rail_done_run(dp, &done);
	return 0;
}

int tei_rail_submit_group(struct tei_rail_dp *dp, struct tei_rail_group *group,
			  struct tei_rail_task **tasks, size_t n)
{
	struct rail_done done;
	size_t i;
	int ret;

	for (i = 0; i < n; i++)
		tasks[i]->group = group;
	ret = tei_rail_submit(dp, tasks, n);
	if (ret || !group ||
	    !__atomic_load_n(&group->region_gone, __ATOMIC_RELAXED))
		return ret;
	/* The peer has unregistered a region that the group has used. If that
	 * happened before these tasks were queued, nothing has failed them yet,
	 * so they are failed here. */
	rail_done_init(&done);
	rail_sched_enter(dp);
	rail_sched_unregistered(group->peer, &done);
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
	return 0;
}

static void sched_end_early(struct tei_rail_dp *dp,
			    struct tei_rail_task **tasks, size_t n,
			    enum tei_rail_end end, struct tei_err *err)
{
	struct rail_done done;
	size_t i;

	rail_done_init(&done);
	rail_sched_enter(dp);
	for (i = 0; i < n; i++) {
		if (tasks[i]->complete_wanted)
			continue;
		snprintf(err->peer, sizeof(err->peer), "%.95s",
			 tasks[i]->peer->name);
		/* slices of the task are posted, so the peer's state machines
		 * must watch them */
		if (tasks[i]->slices)
			rail_peer_attend(tasks[i]->peer);
		rail_task_end(dp, tasks[i], end, err, &done);
	}
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
}

void tei_rail_cancel(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		     size_t n)
{
	struct tei_err err = {
		.code = TEI_ERR_CANCELED,
		.when_ns = tei_now_ns(),
		.text = "cancelled by the caller",
	};

	sched_end_early(dp, tasks, n, TEI_RAIL_END_CANCELED, &err);
}

void tei_rail_expire(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		     size_t n)
{
	struct tei_err err = {
		.code = TEI_ERR_TIMED_OUT,
		.when_ns = tei_now_ns(),
		.text = "the batch's deadline has passed",
	};

	sched_end_early(dp, tasks, n, TEI_RAIL_END_FAILED, &err);
}

void tei_rail_drive_begin(struct tei_rail_dp *dp)
{
	__atomic_fetch_add(&dp->callers.app_driving, 1, __ATOMIC_RELAXED);
}

void tei_rail_drive_end(struct tei_rail_dp *dp)
{
	__atomic_fetch_sub(&dp->callers.app_driving, 1, __ATOMIC_RELAXED);
}

void tei_rail_sleep_begin(struct tei_rail_dp *dp)
{
	__atomic_fetch_add(&dp->callers.dozing, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&dp->thread.trusts, __ATOMIC_SEQ_CST))
		rail_progress_wake(dp);
}

void tei_rail_sleep_end(struct tei_rail_dp *dp)
{
	__atomic_fetch_sub(&dp->callers.dozing, 1, __ATOMIC_SEQ_CST);
}

/* A poll of a lane with fewer bytes in flight takes so little time that it need
 * not be timed. */
#define SCHED_LOOK_BYTES	(256u << 10)

/* Returns true if polling the lane may take so long that it must be timed. */
static bool sched_poll_is_long(const struct rail_lane *lane, bool work)
{
	return work || __atomic_load_n(&lane->inflight_bytes,
				       __ATOMIC_RELAXED) >= SCHED_LOOK_BYTES;
}

void tei_rail_progress(struct tei_rail_dp *dp)
{
	bool work = __atomic_load_n(&dp->tasks.nactive, __ATOMIC_RELAXED);
	uint32_t n = rail_count(dp), first, lanes, i, j;
	struct rail_lane *lane;
	struct rail *rail;
	uint64_t from = 0;

	for (i = 0; i < n; i++) {
		rail = rail_at(dp, i);
		first = rail_first_lane(rail);
		lanes = rail->ntx * RAIL_LANE_SLOTS;
		for (j = 0; j < lanes; j++) {
			lane = &rail->tx_lanes[(first + j) % lanes];
			if (!__atomic_load_n(&lane->inflight,
					     __ATOMIC_RELAXED) &&
			    (!work || !rail_lane_takes(lane) ||
			     __atomic_load_n(&lane->state, __ATOMIC_RELAXED) !=
				     RAIL_LANE_ACTIVE))
				continue;
			if (!from && sched_poll_is_long(lane, work)) {
				from = tei_now_ns();
				rail_polls_begin(&dp->callers.polls, from);
			}
			rail_lane_run(lane);
		}
	}
	if (from)
		rail_polls_end(&dp->callers.polls, from, tei_now_ns());
	else
		rail_polls_count(&dp->callers.polls);
}
