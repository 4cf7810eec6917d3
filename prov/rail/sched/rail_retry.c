/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles failed slices. A failed slice stays in the awaiting-fence list of its
 * peer until the target has fenced the generation to which the slice was
 * posted. Then the slice moves to the retry list, which is served before new
 * requests. So no slice is ever posted twice at the same time.
 */

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/sched/rail_atomic.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

void rail_sched_count(const struct rail_slice *s)
{
	s->peer->stats.retries++;
	if (s->lane)
		__atomic_fetch_add(&s->lane->rail->errors.retries, 1,
				   __ATOMIC_RELAXED);
}

void rail_sched_again(struct tei_rail_peer *peer, struct rail_slice *s,
		      struct rail_done *done)
{
	struct tei_rail_dp *dp = peer->dp;

	tei_list_del(&s->link);
	tei_list_add_tail(&peer->tasks.retry, &s->link);
	if (rail_slice_dead(s)) {
		rail_slice_drop(dp, s, false, done);
		return;
	}
	if (peer->state == RAIL_PEER_GONE) {
		rail_slice_fail(s, TEI_ERR_CONTEXT,
				"the peer's process has gone", done);
		return;
	}
	if (rail_slice_unregistered(s, done))
		return;
	if (s->retries >= dp->settings->failure.retry_cnt) {
		rail_slice_fail(s, TEI_ERR_ENDPOINT,
				"the slice failed after MC_RETRY_CNT retries", done);
		return;
	}
	s->retries++;
	rail_sched_count(s);
	rail_peer_activate(peer);
}

void rail_slice_handle_error(struct tei_rail_dp *dp, struct rail_slice *s,
			     int err, struct rail_done *done)
{
	struct tei_rail_peer *peer = s->peer;

	(void)dp;
	peer->tasks.posted--;
	rail_conn_put(s);
	rail_width_failed(s->conn->width);
	s->last_err = err;
	tei_list_add_tail(&peer->tasks.awaiting_fence, &s->link);
	if (rail_peer_over(peer) || s->remote_idx >= peer->nremotes ||
	    peer->remotes[s->remote_idx].gen > s->remote_gen) {
		/* the generation is already fenced, or the process has ended */
		rail_sched_again(peer, s, done);
		return;
	}
	rail_fence_event(peer, s->remote_idx, RAIL_FENCE_EV_FAILED,
			 &(struct rail_fence_args){ .gen = s->remote_gen });
}

void rail_sched_release(struct tei_rail_peer *peer, uint16_t remote,
			uint32_t gen, struct rail_done *done)
{
	struct rail_slice *s, *tmp;

	tei_list_foreach_safe (s, tmp, &peer->tasks.awaiting_fence,
			       struct rail_slice, link)
		if (s->remote_idx == remote && s->remote_gen <= gen)
			rail_sched_again(peer, s, done);
	rail_peer_activate(peer);
}

void rail_task_drop(struct tei_rail_task *t, const struct tei_err *err,
		    struct rail_done *done)
{
	struct tei_rail_dp *dp = t->peer->dp;

	if (t->cut < t->length && !t->complete_wanted)
		rail_task_unqueue(t);
	if (!t->err) {
		t->err = malloc(sizeof(*t->err));
		if (t->err)
			*t->err = *err;
	}
	if (t->ext && t->ext->atomic)
		rail_atomic_drop(t);
	t->complete_wanted =
		(t->slices ? TEI_RAIL_END_UNFENCED : TEI_RAIL_END_FAILED) + 1;
	tei_list_del(&t->live_link);
	__atomic_store_n(&dp->tasks.nlive, dp->tasks.nlive - 1,
			 __ATOMIC_RELAXED);
	tei_list_add_tail(&done->tasks, &t->live_link);
}

