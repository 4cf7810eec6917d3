/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receives: messages are matched with posted receives, and announced messages
 * are read.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_rma.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"

#define RECV_SHORT	(1u << 20)	/* largest announced message that counts
					 * as short, bytes */

/* A message that is being matched with a receive. */
struct recv_in {
	struct moonrail_peer *peer;
	const struct moonrail_wire *w;
	const uint8_t *payload;
	uint32_t len;
};

/* --- matching ------------------------------------------------------------ */

static bool recv_matches(const struct moonrail_op *op,
			 struct moonrail_peer *peer,
			 const struct moonrail_wire *w, bool tagged)
	TEI_REQUIRES(moonrail_held)
{
	if (op->from && (moonrail_peer_real(op->from) != peer ||
			 !moonrail_av_is(op->ep->av, peer, op->from_ep,
					 w->src_ep)))
		return false;
	return !tagged || !((op->tag ^ w->tag) & ~op->ignore);
}

bool moonrail_recv_too_soon(const struct moonrail_peer *p,
			    const struct moonrail_wire *w,
			    const struct moonrail_ep *ep)
{
	return !ep && w->dst_ep == MOONRAIL_EP_ANY && p->rail &&
	       !p->domain->next_ep;
}

static void recv_drop(struct moonrail_ep *ep, struct moonrail_unexpected *s)
	TEI_REQUIRES(moonrail_held)
{
	moonrail_flow_removed(ep, s->peer, s->excess);
	moonrail_peer_unuse(s->peer);
	free(s);
}

/* Drops an unexpected message without receiving it. send_fin: send a FIN if the
 * sender waits for it. */
static void recv_discard(struct moonrail_ep *ep, struct moonrail_unexpected *s,
			 bool send_fin) TEI_REQUIRES(moonrail_held)
{
	tei_list_del(&s->link);
	ep->unexpected_bytes -= sizeof(*s) + s->len;
	if (send_fin && (s->wire.op == MOONRAIL_WIRE_RTS ||
			 s->wire.flags & MOONRAIL_WIRE_WANT_FIN))
		moonrail_fin_add_and_send(s->peer, &s->wire, 0);
	recv_drop(ep, s);
	moonrail_flow_check_room(ep);
}

/* Returns the announced message of sender p with this id in the list, or NULL
 * if there is none. */
static struct moonrail_unexpected *
recv_find(struct tei_list *list, const struct moonrail_peer *p, uint64_t id)
{
	struct moonrail_unexpected *s;

	tei_list_foreach(s, list, struct moonrail_unexpected, link)
		if (s->peer == p && s->wire.id == id &&
		    s->wire.op == MOONRAIL_WIRE_RTS)
			return s;
	return NULL;
}

void moonrail_recv_withdraw(struct moonrail_peer *p, uint64_t id)
{
	struct moonrail_unexpected *s;
	struct moonrail_ep *ep;

	tei_list_foreach(ep, &p->domain->eps, struct moonrail_ep, link) {
		s = recv_find(&ep->unexpected[0], p, id);
		if (!s)
			s = recv_find(&ep->unexpected[1], p, id);
		if (!s)
			s = recv_find(&ep->claimed, p, id);
		if (!s)
			continue;
		recv_discard(ep, s, false);
		return;
	}
}

static uint64_t recv_scatter(const struct moonrail_op *op,
			     const uint8_t *from, uint64_t len)
{
	uint64_t done = 0, n;
	uint32_t i;

	for (i = 0; i < op->niov && done < len; i++) {
		n = op->iov[i].iov_len < len - done ? op->iov[i].iov_len :
						      len - done;
		if (n)
			memcpy(op->iov[i].iov_base, from + done, n);
		done += n;
	}
	return done;
}

/* Splits off the part of a multi-receive that a message of len bytes uses.
 * Returns NULL if memory is short. */
