/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging: tasks, pieces and the thread. engine_stage.h has the rules,
 * engine_stage_pool.c the memory.
 *
 * A step ends once: by the callback of its transport, or because its submission
 * was refused. The slot then goes into staging->ended. A task that must end
 * early goes into staging->stopping. The thread empties both lists before it
 * begins anything. A task has ended when it has no slot and is not queued.
 */
#include "api/engine_stage_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_transport.h"
#include "api/transport_rail.h"

static void stage_err(struct tei_err *err, int code, const char *text)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->provider, sizeof(err->provider), "cuda");
	snprintf(err->text, sizeof(err->text), "GPU memory through host memory: %s",
		 text);
}

static uint64_t stage_length(const struct engine_stage *stage)
{
	return engine_task_from_const(stage)->length;
}

static bool stage_reads(const struct engine_stage *stage)
{
	return engine_task_from_const(stage)->read;
}

/* --- the ends of tasks --------------------------------------------------- */

/* Stops beginning pieces of a task; the thread ends those in progress. */
static void stage_fail(struct engine_staging *s, struct engine_stage *stage,
		       int status, const struct tei_err *err)
	TEI_REQUIRES(s->lock)
{
	/* TIMEOUT takes precedence, because bytes may still land */
	if (!stage->status || (status == STATUS_TIMEOUT &&
			       stage->status != STATUS_TIMEOUT)) {
		free(stage->err);
		stage->status = status;
		stage->err = malloc(sizeof(*stage->err));
		if (stage->err)
			*stage->err = *err;
	}
	if (stage->queued)
		tei_list_del(&stage->queue);
	stage->queued = false;
	tei_list_del(&stage->stop);
	tei_list_add_tail(&s->stopping, &stage->stop);
	pthread_cond_signal(&s->work);
}

static void stage_to_put(struct engine_task *t)
{
	struct engine_stage *stage = engine_task_room(t);

	switch (stage->far) {
	case STAGE_BY_RAIL:
	case STAGE_BY_LEASE:
		tei_rail_peer_put(stage->to.peer);
		break;
	case STAGE_BY_FILE:
		tei_nvmeof_seg_put(stage->to.files);
		break;
	case STAGE_BY_KERNEL:
		__atomic_sub_fetch(&stage->to.local_process->refs, 1,
				   __ATOMIC_RELEASE);
		break;
	}
}

/* Ends a task that has no slot and is not queued, and returns true; the lock is
 * dropped meanwhile. */
static bool stage_try_end(struct engine_staging *s, struct engine_stage *stage)
	TEI_REQUIRES(s->lock)
{
	struct engine_task *t = engine_task_from(stage);
	struct tei_err *err = stage->err;
	enum engine_stage_far far = stage->far;
	uint64_t gpu = stage->gpu;
	int status = stage->status;

	if (stage->running || stage->queued)
		return false;
	stage->ended = true;
	stage->err = NULL;
	tei_list_del(&stage->stop);
	tei_list_del(&stage->live);
	stage->pool->tasks--;
	s->ending[far]++;
	pthread_cond_broadcast(&s->idle);
	tei_mutex_unlock(&s->lock);
	if (stage->moved == t->length && status != STATUS_TIMEOUT)
		status = 0;		/* complete before it was cancelled */
	if (stage->far == STAGE_BY_KERNEL)
		engine_traffic_count(
			&stage->to.local_process->traffic, t->read,
			__atomic_load_n(&stage->copied, __ATOMIC_RELAXED),
			status ? status : STATUS_COMPLETED);
	stage_to_put(t);
	engine_task_end(t, status ? status : STATUS_COMPLETED,
			status ? err : NULL);	/* the batch owns t again */
	free(err);
	/* after the end, so that a call that unregisters the memory finds no
	 * unfinished task */
	tei_gpu_mem_let_go(s->gpu, gpu);
	tei_mutex_lock(&s->lock);
	s->ending[far]--;
	pthread_cond_broadcast(&s->idle);
	return true;
}

