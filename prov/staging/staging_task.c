/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging: tasks, their pieces and the thread. tei_staging.h has the rules.
 * staging_step.c executes the steps of a piece, staging_pool.c manages the
 * slots.
 *
 * A step ends once: by the callback of its transport, or because its submission
 * was refused. The slot then goes into local->ended. A task that must end early
 * goes into local->stopping. The thread empties both lists before it begins
 * anything. A task has ended when it has no slot and is not queued.
 */
#include "prov/staging/staging_int.h"

#include <stdlib.h>
#include <string.h>

/* --- the ends of tasks --------------------------------------------------- */

/* Fails a task: no further piece of the task begins, and the thread ends the
 * pieces in progress. */
static void task_fail(struct staging_local *l, struct tei_staging_task *task,
		      enum tei_rail_end status, const struct tei_err *err)
	TEI_REQUIRES(l->part.lock)
{
	/* UNFENCED takes precedence, because bytes may still land */
	if (!task->status || (status == TEI_RAIL_END_UNFENCED &&
			      task->status != TEI_RAIL_END_UNFENCED)) {
		free(task->err);
		task->status = status;
		task->err = malloc(sizeof(*task->err));
		if (task->err)
			*task->err = *err;
	}
	if (task->queued)
		tei_list_del(&task->queue);
	task->queued = false;
	tei_list_del(&task->stop);
	tei_list_add_tail(&l->stopping, &task->stop);
	staging_part_notify(&l->part);
}

/* Ends a task that has no slot and is not queued. Returns true if the task was
 * ended. Drops the lock meanwhile. */
static bool task_try_end(struct staging_local *l, struct tei_staging_task *task)
	TEI_REQUIRES(l->part.lock)
{
	const struct tei_staging_carrier *carrier = task->carrier;
	enum tei_rail_end end = task->status;
	struct tei_err *err = task->err;
	uint64_t gpu = task->gpu;

	if (task->running || task->queued)
		return false;
	task->ended = true;
	task->err = NULL;
	tei_list_del(&task->stop);
	tei_list_del(&task->live);
	staging_pool_release(&l->part, task->pool);
	l->ending = carrier;
	pthread_cond_broadcast(&l->part.idle);
	tei_mutex_unlock(&l->part.lock);
	if (task->moved == task->length && end != TEI_RAIL_END_UNFENCED)
		end = TEI_RAIL_END_COMPLETED; /* all bytes were moved before the
					       * task was cancelled */
	carrier->drop(task, end);
	task->done(task, end, end ? err : NULL); /* the caller owns the task
						  * from now on */
	free(err);
	/* release the memory only after the end was reported, so that a call
	 * that unregisters the memory finds no unfinished task */
	tei_gpu_mem_let_go(l->gpu, gpu);
	tei_mutex_lock(&l->part.lock);
	l->ending = NULL;
	pthread_cond_broadcast(&l->part.idle);
	return true;
}

/* Returns true if the task has waited for MC_SLICE_TIMEOUT. */
static bool task_waited(struct staging_local *l,
			const struct tei_staging_task *task)
	TEI_REQUIRES(l->part.lock)
{
	return tei_now_ns() - task->waits_ns >
	       staging_timeout_ns(l->part.staging);
}

/*
 * Handles a piece that ended because its target is silent: fails the tasks for
 * that target that have waited for MC_SLICE_TIMEOUT and have no slot. Otherwise
 * each of them would wait for MC_SLICE_TIMEOUT again, one after the other.
 * Tasks with a slot, and tasks that were started later, have their own timeout.
 */
static void task_purge(struct staging_local *l,
		       const struct tei_staging_task *silent,
		       const struct tei_err *piece) TEI_REQUIRES(l->part.lock)
{
	struct tei_staging_task *task;
	struct tei_err err;

	staging_err(
		&err, TEI_ERR_ENDPOINT,
		"the task was still waiting for a bounce buffer: other tasks for the same target made no progress for MC_SLICE_TIMEOUT");
	memcpy(err.peer, piece->peer, sizeof(err.peer));
	tei_list_foreach(task, &l->live, struct tei_staging_task, live)
		if (task->to == silent->to && task->queued && !task->running &&
		    task_waited(l, task))
			task_fail(l, task, TEI_RAIL_END_FAILED, &err);
}

