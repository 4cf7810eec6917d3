/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging: the two steps of a piece, and the two carriers that this module
 * has: rails and remote bounce slots.
 */
#include "prov/staging/staging_int.h"

#include <stdio.h>
#include <string.h>

static struct staging_local *slot_local(const struct staging_local_slot *slot)
{
	return tei_container_of(slot->slot.pool->part, struct staging_local,
				part);
}

/* --- steps --------------------------------------------------------------- */

static void slot_ended(struct staging_local *l, struct staging_local_slot *slot,
		       enum tei_rail_end status, const struct tei_err *err)
	TEI_REQUIRES(l->part.lock)
{
	slot->end = status;
	if (status && err)
		slot->err = *err;
	else if (status)
		staging_err(&slot->err, TEI_ERR_CONTEXT, "the transfer failed");
	tei_list_add_tail(&l->ended, &slot->slot.node);
	staging_part_notify(&l->part);
}

static void slot_copied(struct tei_gpu_op *op, int code,
			const struct tei_err *err)
{
	struct staging_local_slot *slot =
		tei_container_of(op, struct staging_local_slot, slot.copy);
	enum tei_rail_end status = TEI_RAIL_END_FAILED;
	struct staging_local *l = slot_local(slot);

	/* when this function has returned, the thread of the part owns the slot
	 * again */
	tei_mutex_lock(&l->part.lock);
	if (!code)
		status = 0;
	else if (code == TEI_GPU_CANCELLED)
		status = TEI_RAIL_END_CANCELED;
	else if (code == TEI_ERR_TIMED_OUT)
		slot->slot.lost = true; /* of a write, no byte was sent, so it
					 * is not unfenced */
	if (slot->slot.lost && slot->piece.task->read)
		status = TEI_RAIL_END_UNFENCED;
	slot_ended(l, slot, status, err);
	tei_mutex_unlock(&l->part.lock);
}

void tei_staging_piece_done(struct tei_staging_piece *piece,
			    enum tei_rail_end end, bool silent,
			    const struct tei_err *err)
{
	struct staging_local_slot *slot =
		tei_container_of(piece, struct staging_local_slot, piece);
	struct staging_local *l = slot_local(slot);

	tei_mutex_lock(&l->part.lock);
	slot->silent = silent;
	slot_ended(l, slot, end, err);
	tei_mutex_unlock(&l->part.lock);
}

static int slot_copy(struct staging_local_slot *slot)
{
	struct tei_staging_task *task = slot->piece.task;
	uint64_t gpu = task->gpu + slot->piece.at,
		 mem = (uintptr_t)slot->piece.mem;
	bool read = task->read;

	memset(&slot->slot.copy, 0, sizeof(slot->slot.copy));
	slot->slot.copy.dst = read ? gpu : mem;
	slot->slot.copy.src = read ? mem : gpu;
	slot->slot.copy.length = slot->piece.length;
	slot->slot.copy.held = true;
	slot->slot.copy.done = slot_copied;
	return tei_gpu_submit(slot_local(slot)->gpu, &slot->slot.copy);
}

/* Begins a step. The GPU module or the carrier owns the slot until the step has
 * ended. */
static int slot_start(struct staging_local_slot *slot, enum staging_step step)
{
	struct tei_staging_piece *piece = &slot->piece;

	if (step == STAGING_COPY)
		return slot_copy(slot);
	memset(&piece->op, 0, sizeof(piece->op));
	return piece->task->carrier->start(slot_local(slot)->part.staging,
					   piece);
}

void staging_step_begin(struct staging_local *l,
			struct staging_local_slot *slot, enum staging_step step)
	TEI_REQUIRES(l->part.lock)
{
	struct tei_err err;
	int ret;

	slot->step = step;
	slot->stopped = false;
	slot->silent = false;
	tei_mutex_unlock(&l->part.lock);
	ret = slot_start(slot, step);
	tei_mutex_lock(&l->part.lock);
	if (!ret)
		return;
	slot->stopped = true; /* nothing to cancel: no transport has the
			       * piece */
	staging_err(&err, ret, tei_err_name(ret));
	slot_ended(l, slot, TEI_RAIL_END_FAILED, &err);
}

