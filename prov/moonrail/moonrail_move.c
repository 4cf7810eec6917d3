/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves bytes with tasks of the data plane, between the iov entries of an
 * operation and ranges of the peer's memory.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_policy.h"
#include "prov/moonrail/moonrail_rma.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"

/* MOVE_RANGES: largest number of tasks of one operation before tasks are
 * divided among rails; a task ends where an iov entry or a remote range ends.
 * MOVE_TASKS: largest number of tasks after the division. */
#define MOVE_RANGES	(2 * MOONRAIL_IOV)
#define MOVE_TASKS	(MOVE_RANGES * MOONRAIL_STRIPES)

/* How an operation is divided into tasks. */
struct move_plan {
	const struct iovec *iov;	/* iov entries of the local memory */
	uint32_t niov;
	enum moonrail_policy_kind kind;
	uint8_t rail;			/* 1 + index of the rail that carries
					 * undivided tasks; 0 means any rail */
	uint32_t n;			/* number of tasks created so far */
};

/* Executes a task whose target is this domain itself: copies the bytes within
 * this process. */
static void move_self(const struct moonrail_task *t)
{
	void *there = (void *)(uintptr_t)t->task.remote;

	if (t->task.read)
		memmove(t->task.local, there, t->task.length);
	else
		memmove(there, t->task.local, t->task.length);
}

static void move_task(struct moonrail_op *op, struct move_plan *plan,
		      const struct tei_rail_task *like)
{
	struct moonrail_task *t = &op->tasks[plan->n++];

	t->op = op;
	tei_list_init(&t->link);
	t->task = *like;
}

/* Adds a task, or one task for each rail if the policy is striping. */
static void move_add(struct moonrail_op *op, struct move_plan *plan,
		     struct tei_rail_task *t) TEI_REQUIRES(moonrail_held)
{
	uint64_t left = t->length;
	uint8_t rails[TEI_RAIL_MAX];
	uint32_t n = 0, i;

	if (plan->kind == MOONRAIL_STRIPING)
		n = moonrail_policy_parts(op->peer, left, rails);
	for (i = 0; i + 1 < n; i++) {
		t->rail = (uint8_t)(1 + rails[i]);
		t->length = left / (n - i);
		move_task(op, plan, t);
		t->local += t->length;
		t->remote += t->length;
		left -= t->length;
	}
	t->rail = n ? (uint8_t)(1 + rails[n - 1]) : plan->rail;
	t->length = left;
	move_task(op, plan, t);
}

/* Divides an operation into tasks and writes them to op->tasks. Returns the
 * number of tasks. */
static uint32_t move_cut(struct moonrail_op *op, const struct iovec *bounce,
			 const struct moonrail_wire_range *at, uint32_t n,
			 bool read) TEI_REQUIRES(moonrail_held)
{
	struct move_plan plan = {
		.iov = bounce->iov_base ? bounce : op->iov,
		.niov = bounce->iov_base ? 1 : op->niov,
		.kind = moonrail_policy(op->ep->domain,
					op->kind == MOONRAIL_RECV ? op->received
								  : op->total),
	};
	uint64_t lo = 0, ro = 0, len;
	uint32_t l = 0, r = 0;
	struct tei_rail_task t;

	if (plan.kind != MOONRAIL_STRIPING)
		plan.rail = (uint8_t)moonrail_policy_rail(op->peer, op->ep->id,
							  plan.kind);
	while (l < plan.niov && r < n) {
		len = plan.iov[l].iov_len - lo;
		if (at[r].len - ro < len)
			len = at[r].len - ro;
		if (len) {
			memset(&t, 0, sizeof(t));
			t.peer = op->peer->rail;
			t.local = (char *)plan.iov[l].iov_base + lo;
			t.remote = at[r].addr + ro;
			t.length = len;
			t.read = read;
			move_add(op, &plan, &t);
		}
		lo += len;
		ro += len;
		if (lo == plan.iov[l].iov_len) {
			l++;
			lo = 0;
		}
		if (r < n && ro == at[r].len) {
			r++;
			ro = 0;
		}
	}
	return plan.n;
}

/* Ends an operation, no task of which was submitted. */
static void move_fail(struct moonrail_op *op, int err)
	TEI_REQUIRES(moonrail_held)
{
	op->err = err;
	op->failed = true;
	op->type->moved(op);
}

static void move_free_group(struct moonrail_op *op) TEI_REQUIRES(moonrail_held)
{
	tei_rail_group_free(op->group);
	op->group = NULL;
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
	if (n > 1) {
		op->group = tei_rail_group_new(op->peer->rail);
		if (!op->group) {
			move_fail(op, FI_ENOMEM);
			return;
		}
	}
	op->left = n;
	op->ep->busy++;
	ret = tei_rail_submit_group(d->dp, op->group, tasks, n);
	if (!ret)
		return;
	move_free_group(op);
	op->ep->busy--;
	op->left = 0;
	move_fail(op, ret == TEI_ERR_NO_DEVICE ? FI_EHOSTUNREACH : FI_EIO);
}

void moonrail_move(struct moonrail_op *op, const struct moonrail_wire_range *at,
		   uint32_t n, bool read)
{
	struct iovec bounce;
	uint32_t k, i;
	int ret;

	ret = moonrail_bounce_move(op, at, n, read, &bounce);
	if (ret > 0)
		return;
	if (!ret)
		op->tasks = calloc(op->ep->domain->policies.n ? MOVE_TASKS :
								MOVE_RANGES,
				   sizeof(*op->tasks));
	if (!op->tasks) {
		move_fail(op, FI_ENOMEM);
		return;
	}
	k = move_cut(op, &bounce, at, n, read);
	if (k && op->peer->rail) {
		move_submit(op, k);
		return;
	}
	for (i = 0; i < k; i++)
		move_self(&op->tasks[i]);
	op->type->moved(op);
}

static int move_err(const struct moonrail_task *t)
{
	if (tei_rail_peer_gone(t->task.peer))
		return FI_ECONNRESET;
	return t->end == TEI_RAIL_END_UNFENCED || t->task.silent ?
		       FI_ETIMEDOUT : FI_EIO;
}

void moonrail_task_done(struct moonrail_task *t)
{
	struct moonrail_op *op = t->op;

	op->failed |= t->end != TEI_RAIL_END_COMPLETED;
	if (t->end != TEI_RAIL_END_COMPLETED && !op->err)
		op->err = move_err(t);
	if (--op->left)
		return;
	op->ep->busy--;
	move_free_group(op);
	if (op->block && t->task.read && !op->failed)
		moonrail_bounce_read(op);
	op->type->moved(op);
}
