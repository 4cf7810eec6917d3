/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes moved by tasks of the data plane: between the pieces of an operation
 * here and those of memory at the peer.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_int.h"

/* At most one task per end of a piece on either side. */
#define MOVE_TASKS	(2 * MOONRAIL_IOV)

/* Within the process. */
static void move_self(const struct moonrail_task *t)
{
	void *there = (void *)(uintptr_t)t->task.remote;

	if (t->task.read)
		memmove(t->task.local, there, t->task.length);
	else
		memmove(there, t->task.local, t->task.length);
}

static uint32_t move_cut(struct moonrail_op *op,
			 const struct moonrail_wire_piece *at, uint32_t n,
			 bool read)
{
	uint64_t lo = 0, ro = 0, len;
	uint32_t l = 0, r = 0, k = 0;
	struct moonrail_task *t;

	while (l < op->niov && r < n && k < MOVE_TASKS) {
		len = op->iov[l].iov_len - lo;
		if (at[r].len - ro < len)
			len = at[r].len - ro;
		if (len) {
			t = &op->tasks[k++];
			t->op = op;
			tei_list_init(&t->link);
			t->task.peer = op->peer->rail;
			t->task.local = (char *)op->iov[l].iov_base + lo;
			t->task.remote = at[r].addr + ro;
			t->task.length = len;
			t->task.read = read;
		}
		lo += len;
		ro += len;
		if (lo == op->iov[l].iov_len) {
			l++;
			lo = 0;
		}
		if (r < n && ro == at[r].len) {
			r++;
			ro = 0;
		}
	}
	return k;
}

static void move_submit(struct moonrail_op *op, uint32_t n)
	TEI_REQUIRES(moonrail_held)
{
	struct tei_rail_task *tasks[MOVE_TASKS];
	struct moonrail_domain *d = op->ep->domain;
	uint32_t i;
	int ret;

	for (i = 0; i < n; i++)
		tasks[i] = &op->tasks[i].task;
	op->left = n;
	op->ep->busy++;
	ret = tei_rail_submit(d->dp, tasks, n);
	if (!ret)
		return;
	op->ep->busy--;
	op->left = 0;
	op->err = ret == TEI_ERR_NO_DEVICE ? FI_EHOSTUNREACH : FI_EIO;
	moonrail_move_done(op);
}

void moonrail_move(struct moonrail_op *op, const struct moonrail_wire_piece *at,
		   uint32_t n, bool read)
{
	uint32_t k, i;

	op->tasks = calloc(MOVE_TASKS, sizeof(*op->tasks));
	if (!op->tasks) {
		op->err = FI_ENOMEM;
		moonrail_move_done(op);
		return;
	}
	k = move_cut(op, at, n, read);
	if (k && op->peer->rail) {
		move_submit(op, k);
		return;
	}
	for (i = 0; i < k; i++)
		move_self(&op->tasks[i]);
	moonrail_move_done(op);
}

void moonrail_task_done(struct moonrail_task *t)
{
	struct moonrail_op *op = t->op;

	if (t->end != TEI_RAIL_END_COMPLETED && !op->err)
		op->err = tei_rail_peer_gone(t->task.peer) ? FI_ECONNRESET :
							     FI_EIO;
	if (--op->left)
		return;
	op->ep->busy--;
	moonrail_move_done(op);
}
