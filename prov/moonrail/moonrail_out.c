/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of the outgoing stream of a peer: creation, numbering and release.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_policy.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/channel.h"
#include "util/list.h"

/*
 * Returns true if a message of type op carries an operation of this domain.
 * Returns false for answers to operations of the peer: a wait for their
 * acknowledgement might never end, because the peer can always begin further
 * operations.
 */
static bool out_is_posted(uint8_t op)
{
	return op == MOONRAIL_WIRE_DATA || op == MOONRAIL_WIRE_RTS ||
	       op == MOONRAIL_WIRE_ATOMIC || op == MOONRAIL_WIRE_DONE;
}

bool moonrail_out_is_answer(uint8_t op)
{
	return op == MOONRAIL_WIRE_FIN || op == MOONRAIL_WIRE_KEY_IS ||
	       op == MOONRAIL_WIRE_KEY_NOT || op == MOONRAIL_WIRE_ATOMIC_REP ||
	       op == MOONRAIL_WIRE_STILL || op == MOONRAIL_WIRE_STILL_IS;
}

struct moonrail_out *moonrail_out_new(enum moonrail_wire_op op, uint32_t len)
{
	struct moonrail_out *o = malloc(sizeof(*o) + MOONRAIL_HEAD + len);

	if (!o)
		return NULL;
	tei_list_init(&o->link);
	o->op = NULL;
	o->policy = MOONRAIL_ADAPTIVE;
	o->len = (uint32_t)MOONRAIL_HEAD + len;
	memset(&o->wire, 0, sizeof(o->wire));
	o->wire.version = MOONRAIL_WIRE_VERSION;
	o->wire.op = (uint8_t)op;
	return o;
}

void moonrail_out_queue(struct moonrail_peer *p, struct moonrail_out *o)
{
	o->wire.seq = tei_channel_out_add(&p->out.channel);
	if (out_is_posted(o->wire.op))
		p->out.posted_seq = o->wire.seq;
	tei_list_add_tail(&p->out.queue, &o->link);
}

void moonrail_out_drop_list(struct tei_list *l, int err)
{
	struct moonrail_out *o;

	while (!tei_list_empty(l)) {
		o = tei_list_first(l, struct moonrail_out, link);
		tei_list_del(&o->link);
		if (o->op)
			moonrail_op_end(o->op, err);
		free(o);
	}
}

void moonrail_out_drop(struct moonrail_out *o, int err)
{
	if (o->op)
		moonrail_op_end(o->op, err);
	free(o);
}

/* Replaces a numbered message by an empty one (an ACK) with the same number. */
static void out_empty(struct moonrail_out *o)
{
	struct tei_list *before = o->link.prev;
	struct moonrail_out *small;

	o->wire.op = MOONRAIL_WIRE_ACK;
	o->wire.flags = 0;
	o->wire.id = 0;
	o->wire.n = 0;
	o->op = NULL;
	o->len = (uint32_t)MOONRAIL_HEAD;
	tei_list_del(&o->link);
	small = realloc(o, sizeof(*o) + MOONRAIL_HEAD);
	tei_list_insert_after(before, small ? &small->link : &o->link);
}

void moonrail_out_empty_list(struct tei_list *l, int err)
{
	struct moonrail_out *o, *tmp;
	struct moonrail_op *op;

	tei_list_foreach_safe(o, tmp, l, struct moonrail_out, link) {
		if (moonrail_out_is_answer(o->wire.op))
			continue;
		op = o->op;
		out_empty(o);
		if (op)
			moonrail_op_end(op, err);
	}
}

void moonrail_out_drop_all(struct moonrail_peer *p, int err)
{
	moonrail_out_drop_list(&p->out.queue, err);
	moonrail_out_drop_list(&p->out.sent, err);
	tei_channel_out_start(&p->out.channel, p->out.channel.next);
	p->fin.n = 0;
	p->contact.sent_seq = 0;
}

void moonrail_out_restart(struct moonrail_peer *p, int err)
{
	moonrail_out_drop_all(p, err);
	tei_channel_out_start(&p->out.channel, 1);
	p->out.posted_seq = p->out.requested_seq = p->out.key_seq = 0;
}