static struct moonrail_op *recv_part(struct moonrail_op *multi, uint64_t len)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *op = moonrail_op_new(multi->ep, &moonrail_recv_type,
						 multi->context);

	if (!op)
		return NULL;
	op->flags = multi->flags & ~FI_MULTI_RECV;
	op->unsignaled = multi->unsignaled;
	op->niov = 1;
	op->iov[0] = multi->iov[0];
	op->multi = multi;
	multi->parts++;
	multi->ep->nrx++;
	if (len > multi->iov[0].iov_len)
		len = multi->iov[0].iov_len;
	op->iov[0].iov_len = len;
	op->total = len;
	multi->iov[0].iov_base = (char *)multi->iov[0].iov_base + len;
	multi->iov[0].iov_len -= len;
	multi->total -= len;
	return op;
}

/* Returns true if a multi-receive cannot take another message. */
static bool recv_used_up(const struct moonrail_op *multi)
{
	return !multi->total || multi->total < multi->ep->min_multi;
}

/* Completes a receive. The last part of a used-up multi-receive reports that
 * the buffer is free. If the multi-receive was cancelled, its last part
 * completes the cancellation instead. */
static void recv_finish(struct moonrail_op *op) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *multi = op->multi;
	bool last = multi && !--multi->parts &&
		    (multi->err || recv_used_up(multi));

	if (last && !multi->err) {
		op->flags |= FI_MULTI_RECV;
		op->unsignaled = false;
	}
	moonrail_op_done(op);
	if (!last)
		return;
	if (multi->err) {		/* cancelled while parts were under
					 * way */
		moonrail_op_done(multi);
		return;
	}
	multi->ep->nrx--;
	moonrail_op_free(multi);
}

/*
 * Handles the end of an announced message. Sending and receiving one FIN per
 * message would take a considerable part of the time in which 64 KiB are moved.
 * So the FIN may wait and be combined with the FINs of the next messages. It
 * waits only while at least twice as many messages are being read, so that the
 * sender always has messages under way, and at most until the peer's timer
 * runs.
 */
static void recv_end(struct moonrail_op *op, bool may_wait)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_peer *p = op->peer;

	moonrail_fin_add(p, op->id, op->err);
	if (may_wait && p->fin.n && p->fin.n < MOONRAIL_FINS &&
	    p->ops.reading >= 2 * p->fin.n)
		moonrail_peer_soon(p);
	else
		moonrail_fin_send(p);
	recv_finish(op);
}

/* Returns true if the message is short. Only the FINs of short messages are
 * combined: for a long message, the cost of a separate FIN does not matter, and
 * the sender should not wait. */
static bool recv_is_short(const struct moonrail_op *op)
{
	return op->received + op->truncated <= RECV_SHORT;
}

static void recv_is_read(struct moonrail_op *op, bool is_short)
	TEI_REQUIRES(moonrail_held)
{
	if (!op->err && op->truncated)
		op->err = FI_ETRUNC;
	recv_end(op, is_short && !op->err);
}

static void recv_moved(struct moonrail_op *op) TEI_REQUIRES(moonrail_held)
{
	bool is_short = recv_is_short(op);

	op->peer->ops.reading -= is_short;
	if (!op->err && !moonrail_read_back_unneeded(op->peer, op->rts_ack))
		moonrail_read_back_send(op);
	else
		recv_is_read(op, is_short);
}

/* Handles the answer to a read-back check. If err is 0, the message was still
 * valid. */
static void recv_checked(struct moonrail_op *op, int err)
	TEI_REQUIRES(moonrail_held)
{
	op->ep->busy--;
	op->err = err;
	recv_is_read(op, false);
}

static void recv_restart(struct moonrail_op *op,
			 const struct moonrail_wire_range *at, uint32_t n)
	TEI_REQUIRES(moonrail_held)
{
	moonrail_move(op, at, n, true);
}

const struct moonrail_op_type moonrail_recv_type = {
	.kind = MOONRAIL_RECV,
	.moved = recv_moved,
	.restart = recv_restart,
	.answered = recv_checked,
};