/* --- the thread ---------------------------------------------------------- */

static void task_step_over(struct staging_local *l,
			   struct staging_local_slot *slot)
	TEI_REQUIRES(l->part.lock)
{
	struct tei_staging_task *task = slot->piece.task;
	bool last = (slot->step == STAGING_COPY) == task->read;

	if (slot->end) {
		task_fail(l, task, slot->end, &slot->err);
		if (slot->silent)
			task_purge(l, task, &slot->err);
	} else if (last) {
		task->waits_ns = tei_now_ns();
		__atomic_store_n(&task->moved, task->moved + slot->piece.length,
				 __ATOMIC_RELAXED);
	} else if (!task->status) {
		staging_step_begin(l, slot,
				   task->read ? STAGING_COPY : STAGING_CARRY);
		return;
	}
	slot->piece.task = NULL;
	slot->slot.used = false;
	task->running--;
	task_try_end(l, task);
}

static bool task_ends(struct staging_local *l) TEI_REQUIRES(l->part.lock)
{
	struct staging_local_slot *slot;
	bool any = false;

	while (!tei_list_empty(&l->ended)) {
		slot = tei_list_first(&l->ended, struct staging_local_slot,
				      slot.node);
		tei_list_del(&slot->slot.node);
		task_step_over(l, slot);
		any = true;
	}
	return any;
}

static bool task_stops(struct staging_local *l) TEI_REQUIRES(l->part.lock)
{
	struct tei_staging_task *task;

	if (tei_list_empty(&l->stopping))
		return false;
	task = tei_list_first(&l->stopping, struct tei_staging_task, stop);
	tei_list_del(&task->stop);
	if (!task_try_end(l, task))
		staging_step_cancel(l, task);
	return true;
}

static uint32_t pool_slots_of(struct staging_pool *pool, const void *to)
{
	struct staging_local_slot *slot;
	uint32_t i, n = 0;

	for (i = 0; i < STAGING_SLOTS; i++) {
		slot = staging_slot_at(pool, i);
		n += slot->piece.task && slot->piece.task->to == to;
	}
	return n;
}

static bool pool_full(struct staging_pool *pool,
		      const struct tei_staging_task *task)
{
	return pool_slots_of(pool, task->to) >= STAGING_SLOTS / 2;
}

/*
 * Returns the task that gets the next slot, or NULL. If the target of a queued
 * task already has its share of the slots, moves the task to the list deferred;
 * each task in that list gets one slot before the queue continues. At least one
 * slot is free, so at most one target can have its share.
 */
static struct tei_staging_task *pool_pick(struct staging_pool *pool)
{
	struct tei_staging_task *task, *tmp;

	task = tei_list_first(&pool->deferred, struct tei_staging_task, queue);
	if (!tei_list_empty(&pool->deferred) && !pool_full(pool, task))
		return task;
	tei_list_foreach_safe(task, tmp, &pool->queue, struct tei_staging_task,
			      queue) {
		if (!pool_full(pool, task))
			return task;
		tei_list_del(&task->queue);
		tei_list_add_tail(&pool->deferred, &task->queue);
	}
	return NULL;
}

static void task_give(struct tei_staging_task *task,
		      struct staging_local_slot *slot)
{
	uint64_t left = task->length - task->next;

	slot->slot.used = true;
	slot->piece.mem = slot->slot.mem;
	slot->piece.task = task;
	slot->piece.at = task->next;
	slot->piece.length =
		left < TEI_STAGING_PIECE ? left : TEI_STAGING_PIECE;
	task->next += slot->piece.length;
	task->running++;
	tei_list_del(&task->queue); /* if bytes are left, the task goes to
				     * the end of the queue */
	task->queued = slot->piece.length < left;
	if (task->queued)
		tei_list_add_tail(&task->pool->queue, &task->queue);
}

