/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots, the initiator: tasks, their pieces and the messages
 * about them. staging_remote_int.h has the rules. Except for the last section,
 * all functions run in the thread "tei-remote".
 */
#include "prov/staging/staging_remote_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tei_staging_remote_err(struct tei_err *err,
			    const struct tei_rail_peer *peer, int code,
			    const char *text)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->provider, sizeof(err->provider), "cuda");
	snprintf(err->peer, sizeof(err->peer), "%s", tei_rail_peer_name(peer));
	snprintf(err->text, sizeof(err->text),
		 "transfer with GPU memory of another process, through its host "
		 "memory: %s",
		 text);
}

/* --- messages ------------------------------------------------------------ */

/* Returns the task whose pieces the remote task moves, or NULL if the remote
 * task is a whole request. */
static struct tei_staging_task *remote_task_whole(
	struct tei_staging_remote_task *task)
{
	return task->part ? tei_staging_piece_of(task)->task : NULL;
}

/* Fills in an ASK. */
static void request_ask(const struct staging_request *p, struct staging_msg *m)
{
	struct tei_staging_remote_task *task = p->task;
	const struct tei_staging_task *whole = remote_task_whole(task);

	m->type = STAGING_ASK;
	m->flags = task->read ? STAGING_READS : 0;
	m->base = whole ? whole->remote : task->remote;
	m->extent = whole ? whole->length : task->length;
	m->at = task->remote + p->at;
	m->length = p->length;
}

/* Returns the time at which the message of the piece's state is repeated. While
 * the piece is being moved, ASK only reports that the slot is in use, so ASK is
 * repeated rarely. */
static uint64_t request_due(const struct staging_remote *rs,
			    const struct staging_request *p)
{
	static const struct tei_channel_pace pace = { STAGING_REPEAT_NS,
						      STAGING_REPEAT_MAX_NS };

	return rs->now + (p->state == REQUEST_MOVING ?
				  STAGING_REPEAT_MAX_NS :
				  tei_channel_pause(&pace, p->tries));
}

/* Sends the message of the piece's state. */
static void request_send(struct staging_remote *rs, struct staging_request *p)
{
	struct staging_target *t = p->target;
	struct staging_msg m = { .id = p->id };

	switch (p->state) {
	case REQUEST_SENT:
	case REQUEST_MOVING:
		request_ask(p, &m);
		break;
	case REQUEST_COPYING:
		m.type = STAGING_GO;
		break;
	case REQUEST_RETURNED:
	case REQUEST_NONE:
		m.type = STAGING_FREE;
		m.flags = p->unfenced ? STAGING_UNFENCED : 0;
		break;
	}
	p->unsent =
		!staging_remote_send(rs, t->peer, &t->prefer, &t->backoff, &m);
	if (p->unsent)
		return;
	p->due_ns = request_due(rs, p);
	p->tries++;
	staging_remote_due(rs, p->due_ns);
}

static void request_enter(struct staging_remote *rs, struct staging_request *p,
			  enum staging_request_state state)
{
	p->state = state;
	p->since_ns = rs->now;
	p->tries = 0;
	p->due_ns = request_due(rs, p);
	p->unsent = false;
	if (state == REQUEST_NONE)
		p->target->used--;
	else if (state != REQUEST_MOVING)
		request_send(rs, p);
}

/* --- ends ---------------------------------------------------------------- */

/* Ends the connection between a piece and its task. */
static void request_detach(struct staging_request *p)
{
	p->task->running--;
	p->target->running--;
	p->task = NULL;
}

static void remote_task_try_end(struct staging_remote *rs,
				struct tei_staging_remote_task *task)
{
	struct tei_err *err = task->err;
	enum tei_rail_end status = task->status;