/* Returns true if the task has waited for MC_SLICE_TIMEOUT. */
static bool stage_waited(struct engine_staging *s,
			 const struct engine_stage *stage)
	TEI_REQUIRES(s->lock)
{
	return tei_now_ns() - stage->waits_ns >
	       s->engine->settings.slice_timeout_s * TEI_NS_PER_SEC;
}

/*
 * Handles a piece that ended because its target is silent. Tasks for that
 * target that have waited for as long and have no slot are failed; otherwise
 * each would wait for MC_SLICE_TIMEOUT again in turn. Tasks with a slot, and
 * tasks that were started later, have their own time.
 */
static void stage_purge(struct engine_staging *s,
			const struct engine_stage *silent,
			const struct tei_err *piece) TEI_REQUIRES(s->lock)
{
	struct engine_stage *stage;
	struct tei_err err;

	stage_err(&err, TEI_ERR_ENDPOINT,
		  "its turn had not come: other tasks for the same target made no progress for MC_SLICE_TIMEOUT");
	memcpy(err.peer, piece->peer, sizeof(err.peer));
	tei_list_foreach(stage, &s->live, struct engine_stage, live)
		if (stage->to.any == silent->to.any && stage->queued &&
		    !stage->running && stage_waited(s, stage))
			stage_fail(s, stage, STATUS_FAILED, &err);
}

/* --- steps --------------------------------------------------------------- */

static void slot_ended(struct engine_staging *s, struct stage_slot *slot,
		       int status, const struct tei_err *err)
	TEI_REQUIRES(s->lock)
{
	slot->end = status;
	if (status && err)
		slot->err = *err;
	else if (status)
		stage_err(&slot->err, TEI_ERR_CONTEXT, "the transfer failed");
	tei_list_add_tail(&s->ended, &slot->node);
	pthread_cond_signal(&s->work);
}

/* Reports the end of a step: the thread owns the slot again. */
static void slot_note(struct stage_slot *slot, int status,
		      const struct tei_err *err)
{
	struct engine_staging *s = slot->staging;

	tei_mutex_lock(&s->lock);
	slot_ended(s, slot, status, err);
	tei_mutex_unlock(&s->lock);
}

static void slot_copied(struct tei_gpu_op *op, int code,
			const struct tei_err *err)
{
	struct stage_slot *slot = tei_container_of(op, struct stage_slot, copy);
	int status = STATUS_FAILED;

	if (!code)
		status = 0;
	else if (code == TEI_GPU_CANCELLED)
		status = STATUS_CANCELED;
	else if (code == TEI_ERR_TIMED_OUT)
		slot->lost = true;	/* a write has sent nothing */
	if (slot->lost && stage_reads(slot->stage))
		status = STATUS_TIMEOUT;
	slot_note(slot, status, err);
}

static void slot_railed(struct tei_rail_task *task, enum tei_rail_end end,
			const struct tei_err *err)
{
	int status = engine_rail_status(end);
	struct stage_slot *slot = tei_container_of(task, struct stage_slot,
						   far.rail);

	slot->silent = task->silent;
	slot_note(slot, status == STATUS_COMPLETED ? 0 : status, err);
}

static void slot_filed(struct tei_nvmeof_op *op, int code,
		       const struct tei_err *err)
{
	slot_note(tei_container_of(op, struct stage_slot, far.file),
		  code ? STATUS_FAILED : 0, err);
}

static void slot_by_kernel(struct tei_local_op *op, int code, uint64_t bytes)
{
	struct stage_slot *slot = tei_container_of(op, struct stage_slot,
						   far.local);

	__atomic_add_fetch(&slot->stage->copied, bytes, __ATOMIC_RELAXED);
	slot_note(slot, code ? STATUS_FAILED : 0, &slot->local_err);
}

