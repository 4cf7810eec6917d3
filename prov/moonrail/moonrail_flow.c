/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow control for backpressured endpoints: endpoints whose unexpected messages
 * have reached the limit MOONRAIL_UNEXPECTED_MAX.
 *
 * The receiver: messages that the stream has delivered are still accepted, up
 * to two windows of each sender. So later messages of the stream can arrive:
 * answers, and messages to other endpoints. Each ACK (moonrail_wire.h) has the
 * list of the backpressured endpoints. The list has a version number, because
 * ACKs may be lost or reordered.
 *
 * The sender blocks messages for the endpoints of the list. Blocked messages
 * keep their order and have no number in the stream. They are queued when a
 * list arrives without their endpoint. The receiver removes an endpoint from a
 * sender's list when the endpoint is below the limit again, or when receives
 * have taken all excess messages of this sender: the next posted receive may be
 * for this sender, while messages of another sender fill the endpoint. While a
 * sender has blocked messages, it sends PINGs to obtain a new list.
 *
 * Senders of the same domain have no stream. If the endpoint is above the limit
 * and has also accepted MOONRAIL_EXCESS_MAX excess messages of the domain,
 * their calls return -FI_EAGAIN.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/channel.h"
#include "util/list.h"

#define FLOW_LIST_MAX	1024u		/* largest number of endpoints in one
					 * list */

static struct moonrail_backpressured *
flow_find(struct moonrail_backpressured *f, uint32_t n, uint32_t ep)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (f[i].ep == ep)
			return &f[i];
	return NULL;
}

/* --- the sender ---------------------------------------------------------- */

static struct moonrail_backpressured *
flow_find_remote(const struct moonrail_peer *p, uint32_t ep)
{
	return flow_find(p->flow.remote, p->flow.nremote, ep);
}

bool moonrail_flow_block(struct moonrail_peer *p, struct moonrail_out *o)
{
	struct moonrail_backpressured *f = flow_find_remote(p, o->wire.dst_ep);

	if (!f || !moonrail_flow_counts(o->wire.op))
		return false;
	f->n++;
	p->flow.nblocked++;
	tei_list_add_tail(&p->flow.blocked, &o->link);
	return true;
}

uint32_t moonrail_flow_waiting(const struct moonrail_peer *p, uint32_t ep)
{
	const struct moonrail_backpressured *f = flow_find_remote(p, ep);

	uint64_t queued = tei_channel_out_unsent(&p->out.channel);

	return f && f->n > queued ? f->n : (uint32_t)queued;
}

void moonrail_flow_dropped(struct moonrail_peer *p)
{
	uint32_t i;

	for (i = 0; i < p->flow.nremote; i++)
		p->flow.remote[i].n = 0;
	p->flow.nblocked = 0;
}

/* Queues the blocked messages whose endpoint is no longer in the peer's list of
 * backpressured endpoints. */
static void flow_release(struct moonrail_peer *p) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o, *tmp;

	tei_list_foreach_safe(o, tmp, &p->flow.blocked, struct moonrail_out,
			       link) {
		if (flow_find_remote(p, o->wire.dst_ep))
			continue;
		tei_list_del(&o->link);
		p->flow.nblocked--;
		moonrail_out_queue(p, o);
	}
}

/* Blocks the queued messages whose endpoint is in the peer's list of
 * backpressured endpoints, and gives the other queued messages new numbers. */
static void flow_unqueue(struct moonrail_peer *p) TEI_REQUIRES(moonrail_held)
{
	uint64_t first = p->out.channel.sent, key = p->out.key_seq;
	struct tei_list queue;
	struct moonrail_out *o;

	if (p->out.posted_seq >= first)	/* messages with numbers below "first"
					 * were sent and keep their numbers */
		p->out.posted_seq = first - 1;
	p->out.requested_seq = 0;
	tei_channel_out_recall(&p->out.channel);
	tei_list_init(&queue);
	tei_list_splice_tail(&queue, &p->out.queue);
	while (!tei_list_empty(&queue)) {
		o = tei_list_first(&queue, struct moonrail_out, link);
		tei_list_del(&o->link);
		if (moonrail_flow_block(p, o))
			continue;
		if (o->wire.seq == key)
			p->out.key_seq = p->out.channel.next;
		moonrail_out_queue(p, o);
	}
}