	if (task->running || task->queued)
		return;
	tei_mutex_lock(&rs->part.lock);
	task->ended = true;
	tei_list_del(&task->live);
	tei_list_del(&task->started);
	tei_list_del(&task->stop);
	rs->ending++;
	tei_mutex_unlock(&rs->part.lock);
	task->err = NULL;
	if (task->moved == task->length && status != TEI_RAIL_END_UNFENCED)
		status = TEI_RAIL_END_COMPLETED; /* all bytes were moved before
						  * the task was cancelled */
	task->done(task, status, status ? err : NULL); /* the caller owns the
							* task from now on */
	free(err);
	tei_mutex_lock(&rs->part.lock);
	rs->ending--;
	pthread_cond_broadcast(&rs->part.idle);
	tei_mutex_unlock(&rs->part.lock);
}

/* Ends the transfer of a piece. A rail task does not wait for a fence if the
 * deadline has ended the task. */
static void request_cancel_move(struct staging_remote *rs,
				struct staging_request *p)
{
	struct tei_staging *s = rs->part.staging;
	struct tei_rail_task *rail = &p->op.rail;

	if (p->stopped)
		return;
	p->stopped = true;
	if (p->by_copy)
		s->ops->copy_cancel(s->arg, &p->op.copy);
	else if (p->task->by_deadline)
		tei_rail_expire(staging_rails(s), &rail, 1);
	else
		tei_rail_cancel(staging_rails(s), &rail, 1);
}

/* Fails a task: begins no further piece of it, drops the pieces that wait for a
 * slot and cancels the pieces that are being moved. */
static void remote_task_fail(struct staging_remote *rs,
			     struct tei_staging_remote_task *task,
			     enum tei_rail_end status,
			     const struct tei_err *err)
{
	struct staging_request *p;
	uint32_t i;

	/* UNFENCED takes precedence, because bytes may still land */
	if (!task->status || (status == TEI_RAIL_END_UNFENCED &&
			      task->status != TEI_RAIL_END_UNFENCED)) {
		free(task->err);
		task->status = status;
		task->err = malloc(sizeof(*task->err));
		if (task->err)
			*task->err = *err;
	}
	if (!task->stop_ns)
		task->stop_ns = rs->now;
	if (task->queued)
		tei_list_del(&task->queue);
	task->queued = false;
	for (i = 0; task->target && i < STAGING_NUMBERS; i++) {
		p = &task->target->request[i];
		if (p->state == REQUEST_NONE || p->task != task)
			continue;
		if (p->state == REQUEST_SENT) {
			request_detach(p);
			request_enter(rs, p, REQUEST_RETURNED);
		} else if (p->state == REQUEST_MOVING) {
			request_cancel_move(rs, p);
		}
	}
}

static void remote_task_fail_code(struct staging_remote *rs,
				  struct tei_staging_remote_task *task,
				  enum tei_rail_end status, int code,
				  const char *text)
{
	struct tei_err err;

	tei_staging_remote_err(&err, task->peer, code, text);
	/* this code came from the target, so the missing registration is that
	 * of the target's GPU memory; local memory that is not registered is
	 * refused at the start of a task */
	if (code == TEI_ERR_NOT_REGISTERED) {
		err.absent.addr = task->remote;
		err.absent.length = task->length;
	}
	remote_task_fail(rs, task, status, &err);
}

/* --- steps --------------------------------------------------------------- */

/* Reports the end of a transfer to the thread "tei-remote". Any thread. */
static void request_over(struct staging_request *p, enum tei_rail_end end,
			 bool silent, const struct tei_err *err)
{
	struct staging_remote *rs = p->remote;

	tei_mutex_lock(&rs->part.lock);
	p->end = end;
	p->silent = silent;
	if (end != TEI_RAIL_END_COMPLETED && err)
		p->err = *err;
	else
		memset(&p->err, 0, sizeof(p->err));
	tei_list_add_tail(&rs->moved, &p->node);
	staging_part_notify(&rs->part);
	tei_mutex_unlock(&rs->part.lock);
}

