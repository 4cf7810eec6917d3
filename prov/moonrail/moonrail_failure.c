/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"

/*
 * The failure of a peer.
 *
 * After a timeout, the operations with the peer fail, but the streams are kept,
 * because the peer may only have been suspended. The numbers of the
 * unacknowledged messages stay in use: each such message is replaced by an
 * empty one with the same number. So the peer handles each message only if it
 * has received the message already, and otherwise receives the empty one.
 * Answers are not emptied, because the peer may wait for them, and messages
 * from the peer are still handled. New operations fail, so that the application
 * learns that messages were lost. If an address vector contains the peer's
 * address, operations succeed again after all addresses of the peer were
 * removed and the address was inserted again. If no address vector contains it,
 * operations succeed again as soon as the peer sends something.
 *
 * A resolver (a peer whose incarnation is not known yet) can time out too. Its
 * queued messages are dropped. If its process is found later, its streams
 * begin, so that messages of this process can be received. The address of the
 * resolver works again when it is inserted again.
 *
 * A sender that fails a peer for another reason than silence keeps the
 * announced buffers until no receiver can rely on moonrail_read_back_unneeded
 * any longer (FAILURE_READ_NS).
 */

/* Time for which announced buffers are kept after such a failure, ns:
 * MOONRAIL_CONTACT_NS, and some time in which a read can end. */
#define FAILURE_READ_NS	(1000 * TEI_NS_PER_MS)

void moonrail_peer_end_waiting(struct moonrail_peer *p)
{
	struct moonrail_op *op;

	p->contact.reads_until_ns = 0;
	while (!tei_list_empty(&p->ops.waiting)) {
		op = tei_list_first(&p->ops.waiting, struct moonrail_op, link);
		tei_list_del(&op->link);
		op->type->answered(op, p->err);
	}
}

/* Returns true if the peer may still read announced messages and omit the
 * read-back check. Returns false for a peer that has sent BYE or has been
 * silent for MC_SLICE_TIMEOUT. */
static bool failure_leaves_reader(const struct moonrail_peer *p, int err)
{
	return !tei_list_empty(&p->ops.waiting) && p->rail &&
	       err != FI_ETIMEDOUT && err != FI_ECONNRESET;
}

void moonrail_peer_fail(struct moonrail_peer *p, int err)
{
	struct moonrail_op *op;

	/* a peer cannot resume after its streams have been dropped */
	p->resumes = err == FI_ETIMEDOUT && !p->replaced_by &&
		     (!p->err || p->resumes);
	p->err = err;
	p->silent = true;
	if (!p->resumes) {
		moonrail_out_drop_all(p, err);
	} else if (!p->incarnation) {
		moonrail_out_restart(p, err);
	} else {
		moonrail_out_empty_list(&p->out.queue, err);
		moonrail_out_empty_list(&p->out.sent, err);
	}
	moonrail_out_drop_list(&p->flow.blocked, err);
	moonrail_flow_dropped(p);
	if (failure_leaves_reader(p, err)) {
		p->contact.reads_until_ns = tei_now_ns() + FAILURE_READ_NS;
		tei_rail_attend(p->rail);
	} else {
		moonrail_peer_end_waiting(p);
	}
	while (!tei_list_empty(&p->ops.checking)) {
		op = tei_list_first(&p->ops.checking, struct moonrail_op, link);
		tei_list_del(&op->link);
		op->type->answered(op, err);
	}
	while (!tei_list_empty(&p->ops.waiting_for_key)) {
		op = tei_list_first(&p->ops.waiting_for_key, struct moonrail_op,
				    link);
		tei_list_del(&op->link);
		op->type->answered(op, err);
	}
	moonrail_peer_check_unused(p);
	if (p->resumes)
		moonrail_key_forget_unknown(p);
}
