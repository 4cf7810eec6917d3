/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The two streams of messages between this domain and each peer.
 *
 * A stream is a channel (util/channel.h). A message gets its number when it is
 * queued, and is kept until the peer acknowledges it. If nothing has been
 * received for a while, a PING requests an ACK. Messages that were sent before
 * the PING and that the ACK does not acknowledge are sent again. So a message
 * may be sent several times, but the receiver handles it once. If the receiver
 * cannot accept a message now, it drops the message without acknowledging it,
 * and the sender repeats it.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_policy.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/channel.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"

#define STREAM_LOST_TRIES	3	/* after this number of PINGs without
					 * progress, unacknowledged messages
					 * count as lost; with fewer PINGs, they
					 * count as late */

/* --- sending -------------------------------------------------------------- */

/* Posts a message once. reverse: the message may use the reverse path, a
 * connection that the peer has made. The reverse path is not used while sends
 * wait for a FIN: the peer may read the bytes of their announced messages over
 * this connection, and the message would wait behind these bytes. */
static int stream_post(struct moonrail_peer *p, struct moonrail_out *o,
		       bool reverse) TEI_REQUIRES(moonrail_held)
{
	uint32_t rail = moonrail_policy_rail(p, o->wire.src_ep, o->policy);
	struct moonrail_wire w = o->wire;
	int ret;

	w.ack = p->in.channel.expected;
	moonrail_wire_swap(&w);
	memcpy(o->buf + TEI_RAIL_MESSAGE_HEAD, &w, sizeof(w));
	if (rail)
		p->out.rail = rail - 1;
	ret = tei_rail_send(p->rail, o->buf, o->len,
			    reverse && tei_list_empty(&p->ops.waiting),
			    &p->out.rail);
	if (!ret)
		p->in.unacked = 0;
	return ret;
}

void moonrail_stream_post_loose(struct moonrail_peer *p,
				enum moonrail_wire_op op, uint16_t flags,
				bool reverse)
{
	struct moonrail_out *o = op == MOONRAIL_WIRE_ACK ?
		moonrail_flow_ack(p) : moonrail_out_new(op, 0);

	if (!o)
		return;
	o->wire.flags = flags;
	stream_post(p, o, reverse);
	free(o);
}

void moonrail_stream_ack(struct moonrail_peer *p)
{
	moonrail_stream_post_loose(p, MOONRAIL_WIRE_ACK, 0, true);
}

void moonrail_stream_flush(struct moonrail_peer *p)
{
	struct moonrail_out *o;
	int ret = 0;

	while (!tei_list_empty(&p->out.queue) &&
	       tei_channel_out_open(&p->out.channel, MOONRAIL_WINDOW)) {
		o = tei_list_first(&p->out.queue, struct moonrail_out, link);
		if (tei_channel_out_unacked(&p->out.channel) ==
		    MOONRAIL_WINDOW / 2)
			o->wire.flags |= MOONRAIL_WIRE_WANT_ACK;
		if (!p->contact.sent_seq)
			p->contact.sent_ns = tei_now_ns();
		ret = stream_post(p, o, true);
		if (ret)
			break;
		if (!p->contact.sent_seq)
			p->contact.sent_seq = o->wire.seq;
		tei_list_del(&o->link);
		tei_list_add_tail(&p->out.sent, &o->link);
		tei_channel_out_sent(&p->out.channel);
	}
	if (ret == -FI_EHOSTUNREACH)
		moonrail_peer_fail(p, FI_EHOSTUNREACH);
}

/* Passes a message of the stream to its handler. Returns false if the handler
 * cannot accept the message now or memory is short. */
static bool stream_deliver(struct moonrail_peer *p,
			   const struct moonrail_wire *w,
			   const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held)
{
	moonrail_message_fn handle = w->op < MOONRAIL_WIRE_OPS ?
					     p->domain->handlers[w->op] : NULL;

	return !handle || handle(p, w, payload, len);
}

static int stream_to_self(struct moonrail_peer *p, struct moonrail_out *o)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *op = o->op;
	bool taken = stream_deliver(p, &o->wire, moonrail_out_payload(o),
				    o->len - (uint32_t)MOONRAIL_HEAD);

	free(o);
	if (taken && op)
		moonrail_op_done(op);
	return taken ? 0 : -FI_EAGAIN;
}