/* Fails the tasks that have waited for a slot for MC_SLICE_TIMEOUT, because a
 * GPU hangs. Returns true if it has failed any. */
static bool pool_fail_waiting(struct staging_local *l,
			      struct staging_pool *pool)
	TEI_REQUIRES(l->part.lock)
{
	struct tei_staging_task *task, *tmp;
	bool any = false;
	struct tei_err err;

	staging_err(
		&err, TEI_ERR_CONTEXT,
		"no free bounce buffer: the GPU has not completed any of its copies");
	tei_list_splice_tail(&pool->queue, &pool->deferred);
	tei_list_foreach_safe(task, tmp, &pool->queue, struct tei_staging_task,
			      queue) {
		if (!task_waited(l, task))
			continue;
		task_fail(l, task, TEI_RAIL_END_FAILED, &err);
		any = true;
	}
	return any;
}

/* Begins one piece. Returns false if there is no piece or no slot for it. */
static bool pool_begin(struct staging_local *l, struct staging_pool *pool)
	TEI_REQUIRES(l->part.lock)
{
	struct tei_staging_task *task;
	struct staging_local_slot *slot;
	struct staging_slot *free_slot;
	uint32_t idle, used;

	if (tei_list_empty(&pool->queue) && tei_list_empty(&pool->deferred))
		return false;
	free_slot = staging_slot_idle(&l->part, pool, &idle, &used);
	if (!free_slot && !used) {
		/* the GPU still accesses all slots, so none becomes free before
		 * the GPU continues */
		l->hopeless = true;
		return pool_fail_waiting(l, pool);
	}
	task = free_slot ? pool_pick(pool) : NULL;
	if (!task)
		return false;
	slot = tei_container_of(free_slot, struct staging_local_slot, slot);
	task_give(task, slot);
	staging_step_begin(l, slot, task->read ? STAGING_CARRY : STAGING_COPY);
	return true;
}

static bool task_begins(struct staging_local *l) TEI_REQUIRES(l->part.lock)
{
	bool any = false;
	uint32_t i;

	l->hopeless = false;
	/* a pool cannot be freed while tasks are queued in it */
	for (i = 0; i < TEI_GPU_CONTEXTS; i++)
		any |= l->part.pool[i] && pool_begin(l, l->part.pool[i]);
	return any;
}

void *staging_task_main(void *arg)
{
	struct staging_local *l = arg;

	tei_mutex_lock(&l->part.lock);
	while (!l->part.closing || !tei_list_empty(&l->live))
		if (!task_ends(l) && !task_stops(l) && !task_begins(l))
			tei_mutex_wait(&l->part.work, &l->part.lock,
				       l->hopeless ? STAGING_GPU_CHECK_NS :
						     TEI_NS_PER_SEC);
	tei_mutex_unlock(&l->part.lock);
	return NULL;
}

/* --- calls --------------------------------------------------------------- */

/* Takes a reference to the GPU memory and to its pool. Returns the pool, or
 * NULL if there is no pool for the memory. */
static struct staging_pool *task_hold(struct staging_local *l, uint64_t gpu,
				      uint64_t len)
{
	struct staging_pool *pool = NULL;
	uint32_t place;

	if (!l || tei_gpu_mem_hold(l->gpu, gpu, len, &place))
		return NULL;
	tei_mutex_lock(&l->part.lock);
	if (l->part.pool[place] && !l->part.pool[place]->leaving &&
	    !l->part.closing)
		pool = l->part.pool[place];
	if (pool)
		staging_pool_hold(&l->part, pool);
	tei_mutex_unlock(&l->part.lock);
	if (!pool)
		tei_gpu_mem_let_go(l->gpu, gpu);
	return pool;
}

static void task_release(struct staging_local *l, struct staging_pool *pool,
			 uint64_t gpu)
{
	tei_mutex_lock(&l->part.lock);
	staging_pool_release(&l->part, pool);
	tei_mutex_unlock(&l->part.lock);
	tei_gpu_mem_let_go(l->gpu, gpu);
}