static void request_rail_done(struct tei_rail_task *task, enum tei_rail_end end,
			      const struct tei_err *err)
{
	request_over(tei_container_of(task, struct staging_request, op.rail),
		     end, task->silent, err);
}

void tei_staging_copy_done(struct tei_staging_copy *copy, int code,
			   const struct tei_err *err)
{
	struct staging_request *p =
		tei_container_of(copy, struct staging_request, op.copy);
	enum tei_rail_end end = TEI_RAIL_END_COMPLETED;
	struct tei_err why;

	if (code) {
		end = code == TEI_ERR_CANCELED ? TEI_RAIL_END_CANCELED :
						 TEI_RAIL_END_FAILED;
		tei_staging_remote_err(&why, p->target->peer, code,
				       err && *err->text ? err->text :
							   tei_err_name(code));
	}
	request_over(p, end, false, &why);
}

/*
 * Handles the serial of the target's region in READY. Returns true if it is the
 * region of all earlier pieces of the request. If the target has unregistered
 * its memory and registered it again between two pieces, the request must not
 * be COMPLETED, because the pieces are parts of different registrations.
 */
static bool request_same_region(struct tei_staging_remote_task *task,
				uint64_t serial)
{
	struct tei_staging_task *whole = remote_task_whole(task);
	uint32_t *region = whole ? &whole->region : &task->region;

	if (!*region)
		*region = (uint32_t)serial;
	return *region == (uint32_t)serial;
}

/* Frees the slot of a piece that was not moved, and fails the task. */
static void request_refuse(struct staging_remote *rs, struct staging_request *p,
			   int code, const char *text)
{
	struct tei_staging_remote_task *task = p->task;

	request_detach(p);
	request_enter(rs, p, REQUEST_RETURNED);
	remote_task_fail_code(rs, task, TEI_RAIL_END_FAILED, code, text);
	remote_task_try_end(rs, task);
}

/* Makes the owner copy the bytes of a piece, if the target is a process of this
 * host that permits it. serial: struct staging_msg.extent of READY. Returns 0, or
 * a code as struct tei_staging_ops.copy. */
static int request_copy(struct staging_remote *rs, struct staging_request *p,
			uint64_t slot, uint64_t serial)
{
	struct tei_staging_remote_task *task = p->task;
	struct tei_staging_copy *copy = &p->op.copy;
	struct tei_staging *s = rs->part.staging;

	if (!task->near || !serial || rs->now < p->target->copies_ns)
		return TEI_ERR_UNSUPPORTED;
	memset(copy, 0, sizeof(*copy));
	copy->near = task->near;
	copy->local = task->local + p->at;
	copy->slot = slot;
	copy->serial = serial;
	copy->length = p->length;
	copy->read = task->read;
	return s->ops->copy(s->arg, copy);
}

/* Moves the bytes of a piece over the rails. Returns 0, or the code with which
 * the data plane refuses the operation. */
static int request_post(struct staging_remote *rs, struct staging_request *p,
			uint64_t slot)
{
	struct tei_staging_remote_task *task = p->task;
	struct tei_rail_task *rail = &p->op.rail;

	memset(rail, 0, sizeof(*rail));
	rail->peer = task->peer;
	rail->remote = slot;
	rail->length = p->length;
	rail->local = task->local + p->at;
	rail->read = task->read;
	rail->held = task->held;
	rail->done = request_rail_done;
	return tei_rail_submit(staging_rails(rs->part.staging), &rail, 1);
}

/* Begins the transfer of a piece. slot: address of the slot that the target has
 * granted. serial: see request_copy; 0 if the rails are to be used. If the slot
 * was registered again since, it may not be accessed, because other memory may
 * have its addresses. */