static void slot_leased(struct engine_lease *lease, int status,
			const struct tei_err *err)
{
	struct stage_slot *slot = tei_container_of(lease, struct stage_slot,
						   far.lease);

	slot->silent = lease->silent;
	slot_note(slot, status, err);
}

static int slot_copy(struct stage_slot *slot)
{
	struct engine_stage *stage = slot->stage;
	uint64_t gpu = stage->gpu + slot->at, mem = (uintptr_t)slot->mem;
	bool read = stage_reads(stage);

	memset(&slot->copy, 0, sizeof(slot->copy));
	slot->copy.dst = read ? gpu : mem;
	slot->copy.src = read ? mem : gpu;
	slot->copy.length = slot->length;
	slot->copy.held = true;
	slot->copy.done = slot_copied;
	return tei_gpu_submit(slot->staging->gpu, &slot->copy);
}

static int slot_rail(struct stage_slot *slot)
{
	struct tei_rail_task *list = &slot->far.rail;

	list->peer = slot->stage->to.peer;
	list->remote = slot->stage->remote + slot->at;
	list->length = slot->length;
	list->local = slot->mem;
	list->whole = slot->stage->remote;
	list->whole_length = stage_length(slot->stage);
	list->read = stage_reads(slot->stage);
	list->since_ns = slot->stage->waits_ns;
	list->done = slot_railed;
	return tei_rail_submit(slot->staging->engine->dp, &list, 1);
}

static int slot_file(struct stage_slot *slot)
{
	struct tei_nvmeof_op *op = &slot->far.file;

	op->seg = slot->stage->to.files;
	op->read = stage_reads(slot->stage);
	op->local = slot->mem;
	op->offset = slot->stage->remote + slot->at;
	op->length = slot->length;
	op->done = slot_filed;
	return tei_nvmeof_submit(slot->staging->engine->nvmeof, op);
}

static int slot_kernel(struct stage_slot *slot)
{
	struct tei_local_op *op = &slot->far.local;

	op->peer = slot->stage->to.local_process->peer;
	/* moves nothing if another piece of the task would be refused */
	if (!tei_local_peer_covers(op->peer, slot->stage->remote,
				   stage_length(slot->stage),
				   !stage_reads(slot->stage)))
		return TEI_ERR_NOT_REGISTERED;
	op->opcode = stage_reads(slot->stage) ? TEI_LOCAL_READ :
						TEI_LOCAL_WRITE;
	op->local = slot->mem;
	op->remote = slot->stage->remote + slot->at;
	op->length = slot->length;
	op->done = slot_by_kernel;
	op->err = &slot->local_err;
	return tei_local_submit(slot->staging->engine->local, op);
}

static int slot_lease(struct stage_slot *slot)
{
	struct engine_stage *stage = slot->stage;
	struct engine_lease *lease = &slot->far.lease;

	lease->peer = stage->to.peer;
	lease->local = slot->mem;
	lease->remote = stage->remote + slot->at;
	lease->length = slot->length;
	lease->base = stage->remote;
	lease->extent = stage_length(stage);
	lease->read = stage_reads(stage);
	lease->since_ns = stage->waits_ns;
	lease->done = slot_leased;
	return engine_lease_start(slot->staging->engine, lease);
}

static int slot_far(struct stage_slot *slot)
{
	memset(&slot->far, 0, sizeof(slot->far));
	switch (slot->stage->far) {
	case STAGE_BY_RAIL:
		return slot_rail(slot);
	case STAGE_BY_FILE:
		return slot_file(slot);
	case STAGE_BY_LEASE:
		return slot_lease(slot);
	case STAGE_BY_KERNEL:
		break;
	}
	return slot_kernel(slot);
}

/* Begins a step. The transport owns the slot until the step has ended. Drops
 * the lock meanwhile. */
