/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/rail/tei_rail.h"
#include "util/channel.h"
#include "util/list.h"

/*
 * Handles that a resolver has found its process: moves the operations,
 * addresses, keys and queued messages of the resolver to the peer of that
 * process.
 */

/* Moves the operations, addresses and queued messages of a resolver to the
 * known peer that it has found. */
static void resolver_merge(struct moonrail_peer *from, struct moonrail_peer *to)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o;
	struct moonrail_op *op;
	uint32_t i;

	from->replaced_by = to;
	moonrail_peer_use(to);
	moonrail_peer_check_unused(from);
	to->ops.n += from->ops.n;
	from->ops.n = 0;
	for (i = 0; i < MOONRAIL_CLASSES; i++) {
		to->ops.of_class[i] += from->ops.of_class[i];
		from->ops.of_class[i] = 0;
	}
	tei_list_foreach(op, &from->ops.waiting, struct moonrail_op, link)
		moonrail_op_with(op, to);
	tei_list_foreach(op, &from->ops.waiting_for_key, struct moonrail_op,
			  link)
		moonrail_op_with(op, to);
	tei_list_splice_tail(&to->ops.waiting, &from->ops.waiting);
	tei_list_splice_tail(&to->ops.waiting_for_key,
			     &from->ops.waiting_for_key);
	moonrail_key_merge(from, to);
	if (tei_list_empty(&to->entries))
		moonrail_peer_resume(to);
	moonrail_av_merge(from, to);
	while (!tei_list_empty(&from->out.queue)) {
		o = tei_list_first(&from->out.queue, struct moonrail_out, link);
		tei_list_del(&o->link);
		moonrail_stream_send(to, o);
	}
	tei_channel_out_recall(&from->out.channel);
	moonrail_recv_identified(to);
	if (to->err)
		moonrail_peer_fail(to, to->err);
}

bool moonrail_peer_found(struct moonrail_peer *p, uint64_t inc)
{
	struct tei_rail_peer *rail = tei_rail_peer_known(p->domain->dp, inc);
	struct moonrail_peer *known = moonrail_peer_find(p->domain, inc);

	if (!rail)
		return false;
	tei_rail_peer_put(p->rail);
	p->rail = rail;
	if (known) {
		p->incarnation = inc;
		resolver_merge(p, known);
		return true;
	}
	moonrail_peer_identify(p, inc);
	moonrail_stream_flush(p);
	tei_rail_attend(rail);
	return true;
}