static void request_move(struct staging_remote *rs, struct staging_request *p,
			 uint64_t slot, uint64_t serial)
{
	int ret;

	p->stopped = false;
	p->done_early = false;
	p->unfenced = false;
	request_enter(rs, p, REQUEST_MOVING);
	ret = request_copy(rs, p, slot, serial);
	p->by_copy = !ret;
	if (ret == TEI_ERR_NOT_REGISTERED) {
		request_refuse(rs, p, TEI_ERR_ENDPOINT,
			       "the target has withdrawn the bounce slot");
		return;
	}
	if (ret)
		ret = request_post(rs, p, slot);
	if (ret) /* otherwise request_over will report the end of the transfer */
		request_refuse(rs, p, ret, tei_err_name(ret));
}

static void request_ready(struct staging_remote *rs, struct staging_request *p,
			  const struct staging_msg *m)
{
	if (request_same_region(p->task, m->base))
		request_move(rs, p, m->at, m->extent);
	else
		request_refuse(rs, p, TEI_ERR_NOT_REGISTERED,
			       "the target has unregistered the GPU memory and registered it again during the transfer");
}

static void request_add_moved(struct staging_remote *rs,
			      struct tei_staging_remote_task *task,
			      const struct staging_request *p)
{
	task->waits_ns = rs->now;
	__atomic_store_n(&task->moved, task->moved + p->length,
			 __ATOMIC_RELAXED);
}

/* Handles a piece whose transfer has ended with COMPLETED. */
static void request_completed(struct staging_remote *rs,
			      struct staging_request *p)
{
	struct tei_staging_remote_task *task = p->task;

	if (!task->read && !task->status && !p->done_early) {
		request_enter(rs, p, REQUEST_COPYING);
		return;
	}
	if (task->read)
		request_add_moved(rs, task, p);
	else if (p->done_early)
		remote_task_fail_code(rs, task, TEI_RAIL_END_FAILED, p->code,
				      tei_err_name(p->code));
	request_detach(p);
	request_enter(rs, p, REQUEST_RETURNED);
	remote_task_try_end(rs, task);
}

/* Records that a piece has made progress, so the target is not silent. */
static void target_progressed(struct staging_remote *rs,
			      struct staging_target *target)
{
	target->received_ns = rs->now;
	target->silent = false;
	staging_backoff_end(&target->backoff);
}

/*
 * Fails those tasks for a silent target that have waited for MC_SLICE_TIMEOUT
 * and have no piece in progress. Otherwise each of them would wait for
 * MC_SLICE_TIMEOUT again, one after the other. A task that was started later
 * has its own timeout.
 */
static void target_purge(struct staging_remote *rs,
			 struct staging_target *target)
{
	uint64_t timeout = staging_timeout_ns(rs->part.staging);
	struct tei_staging_remote_task *task, *tmp;

	tei_list_foreach_safe(task, tmp, &target->queue,
			      struct tei_staging_remote_task, queue) {
		if (task->running || rs->now - task->waits_ns < timeout)
			continue;
		task->silent = true;
		remote_task_fail_code(
			rs, task, TEI_RAIL_END_FAILED, TEI_ERR_ENDPOINT,
			"the target made no progress for MC_SLICE_TIMEOUT");
		remote_task_try_end(rs, task);
	}
}

/* Returns true if a copy inside the host has failed and the rails are to move all
 * bytes of the piece. TEI_ERR_NOT_REGISTERED: the slot or the local memory was
 * unregistered meanwhile, so it may not be accessed. */
static bool request_copy_failed(const struct staging_request *p)
{
	return p->by_copy && !p->stopped && p->end == TEI_RAIL_END_FAILED &&
	       p->err.code != TEI_ERR_NOT_REGISTERED;
}