static void slot_begin(struct engine_staging *s, struct stage_slot *slot,
		       enum stage_step step) TEI_REQUIRES(s->lock)
{
	struct tei_err err;
	int ret;

	slot->step = step;
	slot->stopped = false;
	slot->silent = false;
	tei_mutex_unlock(&s->lock);
	ret = step == STAGE_COPY ? slot_copy(slot) : slot_far(slot);
	tei_mutex_lock(&s->lock);
	if (!ret)
		return;
	slot->stopped = true;		/* no transport has it */
	stage_err(&err, ret, tei_err_name(ret));
	slot_ended(s, slot, STATUS_FAILED, &err);
}

/* Cancels the steps of a task that are in progress. Drops the lock
 * meanwhile. */
static void stage_stop(struct engine_staging *s, struct engine_stage *stage)
	TEI_REQUIRES(s->lock)
{
	struct engine_task *t = engine_task_from(stage);
	struct tei_rail_task *list[STAGE_SLOTS];
	struct tei_gpu_op *copy[STAGE_SLOTS];
	struct engine_lease *lease[STAGE_SLOTS];
	bool hurry = __atomic_load_n(&t->expired, __ATOMIC_RELAXED);
	size_t n = 0, ncopy = 0, nlease = 0, i;
	struct stage_slot *slot;

	for (i = 0; i < STAGE_SLOTS; i++) {
		slot = &stage->pool->slot[i];
		if (slot->stage != stage || slot->stopped)
			continue;
		slot->stopped = true;
		if (slot->step == STAGE_COPY)
			copy[ncopy++] = &slot->copy;
		else if (stage->far == STAGE_BY_RAIL)
			list[n++] = &slot->far.rail;
		else if (stage->far == STAGE_BY_LEASE)
			lease[nlease++] = &slot->far.lease;
	}
	/* only this thread reassigns slots, so they are unchanged meanwhile */
	tei_mutex_unlock(&s->lock);
	for (i = 0; i < ncopy; i++)
		tei_gpu_cancel(s->gpu, copy[i]);
	for (i = 0; i < nlease; i++)
		engine_lease_cancel(s->engine, lease[i], hurry);
	if (n && hurry)
		tei_rail_expire(s->engine->dp, list, n);
	else if (n)
		tei_rail_cancel(s->engine->dp, list, n);
	tei_mutex_lock(&s->lock);
}

/* --- the thread ---------------------------------------------------------- */

static void stage_step_over(struct engine_staging *s, struct stage_slot *slot)
	TEI_REQUIRES(s->lock)
{
	struct engine_stage *stage = slot->stage;
	bool last = (slot->step == STAGE_COPY) == stage_reads(stage);

	if (slot->end) {
		stage_fail(s, stage, slot->end, &slot->err);
		if (slot->silent)
			stage_purge(s, stage, &slot->err);
	} else if (last) {
		stage->waits_ns = tei_now_ns();
		__atomic_store_n(&stage->moved, stage->moved + slot->length,
				 __ATOMIC_RELAXED);
	} else if (!stage->status) {
		slot_begin(s, slot, stage_reads(stage) ? STAGE_COPY : STAGE_FAR);
		return;
	}
	slot->stage = NULL;
	stage->running--;
	stage_try_end(s, stage);
}

static bool stage_ends(struct engine_staging *s) TEI_REQUIRES(s->lock)
{
	struct stage_slot *slot;
	bool any = false;

	while (!tei_list_empty(&s->ended)) {
		slot = tei_list_first(&s->ended, struct stage_slot, node);
		tei_list_del(&slot->node);
		stage_step_over(s, slot);
		any = true;
	}
	return any;
}

static bool stage_stops(struct engine_staging *s) TEI_REQUIRES(s->lock)
{
	struct engine_stage *stage;

	if (tei_list_empty(&s->stopping))
		return false;
	stage = tei_list_first(&s->stopping, struct engine_stage, stop);
	tei_list_del(&stage->stop);
	if (!stage_try_end(s, stage))
		stage_stop(s, stage);
	return true;
}

