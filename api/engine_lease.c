/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots, the initiator: tasks, their pieces and the messages
 * about them. engine_lease.h has the rules. Except for the last section, all
 * functions run in the thread "tei-lease".
 */
#include "api/engine_lease_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_transport.h"
#include "api/transport_rail.h"

static void lease_err(struct tei_err *err, const struct tei_rail_peer *peer,
		      int code, const char *text)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->provider, sizeof(err->provider), "cuda");
	snprintf(err->peer, sizeof(err->peer), "%s", tei_rail_peer_name(peer));
	snprintf(err->text, sizeof(err->text),
		 "GPU memory of another process, through its host memory: %s",
		 text);
}

/* --- messages ------------------------------------------------------------ */

/* Sends the message of the piece's state. */
static void lease_say(struct engine_leasing *l, struct lease_piece *p)
{
	struct engine_lease *lease = p->lease;
	struct lease_target *t = p->target;
	struct lease_msg m = { .id = p->id };

	switch (p->state) {
	case LEASE_ASKING:
	case LEASE_MOVING:
		m.type = LEASE_ASK;
		m.flags = lease->read ? LEASE_READS : 0;
		m.base = lease->base;
		m.extent = lease->extent;
		m.at = lease->remote + p->at;
		m.length = p->length;
		break;
	case LEASE_TELLING:
		m.type = LEASE_GO;
		break;
	case LEASE_RETURNING:
	case LEASE_NONE:
		m.type = LEASE_FREE;
		m.flags = p->unfenced ? LEASE_UNFENCED : 0;
		break;
	}
	p->unsaid = !leasing_send(l, t->peer, &t->prefer, &t->trying, &m);
	if (p->unsaid)
		return;
	p->due_ns = l->now + p->pause_ns;
	p->pause_ns = p->pause_ns * 2 < LEASE_BEAT_NS ? p->pause_ns * 2 :
							LEASE_BEAT_NS;
	leasing_due(l, p->due_ns);
}

static void lease_enter(struct engine_leasing *l, struct lease_piece *p,
			enum lease_state state)
{
	p->state = state;
	p->since_ns = l->now;
	p->pause_ns = state == LEASE_MOVING ? LEASE_BEAT_NS : LEASE_AGAIN_NS;
	p->due_ns = l->now + p->pause_ns;
	p->unsaid = false;
	if (state == LEASE_NONE)
		p->target->used--;
	else if (state != LEASE_MOVING)
		lease_say(l, p);
}

/* --- ends ---------------------------------------------------------------- */

/* Separates a piece from its task. */
static void lease_part(struct lease_piece *p)
{
	p->lease->running--;
	p->target->running--;
	p->lease = NULL;
}

static void lease_try_end(struct engine_leasing *l, struct engine_lease *lease)
{
	struct tei_err *err = lease->err;
	int status = lease->status;

	if (lease->running || lease->queued)
		return;
	tei_mutex_lock(&l->lock);
	lease->ended = true;
	tei_list_del(&lease->live);
	tei_list_del(&lease->fresh);
	tei_list_del(&lease->stop);
	l->ending++;
	tei_mutex_unlock(&l->lock);
	lease->err = NULL;
	if (lease->moved == lease->length && status != STATUS_TIMEOUT)
		status = 0;		/* complete before it was cancelled */
	lease->done(lease, status, status ? err : NULL); /* lease is void */
	free(err);
	tei_mutex_lock(&l->lock);
	l->ending--;
	pthread_cond_broadcast(&l->idle);
	tei_mutex_unlock(&l->lock);
}

/* Ends the rail task of a piece: at once if the deadline has ended the task,
 * else as a cancelled task. */
static void lease_halt(struct engine_leasing *l, struct lease_piece *p)
{
	struct tei_rail_task *task = &p->rail;

	if (p->stopped)
		return;
	p->stopped = true;
	if (p->lease->hurried)
		tei_rail_expire(l->engine->dp, &task, 1);
	else
		tei_rail_cancel(l->engine->dp, &task, 1);
}

/* Stops beginning pieces of a task, drops those that wait for a slot and
 * cancels those that are being moved. */
