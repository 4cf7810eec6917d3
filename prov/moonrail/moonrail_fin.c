/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * FIN, the acknowledgement of a message by its receiver. Several messages can
 * share a FIN; the FIN is pending until it is sent.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"

/* Fails a send that has waited for the acknowledgement of its message, because
 * the peer has refused the message. */
static void fin_fail_sent(struct moonrail_peer *p, uint64_t id, int err)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o;
	struct moonrail_op *op;

	tei_list_foreach(o, &p->out.sent, struct moonrail_out, link) {
		if (!o->op || o->op->kind != MOONRAIL_SEND || o->op->id != id)
			continue;
		op = o->op;
		o->op = NULL;
		op->err = err;
		moonrail_op_done(op);
		return;
	}
}

/* Handles the acknowledgement of one message: completes the send that waits for
 * it. */
static void fin_complete_send(struct moonrail_peer *p, uint64_t id, int err)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *op;

	tei_list_foreach(op, &p->ops.waiting, struct moonrail_op, link) {
		if (op->id != id)
			continue;
		tei_list_del(&op->link);
		/* truncation is an error of the receiver only */
		op->err = err == FI_ETRUNC ? 0 : err;
		op->released = true;
		moonrail_op_done(op);
		return;
	}
	if (err)
		fin_fail_sent(p, id, err);
}

void moonrail_fin_send(struct moonrail_peer *p)
{
	struct moonrail_out *o;
	uint32_t more;

	if (!p->fin.n)
		return;
	more = (p->fin.n - 1) * (uint32_t)sizeof(p->fin.of[0]);
	o = moonrail_out_new(MOONRAIL_WIRE_FIN, more);
	if (!o) {
		moonrail_peer_soon(p);
		return;
	}
	o->wire.id = le64toh(p->fin.of[0].id);
	o->wire.n = (uint32_t)le64toh(p->fin.of[0].err);
	memcpy(moonrail_out_payload(o), &p->fin.of[1], more);
	p->fin.n = 0;
	moonrail_stream_send(p, o);
}

void moonrail_fin_add(struct moonrail_peer *p, uint64_t id, int err)
{
	if (!p->rail) {			/* the peer is this domain itself */
		fin_complete_send(p, id, err);
		return;
	}
	if (p->fin.n == MOONRAIL_FINS)	/* the pending FIN is still full,
					 * because sending it has failed */
		moonrail_fin_send(p);
	if (p->fin.n == MOONRAIL_FINS)
		moonrail_peer_fail(p, FI_ENOMEM);
	if (p->err && !p->resumes)
		return;
	p->fin.of[p->fin.n].id = htole64(id);
	p->fin.of[p->fin.n].err = htole64((uint64_t)err);
	p->fin.n++;
}

void moonrail_fin_add_and_send(struct moonrail_peer *p,
			       const struct moonrail_wire *w, int err)
{
	moonrail_fin_add(p, w->id, err);
	moonrail_fin_send(p);
}

void moonrail_fin_refuse(struct moonrail_peer *p, const struct moonrail_wire *w)
{
	if (w->op == MOONRAIL_WIRE_RTS || w->flags & MOONRAIL_WIRE_WANT_FIN)
		moonrail_fin_add_and_send(p, w, FI_ECONNREFUSED);
}

void moonrail_fin_no_endpoint(struct moonrail_peer *p,
			      const struct moonrail_wire *w)
{
	struct moonrail_out *o;

	if (!p->rail)			/* the peer is this domain itself */
		moonrail_av_refused(p, w->dst_ep);
	o = p->rail ? moonrail_out_new(MOONRAIL_WIRE_FIN, 0) : NULL;
	if (!o) {
		moonrail_fin_refuse(p, w);
		return;
	}
	o->wire.id = w->id;
	o->wire.n = FI_ECONNREFUSED;
	o->wire.src_ep = w->dst_ep;
	moonrail_stream_send(p, o);
}

bool moonrail_fin_handle(struct moonrail_peer *p, const struct moonrail_wire *w,
			 const uint8_t *payload, uint32_t len)
{
	uint32_t n = len / (uint32_t)sizeof(struct moonrail_wire_fin), i;
	struct moonrail_wire_fin end;

	if (n > MOONRAIL_FINS - 1)
		n = MOONRAIL_FINS - 1;
	if (w->src_ep && w->n == FI_ECONNREFUSED)
		moonrail_av_refused(p, w->src_ep);
	fin_complete_send(p, w->id, moonrail_wire_err(w->n));
	for (i = 0; i < n; i++) {
		memcpy(&end, payload + i * sizeof(end), sizeof(end));
		fin_complete_send(p, le64toh(end.id),
				  moonrail_wire_err(le64toh(end.err)));
	}
	return true;
}
