/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for tasks without a busy loop.
 *
 * A waiter drives progress itself for MOONRAIL_SPIN_US. Then it announces to
 * the transports that it will sleep (ENGINE_WAITER_SLEEPS), and sleeps on the
 * futex of its batch slot.
 *
 * No wake-up is lost: a waiter first adds itself to the sleepers in
 * batch->pending and then checks the status. The thread that ends a task first
 * publishes the status and then lowers batch->pending. So either the waiter
 * sees the status, or the other thread sees the sleeper and wakes it. A waiter
 * for one task is woken by the end of that task, and by the ends of other tasks
 * with the same futex bit. A waiter for the batch is woken only when the last
 * task ends. If no thread waits, the end of a task costs one atomic
 * subtraction.
 *
 * A thread in te_wait_any adds itself to the sleepers of each of its batches,
 * and sleeps on one futex of the engine. While there is such a thread, each
 * wake-up of a batch increments this futex.
 *
 * The slot outlives the batch. A waiter that sleeps has no reference to the
 * batch. It looks the batch up by its id after each wake-up, so the batch may
 * be freed meanwhile.
 */
#include "api/engine_int.h"
#include "api/engine_transport.h"
#include "util/thread.h"
#include "util/world.h"

#define WAIT_BIT_WHOLE	(UINT32_C(1) << 31)

static const struct tei_err wait_closing = {
	.code = TEI_ERR_INVALID,
	.text = "the engine was destroyed during the wait",
};
static const struct tei_err wait_no_task = {
	.code = TEI_ERR_INVALID,
	.text = "no such task: the batch has fewer tasks, or none",
};

static const struct tei_err wait_no_batch = {
	.code = TEI_ERR_INVALID,
	.text = "te_wait_any: no batch to wait for, or more than 4096",
};

enum wait_state {
	WAIT_ON, /* the wait continues, because the task or a task of the batch
		  * has not ended */
	WAIT_ENDED,
	WAIT_REFUSED, /* a batch or the task does not exist */
};

/* A call that waits. The struct is on the stack of the calling thread. */
struct wait {
	struct engine *e;
	const batch_id_t *ids;
	size_t n;    /* number of elements of ids */
	bool any;    /* the call is te_wait_any; if false, n
		      * is 1 */
	size_t task; /* index of the task; ENGINE_WAIT_ALL: all tasks */
	uint64_t deadline_ns;
	struct transfer_status status; /* status of the task or batch when it
					* was last checked */
	size_t at;		       /* index in ids of the batch that has
					* ended */
};

static uint32_t wait_bit(size_t task)
{
	return task == ENGINE_WAIT_ALL ? WAIT_BIT_WHOLE :
					 UINT32_C(1) << (task % 31);
}

/* --- ends ---------------------------------------------------------------- */

/* Wakes all threads that sleep in te_wait_any. Each of them then checks its
 * batches. */
static void wait_wake_any(struct engine_waits *w)
{
	if (!__atomic_load_n(&w->any, __ATOMIC_SEQ_CST))
		return;
	__atomic_fetch_add(&w->any_wakes, 1, __ATOMIC_SEQ_CST);
	tei_world->word_wake(&w->any_wakes, UINT32_MAX);
}

static void wait_wake(struct engine_batch *b, uint32_t bits)
{
	__atomic_fetch_add(&b->wakes, 1, __ATOMIC_SEQ_CST);
	tei_world->word_wake(&b->wakes, bits);
	wait_wake_any(&b->engine->waits);
}

void engine_wait_expect(struct engine_batch *b, uint32_t n)
{
	if ((__atomic_load_n(&b->engine->events.on, __ATOMIC_RELAXED) &&
	     !b->internal) ||
	    __atomic_load_n(&b->pending, __ATOMIC_RELAXED) &
		    ENGINE_PENDING_WATCHED)
		engine_event_expect(b, n);
	else
		__atomic_fetch_add(&b->pending, n, __ATOMIC_SEQ_CST);
}