static void recv_read(struct moonrail_op *op, const struct recv_in *in)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_wire_range at[MOONRAIL_IOV];
	uint32_t n = in->len / sizeof(at[0]), i;
	uint64_t far = 0;

	if (n > MOONRAIL_IOV)
		n = MOONRAIL_IOV;
	memcpy(at, in->payload, n * sizeof(at[0]));
	for (i = 0; i < n; i++) {
		at[i].addr = le64toh(at[i].addr);
		at[i].len = le64toh(at[i].len);
		far += at[i].len;
	}
	op->id = in->w->id;
	op->rts_ack = in->w->ack;
	if (far != in->w->len) {
		op->err = FI_EIO;
		recv_end(op, false);
		return;
	}
	op->received = in->w->len - op->truncated;
	in->peer->ops.reading += recv_is_short(op);
	moonrail_move(op, at, n, true);
}

/* Starts to receive a message with the receive op, which is in no list. */
static void recv_take(struct moonrail_op *op, const struct recv_in *in,
		      bool tagged) TEI_REQUIRES(moonrail_held)
{
	const struct moonrail_wire *w = in->w;

	moonrail_op_with(op, in->peer);
	op->src_ep = w->src_ep;
	if (tagged)
		op->tag = w->tag;
	if (w->flags & MOONRAIL_WIRE_HAS_DATA) {
		op->flags |= FI_REMOTE_CQ_DATA;
		op->data = w->data;
	}
	if (w->len > op->total)
		op->truncated = w->len - op->total;
	if (w->op == MOONRAIL_WIRE_RTS) {
		recv_read(op, in);
		return;
	}
	if (op->truncated)
		op->err = FI_ETRUNC;
	op->received = recv_scatter(op, in->payload, in->len);
	if (w->flags & MOONRAIL_WIRE_WANT_FIN)
		moonrail_fin_add_and_send(in->peer, w, 0);
	recv_finish(op);
}

/* Receives a message with the posted receive op, or with a part of it if op is
 * a multi-receive. Returns false if memory is short. */
static bool recv_give(struct moonrail_op *op, const struct recv_in *in,
		      bool tagged) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *multi = op;

	if (!(op->flags & FI_MULTI_RECV)) {
		tei_list_del(&op->link);
		recv_take(op, in, tagged);
		return true;
	}
	op = recv_part(multi, in->w->len);
	if (!op)
		return false;
	if (recv_used_up(multi))
		tei_list_del(&multi->link);
	recv_take(op, in, tagged);
	return true;
}

/* Keeps an unexpected message. Returns false if memory is short or the endpoint
 * cannot accept the message. */
static bool recv_keep(struct moonrail_ep *ep, const struct recv_in *in,
		      bool tagged) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_unexpected *s = malloc(sizeof(*s) + in->len);

	if (!s)
		return false;
	s->excess = 0;
	if (ep->unexpected_bytes + sizeof(*s) + in->len >
	    MOONRAIL_UNEXPECTED_MAX) {
		s->excess = moonrail_flow_admit_excess(ep, in->peer);
		if (!s->excess) {
			free(s);
			return false;
		}
	}
	s->peer = in->peer;
	moonrail_peer_use(s->peer);
	s->wire = *in->w;
	s->len = in->len;
	if (in->len)
		memcpy(s->bytes, in->payload, in->len);
	ep->unexpected_bytes += sizeof(*s) + in->len;
	tei_list_add_tail(&ep->unexpected[tagged], &s->link);
	return true;
}