bool moonrail_flow_receive(struct moonrail_peer *p,
			   const struct moonrail_wire *w,
			   const uint8_t *payload, uint32_t len)
{
	uint32_t n = w->n, i, ep;
	struct moonrail_backpressured *full = NULL, *f;

	if (w->id <= p->flow.remote_version || n > FLOW_LIST_MAX ||
	    len / sizeof(ep) < n)
		return false;
	if (n)
		full = calloc(n, sizeof(*full));
	if (n && !full)			/* the list is lost, but the next ACK
					 * repeats it */
		return false;
	for (i = 0; i < n; i++) {
		memcpy(&ep, payload + i * sizeof(ep), sizeof(ep));
		full[i].ep = le32toh(ep);
		f = flow_find_remote(p, full[i].ep);
		full[i].n = f ? f->n : 0;
	}
	free(p->flow.remote);
	p->flow.remote = full;
	p->flow.nremote = n;
	p->flow.remote_version = w->id;
	flow_release(p);
	if (n)
		flow_unqueue(p);
	return true;
}

/* --- the receiver -------------------------------------------------------- */

struct moonrail_out *moonrail_flow_ack(struct moonrail_peer *p)
{
	struct moonrail_ep *any = moonrail_ep_find(p->domain, MOONRAIL_EP_ANY);
	uint32_t n = p->flow.nlocal < FLOW_LIST_MAX ? p->flow.nlocal :
						  FLOW_LIST_MAX - 1, i;
	bool oldest = any && flow_find(p->flow.local, n, any->id);
	struct moonrail_out *o;
	uint32_t ep;

	o = moonrail_out_new(MOONRAIL_WIRE_ACK, (n + oldest) * 4);
	if (!o)
		return NULL;
	o->wire.id = p->flow.local_version;
	o->wire.n = n + oldest;
	for (i = 0; i < n + oldest; i++) {
		/* an address without an endpoint number stands for the oldest
		 * endpoint */
		ep = htole32(i < n ? p->flow.local[i].ep : MOONRAIL_EP_ANY);
		memcpy(moonrail_out_payload(o) + i * 4, &ep, 4);
	}
	return o;
}

bool moonrail_flow_refuses(const struct moonrail_peer *p, uint32_t ep)
{
	const struct moonrail_ep *e = p->rail ? NULL :
				      moonrail_ep_find(p->domain, ep);
	const struct moonrail_backpressured *f =
		e ? flow_find(p->flow.local, p->flow.nlocal, e->id) : NULL;

	return f && f->n == MOONRAIL_EXCESS_MAX &&
	       e->unexpected_bytes > MOONRAIL_UNEXPECTED_MAX;
}

uint64_t moonrail_flow_admit_excess(struct moonrail_ep *ep,
				    struct moonrail_peer *p)
{
	struct moonrail_backpressured *f =
		flow_find(p->flow.local, p->flow.nlocal, ep->id);
	struct moonrail_backpressured *grown;

	if (!f) {
		grown = realloc(p->flow.local,
				(p->flow.nlocal + 1) * sizeof(*grown));
		if (!grown)
			return 0;
		p->flow.local = grown;
		f = &grown[p->flow.nlocal++];
		f->ep = ep->id;
		f->n = 0;
		f->since = ++p->flow.local_version;
		ep->backpressured_peers++;
	}
	if (p->rail)			/* send an ACK at once */
		p->in.unacked = MOONRAIL_ACK_EVERY;
	if (f->n == MOONRAIL_EXCESS_MAX)
		return 0;
	f->n++;
	return f->since;
}

static void flow_unlist(struct moonrail_peer *p, uint32_t ep)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_backpressured *f =
		flow_find(p->flow.local, p->flow.nlocal, ep);

	if (!f)
		return;
	*f = p->flow.local[--p->flow.nlocal];
	p->flow.local_version++;
	if (p->rail && !p->silent)
		moonrail_stream_ack(p);
}

void moonrail_flow_removed(struct moonrail_ep *ep, struct moonrail_peer *p,
			   uint64_t excess)
{
	struct moonrail_backpressured *f =
		flow_find(p->flow.local, p->flow.nlocal, ep->id);

	if (!excess || !f || f->since != excess || --f->n)
		return;
	ep->backpressured_peers--;
	flow_unlist(p, ep->id);
}

void moonrail_flow_closed(struct moonrail_domain *d)
{
	struct moonrail_peer *p;

	tei_list_foreach(p, &d->peers, struct moonrail_peer, link)
		p->flow.local_version += p->flow.nlocal != 0;
}

void moonrail_flow_check_room(struct moonrail_ep *ep)
{
	struct moonrail_peer *p;

	if (!ep->backpressured_peers ||
	    ep->unexpected_bytes > MOONRAIL_UNEXPECTED_MAX / 2)
		return;
	ep->backpressured_peers = 0;
	tei_list_foreach(p, &ep->domain->peers, struct moonrail_peer, link)
		flow_unlist(p, ep->id);
}
