/* SPDX-License-Identifier: BSD-2-Clause */
/* getTransferStatus and te_batch_status: the status of tasks and batches. */
#include "api/engine_int.h"
#include "api/engine_transport.h"

/* Returns the rank of a task's status. The status of a batch is that of its
 * task with the highest rank. */
static int status_rank(int status)
{
	switch (status) {
	case STATUS_COMPLETED:
		return 0;
	case STATUS_CANCELED:
		return 1;
	case STATUS_FAILED:
		return 2;
	case STATUS_TIMEOUT:
		return 3; /* TIMEOUT: bytes of the task may still land */
	default:
		return 4; /* the task is in progress */
	}
}

void engine_task_status(const struct engine_task *t,
			struct transfer_status *status)
{
	int now = __atomic_load_n(&t->status, __ATOMIC_ACQUIRE);

	status->status = now;
	if (now == STATUS_COMPLETED)
		status->transferred_bytes = t->length;
	else if (t->by->moved)
		status->transferred_bytes = t->by->moved(t);
	else
		status->transferred_bytes = 0;
}

void engine_batch_sum(const struct engine_batch *b,
		      struct transfer_status *status)
{
	struct transfer_status task;
	uint64_t bytes = 0;
	int worst = STATUS_COMPLETED;
	uint32_t i;

	for (i = 0; i < b->count; i++) {
		engine_task_status(&b->tasks[i], &task);
		bytes += task.transferred_bytes;
		if (status_rank(task.status) > status_rank(worst))
			worst = task.status;
	}
	status->status = worst;
	status->transferred_bytes = bytes;
}

/*
 * Returns the status that getTransferStatus reports. Several clients of
 * Mooncake take every status except FAILED for success. Therefore an unfenced
 * task is TIMEOUT only if the user has set MC_SLICE_TIMEOUT, as in Mooncake,
 * and otherwise FAILED.
 */
static int status_for_mooncake(const struct engine *e, int status)
{
	if (status == STATUS_TIMEOUT &&
	    !tei_settings_given(&e->settings, "MC_SLICE_TIMEOUT"))
		return STATUS_FAILED;
	return status;
}

int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id,
		      size_t task_id, struct transfer_status *status)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b;
	struct engine_task *t;

	if (!e || !status)
		return -engine_bad(e, __func__, NULL);
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return 1;
	if (task_id >= b->count) {
		engine_batch_unlock(b);
		return -engine_bad(e, __func__, "no such task");
	}
	t = &b->tasks[task_id];
	if (!engine_task_ended(t)) {
		if (t->by->progress)
			t->by->progress(e);
		else
			engine_transports_progress(e);
	}
	engine_task_status(t, status);
	engine_batch_unlock(b);
	status->status = status_for_mooncake(e, status->status);
	return 0;
}

int te_batch_status(transfer_engine_t engine, batch_id_t batch_id,
		    struct transfer_status *status)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b;

	if (!e || !status)
		return -engine_bad(e, __func__, NULL);
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return 1;
	if (!b->count) {
		engine_batch_unlock(b);
		return -engine_bad(e, __func__, "nothing was submitted");
	}
	if (__atomic_load_n(&b->pending, __ATOMIC_ACQUIRE) &
	    ENGINE_PENDING_LEFT)
		engine_transports_progress(e);
	engine_batch_sum(b, status);
	engine_batch_unlock(b);
	return 0;
}

int te_task_error(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
		  struct te_error *err, size_t size)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b;
	struct engine_task *t;
	int status, ret = 1;

	if (!e || !err || !size)
		return -engine_bad(e, __func__, NULL);
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return 1;
	if (task_id < b->count) {
		t = &b->tasks[task_id];
		status = __atomic_load_n(&t->status, __ATOMIC_ACQUIRE);
		engine_error_out(status == STATUS_WAITING ? NULL : t->err,
				 status == STATUS_TIMEOUT ? TE_ERROR_UNFENCED :
							    0, err, size);
		ret = 0;
	}
	engine_batch_unlock(b);
	return ret ? -engine_bad(e, __func__, "no such task") : 0;
}

int te_batch_tasks(transfer_engine_t engine, batch_id_t batch_id, size_t first,
		   struct te_task *tasks, size_t elem_size, size_t *count)
{
	struct engine *e = engine_from(engine);
	struct transfer_status status;
	struct engine_batch *b;
	struct te_task one = { .cookie = 0 };
	size_t i;

	if (!e || !count || !elem_size || (*count && !tasks))
		return -engine_bad(e, __func__, NULL);
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return 1;
	for (i = 0; i < *count && first < b->count; i++, first++) {
		engine_task_status(&b->tasks[first], &status);
		one.cookie = b->tasks[first].cookie;
		one.status = status.status;
		one.transferred_bytes = status.transferred_bytes;
		engine_out((char *)tasks + i * elem_size, elem_size, &one,
			   sizeof(one));
	}
	engine_batch_unlock(b);
	*count = i;
	return 0;
}
