/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Submission: submitTransfer and submitTransferWithNotify. All requests are
 * checked, and for each one a transport prepares a task. Only then do the tasks
 * start.
 */
#include "api/engine_int.h"
#include "api/engine_memory.h"

#include <stdlib.h>
#include <string.h>

#include "api/engine_refusal.h"
#include "api/engine_transport.h"
#include "api/transport_bounce.h"

static bool submit_bad_request(const struct transfer_request *r)
{
	return (r->opcode != OPCODE_READ && r->opcode != OPCODE_WRITE) ||
	       !r->source || !r->length ||
	       (uintptr_t)r->source + r->length < (uintptr_t)r->source ||
	       r->target_offset + (r->length - 1) < r->target_offset;
}

/* Sets target->kind to the kind of memory of the request, as if its local
 * memory were registered. The choice of the transport depends on it. */
static void submit_kind(struct engine *e, const struct transfer_request *r,
			struct engine_target *target)
{
	bool here, there;

	if (!target->gpu && !__atomic_load_n(&e->gpu, __ATOMIC_ACQUIRE)) {
		target->kind = ENGINE_HOST_HOST;
		return;
	}
	here = engine_gpu_memory(e, (uintptr_t)r->source, r->length);
	if (r->target_id == LOCAL_SEGMENT)
		there = engine_gpu_memory(e, r->target_offset, r->length);
	else
		there = engine_target_gpu(target, r->target_offset);
	target->kind = engine_kind(here, there);
}

/*
 * Called for a request with the flag TE_REQ_BOUNCE. If its local memory is not
 * registered, sets target->kind so that a transport with bounce buffers is
 * chosen. Returns 0, or 3 if the local memory cannot be used.
 */
static int submit_unregistered(struct engine *e,
			       const struct transfer_request *r,
			       struct engine_target *target)
{
	bool unregistered = false;

	if (!(target->kind & (ENGINE_HOST_HOST | ENGINE_HOST_GPU)))
		return 0;
	if (engine_bounce_check(e, r->source, r->length,
				r->opcode == OPCODE_READ, &unregistered))
		return 3;
	if (unregistered)
		target->kind = engine_kind_unregistered(target->kind);
	return 0;
}

int engine_submit_prepare(struct engine *e, struct engine_task *t,
			  const struct transfer_request *r, uint32_t flags,
			  struct engine_target *target)
{
	const struct engine_via *via, *end;
	int ret;

	if (submit_bad_request(r))
		return 1;
	ret = engine_target_set(e, r->target_id, target);
	if (ret)
		return ret;
	submit_kind(e, r, target);
	if (flags & TE_REQ_BOUNCE && submit_unregistered(e, r, target))
		return 3;
	end = target->vias->via + target->vias->n;
	for (via = target->vias->via; via < end; via++) {
		if (!(via->by->takes & target->kind))
			continue;
		ret = via->by->prepare(e, t, r, target, via->at);
		if (ret != ENGINE_DECLINED)
			return ret;
	}
	return 8;
}

/* Checks all requests and prepares their tasks, which start later. If a request
 * is refused, stores the error record and returns the code. */
static int submit_check(struct engine *e, const char *call,
			struct engine_task *tasks,
			const struct transfer_request *reqs, size_t n)
{
	struct engine_target target = { .valid = false };
	size_t i;
	int ret;

	for (i = 0; i < n; i++) {
		ret = engine_submit_prepare(e, &tasks[i], &reqs[i], 0, &target);
		if (ret)
			return engine_refuse_request(e, call, i, &reqs[i], ret);
	}
	return 0;
}

/* Starts the tasks whose transport has start_run, with one call of it. Sets
 * *mine to their number. Returns an enum tei_code if none of them was
 * started. */
static int submit_start_run(struct engine *e, struct engine_task *tasks,
			    size_t n, size_t *mine)
{
	const struct engine_transport_ops *by = NULL;
	size_t i;

	for (i = 0, *mine = 0; i < n; i++) {
		if (!tasks[i].by->start_run)
			continue;
		by = tasks[i].by;
		++*mine;
	}
	return by ? by->start_run(e, tasks, n, *mine) : 0;
}

/* Starts the tasks whose transport has start or start_next. */
static void submit_start_others(struct engine *e, struct engine_task *tasks,
				size_t n)
{
	const struct engine_transport_ops *by;
	size_t i = 0;

	while (i < n) {
		by = tasks[i].by;
		if (by->start_next) {
			i += by->start_next(e, &tasks[i], n - i);
			continue;
		}
		if (!by->start_run)
			by->start(e, &tasks[i]);
		i++;
	}
}