static bool recv_message(const struct recv_in *in) TEI_REQUIRES(moonrail_held)
{
	bool tagged = in->w->flags & MOONRAIL_WIRE_TAGGED;
	struct moonrail_ep *ep =
		moonrail_ep_find(in->peer->domain, in->w->dst_ep);
	struct moonrail_op *op;

	if (moonrail_recv_too_soon(in->peer, in->w, ep))
		return false;
	if (!ep || ep->closing) {
		moonrail_fin_no_endpoint(in->peer, in->w);
		return true;
	}
	if (in->len > MOONRAIL_EAGER ||
	    (in->w->op == MOONRAIL_WIRE_DATA && in->len != in->w->len)) {
		moonrail_fin_refuse(in->peer, in->w);
		return true;
	}
	tei_list_foreach(op, &ep->recvs[tagged], struct moonrail_op, link)
		if (recv_matches(op, in->peer, in->w, tagged))
			return recv_give(op, in, tagged);
	return recv_keep(ep, in, tagged);
}

bool moonrail_recv_message(struct moonrail_peer *p,
			   const struct moonrail_wire *w,
			   const uint8_t *payload, uint32_t len)
{
	struct recv_in in = {
		.peer = p, .w = w, .payload = payload, .len = len,
	};

	return recv_message(&in);
}

/* --- posting ------------------------------------------------------------- */

/* Returns the first unexpected message that matches the receive, or NULL. */
static struct moonrail_unexpected *recv_first(struct moonrail_op *op,
					      bool tagged)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_unexpected *s;

	tei_list_foreach(s, &op->ep->unexpected[tagged],
			  struct moonrail_unexpected, link)
		if (recv_matches(op, s->peer, &s->wire, tagged))
			return s;
	return NULL;
}

/* Removes an unexpected message s from its list and describes it in *in. The
 * caller then owns s. */
static void recv_unqueue(struct moonrail_ep *ep, struct moonrail_unexpected *s,
			 struct recv_in *in) TEI_REQUIRES(moonrail_held)
{
	tei_list_del(&s->link);
	ep->unexpected_bytes -= sizeof(*s) + s->len;
	in->peer = s->peer;
	in->w = &s->wire;
	in->payload = s->bytes;
	in->len = s->len;
}

/* Matches a posted receive with unexpected messages: one, or several if it is a
 * multi-receive. */
static void recv_feed(struct moonrail_op *op, bool tagged)
	TEI_REQUIRES(moonrail_held)
{
	bool multi = op->flags & FI_MULTI_RECV;
	struct moonrail_ep *ep = op->ep;
	struct moonrail_unexpected *s;
	struct recv_in in;

	do {
		s = recv_first(op, tagged);
		if (!s)
			break;
		recv_unqueue(ep, s, &in);
		/* a multi-receive whose buffer is not used up can take the next
		 * message too */
		multi = multi && op->total > s->wire.len &&
			op->total - s->wire.len >= ep->min_multi;
		if (!recv_give(op, &in, tagged)) {
			ep->unexpected_bytes += sizeof(*s) + s->len;
			tei_list_add_head(&ep->unexpected[tagged], &s->link);
			break;
		}
		recv_drop(ep, s);
	} while (multi);
	moonrail_flow_check_room(ep);
}

void moonrail_recv_post(struct moonrail_op *op, bool tagged)
{
	tei_list_add_tail(&op->ep->recvs[tagged], &op->link);
	recv_feed(op, tagged);
}

void moonrail_recv_identified(struct moonrail_peer *p)
{
	struct moonrail_op *op, *tmp;
	struct moonrail_ep *ep;
	int i;

	tei_list_foreach(ep, &p->domain->eps, struct moonrail_ep, link)
		for (i = 0; i < 2; i++)
			tei_list_foreach_safe(op, tmp, &ep->recvs[i],
					      struct moonrail_op, link)
				if (op->from &&
				    moonrail_peer_real(op->from) == p)
					recv_feed(op, i);
}

/* --- FI_PEEK, FI_CLAIM and FI_DISCARD ------------------------------------ */