static void lease_fail(struct engine_leasing *l, struct engine_lease *lease,
		       int status, const struct tei_err *err)
{
	struct lease_piece *p;
	uint32_t i;

	/* TIMEOUT takes precedence, because bytes may still land */
	if (!lease->status || (status == STATUS_TIMEOUT &&
			       lease->status != STATUS_TIMEOUT)) {
		free(lease->err);
		lease->status = status;
		lease->err = malloc(sizeof(*lease->err));
		if (lease->err)
			*lease->err = *err;
	}
	if (!lease->stop_ns)
		lease->stop_ns = l->now;
	if (lease->queued)
		tei_list_del(&lease->queue);
	lease->queued = false;
	for (i = 0; lease->target && i < LEASE_PIECES; i++) {
		p = &lease->target->piece[i];
		if (p->state == LEASE_NONE || p->lease != lease)
			continue;
		if (p->state == LEASE_ASKING) {
			lease_part(p);
			lease_enter(l, p, LEASE_RETURNING);
		} else if (p->state == LEASE_MOVING) {
			lease_halt(l, p);
		}
	}
}

static void lease_fail_code(struct engine_leasing *l,
			    struct engine_lease *lease, int status, int code,
			    const char *text)
{
	struct tei_err err;

	lease_err(&err, lease->peer, code, text);
	/* the target has sent this code; local memory that is not registered
	 * is refused at the start */
	if (code == TEI_ERR_NOT_REGISTERED) {
		err.absent.addr = lease->remote;
		err.absent.length = lease->length;
	}
	lease_fail(l, lease, status, &err);
}

/* --- steps --------------------------------------------------------------- */

static void piece_railed(struct tei_rail_task *task, enum tei_rail_end end,
			 const struct tei_err *err)
{
	struct lease_piece *p = tei_container_of(task, struct lease_piece,
						 rail);
	struct engine_leasing *l = p->leasing;

	tei_mutex_lock(&l->lock);
	p->end = end;
	p->silent = task->silent;
	if (end != TEI_RAIL_END_COMPLETED && err)
		p->err = *err;
	else
		memset(&p->err, 0, sizeof(p->err));
	tei_list_add_tail(&l->railed, &p->node);
	leasing_word(l);
	tei_mutex_unlock(&l->lock);
}

/* Moves the bytes of a piece; slot is the address that the target has
 * granted. */
static void lease_move(struct engine_leasing *l, struct lease_piece *p,
		       uint64_t slot)
{
	struct tei_rail_task *task = &p->rail;
	struct engine_lease *lease = p->lease;
	int ret;

	memset(task, 0, sizeof(*task));
	task->peer = lease->peer;
	task->remote = slot;
	task->length = p->length;
	task->local = lease->local + p->at;
	task->read = lease->read;
	task->held = lease->held;
	task->done = piece_railed;
	p->stopped = false;
	p->over = false;
	p->unfenced = false;
	lease_enter(l, p, LEASE_MOVING);
	ret = tei_rail_submit(l->engine->dp, &task, 1);
	if (!ret)
		return;			/* piece_railed will end it */
	lease_part(p);
	lease_enter(l, p, LEASE_RETURNING);
	lease_fail_code(l, lease, STATUS_FAILED, ret, tei_err_name(ret));
	lease_try_end(l, lease);
}

static void lease_moved(struct engine_leasing *l, struct engine_lease *lease,
			const struct lease_piece *p)
{
	lease->waits_ns = l->now;
	__atomic_store_n(&lease->moved, lease->moved + p->length,
			 __ATOMIC_RELAXED);
}

/* Handles a piece whose rail task has completed. */
static void lease_completed(struct engine_leasing *l, struct lease_piece *p)
{
	struct engine_lease *lease = p->lease;

	if (!lease->read && !lease->status && !p->over) {
		lease_enter(l, p, LEASE_TELLING);
		return;
	}
	if (lease->read)
		lease_moved(l, lease, p);
	else if (p->over)
		lease_fail_code(l, lease, STATUS_FAILED, p->code,
				tei_err_name(p->code));
	lease_part(p);
	lease_enter(l, p, LEASE_RETURNING);
	lease_try_end(l, lease);
}