void engine_wait_unexpect(struct engine_batch *b, uint32_t n)
{
	uint64_t was;

	if (__atomic_load_n(&b->pending, __ATOMIC_RELAXED) &
	    ENGINE_PENDING_WATCHED)
		engine_event_unexpect(b, n);
	else
		__atomic_fetch_sub(&b->pending, n, __ATOMIC_SEQ_CST);
	was = __atomic_load_n(&b->pending, __ATOMIC_SEQ_CST);
	if (!(was & ENGINE_PENDING_LEFT) && was & ENGINE_PENDING_WHOLES)
		wait_wake(b, WAIT_BIT_WHOLE);
}

/* Wakes the threads that wait for the end of the task with that index, or for
 * the end of the batch. "was" is the value of b->pending before the task was
 * subtracted. */
static void wait_notify(struct engine_batch *b, uint64_t was, size_t task)
{
	bool last = (was & ENGINE_PENDING_LEFT) == 1;
	uint32_t bits = 0;

	if (was & ENGINE_PENDING_TASKS)
		bits |= wait_bit(task);
	if (last && was & ENGINE_PENDING_WHOLES)
		bits |= WAIT_BIT_WHOLE;
	if (bits)
		wait_wake(b, bits);
	if (last && was & ENGINE_PENDING_WATCHED)
		engine_event_ended(b);
}

void engine_wait_ended(struct engine_batch *b, size_t task)
{
	uint64_t was = __atomic_fetch_sub(&b->pending, 1, __ATOMIC_SEQ_CST);

	if (was > ENGINE_PENDING_LEFT)
		wait_notify(b, was, task);
}

void engine_wait_freed(struct engine_batch *b)
{
	if (__atomic_load_n(&b->pending, __ATOMIC_SEQ_CST) &
	    (ENGINE_PENDING_TASKS | ENGINE_PENDING_WHOLES))
		wait_wake(b, UINT32_MAX);
}

/* --- waits --------------------------------------------------------------- */

static bool wait_closed(struct engine *e)
{
	return __atomic_load_n(&e->waits.closing, __ATOMIC_SEQ_CST);
}

static enum wait_state wait_check_task(struct wait *w, struct engine_batch *b)
{
	if (w->task >= b->count) {
		tei_err_set_last(&wait_no_task);
		return WAIT_REFUSED;
	}
	engine_task_status(&b->tasks[w->task], &w->status);
	return w->status.status == STATUS_WAITING ? WAIT_ON : WAIT_ENDED;
}

/* Checks whether all tasks of the batch have ended. Only if they have, computes
 * the status of the batch from its tasks, because there may be a million of
 * them. The thread that has ended the last task may not have reported the end
 * of the batch to the event file descriptors yet. This function reports it, so
 * that te_ended_batches can fetch it when the wait has returned. */
static enum wait_state wait_check_all(struct wait *w, struct engine_batch *b)
{
	uint64_t pending = __atomic_load_n(&b->pending, __ATOMIC_SEQ_CST);

	if (!b->count) {
		tei_err_set_last(&wait_no_task);
		return WAIT_REFUSED;
	}
	if (pending & ENGINE_PENDING_LEFT)
		return WAIT_ON;
	if (pending & ENGINE_PENDING_WATCHED)
		engine_event_ended(b);
	engine_batch_sum(b, &w->status);
	return WAIT_ENDED;
}

static enum wait_state wait_check_one(struct wait *w, batch_id_t id)
{
	struct engine_batch *b = engine_batch_lock(w->e, id);
	enum wait_state state;

	if (!b)
		return WAIT_REFUSED;
	state = w->task == ENGINE_WAIT_ALL ? wait_check_all(w, b)
					   : wait_check_task(w, b);
	engine_batch_unlock(b);
	return state;
}

static bool wait_skips(const struct wait *w, size_t i)
{
	return w->any && w->ids[i] == INVALID_BATCH;
}

static enum wait_state wait_check(struct wait *w)
{
	enum wait_state state = WAIT_ON;
	size_t i, skipped = 0;

	for (i = 0; i < w->n && state == WAIT_ON; i++) {
		if (wait_skips(w, i)) {
			skipped++;
			continue;
		}
		w->at = i;
		state = wait_check_one(w, w->ids[i]);
	}
	if (skipped < w->n)
		return state;
	tei_err_set_last(&wait_no_batch);
	return WAIT_REFUSED;
}