/* Returns a slot that neither a task nor the GPU uses, or NULL. *hopeless: no
 * slot becomes free before the GPU continues. */
static struct stage_slot *pool_idle(struct engine_staging *s,
				    struct stage_pool *pool, bool *hopeless)
	TEI_REQUIRES(s->lock)
{
	struct stage_slot *slot;
	uint32_t i;

	*hopeless = true;
	for (i = 0; i < STAGE_SLOTS; i++) {
		slot = &pool->slot[i];
		if (!slot->stage && slot->lost &&
		    tei_gpu_mem_quiet(s->gpu, (uintptr_t)slot->mem,
				      STAGE_PIECE))
			slot->lost = false;
		if (!slot->stage && !slot->lost)
			return slot;
		*hopeless &= !slot->stage;
	}
	return NULL;
}

static uint32_t pool_share(const struct stage_pool *pool, const void *to)
{
	uint32_t i, n = 0;

	for (i = 0; i < STAGE_SLOTS; i++)
		n += pool->slot[i].stage && pool->slot[i].stage->to.any == to;
	return n;
}

static bool pool_full(const struct stage_pool *pool,
		      const struct engine_stage *stage)
{
	return pool_share(pool, stage->to.any) >= STAGE_SLOTS / 2;
}

/*
 * Returns the task whose turn it is, or NULL. At least one slot is free, so at
 * most one target has its share of slots. Its tasks move to aside, and each
 * gets a slot from there once.
 */
static struct engine_stage *pool_pick(struct stage_pool *pool)
{
	struct engine_stage *stage, *tmp;

	stage = tei_list_first(&pool->deferred, struct engine_stage, queue);
	if (!tei_list_empty(&pool->deferred) && !pool_full(pool, stage))
		return stage;
	tei_list_foreach_safe(stage, tmp, &pool->queue, struct engine_stage,
			      queue) {
		if (!pool_full(pool, stage))
			return stage;
		tei_list_del(&stage->queue);
		tei_list_add_tail(&pool->deferred, &stage->queue);
	}
	return NULL;
}

static void stage_give(struct engine_stage *stage, struct stage_slot *slot)
{
	uint64_t left = stage_length(stage) - stage->next;

	slot->stage = stage;
	slot->at = stage->next;
	slot->length = left < STAGE_PIECE ? left : STAGE_PIECE;
	stage->next += slot->length;
	stage->running++;
	tei_list_del(&stage->queue);	/* back to the end if bytes are left */
	stage->queued = slot->length < left;
	if (stage->queued)
		tei_list_add_tail(&stage->pool->queue, &stage->queue);
}

/* Fails the tasks that have waited for MC_SLICE_TIMEOUT for a GPU that
 * hangs. */
static bool pool_give_up(struct engine_staging *s, struct stage_pool *pool)
	TEI_REQUIRES(s->lock)
{
	struct engine_stage *stage, *tmp;
	bool any = false;
	struct tei_err err;

	stage_err(&err, TEI_ERR_CONTEXT,
		  "no free bounce buffer: the GPU has not completed any of its copies");
	tei_list_splice_tail(&pool->queue, &pool->deferred);
	tei_list_foreach_safe(stage, tmp, &pool->queue, struct engine_stage,
			      queue) {
		if (!stage_waited(s, stage))
			continue;
		stage_fail(s, stage, STATUS_FAILED, &err);
		any = true;
	}
	return any;
}