void staging_request_moved(struct staging_remote *rs, struct staging_request *p)
{
	struct tei_staging_remote_task *task = p->task;
	struct staging_target *target = p->target;
	bool silent = p->silent;
	enum tei_rail_end status;

	if (p->end == TEI_RAIL_END_COMPLETED) {
		target_progressed(rs, target);
		request_completed(rs, p);
		return;
	}
	if (request_copy_failed(p)) {
		if (rs->now >= target->copies_ns)
			TEI_INFO("staging", "a copy to or from a slot of a local process has failed, and the rails move the bytes for MC_SLICE_TIMEOUT: %s",
				 p->err.text);
		/* other pieces would wait for MC_SLICE_TIMEOUT, too, if all copy
		 * slots of the target are in use */
		target->copies_ns =
			rs->now + staging_timeout_ns(rs->part.staging);
		request_move(rs, p, p->op.copy.slot, 0);
		return;
	}
	/* clear the absent range: it is the range of the slot, and no
	 * descriptor lists the slot */
	memset(&p->err.absent, 0, sizeof(p->err.absent));
	status = p->end;
	p->unfenced = status == TEI_RAIL_END_UNFENCED;
	task->silent |= silent;
	target->silent |= silent;
	request_detach(p);
	request_enter(rs, p, REQUEST_RETURNED);
	if (p->done_early && p->code && status != TEI_RAIL_END_UNFENCED)
		remote_task_fail_code(rs, task, TEI_RAIL_END_FAILED, p->code,
				      tei_err_name(p->code));
	else
		remote_task_fail(rs, task, status, &p->err);
	remote_task_try_end(rs, task);
	if (silent)
		target_purge(rs, target);
}

/* Handles DONE. Code 0 counts as a success only in state COPYING. */
static void request_done(struct staging_remote *rs, struct staging_request *p,
			 int code)
{
	struct tei_staging_remote_task *task = p->task;
	bool copying = p->state == REQUEST_COPYING;

	if (p->state == REQUEST_MOVING) {
		p->done_early = true;
		p->code = code ? code : TEI_ERR_CONTEXT;
		request_cancel_move(rs, p);
		return;
	}
	/* A piece that waited for READY sends FREE, because the target keeps
	 * the addresses in quarantine until it receives FREE
	 * (staging_unacked). */
	if (p->state != REQUEST_RETURNED)
		request_detach(p);
	request_enter(rs, p,
		      p->state == REQUEST_SENT ? REQUEST_RETURNED :
						 REQUEST_NONE);
	if (!task)
		return;
	if (copying && !code)
		request_add_moved(rs, task, p);
	else
		remote_task_fail_code(rs, task,
				      copying && code == TEI_ERR_TIMED_OUT ?
					      TEI_RAIL_END_UNFENCED :
					      TEI_RAIL_END_FAILED,
				      code ? code : TEI_ERR_CONTEXT,
				      code ? tei_err_name(code) :
					     "the target granted no bounce slot");
	remote_task_try_end(rs, task);
}

static struct staging_target *target_find(struct staging_remote *rs,
					  const struct tei_rail_peer *peer)
{
	struct staging_target *t;

	tei_list_foreach(t, &rs->targets, struct staging_target, link)
		if (t->peer == peer)
			return t;
	return NULL;
}

static struct staging_request *target_request(struct staging_target *t,
					      uint64_t id)
{
	return &t->request[id % STAGING_NUMBERS];
}

void staging_request_message(struct staging_remote *rs,
			     const struct tei_rail_peer *peer,
			     const struct staging_msg *m)
{
	struct staging_target *t = target_find(rs, peer);
	struct staging_request *p;

	if (!t)
		return;
	p = target_request(t, m->id);
	if (p->state == REQUEST_NONE || p->id != m->id)
		return; /* the piece has ended already, so the message is a
			 * repetition */
	target_progressed(rs, t);
	if (m->type == STAGING_DONE)
		request_done(rs, p, m->code);
	else if (p->state == REQUEST_SENT)
		request_ready(rs, p, m);
}

/* --- begin --------------------------------------------------------------- */

static struct staging_target *target_new(struct staging_remote *rs,
					 struct tei_rail_peer *peer)
{
	struct staging_target *t = calloc(1, sizeof(*t));
	uint32_t i;