void rail_peer_fail_unfenced(struct tei_rail_peer *peer, struct rail_done *done)
{
	struct rail_slice *s, *tmp;

	tei_list_foreach_safe (s, tmp, &peer->tasks.awaiting_fence,
			       struct rail_slice, link) {
		if (!rail_slice_dead(s))
			continue;
		rail_fence_event(peer, s->remote_idx, RAIL_FENCE_EV_TIMED_OUT,
				 NULL);
		rail_slice_drop(peer->dp, s, true, done);
	}
	rail_atomic_give_up(peer, done);
}

static bool retry_names(const struct tei_rail_task_ext *x, uint64_t off,
			uint64_t len, uint64_t remote, uint64_t addr,
			uint64_t alen)
{
	if (x)
		return rail_iov_names(x, off, len, addr, alen);
	return remote <= addr && remote + (len - 1) >= addr + (alen - 1);
}

static struct rail_slice *retry_keyless(struct tei_rail_peer *peer,
					uint64_t addr, uint64_t len,
					bool reads)
{
	struct rail_slice *s;

	tei_list_foreach (s, &peer->tasks.retry, struct rail_slice, link)
		if (!s->rkey && (reads || !s->read) &&
		    retry_names(s->ext, s->off, s->len, s->remote, addr, len))
			return s;
	return NULL;
}

static void retry_fail_keyless(struct tei_list *queue, uint64_t addr,
			       uint64_t len, bool reads,
			       const struct tei_err *err,
			       struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t, *next;

	tei_list_foreach_safe(t, next, queue, struct tei_rail_task, queue_link)
		if (!t->keys_checked && (reads || !t->read) &&
		    (t->whole_length ? retry_names(NULL, 0, t->whole_length,
						   t->whole, addr, len)
				     : retry_names(t->ext, 0, t->length,
						   t->remote, addr, len)))
			rail_task_end(t->peer->dp, t, TEI_RAIL_END_FAILED, err,
				      done);
}

/* Fails the writes that wait for the key of [addr, addr + len). If "reads" is
 * true, also fails the reads that wait for it. The caller has filled err except
 * for the time and the peer. */
static void retry_refuse(struct tei_rail_peer *peer, uint64_t addr,
			 uint64_t len, bool reads, struct tei_err *err,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s;

	err->when_ns = tei_now_ns();
	snprintf(err->peer, sizeof(err->peer), "%.95s", peer->name);
	/* one log line for all these tasks, because rail_slice_refuse logs
	 * nothing */
	tei_log_repeated(&peer->log.complete_repeat, TEI_LOG_WARN, "rail",
			 "%s: %s", peer->name, err->text);
	while ((s = retry_keyless(peer, addr, len, reads)))
		rail_slice_refuse(s, err, done);
	retry_fail_keyless(&peer->tasks.small, addr, len, reads, err, done);
	retry_fail_keyless(&peer->tasks.queue, addr, len, reads, err, done);
}

void rail_sched_no_key(struct tei_rail_peer *peer, uint64_t addr, uint64_t len,
		       int code, struct rail_done *done)
{
	struct tei_err err = { .code = code };

	if (code == TEI_ERR_NOT_REGISTERED) {
		err.absent.addr = addr;
		err.absent.length = len;
	}
	snprintf(err.text, sizeof(err.text),
		 "target range 0x%llx, %llu bytes: the peer has not registered it "
		 "for remote access",
		 (unsigned long long)addr, (unsigned long long)len);
	snprintf(err.hint, sizeof(err.hint),
		 "target_offset must be an address of the target process; if it is GPU memory, open the segment after the memory was registered");
	retry_refuse(peer, addr, len, true, &err, done);
	rail_peer_activate(peer);
}

/* --- regions that the peer has unregistered ------------------------------ */

/* Fills err for the task, which has used a region that the peer has
 * unregistered. */