/* Keeps an answer in the queue of a peer that has timed out. If too many are
 * queued, ends the streams, so that a peer that never returns does not hold
 * memory for ever. */
static void stream_keep_answer(struct moonrail_peer *p, struct moonrail_out *o)
	TEI_REQUIRES(moonrail_held)
{
	if (tei_channel_out_unsent(&p->out.channel) < 2 * MOONRAIL_QUEUE) {
		moonrail_out_queue(p, o);
		moonrail_stream_flush(p);
		if (p->resumes && !p->silent)
			moonrail_peer_start_timer(p);
		return;
	}
	p->resumes = false;
	moonrail_out_drop_all(p, p->err);
	free(o);
}

int moonrail_stream_send(struct moonrail_peer *p, struct moonrail_out *o)
{
	int err = p->err;

	if (!p->rail)
		return stream_to_self(p, o);
	if (err) {
		if (p->resumes && moonrail_out_is_answer(o->wire.op))
			stream_keep_answer(p, o);
		else
			moonrail_out_drop(o, err);
		return 0;
	}
	if (!moonrail_flow_block(p, o))
		moonrail_out_queue(p, o);
	if (p->incarnation)
		moonrail_stream_flush(p);
	if (!p->err)
		moonrail_peer_start_timer(p);
	return 0;
}

/* Requests an acknowledgement with an empty message at the end of the stream:
 * the acknowledgement of this message covers all earlier ones. Sends at most
 * one such request for each value of posted_seq. */
bool moonrail_stream_settled(struct moonrail_peer *p)
{
	struct moonrail_out *o;

	if (p->err || (!p->flow.nblocked &&
		       p->out.channel.acked > p->out.posted_seq))
		return true;
	if (p->flow.nblocked || p->out.requested_seq == p->out.posted_seq)
		return false;
	o = moonrail_out_new(MOONRAIL_WIRE_ACK, 0);
	if (!o)
		return false;
	o->wire.flags |= MOONRAIL_WIRE_WANT_ACK;
	p->out.requested_seq = p->out.posted_seq;
	moonrail_stream_send(p, o);
	return p->err;
}

/* --- receiving ------------------------------------------------------------ */

/* Handles an acknowledged number: the peer has received all messages with
 * numbers below ack. */
static void stream_acked(struct moonrail_peer *p, uint64_t ack)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *op;
	struct moonrail_out *o;

	if (!tei_channel_out_ack(&p->out.channel, ack))
		return;
	if (p->contact.sent_seq && ack > p->contact.sent_seq) {
		if (p->contact.sent_ns >
		    p->contact.proven_ns + MOONRAIL_CONTACT_NS)
			p->contact.first_seq = p->contact.sent_seq;
		p->contact.proven_ns = p->contact.sent_ns;
		p->contact.sent_seq = 0;
	}
	while (!tei_list_empty(&p->out.sent)) {
		o = tei_list_first(&p->out.sent, struct moonrail_out, link);
		if (o->wire.seq >= ack)
			break;
		tei_list_del(&o->link);
		op = o->op;
		free(o);
		if (op)
			moonrail_op_done(op);
	}
	p->timer.tries = 0;
	moonrail_stream_flush(p);
}

/* Handles the answer to a PING: repeats the messages that were sent before the
 * PING and that the peer does not have. */
static void stream_send_again(struct moonrail_peer *p, uint64_t ack)
	TEI_REQUIRES(moonrail_held)
{
	bool late = p->timer.tries >= STREAM_LOST_TRIES;
	struct moonrail_out *o;

	tei_list_foreach(o, &p->out.sent, struct moonrail_out, link) {
		if (o->wire.seq >= p->timer.ping_seq)
			return;
		if (o->wire.seq < ack)
			continue;
		if (late)
			tei_rail_no_reverse_path(p->rail);
		late = false;
		if (stream_post(p, o, false))
			return;
	}
}

static void stream_wire(const struct tei_rail_message *m,
			struct moonrail_wire *w)
{
	memcpy(w, m->data, sizeof(*w));
	moonrail_wire_swap(w);
}

