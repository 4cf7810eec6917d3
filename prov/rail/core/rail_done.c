/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reports to the owner of the data plane what ended or arrived while a lock was
 * held: user messages, notifications and tasks, in this order.
 */

#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"

#define DONE_RELEASE	32	/* number of tasks whose regions are released
				 * under one acquisition of the lock */

void rail_done_init(struct rail_done *done)
{
	tei_list_init(&done->tasks);
	tei_list_init(&done->received);
	tei_list_init(&done->messages);
}

/* Releases the regions of n tasks, which have been reported. A thread that
 * unregisters a region, or drains the data plane, waits until the regions are
 * released. */
static void done_release(struct tei_rail_dp *dp, struct tei_rail_mr **mrs,
			 int n)
{
	bool signal = false;
	int i;

	rail_sched_enter(dp);
	__atomic_store_n(&dp->tasks.nheld, dp->tasks.nheld - (uint32_t)n,
			 __ATOMIC_RELEASE);
	for (i = 0; i < n; i++)
		signal |= mrs[i] && !--mrs[i]->tasks &&
			  mrs[i]->state == RAIL_MR_REVOKING;
	rail_sched_leave(dp);
	if (signal)
		rail_progress_signal(dp);
}

/* Stores the old value that a completed atomic has returned at the address that
 * the caller gave. */
static void done_deliver(const struct tei_rail_task *task)
{
	uint32_t narrow = (uint32_t)task->ext->old;

	if (!task->ext->atomic || !task->local ||
	    task->complete_wanted != TEI_RAIL_END_COMPLETED + 1)
		return;
	if (task->length == sizeof(narrow))
		memcpy(task->local, &narrow, sizeof(narrow));
	else
		memcpy(task->local, &task->ext->old, sizeof(uint64_t));
}

/* Releases the regions of all iov entries but the first. */
static void done_release_iov(struct tei_rail_dp *dp, struct tei_rail_task_ext *x)
{
	bool signal = false;
	uint32_t i;

	if (x->nlocal < 2)
		return;
	rail_sched_enter(dp);
	for (i = 1; i < x->nlocal; i++)
		signal |= !--x->piece[i].mr->tasks &&
			  x->piece[i].mr->state == RAIL_MR_REVOKING;
	rail_sched_leave(dp);
	if (signal)
		rail_progress_signal(dp);
}

static void done_ext(struct tei_rail_dp *dp, struct tei_rail_task_ext *ext)
{
	done_release_iov(dp, ext);
	free(ext);
}

void rail_done_run(struct tei_rail_dp *dp, struct rail_done *done)
{
	struct tei_rail_mr *mrs[DONE_RELEASE];
	int n = 0;
	struct tei_rail_task_ext *ext;
	struct tei_rail_message *m;
	struct tei_rail_task *task;
	struct tei_rail_notification *note;
	struct tei_err *err;

	while (!tei_list_empty(&done->messages)) {
		m = tei_list_first(&done->messages, struct tei_rail_message,
				   link);
		tei_list_del(&m->link);
		dp->ops->message(dp->arg, m);
	}
	while (!tei_list_empty(&done->received)) {
		note = tei_list_first(&done->received,
				      struct tei_rail_notification, link);
		tei_list_del(&note->link);
		/* the callee owns the notification from now on */
		dp->ops->notify(dp->arg, note);
	}

	while (!tei_list_empty(&done->tasks)) {
		task = tei_list_first(&done->tasks, struct tei_rail_task,
				      live_link);
		tei_list_del(&task->live_link);
		err = task->err;
		mrs[n++] = task->mr;
		ext = task->ext;
		if (ext)
			done_deliver(task);
		/* the caller owns the task again from now on */
		(task->done ? task->done : dp->ops->task_done)(
			task, (enum tei_rail_end)(task->complete_wanted - 1),
			err);
		free(err);
		if (ext)
			done_ext(dp, ext);
		if (n == DONE_RELEASE || tei_list_empty(&done->tasks)) {
			done_release(dp, mrs, n);
			n = 0;
		}
	}
}