static void retry_gone_err(const struct tei_rail_task *t, struct tei_err *err)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t length = t->ext ? t->ext->piece[t->ext->nlocal].len :
				   t->length;

	memset(err, 0, sizeof(*err));
	err->code = TEI_ERR_NOT_REGISTERED;
	err->when_ns = tei_now_ns();
	snprintf(err->peer, sizeof(err->peer), "%.95s", t->peer->name);
	snprintf(err->text, sizeof(err->text),
		 "target range 0x%llx, %llu bytes: the peer has unregistered it during the transfer",
		 (unsigned long long)t->remote, (unsigned long long)length);
	snprintf(err->hint, sizeof(err->hint),
		 "the target must keep memory registered until the transfers that use it have ended");
	err->absent.addr = t->remote;
	err->absent.length = length;
	tei_log_repeated(&t->peer->log.complete_repeat, TEI_LOG_WARN, "rail",
			 "%s: %s", t->peer->name, err->text);
}

/* Returns true if other bytes of the slice's first task, or of that task's
 * group, were cut to a region that the peer has unregistered. Only the first
 * task of a slice may have a group. */
static bool retry_is_torn(const struct rail_slice *s)
{
	if (rail_key_group_gone(s->first))
		return true;
	return s->ntasks == 1 && s->first->region_gone &&
	       s->len < s->first->length;
}

/* If the slice consists of whole tasks, forgets which regions they have used:
 * all their bytes are posted again, possibly to other regions. */
static void retry_begin_again(const struct rail_slice *s)
{
	struct tei_rail_task *t = s->first;
	uint32_t i;

	if (s->ntasks == 1 && s->len < t->length)
		return;
	for (i = 0; i < s->ntasks; i++, t = t->merge_next) {
		t->region_gone = false;
		t->forgotten = 0;
	}
}

bool rail_slice_unregistered(struct rail_slice *s, struct rail_done *done)
{
	struct tei_err err;

	if (!retry_is_torn(s)) {
		retry_begin_again(s);
		return false;
	}
	/* the other tasks of the slice do not belong to the group */
	if (s->ntasks > 1 && rail_slice_split(s->peer, s, 0))
		rail_peer_activate(s->peer);
	retry_gone_err(s->first, &err);
	rail_slice_refuse(s, &err, done);
	return true;
}

/* Returns the first slice of the retry list that must not be posted again, or
 * NULL. */
static struct rail_slice *retry_torn(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s;

	tei_list_foreach (s, &peer->tasks.retry, struct rail_slice, link) {
		if (retry_is_torn(s))
			return s;
		retry_begin_again(s);
	}
	return NULL;
}

static void retry_fail_gone(struct tei_list *queue, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t, *next;
	struct tei_err err;

	tei_list_foreach_safe(t, next, queue, struct tei_rail_task,
			      queue_link) {
		if (!t->region_gone && !rail_key_group_gone(t))
			continue;
		/* slices of the task are posted, so the peer's state machines
		 * must watch them */
		if (t->slices)
			rail_peer_attend(t->peer);
		retry_gone_err(t, &err);
		rail_task_end(t->peer->dp, t, TEI_RAIL_END_FAILED, &err, done);
	}
}

void rail_sched_unregistered(struct tei_rail_peer *peer, struct rail_done *done)
{
	struct rail_slice *s;

	rail_key_mark_tasks(peer);
	retry_fail_gone(&peer->tasks.small, done);
	retry_fail_gone(&peer->tasks.queue, done);
	while ((s = retry_torn(peer)))
		rail_slice_unregistered(s, done);
}

void rail_sched_read_only(struct tei_rail_peer *peer, uint64_t addr,
			  uint64_t len, struct rail_done *done)
{
	struct tei_err err = { .code = TEI_ERR_NOT_REGISTERED };

	snprintf(err.text, sizeof(err.text),
		 "target range 0x%llx, %llu bytes: the peer has registered it for reading only",
		 (unsigned long long)addr, (unsigned long long)len);
	snprintf(err.hint, sizeof(err.hint),
		 "the target process could not write to the whole buffer when it registered it; see mprotect(2)");
	retry_refuse(peer, addr, len, false, &err, done);
}
