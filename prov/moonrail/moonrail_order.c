/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "util/clock.h"

/*
 * Enforces the message orders that the data plane does not guarantee by itself.
 *
 * Messages and atomics to a process use one stream and are executed in its
 * order. Reads and writes are tasks of the data plane: several rails carry them
 * at the same time, outside the stream, so each may overtake any other. The
 * initiator enforces the orders that an endpoint was opened with: it refuses an
 * operation with -FI_EAGAIN while an operation that must not be overtaken is
 * under way to the same process. A write that has completed is in place at the
 * target, and a read that has completed has its bytes, even if rails failed
 * meanwhile.
 *
 * Operations are counted per process, for all endpoints of the domain together.
 * So operations may be refused without need, but no order is broken.
 */

/* Time for which a refused operation prevents operations of other classes from
 * starting; each new attempt of the operation restarts this time. */
#define ORDER_PREFER_NS	(100 * TEI_NS_PER_US)

/* Returns true if messages to the peer have no number yet or wait in the queue,
 * so that an atomic could overtake them. A blocked message gets its number only
 * when its endpoint is no longer backpressured. */
static bool order_unposted(const struct moonrail_peer *p)
{
	return p->flow.nblocked || !tei_list_empty(&p->out.queue);
}

/* Returns true if an operation of that class must wait for an operation that is
 * under way. */
static bool order_blocked(uint64_t order, struct moonrail_peer *p,
			  enum moonrail_class class) TEI_REQUIRES(moonrail_held)
{
	bool writes = p->ops.of_class[MOONRAIL_CLASS_WRITE];
	bool reads = p->ops.of_class[MOONRAIL_CLASS_READ];
	bool atomics = p->ops.of_class[MOONRAIL_CLASS_ATOMIC];

	switch (class) {
	case MOONRAIL_CLASS_SEND:
		return order & FI_ORDER_SAW && writes;
	case MOONRAIL_CLASS_READ:
		return (order & (FI_ORDER_RAW | FI_ORDER_RMA_RAW) && writes) ||
		       (order & (FI_ORDER_RAR | FI_ORDER_RMA_RAR) && reads) ||
		       (order & (FI_ORDER_RAW | FI_ORDER_RAR) && atomics) ||
		       (order & FI_ORDER_RAS && !moonrail_stream_settled(p));
	case MOONRAIL_CLASS_WRITE:
		return (order & (FI_ORDER_WAW | FI_ORDER_RMA_WAW) && writes) ||
		       (order & FI_ORDER_WAW && atomics) ||
		       (order & FI_ORDER_WAS && !moonrail_stream_settled(p));
	default:
		return (order & (FI_ORDER_WAW | FI_ORDER_RAW) && writes) ||
		       (order & FI_ORDER_RAR && reads) ||
		       (order & (FI_ORDER_WAS | FI_ORDER_RAS) &&
			order_unposted(p));
	}
}

bool moonrail_order_waits(const struct moonrail_ep *ep, struct moonrail_peer *p,
			  enum moonrail_class class)
{
	uint64_t now;

	if (!ep->order || p->err)
		return false;
	now = tei_now_ns();
	/* without this check, other threads could post further operations for
	 * ever, and the refused operation would wait for all of them */
	if (class != p->ops.preferred_class && now < p->ops.preferred_ns)
		return true;
	if (order_blocked(ep->order, p, class)) {
		p->ops.preferred_class = class;
		p->ops.preferred_ns = now + ORDER_PREFER_NS;
		return true;
	}
	p->ops.preferred_ns = 0;
	return false;
}
