/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ends tasks early, at the request of the program or at the deadline of their
 * batch. Such a task ends only when none of its operations is in progress any
 * longer. So, as with every other task, its memory does not change after it has
 * ended.
 */
#include "api/engine_int.h"
#include "api/engine_transport.h"

void engine_cancel_tasks(struct engine_batch *b, size_t first, size_t n,
			 bool deadline)
{
	const struct engine_transport_ops *run = NULL;
	struct engine_task *t, *end = &b->tasks[first + n];

	/* calls cancel_run first, which does not wait; cancel of the other
	 * transports may have to wait until a part of a copy is complete */
	for (t = &b->tasks[first]; t < end && !run; t++)
		if (t->by->cancel_run && !engine_task_ended(t))
			run = t->by;
	if (run)
		run->cancel_run(b->engine, &b->tasks[first], n, deadline);
	for (t = &b->tasks[first]; t < end; t++) {
		if (t->by->cancel_run || engine_task_ended(t))
			continue;
		if (deadline)
			__atomic_store_n(&t->expired, true, __ATOMIC_RELAXED);
		t->by->cancel(b->engine, t, deadline);
	}
}

int te_cancel_task(transfer_engine_t engine, batch_id_t batch_id,
		   size_t task_id)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b;
	int ret = 1;

	if (!e)
		return 1;
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return 1;
	if (task_id < b->count) {
		engine_cancel_tasks(b, task_id, 1, false);
		ret = 0;
	}
	engine_batch_unlock(b);
	return ret ? -engine_bad(e, __func__, "no such task") : 0;
}

int te_cancel_batch(transfer_engine_t engine, batch_id_t batch_id)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b;

	if (!e)
		return 1;
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return 1;
	engine_cancel_tasks(b, 0, b->count, false);
	engine_batch_unlock(b);
	return 0;
}
