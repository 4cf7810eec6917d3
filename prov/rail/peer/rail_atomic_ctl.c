/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends atomic operations to peers, and executes and answers those of peers.
 * rail_atomic.c handles the tasks of atomics.
 *
 * The initiator numbers its atomics and sends them as messages, which it
 * repeats over any working rail until they are answered. The progress thread of
 * the target executes each number once and remembers the result.
 *
 * The atomics are requests of a channel (util/channel.h): the target executes
 * each number at most once and keeps the results of the last RAIL_ATOMICS
 * numbers. A target that has forgotten a peer gives it a new session number.
 * Atomics sent under the old session are not repeated; their outcome is
 * unknown.
 */

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_atomic.h"
#include "prov/rail/peer/rail_atomic_ctl.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/sched/rail_atomic.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/atomic.h"
#include "util/channel.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

/* Largest number of atomics that are executed between two acquisitions of
 * dp->sched. */
#define ATOMIC_BUNDLE 32

/* An entry of the target's table of received atomics: one atomic, which "seq"
 * identifies. */
struct rail_atomic_slot {
	uint64_t seq; /* number of the atomic; 0 if the entry is unused */
	uint64_t addr, operand, compare;
	uint64_t old;
	int32_t code;
	uint8_t op, width;
	bool executed;
	bool answer_pending; /* true if the entry is in the list
			      * rail_atomic_book.answer_pending */
};

struct rail_atomic_book {
	struct rail_atomic_slot slot[RAIL_ATOMICS];
	uint16_t answer_pending[RAIL_ATOMICS];
	uint32_t nowed;
};

void rail_atomic_free(struct tei_rail_peer *peer)
{
	free(peer->atomics.book);
}

void rail_atomic_session(struct tei_rail_peer *peer, uint64_t session,
			 struct rail_done *done)
{
	struct rail_atomics *a = &peer->atomics;

	a->notified = true;
	if (session <= a->session)
		return;
	if (a->session)
		rail_atomic_unknown(
			peer, "the target has forgotten this process", done);
	a->session = session;
	rail_notify_session(peer);
}

/* --- initiator: requests ------------------------------------------------- */

/* Records that all atomics with lower numbers than the first task in a->tasks
 * have finished. */
static void atomic_finished(struct rail_atomics *a)
	TEI_REQUIRES(rail_sched_held)
{
	const struct tei_rail_task *first =
		tei_list_first(&a->tasks, struct tei_rail_task, queue_link);

	tei_channel_out_ack(&a->out,
			    first->ext->seq ? first->ext->seq : a->out.sent);
}

/* Gives the task a number if it has none. Returns false if the atomic must not
 * be sent yet. */
static bool atomic_number(struct rail_atomics *a, struct tei_rail_task *t)
	TEI_REQUIRES(rail_sched_held)
{
	if (t->ext->seq)
		return true;
	if (!tei_channel_out_open(&a->out, RAIL_ATOMICS))
		return false;
	t->ext->seq = tei_channel_out_add(&a->out);
	tei_channel_out_sent(&a->out);
	return true;
}

static void atomic_put(struct rail_wire *w, const struct tei_rail_task *t)
{
	rail_wire_put(w, t->ext->seq, 8);
	rail_wire_put(w, t->ext->atomic, 1);
	rail_wire_put(w, t->length, 1);
	rail_wire_put(w, t->remote, 8);
	rail_wire_put(w, t->ext->operand, 8);
	rail_wire_put(w, t->ext->compare, 8);
}

/* Writes to the message all atomics that have not been sent. If "again" is
 * true, also writes those that have been sent but not answered. Returns the
 * number of atomics written. */
static uint32_t atomic_put_all(struct tei_rail_peer *peer, struct rail_wire *w,
			       bool again) TEI_REQUIRES(rail_sched_held)
{
	struct rail_atomics *a = &peer->atomics;
	struct tei_rail_task *t;
	uint32_t n = 0;

	a->round++;
	a->fresh = false;
	atomic_finished(a);
	tei_list_foreach(t, &a->tasks, struct tei_rail_task, queue_link) {
		if (t->ext->sent && !again)
			continue;
		if (n == RAIL_ATOMICS || !atomic_number(a, t))
			break;
		if (!t->ext->sent) {
			/* recorded before the message is sent, because from
			 * then on the target may execute the atomic */
			t->ext->sent = true;
			t->ext->round = a->round;
			t->slices = 1;
		}
		atomic_put(w, t);
		n++;
	}
	return n;
}

/* Marks the atomics of a message that could not be sent as unsent again, so
 * that cancelling them is still possible. */
