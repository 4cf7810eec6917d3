/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ending tasks early, at the request of the program or at the deadline of their
 * batch. Such a task ends when none of its operations is in progress any more,
 * so the memory does not change after its end, as after every other end.
 */
#include "api/engine_int.h"

#define CANCEL_CHUNK	64

static void cancel_rail(struct engine *e, struct tei_rail_task **list, size_t n,
			bool deadline)
{
	if (n && deadline)
		tei_rail_expire(e->dp, list, n);
	else if (n)
		tei_rail_cancel(e->dp, list, n);
}

static void cancel_local(struct engine *e, struct engine_task *t, bool deadline)
{
	if (deadline)
		__atomic_store_n(&t->expired, true, __ATOMIC_RELAXED);
	if (t->by == ENGINE_BY_GROUP)
		engine_group_cancel(e, t);
	else if (t->by == ENGINE_BY_FILE)
		tei_nvmeof_cancel(e->nvmeof, &t->u.file);
	else if (t->by == ENGINE_BY_GPU)
		tei_gpu_cancel(e->gpu, &t->u.gpu);
	else if (t->by == ENGINE_BY_STAGE)
		engine_stage_cancel(e, t, deadline);
	else if (t->by == ENGINE_BY_LEASE)
		engine_lease_cancel(e, &t->u.lease, deadline);
	else
		tei_local_cancel(e->local, &t->u.op);
}

void engine_cancel_tasks(struct engine_batch *b, size_t first, size_t n,
			 bool deadline)
{
	struct tei_rail_task *list[CANCEL_CHUNK];
	struct engine_task *t;
	size_t i, k = 0;

	/* tasks by rail first: a copy's present part may take a while */
	for (i = first; i < first + n; i++) {
		t = &b->tasks[i];
		if (t->by != ENGINE_BY_RAIL || engine_task_ended(t))
			continue;
		list[k++] = &t->u.rail;
		if (k == CANCEL_CHUNK) {
			cancel_rail(b->engine, list, k, deadline);
			k = 0;
		}
	}
	cancel_rail(b->engine, list, k, deadline);
	for (i = first; i < first + n; i++) {
		t = &b->tasks[i];
		if (t->by != ENGINE_BY_RAIL && !engine_task_ended(t))
			cancel_local(b->engine, t, deadline);
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