void staging_step_cancel(struct staging_local *l, struct tei_staging_task *task)
{
	const struct tei_staging_carrier *carrier = task->carrier;
	struct staging_local_slot *list[STAGING_SLOTS], *slot;
	bool deadline = task->expired;
	size_t n = 0, i;

	for (i = 0; i < STAGING_SLOTS; i++) {
		slot = staging_slot_at(task->pool, i);
		if (slot->piece.task != task || slot->stopped)
			continue;
		slot->stopped = true;
		list[n++] = slot;
	}
	/* only this thread reassigns slots, so the slots in list stay the same
	 * without the lock */
	tei_mutex_unlock(&l->part.lock);
	for (i = 0; i < n; i++) {
		if (list[i]->step == STAGING_COPY)
			tei_gpu_cancel(l->gpu, &list[i]->slot.copy);
		else if (carrier->cancel)
			carrier->cancel(l->part.staging, &list[i]->piece,
					deadline);
	}
	tei_mutex_lock(&l->part.lock);
}

/* --- the carrier of rails ------------------------------------------------- */

static void peer_hold(struct tei_staging_task *task)
{
	tei_rail_peer_hold(task->to);
}

static void peer_drop(struct tei_staging_task *task, enum tei_rail_end end)
{
	(void)end;
	tei_rail_peer_put(task->to);
}

static void rail_drop(struct tei_staging_task *task, enum tei_rail_end end)
{
	tei_rail_group_free(task->group);
	task->group = NULL;
	peer_drop(task, end);
}

static struct tei_rail_task *rail_op(struct tei_staging_piece *piece)
{
	_Static_assert(sizeof(struct tei_rail_task) <= TEI_STAGING_OP,
		       "operation of a piece");
	return (void *)piece->op.room;
}

static void rail_done(struct tei_rail_task *op, enum tei_rail_end end,
		      const struct tei_err *err)
{
	tei_staging_piece_done(tei_staging_piece_of(op), end, op->silent, err);
}

static int rail_start(struct tei_staging *s, struct tei_staging_piece *piece)
{
	struct tei_staging_task *task = piece->task;
	struct tei_rail_task *op = rail_op(piece);

	if (piece->length < task->length) {
		if (!task->group)
			task->group = tei_rail_group_new(task->to);
		if (!task->group)
			return TEI_ERR_MEMORY;
		op->whole = task->remote;
		op->whole_length = task->length;
	}
	op->peer = task->to;
	op->remote = task->remote + piece->at;
	op->length = piece->length;
	op->local = piece->mem;
	op->read = task->read;
	op->since_ns = task->waits_ns;
	op->done = rail_done;
	return tei_rail_submit_group(staging_rails(s), task->group, &op, 1);
}

static void rail_cancel(struct tei_staging *s, struct tei_staging_piece *piece,
			bool deadline)
{
	struct tei_rail_task *op = rail_op(piece);

	if (deadline)
		tei_rail_expire(staging_rails(s), &op, 1);
	else
		tei_rail_cancel(staging_rails(s), &op, 1);
}

const struct tei_staging_carrier tei_staging_by_rail = {
	.hold = peer_hold,
	.drop = rail_drop,
	.start = rail_start,
	.cancel = rail_cancel,
};

/* --- the carrier of remote bounce slots ----------------------------------- */

static struct tei_staging_remote_task *slot_op(struct tei_staging_piece *piece)
{
	_Static_assert(sizeof(struct tei_staging_remote_task) <= TEI_STAGING_OP,
		       "operation of a piece");
	return (void *)piece->op.room;
}

static void remote_done(struct tei_staging_remote_task *op,
			enum tei_rail_end end, const struct tei_err *err)
{
	tei_staging_piece_done(tei_staging_piece_of(op), end, op->silent, err);
}

static int remote_start(struct tei_staging *s, struct tei_staging_piece *piece)
{
	const struct tei_staging_task *task = piece->task;
	struct tei_staging_remote_task *op = slot_op(piece);

	op->peer = task->to;
	op->near = task->near;
	op->local = piece->mem;
	op->remote = task->remote + piece->at;
	op->length = piece->length;
	op->read = task->read;
	op->since_ns = task->waits_ns;
	op->part = true;
	op->done = remote_done;
	return tei_staging_remote_start(s, op);
}

static void remote_cancel(struct tei_staging *s,
			  struct tei_staging_piece *piece, bool deadline)
{
	tei_staging_remote_cancel(s, slot_op(piece), deadline);
}

const struct tei_staging_carrier tei_staging_by_slot = {
	.hold = peer_hold,
	.drop = peer_drop,
	.start = remote_start,
	.cancel = remote_cancel,
};