static void atomic_unsend(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_atomics *a = &peer->atomics;
	struct tei_rail_task *t, *tmp;

	tei_list_foreach_safe(t, tmp, &a->tasks, struct tei_rail_task,
			      queue_link) {
		if (!t->ext->sent || t->ext->round != a->round)
			continue;
		t->ext->sent = false;
		t->slices = 0;
		a->fresh = true;
		if (!t->complete_wanted)
			continue;
		rail_atomic_take(t);
		rail_task_finish(peer->dp, t, done);
	}
}

/* Fails all atomics, because the peer's version of moonrail does not execute
 * atomics. */
static void atomic_refuse(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t, *tmp;
	struct tei_err err;

	rail_atomic_err(peer, TEI_ERR_NOT_IMPLEMENTED, &err);
	snprintf(err.text, sizeof(err.text),
		 "the target's version does not execute atomics");
	tei_list_foreach_safe(t, tmp, &peer->atomics.tasks,
			      struct tei_rail_task, queue_link)
		rail_task_end(peer->dp, t, TEI_RAIL_END_FAILED, &err, done);
}

/* Composes a message with all atomics that are due. Returns the length of the
 * message, or 0 if no atomic is due. */
static size_t atomic_compose(struct tei_rail_peer *peer, uint8_t *buf,
			     bool again) TEI_REQUIRES(rail_sched_held)
{
	struct rail_wire w;
	size_t count_at;
	uint32_t n;

	rail_msg_begin(peer, &w, buf, RAIL_MSG_ATOMIC, 0);
	rail_wire_put(&w, peer->atomics.session, 8);
	count_at = w.pos;
	rail_wire_put(&w, 0, 2);
	n = atomic_put_all(peer, &w, again);
	if (!n)
		return 0;
	rail_wire_set(&w, count_at, n, 2);
	return rail_msg_end(&w);
}

static uint64_t atomic_ask(struct tei_rail_peer *peer, uint64_t now,
			   uint8_t *buf)
{
	struct rail_atomics *a = &peer->atomics;
	struct tei_rail_dp *dp = peer->dp;
	struct rail_done done;
	uint64_t next, since;
	bool again, ready;
	size_t len = 0;
	int ret;

	rail_done_init(&done);
	rail_sched_enter(dp);
	ready = peer->state == RAIL_PEER_READY && !tei_list_empty(&a->tasks);
	if (!ready)
		a->since_ns = 0;
	again = a->since_ns && now >= a->next_ns;
	since = a->since_ns;
	next = since ? a->next_ns : 0;
	if (ready && !a->notified) {
		/* the hello is sent when the state machines of the peer run
		 * next */
		peer->hello.again = true;
		next = now + RAIL_CTL_RETRY_NS;
	} else if (ready && !a->session) {
		atomic_refuse(peer, &done);
	} else if (ready && (again || a->fresh)) {
		len = atomic_compose(peer, buf, again);
	}
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
	if (!len)
		return next;
	if (again)
		rail_ctl_unanswered(peer, now, since);
	ret = rail_msg_send(peer, buf, len, a->tries);
	rail_done_init(&done);
	rail_sched_enter(dp);
	if (ret) {
		atomic_unsend(peer, &done);
		a->next_ns = ret == -FI_EAGAIN ? rail_ctl_again(peer, now) :
						 now + RAIL_CTL_RESEND_NS;
	} else if (again || !a->since_ns) {
		a->next_ns = rail_ctl_sent(peer, ret, now, &a->tries);
	}
	if (!a->since_ns)
		a->since_ns = now;
	next = a->next_ns;
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
	return next;
}

/* --- initiator: answers -------------------------------------------------- */

/* Fails an atomic that the target has refused with code. */
static void atomic_refused(struct tei_rail_task *t, int code,
			   struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *peer = t->peer;
	struct tei_err err;

	if (t->complete_wanted) {
		rail_task_finish(peer->dp, t, done);
		return;
	}
	rail_atomic_err(peer, code, &err);
	snprintf(err.text, sizeof(err.text),
		 "atomic at 0x%llx, %u bytes: refused by the target: %s",
		 (unsigned long long)t->remote, (unsigned int)t->length,
		 tei_err_name(code));
	TEI_LOG_LIMITED(&peer->log.err_limit, TEI_LOG_WARN, "rail", "%s: %s",
			peer->name, err.text);
	rail_task_end(peer->dp, t, TEI_RAIL_END_FAILED, &err, done);
}

