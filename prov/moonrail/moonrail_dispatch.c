/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_rma.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/log.h"

/*
 * The events of the data plane: its callbacks, and the part of the provider
 * that handles each event.
 */

/* If another thread holds the domain's lock, dispatch_attend is called again
 * after this time. */
#define DISPATCH_BUSY_NS	(100 * TEI_NS_PER_US)

static void dispatch_message(void *arg, struct tei_rail_message *m)
{
	struct moonrail_domain *d = arg;

	if (d->closing) {
		tei_rail_message_free(m);
		return;
	}
	if (moonrail_try_enter(d)) {
		moonrail_drain(d);	/* handle earlier messages first */
		moonrail_stream_in(d, m);
		moonrail_leave(d);
		return;
	}
	moonrail_inbox_add_message(d, m);
}

static void dispatch_task_done(struct tei_rail_task *task, enum tei_rail_end end,
			       const struct tei_err *err)
{
	struct moonrail_task *t =
		tei_container_of(task, struct moonrail_task, task);
	struct moonrail_domain *d = t->op->ep->domain;

	if (end != TEI_RAIL_END_COMPLETED && err)
		TEI_WARN("prov", "%s of %llu bytes failed: %s",
			 task->read ? "a read" : "a write",
			 (unsigned long long)task->length, err->text);
	t->end = end;
	moonrail_inbox_add_task(d, t);
}

static uint64_t dispatch_attend(void *arg, struct tei_rail_peer *peer,
				uint64_t now)
{
	struct moonrail_domain *d = arg;
	uint64_t next;

	if (!moonrail_try_enter(d))
		return now + DISPATCH_BUSY_NS;
	moonrail_drain(d);
	/* read the clock after all messages were handled, so that "now" is not
	 * earlier than the time of the last message */
	next = moonrail_peer_run(d, peer, tei_now_ns());
	moonrail_leave(d);
	return next;
}

/* Drops a notification. Domains of the provider send none, but other peers
 * may. */
static void dispatch_notify(void *arg, struct tei_rail_notification *note)
{
	struct moonrail_domain *d = arg;

	tei_rail_notification_release(d->dp, 1, note->bytes);
	tei_rail_notification_free(note);
}

/* Ignores the request to resolve a peer, because this domain knows no other
 * contact addresses of the peer than the data plane does. */
static void dispatch_resolve(void *arg, struct tei_rail_peer *peer)
{
	(void)arg;
	tei_rail_peer_put(peer);
}

static void dispatch_rails_changed(void *arg)
{
	(void)arg;
}

const struct tei_rail_ops moonrail_rail_ops = {
	.task_done = dispatch_task_done,
	.notify = dispatch_notify,
	.resolve = dispatch_resolve,
	.rails_changed = dispatch_rails_changed,
	.message = dispatch_message,
	.attend = dispatch_attend,
};

const struct moonrail_inbox_ops moonrail_inbox_ops = {
	.message = moonrail_stream_in,
	.task_done = moonrail_task_done,
	.free_unused = moonrail_peer_sweep,
};

const moonrail_message_fn moonrail_message_handlers[MOONRAIL_WIRE_OPS] = {
	[MOONRAIL_WIRE_DATA] = moonrail_recv_message,
	[MOONRAIL_WIRE_RTS] = moonrail_recv_message,
	[MOONRAIL_WIRE_FIN] = moonrail_fin_handle,
	[MOONRAIL_WIRE_DONE] = moonrail_rma_done,
	[MOONRAIL_WIRE_KEY] = moonrail_mr_query,
	[MOONRAIL_WIRE_KEY_IS] = moonrail_rma_key,
	[MOONRAIL_WIRE_KEY_NOT] = moonrail_rma_key,
	[MOONRAIL_WIRE_ATOMIC] = moonrail_atomic_in,
	[MOONRAIL_WIRE_ATOMIC_REP] = moonrail_atomic_answer,
	[MOONRAIL_WIRE_STILL] = moonrail_read_back_query,
	[MOONRAIL_WIRE_STILL_IS] = moonrail_read_back_answer,
};
