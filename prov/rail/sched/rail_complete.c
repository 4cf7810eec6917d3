/* SPDX-License-Identifier: BSD-2-Clause */
/* Completes, fails and drops slices and their tasks, and reports ended
 * tasks. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_failure.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/sched/rail_atomic.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

static void complete_count(struct tei_rail_peer_stats *s, enum tei_rail_end end)
{
	switch (end) {
	case TEI_RAIL_END_COMPLETED:
		s->completed++;
		break;
	case TEI_RAIL_END_FAILED:
		s->failed++;
		break;
	case TEI_RAIL_END_UNFENCED:
		s->unfenced++;
		break;
	case TEI_RAIL_END_CANCELED:
		s->canceled++;
		break;
	}
}

/* Copies the progress time of a task that ends to the next unfinished task of
 * the peer, so that MC_SLICE_TIMEOUT counts the progress of all earlier
 * tasks. */
static void complete_pass_progress(const struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t newest = task->progress_ns > task->ahead_ns ?
				  task->progress_ns : task->ahead_ns;
	struct tei_rail_task *next;

	if (task->live_link.next == &task->peer->tasks.live)
		return;
	next = tei_list_first(&task->live_link, struct tei_rail_task,
			      live_link);
	if (next->ahead_ns < newest)
		next->ahead_ns = newest;
}

void rail_task_finish(struct tei_rail_dp *dp, struct tei_rail_task *task,
		      struct rail_done *done)
{
	if (task->slices)
		return;
	if (!task->complete_wanted) {
		if (task->done_bytes < task->length)
			return;
		task->complete_wanted = TEI_RAIL_END_COMPLETED + 1;
	} else if (task->unfenced) {
		task->complete_wanted = TEI_RAIL_END_UNFENCED + 1;
	}
	complete_count(&task->peer->stats,
		       (enum tei_rail_end)(task->complete_wanted - 1));
	complete_pass_progress(task);
	tei_list_del(&task->live_link);
	__atomic_store_n(&dp->tasks.nlive, dp->tasks.nlive - 1,
			 __ATOMIC_RELAXED);
	tei_list_add_tail(&done->tasks, &task->live_link);
}

bool rail_slice_dead(const struct rail_slice *s)
{
	struct tei_rail_task *t = s->first;
	uint32_t i;

	for (i = 0; i < s->ntasks; i++, t = t->merge_next)
		if (!t->complete_wanted)
			return false;
	return true;
}

/* Drops a slice that will not be posted. A task of the slice may end if this
 * was the task's last slice. unfenced: true if bytes of the slice may still
 * land. */
void rail_slice_drop(struct tei_rail_dp *dp, struct rail_slice *s,
		     bool unfenced, struct rail_done *done)
{
	struct tei_rail_task *t = s->first, *next;
	uint32_t i, n = s->ntasks;

	tei_list_del(&s->link);
	if (s->rkey)
		rail_key_slice_done(s->peer, s->rkey);
	for (i = 0; i < n; i++, t = next) {
		next = t->merge_next;
		t->slices--;
		t->unfenced |= unfenced;
		rail_task_finish(dp, t, done);
	}
	rail_slice_put(dp, s);
}

void rail_task_purge(struct tei_rail_peer *peer, struct rail_done *done)
{
	struct rail_slice *s, *tmp;

	tei_list_foreach_safe (s, tmp, &peer->tasks.retry, struct rail_slice,
			       link)
		if (rail_slice_dead(s))
			rail_slice_drop(peer->dp, s, false, done);
}

void rail_task_end_unpurged(struct tei_rail_dp *dp, struct tei_rail_task *task,
			    enum tei_rail_end end, const struct tei_err *err,
			    struct rail_done *done)
{
	if (task->complete_wanted)
		return;
	task->complete_wanted = (uint8_t)(end + 1);
	if (err) {
		task->err = malloc(sizeof(*task->err));
		if (task->err)
			*task->err = *err;
	}
	if (task->cut < task->length) {
		rail_task_unqueue(task);
	} else if (task->ext && task->ext->atomic) {
		rail_atomic_end(task);
	}
	if (!task->slices)
		rail_task_finish(dp, task, done);
}