/* Completes a task that the target has executed, even if it has been cancelled
 * or timed out meanwhile. */
static void atomic_executed(struct tei_rail_task *t, uint64_t old, uint64_t now,
			    struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	t->ext->old = old;
	t->progress_ns = now;
	__atomic_store_n(&t->done_bytes, t->length, __ATOMIC_RELAXED);
	if (t->complete_wanted) {
		free(t->err);
		t->err = NULL;
		t->complete_wanted = TEI_RAIL_END_COMPLETED + 1;
	}
	rail_task_finish(t->peer->dp, t, done);
}

/* Ends the task with the number seq, if it still waits for its answer. */
static void atomic_answer(struct tei_rail_peer *peer, uint64_t seq, int code,
			  uint64_t old, uint64_t now, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t;

	tei_list_foreach(t, &peer->atomics.tasks, struct tei_rail_task,
			 queue_link) {
		if (!t->ext->sent || t->ext->seq > seq)
			return;
		if (t->ext->seq != seq)
			continue;
		rail_atomic_take(t);
		if (code)
			atomic_refused(t, code < 0 ? code : TEI_ERR_ENDPOINT,
				       done);
		else
			atomic_executed(t, old, now, done);
		return;
	}
}

void rail_atomic_answered(struct tei_rail_peer *peer, struct rail_wire *w,
			  struct rail_done *done)
{
	uint64_t session = rail_wire_get(w, 8), now = tei_now_ns(), seq, old;
	struct rail_atomics *a = &peer->atomics;
	uint32_t i, n = (uint32_t)rail_wire_get(w, 2);
	int32_t code;

	if (w->bad || session != a->session)
		return;
	for (i = 0; i < n; i++) {
		seq = rail_wire_get(w, 8);
		code = (int32_t)rail_wire_get(w, 4);
		old = rail_wire_get(w, 8);
		if (w->bad)
			return;
		atomic_answer(peer, seq, code, old, now, done);
	}
	/* an answer restarts the repetition timer of the remaining atomics */
	a->tries = 0;
	a->since_ns = tei_list_empty(&a->tasks) ? 0 : now;
	a->next_ns = now + RAIL_CTL_RESEND_NS;
	if (tei_list_empty(&a->tasks))
		return;
	/* an answer also counts as progress of the next task */
	tei_list_first(&a->tasks, struct tei_rail_task, queue_link)
		->progress_ns = now;
	rail_peer_attend(peer);
}

/* --- target -------------------------------------------------------------- */

static bool atomic_get(struct rail_wire *w, struct rail_atomic_slot *s)
{
	memset(s, 0, sizeof(*s));
	s->seq = rail_wire_get(w, 8);
	s->op = (uint8_t)rail_wire_get(w, 1);
	s->width = (uint8_t)rail_wire_get(w, 1);
	s->addr = rail_wire_get(w, 8);
	s->operand = rail_wire_get(w, 8);
	s->compare = rail_wire_get(w, 8);
	return !w->bad && s->seq;
}

/* Adds the entry with index place to the list of atomics whose answers must
 * still be sent, unless it is already there. */
static void atomic_owe(struct rail_atomic_book *b, uint16_t place)
{
	if (b->slot[place].answer_pending)
		return;
	b->slot[place].answer_pending = true;
	b->answer_pending[b->nowed++] = place;
}

void rail_atomic_asked(struct tei_rail_peer *peer, struct rail_wire *w)
{
	uint64_t session = rail_wire_get(w, 8);
	uint32_t i, n = (uint32_t)rail_wire_get(w, 2);
	struct rail_atomics *a = &peer->atomics;
	struct rail_atomic_slot in, *s;
	enum tei_channel_seen seen;

	if (w->bad || peer->state == RAIL_PEER_GONE)
		return;
	rail_peer_attend(peer);
	if (session != a->own_session) {
		peer->hello.reply = true;
		return;
	}
	if (!a->book)
		a->book = calloc(1, sizeof(*a->book));
	for (i = 0; a->book && i < n && atomic_get(w, &in); i++) {
		s = &a->book->slot[in.seq % RAIL_ATOMICS];
		seen = tei_channel_seen(s->seq, in.seq);
		if (seen == TEI_CHANNEL_OLD)
			continue;
		if (seen == TEI_CHANNEL_NEW) {
			in.answer_pending = s->answer_pending;
			*s = in;
		}
		atomic_owe(a->book, (uint16_t)(in.seq % RAIL_ATOMICS));
	}
}