	if (!t)
		return NULL;
	tei_rail_peer_hold(peer);
	t->peer = peer;
	/* the first number comes from the clock, so it is higher than all
	 * numbers of an earlier record of this target */
	tei_channel_out_start(&t->out, rs->now);
	tei_list_init(&t->queue);
	for (i = 0; i < STAGING_NUMBERS; i++) {
		t->request[i].remote = rs;
		t->request[i].target = t;
	}
	tei_list_add_tail(&rs->targets, &t->link);
	return t;
}

static void target_free(struct staging_target *t)
{
	tei_list_del(&t->link);
	tei_rail_peer_put(t->peer);
	free(t);
}

void staging_request_started(struct staging_remote *rs,
			     struct tei_staging_remote_task *task)
{
	struct staging_target *t = target_find(rs, task->peer);

	if (!t)
		t = target_new(rs, task->peer);
	if (!t) {
		remote_task_fail_code(rs, task, TEI_RAIL_END_FAILED,
				      TEI_ERR_MEMORY, "no memory");
		remote_task_try_end(rs, task);
		return;
	}
	task->target = t;
	task->waits_ns = rs->now;
	if (task->since_ns && task->since_ns < rs->now)
		task->waits_ns = task->since_ns;
	if (!t->running && tei_list_empty(&t->queue) && !t->silent &&
	    t->received_ns < task->waits_ns)
		t->received_ns = task->waits_ns;
	task->queued = true;
	tei_list_add_tail(&t->queue, &task->queue);
}

void staging_request_stopped(struct staging_remote *rs,
			     struct tei_staging_remote_task *task)
{
	bool closing = task->stop_status == TEI_RAIL_END_COMPLETED;

	task->by_deadline = task->expired;
	if (closing)
		remote_task_fail_code(rs, task, TEI_RAIL_END_FAILED,
				      TEI_ERR_CONTEXT,
				      "the engine is being destroyed");
	else if (task->expired)
		remote_task_fail_code(rs, task, task->stop_status,
				      TEI_ERR_TIMED_OUT,
				      "the batch's deadline has passed");
	else
		remote_task_fail_code(rs, task, task->stop_status,
				      TEI_ERR_CANCELED,
				      "cancelled by the caller");
	remote_task_try_end(rs, task);
}

/* Begins one piece of the first task in the queue of the target. p: the record
 * for the piece. */
static void target_begin_one(struct staging_remote *rs,
			     struct staging_target *t,
			     struct staging_request *p)
{
	struct tei_staging_remote_task *task = tei_list_first(
		&t->queue, struct tei_staging_remote_task, queue);
	uint64_t left = task->length - task->next;

	p->id = tei_channel_out_add(&t->out);
	tei_channel_out_sent(&t->out);
	p->task = task;
	p->at = task->next;
	p->length =
		left < TEI_STAGING_PIECE ? (uint32_t)left : TEI_STAGING_PIECE;
	p->unfenced = false;
	task->next += p->length;
	task->running++;
	t->running++;
	t->used++;
	tei_list_del(&task->queue); /* if bytes are left, the task goes to
				     * the end of the queue */
	task->queued = p->length < left;
	if (task->queued)
		tei_list_add_tail(&t->queue, &task->queue);
	request_enter(rs, p, REQUEST_SENT);
}

/* Acknowledges the numbers of the finished pieces in the channel, up to the
 * first unfinished piece. */
static void target_finished(struct staging_target *t)
{
	uint64_t id = t->out.acked;

	while (id != t->out.sent &&
	       target_request(t, id)->state == REQUEST_NONE)
		id++;
	tei_channel_out_ack(&t->out, id);
}