/* Delivers the message with the expected number. Returns false if its handler
 * refuses it. */
static bool stream_take(struct moonrail_peer *p,
			const struct tei_rail_message *m)
	TEI_REQUIRES(moonrail_held)
{
	struct tei_rail_message *copy;
	struct moonrail_wire w;

	stream_wire(m, &w);
	if (!stream_deliver(p, &w, m->data + sizeof(w),
			    m->len - (uint32_t)sizeof(w)))
		return false;
	copy = tei_channel_in_delivered(&p->in.channel);
	if (copy && copy != m)
		tei_rail_message_free(copy);
	p->in.unacked +=
		w.flags & MOONRAIL_WIRE_WANT_ACK ? MOONRAIL_ACK_EVERY : 1;
	return true;
}

/* Delivers the out-of-order messages whose turn has come. */
static void stream_take_kept(struct moonrail_peer *p)
	TEI_REQUIRES(moonrail_held)
{
	struct tei_rail_message *m;

	while ((m = tei_channel_in_next(&p->in.channel)) && stream_take(p, m))
		tei_rail_message_free(m);
}

static void stream_handle(struct moonrail_peer *p,
			  const struct moonrail_wire *w,
			  struct tei_rail_message *m)
	TEI_REQUIRES(moonrail_held)
{
	enum tei_channel_arrival arrival;

	p->timer.silent_ns = 0;
	if (!w->seq && w->op == MOONRAIL_WIRE_ACK &&
	    moonrail_flow_receive(p, w, m->data + sizeof(*w),
				  m->len - (uint32_t)sizeof(*w)))
		moonrail_stream_flush(p);
	stream_acked(p, w->ack);
	if (!w->seq) {
		if (w->op == MOONRAIL_WIRE_PING)
			/* not over the reverse path, because that path may be
			 * the one that loses messages */
			moonrail_stream_post_loose(p, MOONRAIL_WIRE_ACK,
						   MOONRAIL_WIRE_ECHO, false);
		else if (w->flags & MOONRAIL_WIRE_ECHO)
			stream_send_again(p, w->ack);
		tei_rail_message_free(m);
		return;
	}
	arrival = tei_channel_in_check(&p->in.channel, w->seq);
	if (arrival == TEI_CHANNEL_EARLY) {
		if (!tei_channel_in_keep(&p->in.channel, w->seq, m))
			tei_rail_message_free(m);
		return;
	}
	if (arrival == TEI_CHANNEL_DELIVER && stream_take(p, m))
		stream_take_kept(p);
	tei_rail_message_free(m);
	if (p->in.unacked >= MOONRAIL_ACK_EVERY ||
	    w->flags & MOONRAIL_WIRE_WANT_ACK)
		moonrail_stream_post_loose(p, MOONRAIL_WIRE_ACK, 0, true);
}

void moonrail_stream_in(struct moonrail_domain *d, struct tei_rail_message *m)
{
	uint64_t inc = tei_rail_peer_incarnation(m->peer);
	struct moonrail_peer *p = moonrail_peer_find(d, inc);
	struct moonrail_wire w;

	if (m->len < sizeof(w))
		goto out_drop;
	stream_wire(m, &w);
	if (!p) {
		tei_rail_peer_hold(m->peer);
		p = moonrail_peer_new(d, inc, m->peer);
		/* run the timer of the peer, because the peer may have sent BYE
		 * in the meantime */
		tei_rail_attend(m->peer);
	}
	if (!p || !moonrail_peer_lives(p))
		goto out_drop;
	if (p->silent || tei_list_empty(&p->entries))
		moonrail_peer_resume(p);
	if (w.version != MOONRAIL_WIRE_VERSION) {
		TEI_ERROR("prov",
			  "peer: its provider protocol has version %u, this process has version %u; use the same release of moonrail in both",
			  w.version, MOONRAIL_WIRE_VERSION);
		moonrail_peer_fail(p, FI_ENOPROTOOPT);
		goto out_drop;
	}
	stream_handle(p, &w, m);
	return;
out_drop:
	tei_rail_message_free(m);
}