int engine_submit_start(struct engine *e, struct engine_batch *b, size_t n)
{
	struct engine_task *tasks = b->tasks + b->count;
	size_t i, mine;
	int ret;

	engine_deadline_submit(b);
	if (b->deadline_ns && tei_now_ns() >= b->deadline_ns)
		return TE_TIMED_OUT;
	for (i = 0; i < n; i++)
		tasks[i].batch = b;
	engine_wait_expect(b, (uint32_t)n);
	ret = submit_start_run(e, tasks, n, &mine);
	if (ret) {
		engine_wait_unexpect(b, (uint32_t)n);
		return tei_err_transfer_code(ret);
	}
	b->count += (uint32_t)n;
	if (mine < n)
		submit_start_others(e, tasks, n);
	return 0;
}

static int submit_locked(struct engine *e, const char *call,
			 struct engine_batch *b,
			 const struct transfer_request *reqs, size_t n,
			 struct engine_submission *sub)
{
	struct engine_task *tasks = b->tasks + b->count;
	size_t i;
	int ret;

	if (n > b->size - b->count)
		return engine_refuse_full(call, b, n);
	ret = submit_check(e, call, tasks, reqs, n);
	if (ret)
		return ret;
	for (i = 0; i < n; i++)
		tasks[i].sub = sub;
	ret = engine_submit_start(e, b, n);
	return ret ? engine_refuse_start(e, call, reqs, n, ret) : 0;
}

int engine_submit(struct engine *e, const char *call, batch_id_t id,
		  const struct transfer_request *reqs, size_t n,
		  struct engine_submission *sub)
{
	struct engine_batch *b;
	int ret;

	if (!reqs && n)
		return engine_refuse(call, ENGINE_REFUSE_CALL, 1, NULL,
				     "entries is NULL");
	b = engine_batch_lock(e, id);
	if (!b)
		return 1;
	if (!n) {
		engine_batch_unlock(b);
		return 0;
	}
	tei_rwlock_read(&e->segments);
	ret = submit_locked(e, call, b, reqs, n, sub);
	tei_rwlock_unlock(&e->segments);
	engine_batch_unlock(b);
	return ret;
}

int submitTransfer(transfer_engine_t engine, batch_id_t batch_id,
		   struct transfer_request *entries, size_t count)
{
	struct engine *e = engine_from(engine);

	if (!e)
		return 1;
	return engine_submit(e, __func__, batch_id, entries, count, NULL);
}

/* Sets sub->peer to the process of the segment with that id, which receives the
 * notification, and takes a reference to it. Returns 0 or the code of the
 * public call. */
static int submission_target(struct engine *e, const char *call,
			     segment_id_t id, struct engine_submission *sub)
{
	struct engine_segment *s;
	int ret;

	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, id);
	if (s && s->peer) {
		sub->peer = s->peer;
		tei_rail_peer_hold(s->peer);
	}
	ret = !s	   ? engine_refuse_target(call, 0, id)
	      : !sub->peer ? engine_refuse_transport(e, call, 0, id)
			   : 0;
	tei_rwlock_unlock(&e->segments);
	return ret;
}

/*
 * Creates the notification. This is done before the requests are submitted, so
 * that the notification cannot fail for lack of memory, or because a queue is
 * full, after the data has been written.
 */
static int submission_note(struct engine *e, const char *call, segment_id_t id,
			   const struct notify_msg *msg,
			   struct engine_submission *sub)
{
	struct tei_rail_note what = {
		.name = msg->name,
		.msg = msg->msg,
		.msg_len = strlen(msg->msg),
	};
	struct tei_err err;
	int ret;

	if (id == LOCAL_SEGMENT) {
		sub->note = engine_note_own(e, &what, &err);
		return sub->note ? 0 : tei_err_transfer_code(err.code);
	}
	ret = submission_target(e, call, id, sub);
	if (ret)
		return ret;
	return tei_err_transfer_code(tei_rail_outgoing_new(
		sub->peer, msg->name, msg->msg, &err, &sub->out));
}

int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
			     struct transfer_request *entries, size_t count,
			     notify_msg_t notify_msg)
{
	struct engine *e = engine_from(engine);
	struct engine_submission *sub;
	int ret;

	if (e && !count)
		return engine_submit(e, __func__, batch_id, NULL, 0, NULL);
	if (!e || !entries || !notify_msg.name || !notify_msg.msg)
		return -engine_bad(e, __func__, NULL);
	sub = calloc(1, sizeof(*sub));
	if (!sub)
		return 302;
	sub->left = (uint32_t)count;
	ret = submission_note(e, __func__, entries[0].target_id, &notify_msg,
			      sub);
	if (!ret)
		ret = engine_submit(e, __func__, batch_id, entries, count, sub);
	if (ret)
		engine_submission_free(e, sub);
	return ret;
}