static void target_begin(struct staging_remote *rs, struct staging_target *t)
{
	target_finished(t);
	while (t->running < STAGING_WINDOW && !tei_list_empty(&t->queue) &&
	       tei_channel_out_open(&t->out, STAGING_NUMBERS))
		target_begin_one(rs, t, target_request(t, t->out.next));
}

/* --- time ---------------------------------------------------------------- */

/* Ends a piece for which the target has sent no result. gone: the target's
 * process has ended. */
static void request_drop(struct staging_remote *rs, struct staging_request *p,
			 enum tei_rail_end status, int code, const char *text,
			 bool gone)
{
	struct tei_staging_remote_task *task = p->task;

	request_detach(p);
	p->unfenced = status == TEI_RAIL_END_UNFENCED;
	request_enter(rs, p, gone ? REQUEST_NONE : REQUEST_RETURNED);
	remote_task_fail_code(rs, task, status, code, text);
	remote_task_try_end(rs, task);
}

/* Checks the timeouts of a piece, and ends the piece if one has passed. Returns
 * true if the target is silent. */
static bool request_check(struct staging_remote *rs, struct staging_request *p,
			  uint64_t timeout)
{
	uint64_t received = p->target->received_ns;
	uint64_t fence = staging_fence_ns(rs->part.staging);
	bool copying = p->state == REQUEST_COPYING;
	const char *text =
		"the target granted no bounce slot for MC_SLICE_TIMEOUT";
	uint64_t since =
		p->state == REQUEST_SENT ? p->task->waits_ns : p->since_ns;

	if (received < since)
		received = since;
	if (p->state == REQUEST_RETURNED) {
		if (rs->now - p->since_ns > 2 * timeout)
			request_enter(rs, p, REQUEST_NONE);
		return false;
	}
	if (copying && p->task->stop_ns && rs->now - p->task->stop_ns > fence) {
		request_drop(rs, p, TEI_RAIL_END_UNFENCED, TEI_ERR_TIMED_OUT,
			     "the target does not report the end of its copy",
			     false);
		return false;
	}
	if (p->state == REQUEST_MOVING || rs->now - received < timeout)
		return false;
	p->task->silent = true;
	p->target->silent = true;
	if (copying)
		text = "the target made no progress for MC_SLICE_TIMEOUT; its copy may still run";
	request_drop(rs, p, copying ? TEI_RAIL_END_UNFENCED :
				      TEI_RAIL_END_FAILED, TEI_ERR_ENDPOINT,
		     text, false);
	return true;
}

static void target_gone(struct staging_remote *rs, struct staging_target *t)
{
	struct tei_staging_remote_task *task;
	struct staging_request *p;
	uint32_t i;

	while (!tei_list_empty(&t->queue)) {
		task = tei_list_first(&t->queue, struct tei_staging_remote_task,
				      queue);
		remote_task_fail_code(rs, task, TEI_RAIL_END_FAILED,
				      TEI_ERR_ENDPOINT,
				      "the target process has ended");
		remote_task_try_end(rs, task);
	}
	for (i = 0; i < STAGING_NUMBERS; i++) {
		p = &t->request[i];
		if (p->state == REQUEST_RETURNED)
			request_enter(rs, p, REQUEST_NONE);
		else if (p->state == REQUEST_SENT ||
			 p->state == REQUEST_COPYING)
			request_drop(rs, p, TEI_RAIL_END_FAILED,
				     TEI_ERR_ENDPOINT, "the target process has ended",
				     true);
	}
}

static void target_check(struct staging_remote *rs, struct staging_target *t)
{
	uint64_t timeout = staging_timeout_ns(rs->part.staging);
	struct staging_request *p;
	bool silent = false;
	uint32_t i;

	if (tei_rail_peer_gone(t->peer))
		target_gone(rs, t);
	for (i = 0; i < STAGING_NUMBERS; i++) {
		p = &t->request[i];
		if (p->state == REQUEST_NONE)
			continue;
		silent |= request_check(rs, p, timeout);
		if (p->state != REQUEST_NONE &&
		    (p->unsent || rs->now >= p->due_ns))
			request_send(rs, p);
		if (p->state != REQUEST_NONE && !p->unsent)
			staging_remote_due(rs, p->due_ns);
	}
	/* purge also if no piece is silent: tasks may wait because unanswered
	 * pieces use all numbers */
	if (silent || rs->now - t->received_ns >= timeout)
		target_purge(rs, t);
}

