/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations of the application: creation, completion and release.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_cq.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "util/list.h"

bool moonrail_iov_too_long(const struct iovec *iov, size_t n)
{
	uint64_t left = MOONRAIL_MESSAGE;
	size_t i;

	for (i = 0; i < n; i++) {
		if (iov[i].iov_len > left)
			return true;
		left -= iov[i].iov_len;
	}
	return false;
}

/*
 * Size of an operation, bytes. Operations are allocated with malloc and memset
 * instead of calloc, because glibc's calloc does not reuse memory that the
 * thread has just freed. The variable is volatile, because a compiler that
 * knows the size replaces malloc and memset by calloc.
 */
static const volatile size_t op_size = sizeof(struct moonrail_op);

struct moonrail_op *moonrail_op_new(struct moonrail_ep *ep,
				    const struct moonrail_op_type *type,
				    void *context)
{
	struct moonrail_op *op = malloc(sizeof(*op));

	if (!op)
		return NULL;
	memset(op, 0, op_size);
	op->ep = ep;
	op->type = type;
	op->kind = type->kind;
	op->context = context;
	tei_list_init(&op->link);
	return op;
}

void moonrail_op_with(struct moonrail_op *op, struct moonrail_peer *peer)
{
	struct moonrail_peer *was = op->peer;

	moonrail_peer_use(peer);
	op->peer = peer;
	if (was)
		moonrail_peer_unuse(was);
}

struct moonrail_op *moonrail_op_to(struct moonrail_ep *ep,
				   const struct moonrail_op_type *type,
				   struct moonrail_peer *peer, void *context,
				   uint64_t flags, bool silent)
{
	struct moonrail_op *op = moonrail_op_new(ep, type, context);

	if (!op)
		return NULL;
	moonrail_op_with(op, peer);
	op->unsignaled =
		silent || (ep->tx_selective && !(flags & FI_COMPLETION));
	return op;
}

void moonrail_op_free(struct moonrail_op *op)
{
	struct moonrail_domain *d = op->ep->domain;
	uint32_t i;

	for (i = 0; i < op->npin; i++)
		moonrail_unpin(d, op->iov[i].iov_base, op->iov[i].iov_len,
			       NULL);
	if (op->peer)
		moonrail_peer_unuse(op->peer);
	if (op->from)
		moonrail_peer_unuse(op->from);
	/* the block is clean if the peer can no longer read the message */
	if (op->block)
		moonrail_bounce_put(d, op->block,
				    op->kind != MOONRAIL_SEND || op->released);
	free(op->copy);
	free(op->tasks);
	free(op);
}

static enum moonrail_class op_class(const struct moonrail_op *op)
{
	switch (op->kind) {
	case MOONRAIL_RMA:
		return op->write ? MOONRAIL_CLASS_WRITE : MOONRAIL_CLASS_READ;
	case MOONRAIL_ATOMIC:
		return MOONRAIL_CLASS_ATOMIC;
	default:
		return MOONRAIL_CLASS_SEND;
	}
}

void moonrail_op_begin(struct moonrail_op *op)
{
	op->ep->ntx++;
	op->peer->ops.n++;
	op->peer->ops.of_class[op_class(op)]++;
}

void moonrail_op_undo(struct moonrail_op *op)
{
	struct moonrail_peer *p = moonrail_peer_real(op->peer);

	op->ep->ntx--;
	p->ops.n--;
	p->ops.of_class[op_class(op)]--;
}

static void op_fill_recv(const struct moonrail_op *op,
			 struct moonrail_entry *e)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_ep *ep = op->ep;

	e->len = op->received;
	e->buf = op->multi ? op->iov[0].iov_base : NULL;
	e->data = op->data;
	e->tag = op->tag;
	e->olen = op->truncated;
	e->src = op->peer && ep->caps & FI_SOURCE ?
			 moonrail_av_find(ep->av, op->peer, op->src_ep) :
			 FI_ADDR_NOTAVAIL;
}

static struct moonrail_cntr *op_counter(const struct moonrail_op *op)
{
	switch (op->kind) {
	case MOONRAIL_SEND:
		return op->ep->cntr[MOONRAIL_CNTR_SEND];
	case MOONRAIL_RECV:
		return op->ep->cntr[MOONRAIL_CNTR_RECV];
	default:
		return op->ep->cntr[op->write ? MOONRAIL_CNTR_WRITE :
						MOONRAIL_CNTR_READ];
	}
}

void moonrail_op_done(struct moonrail_op *op)
{
	bool recv = op->kind == MOONRAIL_RECV;
	struct moonrail_ep *ep = op->ep;
	struct moonrail_cq *cq = recv ? ep->rx_cq : ep->tx_cq;
	struct moonrail_cntr *cntr = op_counter(op);
	/* a cancelled operation is not counted */
	bool counts = cntr && !ep->closing && !op->peek &&
		      op->err != FI_ECANCELED;
	struct moonrail_entry e;

	memset(&e, 0, sizeof(e));
	e.context = op->context;
	e.flags = op->flags;
	e.err = op->err;
	e.src = FI_ADDR_NOTAVAIL;
	if (recv)
		op_fill_recv(op, &e);
	if (counts && op->err) {
		e.cntr = cntr->id;
		e.nth = cntr->failed + 1;
	}
	if (cq && !ep->closing && (op->err || !op->unsignaled))
		moonrail_cq_add(cq, &e);
	if (counts)
		moonrail_cntr_add(cntr, !op->err);
	if (recv)
		ep->nrx--;
	else
		moonrail_op_undo(op);
	moonrail_op_free(op);
}

void moonrail_op_end(struct moonrail_op *op, int err)
{
	op->err = err;
	moonrail_op_done(op);
}