/* Begins one piece. Returns false if there is none, or no slot for it. */
static bool pool_begin(struct engine_staging *s, struct stage_pool *pool)
	TEI_REQUIRES(s->lock)
{
	struct engine_stage *stage;
	struct stage_slot *slot;
	bool hopeless;

	if (tei_list_empty(&pool->queue) && tei_list_empty(&pool->deferred))
		return false;
	slot = pool_idle(s, pool, &hopeless);
	if (!slot && hopeless) {
		s->hopeless = true;
		return pool_give_up(s, pool);
	}
	stage = slot ? pool_pick(pool) : NULL;
	if (!stage)
		return false;
	stage_give(stage, slot);
	slot_begin(s, slot, stage_reads(stage) ? STAGE_FAR : STAGE_COPY);
	return true;
}

static bool stage_begins(struct engine_staging *s) TEI_REQUIRES(s->lock)
{
	bool any = false;
	uint32_t i;

	s->hopeless = false;
	/* a pool whose tasks are queued is not freed meanwhile */
	for (i = 0; i < TEI_GPU_CONTEXTS; i++)
		any |= s->pool[i] && pool_begin(s, s->pool[i]);
	return any;
}

void *engine_stage_main(void *arg)
{
	struct engine_staging *s = arg;

	tei_mutex_lock(&s->lock);
	while (!s->closing || !tei_list_empty(&s->live))
		if (!stage_ends(s) && !stage_stops(s) && !stage_begins(s))
			tei_mutex_wait(&s->work, &s->lock,
				       s->hopeless ? STAGE_LOOK_NS :
						     TEI_NS_PER_SEC);
	tei_mutex_unlock(&s->lock);
	return NULL;
}

/* --- calls --------------------------------------------------------------- */

static void stage_aim(struct engine_stage *stage,
		      const struct engine_target *target, uint64_t len)
{
	struct tei_rail_peer *peer = engine_target_at(target, &transport_rail);
	void *files = engine_target_at(target, &transport_file);
	void *process = engine_target_at(target, &transport_local);

	if (engine_target_lent(target, stage->remote, len)) {
		stage->far = STAGE_BY_LEASE;
		stage->to.peer = peer;
	} else if (files) {
		stage->far = STAGE_BY_FILE;
		stage->to.files = files;
	} else if (process && !engine_target_gpu(target, stage->remote)) {
		stage->far = STAGE_BY_KERNEL;
		stage->to.local_process = process;
	} else {
		stage->far = STAGE_BY_RAIL;
		stage->to.peer = peer;
	}
}

/* Takes a reference to the GPU memory and to its pool, and returns the pool.
 * Returns NULL if there is none. */
static struct stage_pool *stage_hold(struct engine_staging *s, uint64_t gpu,
				     uint64_t len)
{
	struct stage_pool *pool = NULL;
	uint32_t place;

	if (!s || tei_gpu_mem_hold(s->gpu, gpu, len, &place))
		return NULL;
	tei_mutex_lock(&s->lock);
	if (s->pool[place] && !s->pool[place]->leaving && !s->closing)
		pool = s->pool[place];
	if (pool)
		pool->tasks++;
	tei_mutex_unlock(&s->lock);
	if (!pool)
		tei_gpu_mem_let_go(s->gpu, gpu);
	return pool;
}

static void stage_release(struct engine_staging *s, struct stage_pool *pool,
			  uint64_t gpu)
{
	tei_mutex_lock(&s->lock);
	pool->tasks--;
	pthread_cond_broadcast(&s->idle);
	tei_mutex_unlock(&s->lock);
	tei_gpu_mem_let_go(s->gpu, gpu);
}

int engine_stage_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 const struct engine_target *target)
{
	struct engine_staging *s = engine_staging(e);
	struct engine_stage *stage = engine_task_room(t);
	void *files = engine_target_at(target, &transport_file);
	struct stage_pool *pool;

	if (files && !tei_nvmeof_seg_covers(files, r->target_offset, r->length))
		return 1;
	if (engine_target_gpu(target, r->target_offset) &&
	    !engine_target_at(target, &transport_rail))
		return 8;
	pool = stage_hold(s, (uintptr_t)r->source, r->length);
	if (!pool)
		return 8;
	stage_release(s, pool, (uintptr_t)r->source);
	engine_task_init(e, t, r, &transport_stage);
	stage->gpu = (uintptr_t)r->source;
	stage->remote = r->target_offset;
	stage_aim(stage, target, r->length);
	return 0;
}