/* Notes progress of a piece at the target. */
static void lease_went_on(struct engine_leasing *l, struct lease_target *target)
{
	target->heard_ns = l->now;
	target->silent = false;
	leasing_try_now(&target->trying);
}

/*
 * Fails the tasks for a silent target that have waited for MC_SLICE_TIMEOUT and
 * have no piece in progress; otherwise each would wait once more in turn. A
 * task that was started later has its own time.
 */
static void lease_purge(struct engine_leasing *l, struct lease_target *target)
{
	uint64_t timeout = l->engine->settings.slice_timeout_s * TEI_NS_PER_SEC;
	struct engine_lease *lease, *tmp;

	tei_list_foreach_safe(lease, tmp, &target->queue, struct engine_lease,
			      queue) {
		if (lease->running || l->now - lease->waits_ns < timeout)
			continue;
		lease->silent = true;
		lease_fail_code(l, lease, STATUS_FAILED, TEI_ERR_ENDPOINT,
				"the target made no progress for MC_SLICE_TIMEOUT");
		lease_try_end(l, lease);
	}
}

void lease_railed(struct engine_leasing *l, struct lease_piece *p)
{
	struct engine_lease *lease = p->lease;
	struct lease_target *target = p->target;
	bool silent = p->silent;
	int status;

	if (p->end == TEI_RAIL_END_COMPLETED) {
		lease_went_on(l, target);
		lease_completed(l, p);
		return;
	}
	/* the absent memory is the slot, which no descriptor lists */
	memset(&p->err.absent, 0, sizeof(p->err.absent));
	status = engine_rail_status(p->end);
	p->unfenced = status == STATUS_TIMEOUT;
	lease->silent |= silent;
	target->silent |= silent;
	lease_part(p);
	lease_enter(l, p, LEASE_RETURNING);
	if (p->over && p->code && status != STATUS_TIMEOUT)
		lease_fail_code(l, lease, STATUS_FAILED, p->code,
				tei_err_name(p->code));
	else
		lease_fail(l, lease, status, &p->err);
	lease_try_end(l, lease);
	if (silent)
		lease_purge(l, target);
}

/* Handles DONE. code 0 is a success only if the piece waited for its copy. */
static void lease_done(struct engine_leasing *l, struct lease_piece *p,
		       int code)
{
	struct engine_lease *lease = p->lease;
	bool notified = p->state == LEASE_TELLING;

	if (p->state == LEASE_MOVING) {
		p->over = true;
		p->code = code ? code : TEI_ERR_CONTEXT;
		lease_halt(l, p);
		return;
	}
	/* A piece that waited for READY sends FREE, because the target keeps
	 * the addresses in quarantine until it receives that (lend_late). */
	if (p->state != LEASE_RETURNING)
		lease_part(p);
	lease_enter(l, p, p->state == LEASE_ASKING ? LEASE_RETURNING :
						     LEASE_NONE);
	if (!lease)
		return;
	if (notified && !code)
		lease_moved(l, lease, p);
	else
		lease_fail_code(
			l, lease,
			notified && code == TEI_ERR_TIMED_OUT ? STATUS_TIMEOUT
							      : STATUS_FAILED,
			code ? code : TEI_ERR_CONTEXT,
			code ? tei_err_name(code) : "no slot was granted");
	lease_try_end(l, lease);
}

static struct lease_target *lease_find(struct engine_leasing *l,
				       const struct tei_rail_peer *peer)
{
	struct lease_target *t;

	tei_list_foreach(t, &l->targets, struct lease_target, link)
		if (t->peer == peer)
			return t;
	return NULL;
}

void lease_heard(struct engine_leasing *l, const struct tei_rail_peer *peer,
		 const struct lease_msg *m)
{
	struct lease_target *t = lease_find(l, peer);
	struct lease_piece *p;

	if (!t)
		return;
	p = &t->piece[m->id % LEASE_PIECES];
	if (p->state == LEASE_NONE || p->id != m->id)
		return;			/* repeated, of a piece that has
					 * ended */
	lease_went_on(l, t);
	if (m->type == LEASE_DONE)
		lease_done(l, p, m->code);
	else if (p->state == LEASE_ASKING)
		lease_move(l, p, m->at);
}

