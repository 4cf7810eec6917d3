/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends tasks whose deadline has passed, so that every task ends within a
 * limited time. */

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_failure.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/hint.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

#define DEADLINE_NS (50 * TEI_NS_PER_MS)

/* Returns true if the peer has given a sign of life in the second half of the
 * time in which no task has progressed. This shows that small messages arrive
 * although bulk data does not. */
static bool deadline_alive(const struct tei_rail_peer *p, uint64_t since,
			   uint64_t now) TEI_REQUIRES(rail_sched_held)
{
	return now > since && p->alive_ns > since + (now - since) / 2;
}

/* Returns the hint for tasks that have made no progress although the provider
 * has reported no error for the peer. */
static const char *deadline_hint(const struct tei_rail_peer *p, uint64_t since,
				 uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	if (p->state == RAIL_PEER_NEW)
		return tei_hint(TEI_HINT_DATA, TEI_HINT_NO_ANSWER);
	if (deadline_alive(p, since, now))
		return tei_hint(TEI_HINT_DATA, TEI_HINT_LARGE_STALL);
	return tei_hint(TEI_HINT_DATA, TEI_HINT_FELL_SILENT);
}

/* If no rail with a route to the peer has an open tx lane, because opening has
 * failed, returns the first of these rails, otherwise NULL. */
static const struct rail *deadline_lost(const struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail *rail, *lost = NULL;
	uint32_t i;

	for (i = 0; i < p->dp->nrails; i++) {
		rail = p->dp->rails[i];
		if (p->routes.route[i] < 0)
			continue;
		if (!__atomic_load_n(&rail->link.lost, __ATOMIC_RELAXED) ||
		    !rail->link.lost_text[0] ||
		    __atomic_load_n(&rail->link.away, __ATOMIC_RELAXED) <
			    rail_use_count(rail))
			return NULL;
		if (!lost)
			lost = rail;
	}
	return lost;
}

/* Fills in the error of a task that has made no progress since the time
 * "since". Mentions the last error of the peer if it occurred less than
 * MC_SLICE_TIMEOUT before "since". It may be older than "since" because another
 * rail may have worked for a while after the error. */
static void deadline_err(const struct tei_rail_peer *p, uint64_t since,
			 uint64_t now, struct tei_err *err)
	TEI_REQUIRES(rail_sched_held)
{
	const struct tei_rail_dp *dp = p->dp;
	uint64_t limit = dp->settings->failure.slice_timeout_s * TEI_NS_PER_SEC;
	const struct rail *lost = deadline_lost(p);
	size_t used;
	uint32_t i;

	memset(err, 0, sizeof(*err));
	err->code = TEI_ERR_ENDPOINT;
	err->when_ns = tei_now_ns();
	snprintf(err->peer, sizeof(err->peer), "%.95s", p->name);
	if (lost) {
		snprintf(err->text, sizeof(err->text),
			 "no progress for MC_SLICE_TIMEOUT=%u s: %.*s",
			 dp->settings->failure.slice_timeout_s,
			 TEI_ERR_TEXT - 64, lost->link.lost_text);
		memcpy(err->hint, lost->link.lost_hint, sizeof(err->hint));
		return;
	}
	snprintf(err->text, sizeof(err->text),
		 "no progress for MC_SLICE_TIMEOUT=%u s%s; rails:",
		 dp->settings->failure.slice_timeout_s,
		 p->state == RAIL_PEER_NEW ? ", the peer never answered" : "");
	for (i = 0; i < dp->nrails; i++) {
		used = strlen(err->text);
		if (p->routes.route[i] >= 0)
			snprintf(err->text + used, sizeof(err->text) - used,
				 " %s", dp->rails[i]->name);
	}
	if (p->tasks.last_failure.ns &&
	    p->tasks.last_failure.ns + limit > since) {
		used = strlen(err->text);
		snprintf(err->text + used, sizeof(err->text) - used,
			 "; the last error: %s%s%s",
			 fi_strerror(p->tasks.last_failure.err),
			 p->tasks.last_failure.text[0] ? ", " : "",
			 p->tasks.last_failure.text);
		rail_peer_last_failure(p, err);
		/* FI_ECANCELED is also the error of slices that were cancelled
		 * because they made no progress */
		if (p->state == RAIL_PEER_READY &&
		    p->tasks.last_failure.err == FI_ECANCELED &&
		    deadline_alive(p, since, now))
			snprintf(err->hint, sizeof(err->hint), "%s",
				 tei_hint(TEI_HINT_DATA, TEI_HINT_LARGE_STALL));
		return;
	}
	snprintf(err->hint, sizeof(err->hint), "%s",
		 deadline_hint(p, since, now));
}

/*
 * Ends tasks that have made no progress for MC_SLICE_TIMEOUT.
 *
 * Progress of an earlier unfinished task counts for the later ones too, even if
 * the earlier task has ended meanwhile. If a task ends by MC_SLICE_TIMEOUT, the
 * lanes that carry its slices must be retired at once (*retire). A task may
 * also be cancelled or fail while its slices are still posted. These slices
 * first get one fence timeout to complete; only then, or if the peer is silent,
 * must their lanes be retired. One fence timeout after *retire, the fence of
 * the slices must be abandoned (*give_up).
 */
