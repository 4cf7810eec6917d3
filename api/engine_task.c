/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Initializes and ends tasks. When the last task of a submission ends, sends
 * the notification of the submission.
 */
#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"

void engine_task_init(struct engine *e, struct engine_task *t,
		      const struct transfer_request *r,
		      const struct engine_transport_ops *by)
{
	memset(t, 0, sizeof(*t));
	t->engine = e;
	t->target = r->target_id;
	t->length = r->length;
	t->by = by;
	t->read = r->opcode == OPCODE_READ;
}

/* --- ends ---------------------------------------------------------------- */

void engine_submission_free(struct engine *e, struct engine_submission *sub)
{
	if (sub->note)
		engine_note_discard(e, sub->note);
	tei_rail_outgoing_free(sub->out);
	if (sub->peer)
		tei_rail_peer_put(sub->peer);
	free(sub);
}

/* Counts a task of the submission that ends. When the last task ends, sends the
 * notification if all tasks are COMPLETED, and frees the submission. */
static void submission_step(struct engine *e, struct engine_submission *sub,
			    int status)
{
	if (status != STATUS_COMPLETED)
		__atomic_store_n(&sub->failed, true, __ATOMIC_RELAXED);
	if (__atomic_sub_fetch(&sub->left, 1, __ATOMIC_ACQ_REL))
		return;
	if (!__atomic_load_n(&sub->failed, __ATOMIC_RELAXED)) {
		/* the called function takes ownership of out or note */
		if (sub->out)
			tei_rail_outgoing_queue(sub->out);
		else
			engine_note_arrived(e, sub->note);
		sub->out = NULL;
		sub->note = NULL;
	}
	engine_submission_free(e, sub);
}

void engine_task_end(struct engine_task *t, int status,
		     const struct tei_err *err)
{
	struct engine_submission *sub = t->sub;
	struct engine_batch *b = t->batch;
	size_t index = (size_t)(t - b->tasks);

	if (status != STATUS_COMPLETED && err) {
		t->err = malloc(sizeof(*t->err));
		if (t->err)
			*t->err = *err;
		if (t->err && err->absent.length)
			engine_segment_absent(t->engine, t->target, t->err);
	}
	if (sub) {
		t->sub = NULL;
		submission_step(t->engine, sub, status);
	}
	__atomic_store_n(&t->status, status, __ATOMIC_RELEASE);
	engine_wait_ended(b, index);
}