/* --- begin --------------------------------------------------------------- */

static struct lease_target *lease_target_new(struct engine_leasing *l,
					     struct tei_rail_peer *peer)
{
	struct lease_target *t = calloc(1, sizeof(*t));
	uint32_t i;

	if (!t)
		return NULL;
	tei_rail_peer_hold(peer);
	t->peer = peer;
	/* above the numbers of a record that was freed, at any speed */
	t->next_id = l->now;
	tei_list_init(&t->queue);
	for (i = 0; i < LEASE_PIECES; i++) {
		t->piece[i].leasing = l;
		t->piece[i].target = t;
	}
	tei_list_add_tail(&l->targets, &t->link);
	return t;
}

static void lease_target_free(struct lease_target *t)
{
	tei_list_del(&t->link);
	tei_rail_peer_put(t->peer);
	free(t);
}

void lease_fresh(struct engine_leasing *l, struct engine_lease *lease)
{
	struct lease_target *t = lease_find(l, lease->peer);

	if (!t)
		t = lease_target_new(l, lease->peer);
	if (!t) {
		lease_fail_code(l, lease, STATUS_FAILED, TEI_ERR_MEMORY,
				"no memory");
		lease_try_end(l, lease);
		return;
	}
	if (!t->running && tei_list_empty(&t->queue) && !t->silent)
		t->heard_ns = l->now;
	lease->target = t;
	lease->waits_ns = l->now;
	if (lease->since_ns && lease->since_ns < l->now)
		lease->waits_ns = lease->since_ns;
	lease->queued = true;
	tei_list_add_tail(&t->queue, &lease->queue);
}

void lease_stopped(struct engine_leasing *l, struct engine_lease *lease)
{
	bool gone = lease->stop_status == 0;

	lease->hurried = lease->expired;
	lease_fail_code(l, lease, gone ? STATUS_FAILED : lease->stop_status,
			gone ? TEI_ERR_CONTEXT :
			lease->expired ? TEI_ERR_TIMED_OUT : TEI_ERR_CANCELED,
			gone ? "the engine is being destroyed" :
			lease->expired ? "the batch's deadline has passed" :
					 "cancelled by the caller");
	lease_try_end(l, lease);
}

/* Begins one piece of the task whose turn it is. */
static void lease_begin(struct engine_leasing *l, struct lease_target *t,
			struct lease_piece *p)
{
	struct engine_lease *lease = tei_list_first(
		&t->queue, struct engine_lease, queue);
	uint64_t left = lease->length - lease->next;

	p->id = t->next_id++;
	p->lease = lease;
	p->at = lease->next;
	p->length = left < LEASE_PIECE ? (uint32_t)left : LEASE_PIECE;
	p->unfenced = false;
	lease->next += p->length;
	lease->running++;
	t->running++;
	t->used++;
	tei_list_del(&lease->queue);	/* back to the end if bytes are left */
	lease->queued = p->length < left;
	if (lease->queued)
		tei_list_add_tail(&t->queue, &lease->queue);
	lease_enter(l, p, LEASE_ASKING);
}

static void lease_begins(struct engine_leasing *l, struct lease_target *t)
{
	struct lease_piece *p;

	while (t->running < LEASE_WINDOW && !tei_list_empty(&t->queue)) {
		p = &t->piece[t->next_id % LEASE_PIECES];
		if (p->state != LEASE_NONE)
			return;
		lease_begin(l, t, p);
	}
}

/* --- time ---------------------------------------------------------------- */

/* Ends a piece without a result of the target. gone: its process has ended. */
static void lease_lose(struct engine_leasing *l, struct lease_piece *p,
		       int status, int code, const char *text, bool gone)
{
	struct engine_lease *lease = p->lease;

	lease_part(p);
	p->unfenced = status == STATUS_TIMEOUT;
	lease_enter(l, p, gone ? LEASE_NONE : LEASE_RETURNING);
	lease_fail_code(l, lease, status, code, text);
	lease_try_end(l, lease);
}