static void stage_to_hold(struct engine_stage *stage)
{
	switch (stage->far) {
	case STAGE_BY_RAIL:
	case STAGE_BY_LEASE:
		tei_rail_peer_hold(stage->to.peer);
		break;
	case STAGE_BY_FILE:
		tei_nvmeof_seg_hold(stage->to.files);
		break;
	case STAGE_BY_KERNEL:
		__atomic_add_fetch(&stage->to.local_process->refs, 1,
				   __ATOMIC_RELAXED);
		break;
	}
}

void engine_stage_start(struct engine *e, struct engine_task *t)
{
	struct engine_staging *s = engine_staging(e);
	struct engine_stage *stage = engine_task_room(t);
	struct tei_err err;

	stage->pool = stage_hold(s, stage->gpu, t->length);
	if (!stage->pool) {
		stage_err(&err, TEI_ERR_NOT_REGISTERED,
			  "the memory has just been unregistered");
		engine_task_end(t, STATUS_FAILED, &err);
		return;
	}
	stage_to_hold(stage);
	tei_list_init(&stage->stop);
	tei_mutex_lock(&s->lock);
	stage->queued = true;
	stage->waits_ns = tei_now_ns();
	tei_list_add_tail(&s->live, &stage->live);
	tei_list_add_tail(&stage->pool->queue, &stage->queue);
	pthread_cond_signal(&s->work);
	tei_mutex_unlock(&s->lock);
}

void engine_stage_cancel(struct engine *e, struct engine_task *t, bool deadline)
{
	struct engine_staging *s = engine_staging(e);
	struct engine_stage *stage = engine_task_room(t);
	struct tei_err err;

	stage_err(&err, deadline ? TEI_ERR_TIMED_OUT : TEI_ERR_CANCELED,
		  deadline ? "the batch's deadline has passed" :
			     "cancelled by the caller");
	tei_mutex_lock(&s->lock);
	if (!stage->ended)
		stage_fail(s, stage, deadline ? STATUS_FAILED : STATUS_CANCELED,
			   &err);
	tei_mutex_unlock(&s->lock);
}

static bool stage_any(struct engine_staging *s, enum engine_stage_far far)
	TEI_REQUIRES(s->lock)
{
	struct engine_stage *stage;

	tei_list_foreach(stage, &s->live, struct engine_stage, live)
		if (stage->far == far)
			return true;
	return s->ending[far] != 0;
}

bool engine_stage_drain(struct engine *e, enum engine_stage_far far,
			uint64_t until_ns)
{
	struct engine_staging *s = engine_staging(e);
	bool any;

	if (!s)
		return true;
	tei_mutex_lock(&s->lock);
	while ((any = stage_any(s, far)) && tei_now_ns() < until_ns) {
		tei_mutex_unlock(&s->lock);
		tei_rail_progress(e->dp);
		tei_mutex_lock(&s->lock);
		if (stage_any(s, far))
			tei_mutex_wait(&s->idle, &s->lock, TEI_NS_PER_MS);
	}
	tei_mutex_unlock(&s->lock);
	return !any;
}

void engine_stage_close(struct engine *e)
{
	struct engine_staging *s = engine_staging(e);
	struct engine_stage *stage;
	struct tei_err err;

	if (!s)
		return;
	stage_err(&err, TEI_ERR_CONTEXT, "the engine is being destroyed");
	tei_mutex_lock(&s->lock);
	s->closing = true;
	tei_list_foreach(stage, &s->live, struct engine_stage, live)
		stage_fail(s, stage, STATUS_FAILED, &err);
	pthread_cond_signal(&s->work);
	tei_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
}