void staging_request_poll(struct staging_remote *rs)
{
	struct staging_target *t, *tmp;

	tei_list_foreach_safe(t, tmp, &rs->targets, struct staging_target,
			      link) {
		if (t->used)
			target_check(rs, t);
		target_begin(rs, t);
		if (t->used || !tei_list_empty(&t->queue))
			staging_remote_due(rs, rs->now + STAGING_CHECK_NS);
		else if (rs->now - t->received_ns > TEI_NS_PER_SEC)
			target_free(t);
		else
			staging_remote_due(rs,
					   t->received_ns + TEI_NS_PER_SEC + 1);
	}
}

void staging_request_forget(struct staging_remote *rs)
{
	while (!tei_list_empty(&rs->targets))
		target_free(tei_list_first(&rs->targets, struct staging_target,
					   link));
}

/* --- calls by any thread -------------------------------------------------- */

int tei_staging_remote_start(struct tei_staging *s,
			     struct tei_staging_remote_task *task)
{
	struct staging_remote *rs = staging_remote(s);
	bool taken;

	/* the task may have ended before and be started again */
	task->next = task->stop_ns = 0;
	task->by_deadline = task->silent = false;
	task->status = TEI_RAIL_END_COMPLETED;
	task->region = 0;
	__atomic_store_n(&task->moved, 0, __ATOMIC_RELAXED);
	tei_list_init(&task->stop);
	tei_mutex_lock(&rs->part.lock);
	task->stop_status = TEI_RAIL_END_COMPLETED;
	task->expired = task->ended = false;
	taken = !rs->part.closing;
	if (taken) {
		tei_list_add_tail(&rs->live, &task->live);
		tei_list_add_tail(&rs->started, &task->started);
		staging_part_notify(&rs->part);
	}
	tei_mutex_unlock(&rs->part.lock);
	return taken ? 0 : TEI_ERR_CONTEXT;
}

void tei_staging_remote_cancel(struct tei_staging *s,
			       struct tei_staging_remote_task *task,
			       bool deadline)
{
	struct staging_remote *rs = staging_remote(s);

	tei_mutex_lock(&rs->part.lock);
	if (!task->ended && !task->stop_status) {
		task->stop_status =
			deadline ? TEI_RAIL_END_FAILED : TEI_RAIL_END_CANCELED;
		task->expired = deadline;
		tei_list_del(&task->stop);
		tei_list_add_tail(&rs->stopping, &task->stop);
		staging_part_notify(&rs->part);
	}
	tei_mutex_unlock(&rs->part.lock);
}

static bool remote_drained(const struct staging_remote *rs)
	TEI_REQUIRES(rs->part.lock)
{
	return tei_list_empty(&rs->live) && !rs->ending;
}

bool tei_staging_remote_drain(struct tei_staging *s, uint64_t until_ns)
{
	struct staging_remote *rs = staging_remote(s);
	bool none;

	if (!rs)
		return true;
	tei_mutex_lock(&rs->part.lock);
	while (!(none = remote_drained(rs)) && tei_now_ns() < until_ns) {
		tei_mutex_unlock(&rs->part.lock);
		tei_rail_progress(staging_rails(s));
		tei_mutex_lock(&rs->part.lock);
		if (!remote_drained(rs))
			tei_mutex_wait(&rs->part.idle, &rs->part.lock,
				       TEI_NS_PER_MS);
	}
	tei_mutex_unlock(&rs->part.lock);
	return none;
}