/* Checks the timeouts of a piece. Returns true if its target is silent. */
static bool lease_age(struct engine_leasing *l, struct lease_piece *p,
		      uint64_t timeout)
{
	uint64_t heard = p->target->heard_ns;
	uint64_t fence = l->engine->settings.fence_ms * TEI_NS_PER_MS;
	bool notified = p->state == LEASE_TELLING;
	uint64_t since = p->state == LEASE_ASKING ? p->lease->waits_ns :
						    p->since_ns;

	if (heard < since)
		heard = since;
	if (p->state == LEASE_RETURNING) {
		if (l->now - p->since_ns > 2 * timeout)
			lease_enter(l, p, LEASE_NONE);
		return false;
	}
	if (notified && p->lease->stop_ns &&
	    l->now - p->lease->stop_ns > fence) {
		lease_lose(l, p, STATUS_TIMEOUT, TEI_ERR_TIMED_OUT,
			   "the target does not report the end of its copy",
			   false);
		return false;
	}
	if (p->state == LEASE_MOVING || l->now - heard < timeout)
		return false;
	p->lease->silent = true;
	p->target->silent = true;
	lease_lose(l, p, notified ? STATUS_TIMEOUT : STATUS_FAILED,
		   TEI_ERR_ENDPOINT,
		   notified ? "the target made no progress for "
			      "MC_SLICE_TIMEOUT; its copy may still run"
			    : "the target granted no bounce slot for "
			      "MC_SLICE_TIMEOUT",
		   false);
	return true;
}

static void lease_gone(struct engine_leasing *l, struct lease_target *t)
{
	struct engine_lease *lease;
	struct lease_piece *p;
	uint32_t i;

	while (!tei_list_empty(&t->queue)) {
		lease = tei_list_first(&t->queue, struct engine_lease, queue);
		lease_fail_code(l, lease, STATUS_FAILED, TEI_ERR_ENDPOINT,
				"the process has ended");
		lease_try_end(l, lease);
	}
	for (i = 0; i < LEASE_PIECES; i++) {
		p = &t->piece[i];
		if (p->state == LEASE_RETURNING)
			lease_enter(l, p, LEASE_NONE);
		else if (p->state == LEASE_ASKING || p->state == LEASE_TELLING)
			lease_lose(l, p, STATUS_FAILED, TEI_ERR_ENDPOINT,
				 "the process has ended", true);
	}
}

static void lease_look(struct engine_leasing *l, struct lease_target *t)
{
	uint64_t timeout = l->engine->settings.slice_timeout_s * TEI_NS_PER_SEC;
	struct lease_piece *p;
	bool silent = false;
	uint32_t i;

	if (tei_rail_peer_gone(t->peer))
		lease_gone(l, t);
	for (i = 0; i < LEASE_PIECES; i++) {
		p = &t->piece[i];
		if (p->state == LEASE_NONE)
			continue;
		silent |= lease_age(l, p, timeout);
		if (p->state != LEASE_NONE &&
		    (p->unsaid || l->now >= p->due_ns))
			lease_say(l, p);
		if (p->state != LEASE_NONE && !p->unsaid)
			leasing_due(l, p->due_ns);
	}
	/* all numbers may be in use by pieces that are not answered */
	if (silent || l->now - t->heard_ns >= timeout)
		lease_purge(l, t);
}

void lease_tick(struct engine_leasing *l)
{
	struct lease_target *t, *tmp;

	tei_list_foreach_safe(t, tmp, &l->targets, struct lease_target, link) {
		if (t->used)
			lease_look(l, t);
		lease_begins(l, t);
		if (t->used || !tei_list_empty(&t->queue))
			leasing_due(l, l->now + LEASE_LOOK_NS);
		else if (l->now - t->heard_ns > TEI_NS_PER_SEC)
			lease_target_free(t);
		else
			leasing_due(l, t->heard_ns + TEI_NS_PER_SEC + 1);
	}
}

void lease_forget(struct engine_leasing *l)
{
	while (!tei_list_empty(&l->targets))
		lease_target_free(tei_list_first(&l->targets,
						 struct lease_target, link));
}

