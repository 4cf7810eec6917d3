/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounce buffers of sent messages and of moves.
 *
 * Bounce buffers are used if rails require registered local memory
 * (FI_MR_LOCAL) or pin registered memory, and the application has not
 * registered its buffer. It would be faster to register the buffer during the
 * operation and to keep the registration. But this would be wrong if the
 * application unmaps the buffer and maps other memory there, because the
 * provider does not learn of that. Memory that the application has registered
 * is used directly.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"

/* Copies len bytes between the iov entries of an operation and its block: from
 * the block to the iov entries if "out" is true, otherwise from the iov entries
 * to the block. */
static void bounce_copy(const struct moonrail_op *op, uint64_t len, bool out)
{
	char *at = op->block->mem;
	uint64_t n;
	uint32_t i;

	for (i = 0; i < op->niov && len; i++) {
		n = op->iov[i].iov_len < len ? op->iov[i].iov_len : len;
		if (n && out)
			memcpy(op->iov[i].iov_base, at, n);
		else if (n)
			memcpy(at, op->iov[i].iov_base, n);
		at += n;
		len -= n;
	}
}

static bool bounce_registered(struct moonrail_domain *d,
			      const struct iovec *iov, size_t n)
	TEI_REQUIRES(moonrail_held)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (iov[i].iov_len &&
		    !moonrail_pinned(d, iov[i].iov_base, iov[i].iov_len))
			return false;
	return true;
}

int moonrail_bounce_send(struct moonrail_op *op, const struct iovec *iov,
			 size_t niov, struct iovec *out)
{
	struct moonrail_domain *d = op->ep->domain;
	struct moonrail_bounces *b = d->bounces;

	if (!b || bounce_registered(d, iov, niov))
		return 0;
	op->block = tei_rail_bounce_take_separate(&b->pool, op->total);
	if (!op->block) {
		op->block = tei_rail_bounce_new(&b->pool, op->total);
		if (op->block)
			tei_rail_bounce_add(&b->pool, op->block, true);
	}
	if (!op->block)
		return moonrail_bounce_scarce(b) ? -FI_EAGAIN : -FI_ENOMEM;
	memcpy(op->iov, iov, niov * sizeof(*iov));
	op->niov = (uint32_t)niov;
	bounce_copy(op, op->total, false);
	op->niov = 0;
	out->iov_base = op->block->mem;
	out->iov_len = op->total;
	return 1;
}

uint64_t moonrail_bounce_len(const struct moonrail_op *op)
{
	return op->kind == MOONRAIL_RECV ? op->received : op->total;
}

/* Puts a move into the list of deferred moves, which the bounce thread starts
 * later. */
static int bounce_defer(struct moonrail_op *op,
			const struct moonrail_wire_range *at, uint32_t n)
{
	struct moonrail_bounces *b = op->ep->domain->bounces;
	struct moonrail_deferred_move *l = calloc(1, sizeof(*l));

	if (!l)
		return -FI_ENOMEM;
	l->op = op;
	l->n = n;
	memcpy(l->at, at, n * sizeof(*at));
	tei_list_add_tail(&b->deferred, &l->link);
	op->ep->busy++;
	moonrail_bounce_wake(b, false);
	return 1;
}

int moonrail_bounce_move(struct moonrail_op *op,
			 const struct moonrail_wire_range *at, uint32_t n,
			 bool read, struct iovec *out)
{
	struct moonrail_domain *d = op->ep->domain;
	uint64_t len = moonrail_bounce_len(op);

	out->iov_base = NULL;
	if (!d->bounces || !d->bounces_local || !op->peer->rail || !len)
		return 0;
	if (!op->block) {
		if (bounce_registered(d, op->iov, op->niov))
			return 0;
		/* a new move must not overtake moves that wait for a block */
		if (tei_list_empty(&d->bounces->deferred))
			op->block =
				tei_rail_bounce_take(&d->bounces->pool, len);
		if (!op->block)
			return bounce_defer(op, at, n);
	}
	if (!read)
		bounce_copy(op, len, false);
	out->iov_base = op->block->mem;
	out->iov_len = len;
	return 0;
}

void moonrail_bounce_read(const struct moonrail_op *op)
{
	bounce_copy(op, moonrail_bounce_len(op), true);
}