void rail_task_end(struct tei_rail_dp *dp, struct tei_rail_task *task,
		   enum tei_rail_end end, const struct tei_err *err,
		   struct rail_done *done)
{
	rail_task_end_unpurged(dp, task, end, err, done);
	if (task->slices)
		rail_task_purge(task->peer, done);
}

static void complete_fill_err(const struct tei_rail_peer *peer,
			      struct rail_slice *s, int code, const char *what,
			      struct tei_err *err)
{
	const char *text = "";

	memset(err, 0, sizeof(*err));
	err->code = code;
	err->prov_errno = s->prov_err ? s->prov_err : s->last_err;
	err->when_ns = tei_now_ns();
	snprintf(err->peer, sizeof(err->peer), "%.95s", peer->name);
	if (s->lane) {
		snprintf(err->rail, sizeof(err->rail), "%s",
			 s->lane->rail->name);
		snprintf(err->provider, sizeof(err->provider), "%s",
			 s->lane->rail->nic.provider);
		if (s->prov_err && s->prov_err == peer->tasks.last_failure.prov)
			text = peer->tasks.last_failure.text;
	}
	snprintf(err->text, sizeof(err->text), "%s%s%s%s%s%s", what,
		 s->last_err ? ": " : "",
		 s->last_err ? fi_strerror(s->last_err) : "",
		 text[0] ? " (" : "", text, text[0] ? ")" : "");
	snprintf(err->hint, sizeof(err->hint), "%s",
		 rail_failure_hint(s->last_err));
}

/* Fails all tasks of the slice. */
static void slice_fail(struct rail_slice *s, const struct tei_err *err,
		       struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t = s->first, *next;
	struct tei_rail_peer *peer = s->peer;
	uint32_t i, n = s->ntasks;

	/* the slice is dropped together with the last of its tasks */
	for (i = 0; i < n; i++, t = next) {
		next = t->merge_next;
		rail_task_end(peer->dp, t, TEI_RAIL_END_FAILED, err, done);
	}
}

void rail_slice_fail(struct rail_slice *s, int code, const char *what,
		     struct rail_done *done)
{
	struct tei_err err;

	complete_fill_err(s->peer, s, code, what, &err);
	tei_log_repeated(&s->peer->log.complete_repeat, TEI_LOG_WARN, "rail",
			 "%s: %s", s->peer->name, err.text);
	slice_fail(s, &err, done);
}

void rail_slice_refuse(struct rail_slice *s, const struct tei_err *why,
		       struct rail_done *done)
{
	struct tei_err err;

	complete_fill_err(s->peer, s, why->code, "", &err);
	memcpy(err.text, why->text, sizeof(err.text));
	memcpy(err.hint, why->hint, sizeof(err.hint));
	err.absent = why->absent;
	slice_fail(s, &err, done);
}

void rail_slice_complete(struct tei_rail_dp *dp, struct rail_slice *s,
			 uint64_t now, struct rail_done *done)
{
	struct tei_rail_task *t = s->first, *next;
	uint32_t i, n = s->ntasks;
	uint64_t bytes;

	s->peer->tasks.posted--;
	rail_conn_put(s);
	rail_width_served(s->conn->width, s, now);
	s->peer->alive_ns = now;
	s->peer->tasks.moved_ns = now;
	s->peer->tasks.served_ns[s->lane->rail->index] = now;
	if (s->read)
		s->peer->stats.rx_bytes += s->len;
	else
		s->peer->stats.tx_bytes += s->len;
	if (s->rkey)
		rail_key_slice_done(s->peer, s->rkey);
	for (i = 0; i < n; i++, t = next) {
		next = t->merge_next;
		bytes = n == 1 ? s->len : t->length;
		t->slices--;
		t->progress_ns = now;
		__atomic_store_n(&t->done_bytes, t->done_bytes + bytes,
				 __ATOMIC_RELAXED);
		rail_task_finish(dp, t, done);
	}
	rail_slice_put(dp, s);
}
