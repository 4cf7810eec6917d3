/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/clock.h"
#include "util/list.h"

/*
 * Read-back checks. Only the sender of an announced message knows that the
 * message has timed out. After a suspension, a receiver may start to read an
 * announced message whose source buffer has been reused. So the receiver asks
 * after the read whether the message was still valid (STILL). It need not ask
 * if the sender cannot have timed out since it announced the message, because
 * the two have exchanged messages without a pause
 * (moonrail_read_back_unneeded).
 */

bool moonrail_read_back_unneeded(const struct moonrail_peer *p, uint64_t ack)
{
	return !p->rail ||
	       (ack > p->contact.first_seq &&
		tei_now_ns() < p->contact.proven_ns + MOONRAIL_CONTACT_NS);
}

void moonrail_read_back_send(struct moonrail_op *op)
{
	struct moonrail_peer *p = op->peer;
	struct moonrail_out *o = NULL;

	op->ep->busy++;
	if (moonrail_peer_lives(p))
		o = moonrail_out_new(MOONRAIL_WIRE_STILL, 0);
	if (!o) {
		op->type->answered(op, p->err ? p->err : FI_ENOMEM);
		return;
	}
	o->wire.id = op->id;
	tei_list_add_tail(&p->ops.checking, &op->link);
	if (p->silent)			/* the peer is not silent: a read of its
					 * memory has just succeeded */
		moonrail_peer_resume(p);
	moonrail_stream_send(p, o);
}

/* Answers a read-back check. Returns false if memory is short; the peer then
 * repeats the check. */
bool moonrail_read_back_query(struct moonrail_peer *p,
			      const struct moonrail_wire *w,
			      const uint8_t *payload, uint32_t len)
{
	struct moonrail_out *o = moonrail_out_new(MOONRAIL_WIRE_STILL_IS, 0);
	const struct moonrail_op *op;

	(void)payload, (void)len;
	if (!o)
		return false;
	o->wire.id = w->id;
	o->wire.n = FI_ETIMEDOUT;
	tei_list_foreach(op, &p->ops.waiting, struct moonrail_op, link)
		if (op->kind == MOONRAIL_SEND && op->id == w->id)
			o->wire.n = 0;
	moonrail_stream_send(p, o);
	return true;
}

bool moonrail_read_back_answer(struct moonrail_peer *p,
			       const struct moonrail_wire *w,
			       const uint8_t *payload, uint32_t len)
{
	struct moonrail_op *op;

	(void)payload, (void)len;
	tei_list_foreach(op, &p->ops.checking, struct moonrail_op, link) {
		if (op->id != w->id)
			continue;
		tei_list_del(&op->link);
		op->type->answered(op, moonrail_wire_err(w->n));
		break;
	}
	return true;
}