static void deadline_check(struct tei_rail_peer *p, uint64_t now,
			   struct rail_done *done, bool *retire, bool *give_up)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_dp *dp = p->dp;
	uint64_t limit = dp->settings->failure.slice_timeout_s * TEI_NS_PER_SEC;
	uint64_t fence = dp->settings->failure.fence_ms * TEI_NS_PER_MS;
	struct tei_rail_task *t, *tmp;
	uint64_t newest = 0;
	struct tei_err err;

	tei_list_foreach_safe (t, tmp, &p->tasks.live, struct tei_rail_task,
			       live_link) {
		if (t->ahead_ns > newest)
			newest = t->ahead_ns;
		if (t->progress_ns > newest)
			newest = t->progress_ns;
		if (!t->complete_wanted) {
			if (now < newest + limit)
				continue;
			deadline_err(p, newest, now, &err);
			tei_log_repeated(&p->log.complete_repeat, TEI_LOG_WARN,
					 "rail", "%s: %s", p->name, err.text);
			t->silent = true;
			p->tasks.still_ns = now;
			t->complete_stage = 1;
			t->complete_ns = now;
			*retire = true;
			rail_task_end_unpurged(dp, t, TEI_RAIL_END_FAILED, &err,
					       done);
		} else if (!t->complete_ns) {
			t->complete_ns = now;
			/* the peer is silent, so the slices will not
			 * complete */
			if (now > newest + fence && now > p->alive_ns + fence) {
				t->complete_stage = 1;
				*retire = true;
			}
		} else if (now >= t->complete_ns + fence &&
			   !t->complete_stage) {
			t->complete_stage = 1;
			t->complete_ns = now;
			*retire = true;
		} else if (now >= t->complete_ns + fence) {
			*give_up = true;
		}
	}
	rail_task_purge(p, done);
}

uint64_t rail_deadline_oldest(const struct tei_rail_peer *p)
{
	const struct tei_rail_task *t;

	t = tei_list_first(&p->tasks.live, struct tei_rail_task, live_link);
	return t->progress_ns > t->ahead_ns ? t->progress_ns : t->ahead_ns;
}

/* Ends the tasks that already waited for the peer when it was presumed dead.
 * They have no posted slices, because nothing is posted to such a peer. */
static void deadline_presumed(struct tei_rail_peer *p, uint64_t now,
			      struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t, *tmp;
	bool give_up = false;
	struct tei_err err;

	rail_presume_err(p, &err);
	tei_list_foreach_safe (t, tmp, &p->tasks.live, struct tei_rail_task,
			       live_link) {
		if (t->progress_ns > p->life.presumed_ns)
			continue;
		give_up |= t->slices != 0;
		if (t->complete_wanted)
			continue;
		t->silent = true;
		t->complete_ns = now;
		rail_task_end_unpurged(p->dp, t, TEI_RAIL_END_FAILED, &err,
				       done);
	}
	rail_task_purge(p, done);
	if (give_up && !p->tasks.posted)
		rail_peer_fail_unfenced(p, done);
	rail_notify_presumed(p, &err);
}

static uint64_t deadline_later(uint64_t at, uint64_t by, uint64_t now)
{
	if (!at || at >= now)
		return at;
	return by < now - at ? at + by : now;
}

void rail_deadline_stood_still(struct tei_rail_dp *dp, uint64_t still,
			       uint64_t now)
{
	struct tei_rail_peer *p;
	struct tei_rail_task *t;

	rail_sched_enter(dp);
	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link) {
		p->tasks.moved_ns =
			deadline_later(p->tasks.moved_ns, still, now);
		tei_list_foreach (t, &p->tasks.live, struct tei_rail_task,
				  live_link) {
			t->progress_ns = deadline_later(t->progress_ns, still,
							now);
			t->ahead_ns = deadline_later(t->ahead_ns, still, now);
			t->complete_ns =
				deadline_later(t->complete_ns, still, now);
		}
	}
	rail_sched_leave(dp);
}

uint64_t rail_ctl_deadlines(struct tei_rail_peer *p, uint64_t now)
{
	bool retire = false, give_up = false, live;
	struct rail_done done;

	rail_presume_ask(p, now);
	rail_done_init(&done);
	rail_sched_enter(p->dp);
	if (rail_presumed(p))
		deadline_presumed(p, now, &done);
	deadline_check(p, now, &done, &retire, &give_up);
	if (give_up)
		rail_peer_fail_unfenced(p, &done);
	live = !tei_list_empty(&p->tasks.live) || rail_notify_waited_ns(p);
	rail_sched_leave(p->dp);
	rail_done_run(p->dp, &done);
	if (retire)
		rail_renew_for_peer(p, now);
	return live ? now + DEADLINE_NS : 0;
}