static void recv_describe(struct moonrail_op *op,
			  const struct moonrail_unexpected *s)
	TEI_REQUIRES(moonrail_held)
{
	moonrail_op_with(op, s->peer);
	op->src_ep = s->wire.src_ep;
	op->tag = s->wire.tag;
	op->data = s->wire.data;
	op->received = s->wire.len;
	if (s->wire.flags & MOONRAIL_WIRE_HAS_DATA)
		op->flags |= FI_REMOTE_CQ_DATA;
}

/* Completes a peek that has found a message. Then keeps, claims or discards the
 * message, as flags request. */
static void recv_found(struct moonrail_op *op, struct moonrail_unexpected *s,
		       uint64_t flags) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_ep *ep = op->ep;

	recv_describe(op, s);
	if (flags & FI_CLAIM) {
		tei_list_del(&s->link);
		tei_list_add_tail(&ep->claimed, &s->link);
		((struct fi_context *)op->context)->internal[0] = s;
	} else if (flags & FI_DISCARD) {
		recv_discard(ep, s, true);
	}
	moonrail_op_done(op);
}

static struct moonrail_unexpected *
recv_claimed(struct moonrail_ep *ep, const struct fi_context *context)
{
	struct moonrail_unexpected *s;

	tei_list_foreach(s, &ep->claimed, struct moonrail_unexpected, link)
		if (context && context->internal[0] == s)
			return s;
	return NULL;
}

int moonrail_recv_peek(struct moonrail_op *op, bool tagged, uint64_t flags)
{
	struct moonrail_ep *ep = op->ep;
	struct moonrail_unexpected *s;
	struct recv_in in;

	op->peek = flags & (FI_PEEK | FI_DISCARD);
	/* a peek always has a completion, because this is its only result */
	op->unsignaled = op->unsignaled && !op->peek;
	if (!(flags & (FI_PEEK | FI_CLAIM)) ||
	    (flags & FI_CLAIM && !op->context))
		return -FI_EINVAL;
	if (flags & FI_PEEK) {
		s = recv_first(op, tagged);
		if (s) {
			recv_found(op, s, flags);
			return 0;
		}
		op->err = FI_ENOMSG;
		moonrail_op_done(op);
		return 0;
	}
	s = recv_claimed(ep, op->context);
	if (!s)
		return -FI_EINVAL;
	if (flags & FI_DISCARD) {
		recv_describe(op, s);
		recv_discard(ep, s, true);
		moonrail_op_done(op);
		return 0;
	}
	recv_unqueue(ep, s, &in);
	recv_take(op, &in, tagged);
	recv_drop(ep, s);
	moonrail_flow_check_room(ep);
	return 0;
}

int moonrail_recv_cancel(struct moonrail_ep *ep, void *context)
{
	struct moonrail_op *op;
	int i;

	for (i = 0; i < 2; i++) {
		tei_list_foreach(op, &ep->recvs[i], struct moonrail_op, link) {
			if (op->context != context)
				continue;
			tei_list_del(&op->link);
			op->err = FI_ECANCELED;
			/* if parts of a multi-receive are under way, the last
			 * one of them completes it */
			if (!op->parts)
				moonrail_op_done(op);
			return 0;
		}
	}
	return -FI_ENOENT;
}

void moonrail_recv_free_all(struct moonrail_ep *ep)
{
	struct moonrail_unexpected *s, *stmp;
	struct moonrail_op *op, *tmp;
	int i;

	tei_list_splice_tail(&ep->unexpected[0], &ep->claimed);
	for (i = 0; i < 2; i++) {
		tei_list_foreach_safe(op, tmp, &ep->recvs[i],
				      struct moonrail_op, link) {
			tei_list_del(&op->link);
			moonrail_op_free(op);
		}
		tei_list_foreach_safe(s, stmp, &ep->unexpected[i],
				       struct moonrail_unexpected, link) {
			moonrail_fin_refuse(s->peer, &s->wire);
			recv_drop(ep, s);
		}
		tei_list_init(&ep->unexpected[i]);
	}
	ep->unexpected_bytes = 0;
	moonrail_flow_check_room(ep);
}