/* An atomic to be executed without a lock held. */
struct atomic_job {
	struct rail_atomic_slot *slot;
	struct tei_rail_mr *mr;		/* region of the target memory;
					 * mr->tasks counts this job, so that
					 * the region cannot be unregistered */
};

static uint32_t atomic_collect(struct tei_rail_peer *peer,
			       struct atomic_job *job)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_atomic_book *b = peer->atomics.book;
	struct rail_atomic_slot *s;
	struct tei_rail_mr *mr;
	uint32_t i, n = 0;

	for (i = 0; i < b->nowed && n < ATOMIC_BUNDLE; i++) {
		s = &b->slot[b->answer_pending[i]];
		if (s->executed)
			continue;
		s->executed = true;
		s->code = tei_atomic_check(s->op, s->width, s->addr);
		if (s->code)
			continue;
		mr = rail_mr_find(peer->dp, (void *)(uintptr_t)s->addr,
				  s->width);
		/* the CPU executes the atomics, so a target in GPU memory is
		 * refused */
		if (!mr || !mr->remote || mr->read_only || mr->gpu) {
			s->code = TEI_ERR_NOT_REGISTERED;
			continue;
		}
		mr->tasks++;
		job[n].slot = s;
		job[n++].mr = mr;
	}
	return n;
}

/* Executes all due atomics. The slots need no lock: only the progress thread
 * uses them, because only this thread handles the ATOMIC messages that fill
 * them. */
static void atomic_execute(struct tei_rail_peer *peer)
{
	struct atomic_job job[ATOMIC_BUNDLE];
	struct tei_rail_dp *dp = peer->dp;
	struct rail_atomic_slot *s;
	bool signal = false;
	uint32_t i, n;

	do {
		rail_sched_enter(dp);
		n = atomic_collect(peer, job);
		rail_sched_leave(dp);
		for (i = 0; i < n; i++) {
			s = job[i].slot;
			s->code = tei_atomic_run(s->op, s->width, s->addr,
						 s->operand, s->compare,
						 &s->old);
		}
		if (!n)
			break;
		rail_sched_enter(dp);
		for (i = 0; i < n; i++)
			signal |= !--job[i].mr->tasks &&
				  job[i].mr->state == RAIL_MR_REVOKING;
		rail_sched_leave(dp);
	} while (n == ATOMIC_BUNDLE);
	if (signal)
		rail_progress_signal(dp);
}

static size_t atomic_compose_answer(struct tei_rail_peer *peer, uint8_t *buf)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_atomic_book *b = peer->atomics.book;
	const struct rail_atomic_slot *s;
	struct rail_wire w;
	uint32_t i;

	rail_msg_begin(peer, &w, buf, RAIL_MSG_ATOMIC_REP, 0);
	rail_wire_put(&w, peer->atomics.own_session, 8);
	rail_wire_put(&w, b->nowed, 2);
	for (i = 0; i < b->nowed; i++) {
		s = &b->slot[b->answer_pending[i]];
		rail_wire_put(&w, s->seq, 8);
		rail_wire_put(&w, (uint32_t)s->code, 4);
		rail_wire_put(&w, s->old, 8);
	}
	return rail_msg_end(&w);
}

/* Executes the atomics that have been received, and answers them. */
static uint64_t atomic_serve(struct tei_rail_peer *peer, uint64_t now,
			     uint8_t *buf)
{
	struct rail_atomic_book *b = peer->atomics.book;
	struct tei_rail_dp *dp = peer->dp;
	size_t len;
	uint32_t i;

	if (!b || !b->nowed)
		return 0;
	rail_sched_enter(dp);
	if (peer->state == RAIL_PEER_GONE)
		b->nowed = 0;
	rail_sched_leave(dp);
	if (!b->nowed)
		return 0;
	atomic_execute(peer);
	rail_sched_enter(dp);
	len = atomic_compose_answer(peer, buf);
	rail_sched_leave(dp);
	if (rail_msg_send(peer, buf, len, 0) == -FI_EAGAIN)
		return rail_ctl_again(peer, now);
	/* A sent answer is not needed any longer. An answer that could not be
	 * sent is dropped: the initiator repeats its request. */
	rail_sched_enter(dp);
	for (i = 0; i < b->nowed; i++)
		b->slot[b->answer_pending[i]].answer_pending = false;
	b->nowed = 0;
	rail_sched_leave(dp);
	return 0;
}

uint64_t rail_ctl_atomics(struct tei_rail_peer *peer, uint64_t now,
			  uint8_t *buf)
{
	uint64_t next = atomic_serve(peer, now, buf);

	return rail_ctl_sooner(next, atomic_ask(peer, now, buf));
}