static enum wait_state wait_spin(struct wait *w)
{
	struct engine *e = w->e;
	uint64_t spin = e->settings.sched.spin_us * TEI_NS_PER_US;
	uint64_t now = tei_now_ns(), until = now + spin;
	enum wait_state state;

	engine_transports_waiter(e, ENGINE_WAITER_POLLS);
	do {
		/* spins for the whole time again after this thread has copied
		 * bytes */
		if (engine_transports_progress(e))
			until = tei_now_ns() + spin;
		state = wait_check(w);
		tei_relax();
		now = tei_now_ns();
	} while (state == WAIT_ON && now < until && now < w->deadline_ns &&
		 !wait_closed(e));
	engine_transports_waiter(e, ENGINE_WAITER_STOPS);
	return state;
}

/* Sleeps until a wake-up or the deadline. Returns false, without sleeping, if
 * the deadline has passed. "seen" is the value of the futex before the batches
 * were checked. */
static bool wait_nap(const struct wait *w, uint32_t *word, uint32_t seen)
{
	if (w->deadline_ns != UINT64_MAX && tei_now_ns() >= w->deadline_ns)
		return false;
	tei_world->word_wait(word, seen, w->deadline_ns, wait_bit(w->task));
	return true;
}

/* Adds "sleepers" to b->pending of each batch. The slots of the batches exist,
 * because the batches were checked before. */
static void wait_count(struct wait *w, uint64_t sleepers)
{
	struct engine_batch *b;
	size_t i;

	for (i = 0; i < w->n; i++) {
		b = wait_skips(w, i) ? NULL
				     : engine_batch_slot(w->e, w->ids[i]);
		if (b)
			__atomic_fetch_add(&b->pending, sleepers,
					   __ATOMIC_SEQ_CST);
	}
}

static enum wait_state wait_sleep(struct wait *w)
{
	uint64_t me = w->task == ENGINE_WAIT_ALL ? ENGINE_PENDING_WHOLE :
						   ENGINE_PENDING_TASK;
	struct engine_waits *all = &w->e->waits;
	enum wait_state state;
	uint32_t *word, seen;

	word = w->any ? &all->any_wakes
		      : &engine_batch_slot(w->e, w->ids[0])->wakes;
	engine_transports_waiter(w->e, ENGINE_WAITER_SLEEPS);
	/* all->any is raised before the sleepers of the batches: a thread that
	 * ends a task and sees this sleeper in b->pending must also see it in
	 * all->any */
	__atomic_fetch_add(&all->any, w->any, __ATOMIC_SEQ_CST);
	wait_count(w, me);
	do {
		seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
		state = wait_check(w);
	} while (state == WAIT_ON && !wait_closed(w->e) &&
		 wait_nap(w, word, seen));
	wait_count(w, -me);
	__atomic_fetch_sub(&all->any, w->any, __ATOMIC_SEQ_CST);
	engine_transports_waiter(w->e, ENGINE_WAITER_WAKES);
	return state;
}

static enum wait_state wait_run(struct wait *w)
{
	struct engine *e = w->e;
	enum wait_state state = wait_check(w);
	uint32_t spinning;

	if (state != WAIT_ON)
		return state;
	/* the number of spinning threads is limited, because they take
	 * processor cores from threads that have work */
	spinning = __atomic_fetch_add(&e->waits.spinning, 1, __ATOMIC_RELAXED);
	if (spinning < e->waits.max_spinning)
		state = wait_spin(w);
	__atomic_fetch_sub(&e->waits.spinning, 1, __ATOMIC_RELAXED);
	if (state == WAIT_ON && !wait_closed(e) && w->deadline_ns > 0)
		state = wait_sleep(w);
	return state;
}

/* Fills in the status after the deadline has passed. Returns TE_TIMED_OUT; or 0
 * if the task or batch has ended at the last moment; or 1 if the batch was
 * freed. */
static int wait_timed_out(struct wait *w)
{
	struct engine_batch *b = engine_batch_lock(w->e, w->ids[0]);

	if (!b)
		return 1;
	if (w->task == ENGINE_WAIT_ALL)
		engine_batch_sum(b, &w->status);
	else
		engine_task_status(&b->tasks[w->task], &w->status);
	engine_batch_unlock(b);
	return w->status.status == STATUS_WAITING ? TE_TIMED_OUT : 0;
}