/* --- calls by any thread -------------------------------------------------- */

int engine_lease_start(struct engine *e, struct engine_lease *lease)
{
	struct engine_leasing *l = engine_leasing(e);
	bool taken;

	tei_list_init(&lease->stop);
	tei_mutex_lock(&l->lock);
	taken = !l->closing;
	if (taken) {
		tei_list_add_tail(&l->live, &lease->live);
		tei_list_add_tail(&l->fresh, &lease->fresh);
		leasing_word(l);
	}
	tei_mutex_unlock(&l->lock);
	return taken ? 0 : TEI_ERR_CONTEXT;
}

void engine_lease_cancel(struct engine *e, struct engine_lease *lease,
			 bool deadline)
{
	struct engine_leasing *l = engine_leasing(e);

	tei_mutex_lock(&l->lock);
	if (!lease->ended && !lease->stop_status) {
		lease->stop_status = deadline ? STATUS_FAILED :
						STATUS_CANCELED;
		lease->expired = deadline;
		tei_list_del(&lease->stop);
		tei_list_add_tail(&l->stopping, &lease->stop);
		leasing_word(l);
	}
	tei_mutex_unlock(&l->lock);
}

static bool lease_none(const struct engine_leasing *l) TEI_REQUIRES(l->lock)
{
	return tei_list_empty(&l->live) && !l->ending;
}

bool engine_lease_drain(struct engine *e, uint64_t until_ns)
{
	struct engine_leasing *l = engine_leasing(e);
	bool none;

	if (!l)
		return true;
	tei_mutex_lock(&l->lock);
	while (!(none = lease_none(l)) && tei_now_ns() < until_ns) {
		tei_mutex_unlock(&l->lock);
		tei_rail_progress(e->dp);
		tei_mutex_lock(&l->lock);
		if (!lease_none(l))
			tei_mutex_wait(&l->idle, &l->lock, TEI_NS_PER_MS);
	}
	tei_mutex_unlock(&l->lock);
	return none;
}

static void task_leased(struct engine_lease *lease, int status,
			const struct tei_err *err)
{
	struct engine_task *t = engine_task_from(lease);
	struct tei_rail_dp *dp = t->engine->dp;
	uint64_t length = lease->length;
	char *held = lease->held ? lease->local : NULL;

	tei_rail_peer_put(lease->peer);
	engine_task_end(t, status ? status : STATUS_COMPLETED, err);
	/* after the end, so that a call that unregisters the memory finds no
	 * unfinished task */
	if (held)
		tei_rail_mr_let_go(dp, held, length);
}

int engine_lease_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 const struct engine_target *target)
{
	struct tei_rail_peer *peer = engine_target_at(target, &transport_rail);
	struct engine_lease *lease = engine_task_room(t);

	if (!peer || !engine_leasing(e))
		return 8;
	if (tei_local_region_check(e->local, r->source, r->length,
				   r->opcode == OPCODE_READ))
		return 3;
	engine_task_init(e, t, r, &transport_lease);
	lease->peer = peer;
	lease->local = r->source;
	lease->remote = r->target_offset;
	lease->length = r->length;
	lease->base = r->target_offset;
	lease->extent = r->length;
	lease->read = t->read;
	lease->done = task_leased;
	return 0;
}

void engine_lease_start_task(struct engine *e, struct engine_task *t)
{
	struct engine_lease *lease = engine_task_room(t);
	struct tei_err err;
	int ret;

	tei_rail_peer_hold(lease->peer);
	/* for the whole task, because rail tasks hold only their piece */
	ret = tei_rail_mr_hold(e->dp, lease->local, lease->length,
			       lease->read);
	lease->held = !ret;
	if (!ret)
		ret = engine_lease_start(e, lease);
	if (!ret)
		return;			/* task_leased will end it */
	lease_err(&err, lease->peer, ret, ret == TEI_ERR_NOT_REGISTERED ?
		  "the local memory is not registered for this access" :
		  "the engine is being destroyed");
	task_leased(lease, STATUS_FAILED, &err);
}