bool tei_staging_ready(struct tei_staging *s, uint64_t gpu, uint64_t len)
{
	struct staging_local *l = staging_local(s);
	struct staging_pool *pool = task_hold(l, gpu, len);

	if (pool)
		task_release(l, pool, gpu);
	return pool != NULL;
}

void tei_staging_start(struct tei_staging *s, struct tei_staging_task *task)
{
	struct staging_local *l = staging_local(s);
	struct tei_err err;

	task->pool = task_hold(l, task->gpu, task->length);
	if (!task->pool) {
		staging_err(&err, TEI_ERR_NOT_REGISTERED,
			    "the memory has just been unregistered");
		task->done(task, TEI_RAIL_END_FAILED, &err);
		return;
	}
	task->carrier->hold(task);
	tei_list_init(&task->stop);
	tei_mutex_lock(&l->part.lock);
	/* the task may have ended before and be started again */
	task->next = 0;
	task->ended = task->expired = false;
	task->status = TEI_RAIL_END_COMPLETED;
	task->region = 0;
	__atomic_store_n(&task->moved, 0, __ATOMIC_RELAXED);
	task->queued = true;
	if (!task->waits_ns)
		task->waits_ns = tei_now_ns();
	tei_list_add_tail(&l->live, &task->live);
	tei_list_add_tail(&task->pool->queue, &task->queue);
	staging_part_notify(&l->part);
	tei_mutex_unlock(&l->part.lock);
}

void tei_staging_cancel(struct tei_staging *s, struct tei_staging_task *task,
			bool deadline)
{
	struct staging_local *l = staging_local(s);
	struct tei_err err;

	staging_err(&err, deadline ? TEI_ERR_TIMED_OUT : TEI_ERR_CANCELED,
		    deadline ? "the batch's deadline has passed" :
			       "cancelled by the caller");
	tei_mutex_lock(&l->part.lock);
	if (!task->ended) {
		task->expired |= deadline;
		task_fail(l, task,
			  deadline ? TEI_RAIL_END_FAILED :
				     TEI_RAIL_END_CANCELED,
			  &err);
	}
	tei_mutex_unlock(&l->part.lock);
}

static bool task_any(struct staging_local *l,
		     const struct tei_staging_carrier *carrier)
	TEI_REQUIRES(l->part.lock)
{
	struct tei_staging_task *task;

	tei_list_foreach(task, &l->live, struct tei_staging_task, live)
		if (task->carrier == carrier)
			return true;
	return l->ending == carrier;
}

bool tei_staging_drain(struct tei_staging *s,
		       const struct tei_staging_carrier *carrier,
		       uint64_t until_ns)
{
	struct staging_local *l = staging_local(s);
	bool any;

	if (!l)
		return true;
	tei_mutex_lock(&l->part.lock);
	while ((any = task_any(l, carrier)) && tei_now_ns() < until_ns) {
		tei_mutex_unlock(&l->part.lock);
		tei_rail_progress(staging_rails(s));
		tei_mutex_lock(&l->part.lock);
		if (task_any(l, carrier))
			tei_mutex_wait(&l->part.idle, &l->part.lock,
				       TEI_NS_PER_MS);
	}
	tei_mutex_unlock(&l->part.lock);
	return !any;
}

void staging_local_close(struct tei_staging *s)
{
	struct staging_local *l = staging_local(s);
	struct tei_staging_task *task;
	struct tei_err err;

	if (!l)
		return;
	staging_err(&err, TEI_ERR_CONTEXT, "the engine is being destroyed");
	tei_mutex_lock(&l->part.lock);
	l->part.closing = true;
	tei_list_foreach(task, &l->live, struct tei_staging_task, live)
		task_fail(l, task, TEI_RAIL_END_FAILED, &err);
	staging_part_notify(&l->part);
	tei_mutex_unlock(&l->part.lock);
	staging_part_join(&l->part);
}