static int wait_result(struct wait *w, enum wait_state state)
{
	if (state == WAIT_ENDED)
		return 0;
	if (state == WAIT_REFUSED)
		return 1;
	if (wait_closed(w->e)) {
		tei_err_set_last(&wait_closing);
		return 1;
	}
	return w->any ? TE_TIMED_OUT : wait_timed_out(w);
}

void engine_wait_enter(struct engine *e)
{
	__atomic_fetch_add(&e->waits.waiting, 1, __ATOMIC_SEQ_CST);
}

void engine_wait_leave(struct engine *e)
{
	__atomic_fetch_sub(&e->waits.waiting, 1, __ATOMIC_SEQ_CST);
}

int engine_wait(struct engine *e, batch_id_t id, size_t task,
		uint64_t deadline_ns, struct transfer_status *status)
{
	struct wait w = {
		.e = e,
		.ids = &id,
		.n = 1,
		.task = task,
		.deadline_ns = deadline_ns,
	};
	int ret;

	engine_wait_enter(e);
	ret = wait_result(&w, wait_run(&w));
	engine_wait_leave(e);
	if (ret != 1 && status)
		*status = w.status;
	return ret;
}

uint64_t engine_wait_deadline(int64_t timeout_us)
{
	if (timeout_us < 0 || (uint64_t)timeout_us > INT64_MAX / TEI_NS_PER_US)
		return UINT64_MAX;
	/* returns the deadline 0 for timeout 0: the wait checks once, drives
	 * progress once and returns */
	return timeout_us ? tei_now_ns() + (uint64_t)timeout_us * TEI_NS_PER_US :
			    0;
}

/* --- the engine's part ---------------------------------------------------- */

void engine_wait_init(struct engine *e)
{
	uint32_t cpus = tei_cpus();

	e->waits.max_spinning = cpus > 1 ? cpus / 2 : 1;
}

static void wait_shut_one(struct engine_batch *b, void *arg)
{
	(void)arg;
	engine_wait_freed(b);
}

void engine_wait_shut(struct engine *e)
{
	__atomic_store_n(&e->waits.closing, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&e->waits.waiting, __ATOMIC_SEQ_CST)) {
		engine_batch_each(e, wait_shut_one, NULL);
		tei_sleep_ns(TEI_NS_PER_MS / 10);
	}
}

/* --- the calls ----------------------------------------------------------- */

int te_wait_task(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
		 int64_t timeout_us, struct transfer_status *status)
{
	struct engine *e = engine_from(engine);

	if (!e)
		return 1;
	if (task_id == ENGINE_WAIT_ALL) {
		tei_err_set_last(&wait_no_task);
		return 1;
	}
	return engine_wait(e, batch_id, task_id,
			   engine_wait_deadline(timeout_us), status);
}

int te_wait_batch(transfer_engine_t engine, batch_id_t batch_id,
		  int64_t timeout_us, struct transfer_status *status)
{
	struct engine *e = engine_from(engine);

	if (!e)
		return 1;
	return engine_wait(e, batch_id, ENGINE_WAIT_ALL,
			   engine_wait_deadline(timeout_us), status);
}

int te_wait_any(transfer_engine_t engine, const batch_id_t *batch_ids,
		size_t count, int64_t timeout_us, size_t *index,
		struct transfer_status *status)
{
	struct wait w = {
		.e = engine_from(engine),
		.ids = batch_ids,
		.n = count,
		.any = true,
		.task = ENGINE_WAIT_ALL,
		.deadline_ns = engine_wait_deadline(timeout_us),
	};
	int ret;

	if (!w.e || !batch_ids || !index)
		return -engine_bad(w.e, __func__, NULL);
	if (count > TE_WAIT_MAX) {
		tei_err_set_last(&wait_no_batch);
		return 1;
	}
	engine_wait_enter(w.e);
	ret = wait_result(&w, wait_run(&w));
	engine_wait_leave(w.e);
	if (ret)
		return ret;
	*index = w.at;
	if (status)
		*status = w.status;
	return 0;
}
