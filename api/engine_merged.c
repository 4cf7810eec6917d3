/* SPDX-License-Identifier: BSD-2-Clause */
/* Merged tasks: one operation that moves the bytes of several tasks. */
#include "api/engine_merged.h"

#include <stdio.h>

#include "api/engine_int.h"

size_t engine_merged_count(struct engine *e, const struct engine_merge_ops *ops,
			   const struct engine_task *tasks, size_t n,
			   uint64_t most, uint64_t *length)
{
	size_t i;

	*length = tasks[0].length;
	if (!e->settings.sched.merge)
		return 1;
	for (i = 1; i < n && i < ENGINE_MERGED_MAX; i++) {
		if (tasks[i].by != tasks[0].by ||
		    *length + tasks[i].length > most ||
		    !ops->adjacent(&tasks[i - 1], &tasks[i]))
			break;
		*length += tasks[i].length;
	}
	return i;
}

void engine_merged_start(struct engine *e, const struct engine_merge_ops *ops,
			 struct engine_task *tasks, size_t n, uint64_t length)
{
	size_t i;

	for (i = 0; n > 1 && i < n; i++)
		tasks[i].merged = (struct engine_merged){
			.n = (uint16_t)n, .at = (uint16_t)i,
		};
	ops->start(e, &tasks[0], length, 0);
}

void engine_merged_cancel(struct engine *e, const struct engine_merge_ops *ops,
			  struct engine_task *t, bool deadline)
{
	struct engine_merged *part = &t->merged;

	tei_mutex_lock(&e->merged);
	if (!part->over) {
		part->stop = true;
		ops->cancel(e, part->n ? t - part->at : t, deadline);
	}
	tei_mutex_unlock(&e->merged);
}

/* Restarts each of n tasks that was not cancelled, with an operation of its
 * own. Stores the others at the start of `list`, which has n elements, and
 * returns their number. */
static size_t merged_split(struct engine *e, const struct engine_merge_ops *ops,
			   struct engine_task *leader, size_t n,
			   struct engine_task **list) TEI_REQUIRES(e->merged)
{
	uint64_t since_ns = ops->since(leader);
	size_t i, over = 0, again = n;
	struct engine_merged *part;

	for (i = 0; i < n; i++) {
		part = &leader[i].merged;
		part->over = part->stop;
		part->n = part->at = 0;
		if (part->over)
			list[over++] = &leader[i];
		else
			list[--again] = &leader[i];
	}
	/* when the last of them has been started, all tasks of the batch may
	 * have ended and the batch may have been freed */
	for (i = n; i-- > again;)
		ops->start(e, list[i], list[i]->length, since_ns);
	return over;
}

/* Ends a task that was cancelled, with the status of its operation. If the
 * operation was cancelled for another task, and the deadline of the batch has
 * passed since then, the task has timed out. */
static void merged_end_stopped(struct engine_task *t, int status,
			       const struct tei_err *err)
{
	struct tei_err late;

	if (status != STATUS_CANCELED || !err ||
	    !__atomic_load_n(&t->expired, __ATOMIC_RELAXED)) {
		engine_task_end(t, status, err);
		return;
	}
	late = *err;
	late.code = TEI_ERR_TIMED_OUT;
	snprintf(late.text, sizeof(late.text),
		 "the batch's deadline has passed");
	engine_task_end(t, STATUS_FAILED, &late);
}

void engine_merged_end(struct engine *e, const struct engine_merge_ops *ops,
		       struct engine_task *leader, int status,
		       const struct tei_err *err)
{
	struct engine_task *list[ENGINE_MERGED_MAX];
	size_t n = leader->merged.n, i;

	if (n && (status == STATUS_CANCELED ||
		  (err && err->code == TEI_ERR_NOT_REGISTERED))) {
		tei_mutex_lock(&e->merged);
		n = merged_split(e, ops, leader, n, list);
		tei_mutex_unlock(&e->merged);
		for (i = 0; i < n; i++)
			merged_end_stopped(list[i], status, err);
		return;
	}
	/* the batch may be freed when its last task has ended, so the leader
	 * ends last */
	for (i = n ? n - 1 : 0; i; i--)
		engine_task_end(&leader[i], status, err);
	engine_task_end(leader, status, err);
}
