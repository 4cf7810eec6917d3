/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers, and the stream of messages to and from each.
 *
 * A message is numbered when it is queued, kept until the peer says that it
 * waits for a later one, and sent again when a PING, which goes out where
 * nothing has been heard for a while, is answered by "I still wait for it".
 * So a message may be sent several times and is taken once. Where the receiver
 * has no room it does not take it, and it comes again.
 *
 * A time-out ends the operations with a peer, but not the streams: it may have
 * been stopped, and go on. Of what was sent and not acknowledged the numbers
 * stay, with messages under them that nobody does anything with, so that the
 * peer takes what reached it before it was stopped or nothing, and never what is
 * sent again. Answers stay too, since the peer may wait for them, and what it
 * sends is taken. But operations with it fail, so that whoever has sent what was
 * lost gets to know, until it is inserted into an address vector after all its
 * addresses were removed; or, where no address vector has it, until it says
 * something. One that is looked for likewise: what was to be sent to it goes, and
 * its streams begin when it is found after all, so that it is received from; but
 * its address works when that is inserted anew.
 *
 * What times out is given up by its sender alone: who goes on after it was silent
 * may still read a message that was announced before, when its bytes are others. So
 * whoever has read one asks whether it still waited, unless the sender cannot have
 * given up since it announced that: it has heard of him all the time, up to so short
 * a time before. Whoever gives one up for another reason than silence tells its owner
 * when that time is over.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_int.h"

#define PEER_PING_NS	(5 * TEI_NS_PER_MS)	/* doubles, up to: */
#define PEER_PING_MAX	(200 * TEI_NS_PER_MS)
#define PEER_LOST_NS	(8 * PEER_PING_NS)	/* it is not just on its way */
#define PEER_LATE_NS	(1000 * TEI_NS_PER_MS)	/* this process stood still */
#define PEER_SURE_NS	(750 * TEI_NS_PER_MS)	/* no MC_SLICE_TIMEOUT
						 * is as short */
#define PEER_UNSURE_NS	(1000 * TEI_NS_PER_MS)	/* and the read's end */
#define PEER_LAST_NS	(20 * TEI_NS_PER_MS)	/* for last words */
#define PEER_EARLY_MAX	(2 * MOONRAIL_WINDOW)

struct moonrail_peer *moonrail_peer_real(struct moonrail_peer *p)
{
	while (p->same)
		p = p->same;
	return p;
}

/* --- who is needed ------------------------------------------------------- */

/* It may be that nobody needs it any more. */
static void peer_look_at(struct moonrail_peer *p) TEI_REQUIRES(moonrail_held)
{
	if (tei_list_empty(&p->idle_link))
		tei_list_add_tail(&p->domain->idle, &p->idle_link);
}

void moonrail_peer_use(struct moonrail_peer *p)
{
	p->uses++;
}

void moonrail_peer_unuse(struct moonrail_peer *p)
{
	if (!--p->uses)
		peer_look_at(p);
}

/*
 * Nobody refers to it, and nothing of its streams need be remembered: they have
 * ended, or never begun. One that lives may go on where they are.
 */
static bool peer_needless(const struct moonrail_peer *p)
	TEI_REQUIRES(moonrail_held)
{
	if (p->uses || !p->rail)
		return false;
	if (p->same)
		return true;
	if (!p->incarnation)
		return tei_list_empty(&p->queue);
	if (p->err)
		return tei_rail_peer_gone(p->rail);
	return p->next_seq == 1 && p->expected == 1 && !p->nearly;
}

/* --- the end of one ------------------------------------------------------ */

static void peer_end_op(struct moonrail_op *op, int err)
	TEI_REQUIRES(moonrail_held)
{
	op->err = err;
	moonrail_op_done(op);
}

static void peer_end_outs(struct tei_list *l, int err)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o;

	while (!tei_list_empty(l)) {
		o = tei_list_first(l, struct moonrail_out, link);
		tei_list_del(&o->link);
		if (o->op)
			peer_end_op(o->op, err);
		free(o);
	}
}

/* What an operation of ours does to the peer; not answers to its own, which
 * may come for ever. */
static bool peer_is_posted(uint8_t op)
{
	return op == MOONRAIL_WIRE_DATA || op == MOONRAIL_WIRE_RTS ||
	       op == MOONRAIL_WIRE_ATOMIC || op == MOONRAIL_WIRE_DONE;
}

/* What the peer may wait for, or what its messages lead to. */
static bool peer_is_answer(uint8_t op)
{
	return op == MOONRAIL_WIRE_FIN || op == MOONRAIL_WIRE_KEY_IS ||
	       op == MOONRAIL_WIRE_KEY_NOT || op == MOONRAIL_WIRE_ATOMIC_REP ||
	       op == MOONRAIL_WIRE_STILL || op == MOONRAIL_WIRE_STILL_IS;
}

/* In place of o, which has a number: one that says nothing. */
static void peer_empty_out(struct moonrail_out *o)
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

/* Ends what operations of ours have in it, and keeps the rest. */
static void peer_empty_outs(struct tei_list *l, int err)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o, *tmp;
	struct moonrail_op *op;

	tei_list_foreach_safe(o, tmp, l, struct moonrail_out, link) {
		if (peer_is_answer(o->wire.op))
			continue;
		op = o->op;
		peer_empty_out(o);
		if (op)
			peer_end_op(op, err);
	}
}

/* They have been asked for, and are not any more. */
static void peer_forget_keys(struct moonrail_peer *p)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_key *k, *tmp;

	tei_list_foreach_safe(k, tmp, &p->keys, struct moonrail_key, link)
		if (!k->known)
			moonrail_rma_drop_key(k);
}

static void peer_drop_outs(struct moonrail_peer *p, int err)
	TEI_REQUIRES(moonrail_held)
{
	peer_end_outs(&p->queue, err);
	peer_end_outs(&p->sent, err);
	p->nqueue = p->nsent = p->nends = 0;
	p->mark_seq = 0;
}

/* Nothing of it has gone out: the numbers are given anew. */
static void peer_unbegin(struct moonrail_peer *p, int err)
	TEI_REQUIRES(moonrail_held)
{
	peer_drop_outs(p, err);
	p->next_seq = 1;
	p->posted_seq = p->asked_seq = p->key_seq = 0;
}

static void peer_end_waiting(struct moonrail_peer *p)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *op;

	p->unsure_ns = 0;
	while (!tei_list_empty(&p->waiting)) {
		op = tei_list_first(&p->waiting, struct moonrail_op, link);
		tei_list_del(&op->link);
		peer_end_op(op, p->err);
	}
}

/* It may be reading what was announced to it, sure that this still waits: but
 * for one who has left, or was silent for longer than that. */
static bool peer_is_unsure(const struct moonrail_peer *p, int err)
{
	return !tei_list_empty(&p->waiting) && p->rail &&
	       err != FI_ETIMEDOUT && err != FI_ECONNRESET;
}

void moonrail_peer_fail(struct moonrail_peer *p, int err)
{
	struct moonrail_op *op;

	/* where its streams have been dropped they do not go on */
	p->resumes = err == FI_ETIMEDOUT && !p->same &&
		     (!p->err || p->resumes);
	p->err = err;
	p->silent = true;
	if (!p->resumes) {
		peer_drop_outs(p, err);
	} else if (!p->incarnation) {
		peer_unbegin(p, err);
	} else {
		peer_empty_outs(&p->queue, err);
		peer_empty_outs(&p->sent, err);
	}
	peer_end_outs(&p->parked, err);
	moonrail_flow_dropped(p);
	if (peer_is_unsure(p, err)) {
		p->unsure_ns = tei_now_ns() + PEER_UNSURE_NS;
		tei_rail_attend(p->rail);
	} else {
		peer_end_waiting(p);
	}
	while (!tei_list_empty(&p->unsure)) {
		op = tei_list_first(&p->unsure, struct moonrail_op, link);
		tei_list_del(&op->link);
		moonrail_recv_sure(op, err);
	}
	moonrail_rma_fail(p, err);
	peer_look_at(p);
	if (p->resumes)
		peer_forget_keys(p);
}

/* --- sending ------------------------------------------------------------- */

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

/* back: it may go by a connection that the peer made, but for what stands there
 * behind bytes that are being read. */
static int peer_post(struct moonrail_peer *p, struct moonrail_out *o, bool back)
	TEI_REQUIRES(moonrail_held)
{
	uint32_t rail = moonrail_policy_rail(p, o->wire.src_ep, o->policy);
	struct moonrail_wire w = o->wire;
	int ret;

	w.ack = p->expected;
	moonrail_wire_turn(&w);
	memcpy(o->buf + TEI_RAIL_MESSAGE_HEAD, &w, sizeof(w));
	if (rail)
		p->prefer = rail - 1;
	ret = tei_rail_send(p->rail, o->buf, o->len,
			    back && tei_list_empty(&p->waiting), &p->prefer);
	if (!ret)
		p->unacked = 0;
	return ret;
}

/* One that is of no stream; that it may be lost is its nature. */
static void peer_post_loose(struct moonrail_peer *p, enum moonrail_wire_op op,
			    uint16_t flags, bool back)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o = op == MOONRAIL_WIRE_ACK ?
		moonrail_flow_ack(p) : moonrail_out_new(op, 0);

	if (!o)
		return;
	o->wire.flags = flags;
	peer_post(p, o, back);
	free(o);
}

void moonrail_peer_tell(struct moonrail_peer *p)
{
	peer_post_loose(p, MOONRAIL_WIRE_ACK, 0, true);
}

/* Sends what the window allows, as long as the rails take it. */
static void peer_flush(struct moonrail_peer *p) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o;
	int ret = 0;

	while (!tei_list_empty(&p->queue) && p->nsent < MOONRAIL_WINDOW) {
		o = tei_list_first(&p->queue, struct moonrail_out, link);
		if (p->nsent == MOONRAIL_WINDOW / 2)
			o->wire.flags |= MOONRAIL_WIRE_WANT_ACK;
		if (!p->mark_seq)
			p->mark_ns = tei_now_ns();
		ret = peer_post(p, o, true);
		if (ret)
			break;
		if (!p->mark_seq)
			p->mark_seq = o->wire.seq;
		tei_list_del(&o->link);
		tei_list_add_tail(&p->sent, &o->link);
		p->nqueue--;
		p->nsent++;
	}
	if (ret == -FI_EHOSTUNREACH)
		moonrail_peer_fail(p, FI_EHOSTUNREACH);
}

/*
 * The thread comes once somebody may have to be asked what he has got. It is
 * woken for that when traffic begins, and then looks by itself.
 */
static void peer_start_timer(struct moonrail_peer *p)
	TEI_REQUIRES(moonrail_held)
{
	if (p->ping_ns)
		return;
	p->ping_wait_ns = PEER_PING_NS;
	p->ping_ns = tei_now_ns() + p->ping_wait_ns;
	tei_rail_attend(p->rail);
}

void moonrail_peer_soon(struct moonrail_peer *p)
{
	uint64_t soon = tei_now_ns() + PEER_PING_NS;

	if (p->ping_ns > soon) {
		p->ping_ns = soon;
		tei_rail_attend(p->rail);
	}
	peer_start_timer(p);
}

static int peer_to_self(struct moonrail_peer *p, struct moonrail_out *o)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *op = o->op;
	bool taken = moonrail_deliver(p, &o->wire, moonrail_out_payload(o),
				      o->len - (uint32_t)MOONRAIL_HEAD);

	free(o);
	if (taken && op)
		moonrail_op_done(op);
	return taken ? 0 : -FI_EAGAIN;
}

void moonrail_stream_queue(struct moonrail_peer *p, struct moonrail_out *o)
{
	o->wire.seq = p->next_seq++;
	if (peer_is_posted(o->wire.op))
		p->posted_seq = o->wire.seq;
	tei_list_add_tail(&p->queue, &o->link);
	p->nqueue++;
}

static void peer_drop_out(struct moonrail_out *o, int err)
	TEI_REQUIRES(moonrail_held)
{
	if (o->op)
		peer_end_op(o->op, err);
	free(o);
}

/* Not for ever: of who is not heard of again there is nothing to keep. */
static void peer_keep_answer(struct moonrail_peer *p, struct moonrail_out *o)
	TEI_REQUIRES(moonrail_held)
{
	if (p->nqueue < 2 * MOONRAIL_QUEUE) {
		moonrail_stream_queue(p, o);
		peer_flush(p);
		if (p->resumes && !p->silent)
			peer_start_timer(p);
		return;
	}
	p->resumes = false;
	peer_drop_outs(p, p->err);
	free(o);
}

/* It may be there again, or has been heard of. */
static void peer_wake(struct moonrail_peer *p) TEI_REQUIRES(moonrail_held)
{
	if (!p->resumes)
		return;
	if (tei_list_empty(&p->entries)) {
		p->err = 0;
		p->resumes = false;
	}
	p->silent = false;
	p->since_ns = 0;
	p->ping_ns = 0;
	peer_start_timer(p);
}

/* Whether its streams go on. */
static bool peer_lives(const struct moonrail_peer *p)
{
	return !p->err || p->resumes;
}

int moonrail_stream_send(struct moonrail_peer *p, struct moonrail_out *o)
{
	int err = p->err;

	if (!p->rail)
		return peer_to_self(p, o);
	if (err) {
		if (p->resumes && peer_is_answer(o->wire.op))
			peer_keep_answer(p, o);
		else
			peer_drop_out(o, err);
		return 0;
	}
	if (!moonrail_flow_park(p, o))
		moonrail_stream_queue(p, o);
	if (p->incarnation)
		peer_flush(p);
	if (!p->err)
		peer_start_timer(p);
	return 0;
}

bool moonrail_peer_waits(const struct moonrail_peer *p, uint64_t ack)
{
	return !p->rail || (ack > p->sure_seq &&
			    tei_now_ns() < p->heard_us_ns + PEER_SURE_NS);
}

void moonrail_peer_ask(struct moonrail_op *op)
{
	struct moonrail_peer *p = op->peer;
	struct moonrail_out *o = NULL;

	op->ep->busy++;
	if (peer_lives(p))
		o = moonrail_out_new(MOONRAIL_WIRE_STILL, 0);
	if (!o) {
		moonrail_recv_sure(op, p->err ? p->err : FI_ENOMEM);
		return;
	}
	o->wire.id = op->id;
	tei_list_add_tail(&p->unsure, &op->link);
	if (p->silent)			/* its memory was read just now */
		peer_wake(p);
	moonrail_stream_send(p, o);
}

/* The question is a message that nobody does anything with: its turn comes
 * after all others. One for each that was the last. */
bool moonrail_peer_settled(struct moonrail_peer *p)
{
	struct moonrail_out *o;

	if (p->err || (!p->nparked && p->acked > p->posted_seq))
		return true;
	if (p->nparked || p->asked_seq == p->posted_seq)
		return false;
	o = moonrail_out_new(MOONRAIL_WIRE_ACK, 0);
	if (!o)
		return false;
	o->wire.flags |= MOONRAIL_WIRE_WANT_ACK;
	p->asked_seq = p->posted_seq;
	moonrail_stream_send(p, o);
	return p->err;
}

/* --- receiving ----------------------------------------------------------- */

/* The peer waits for number ack: what is below is with it. */
static void peer_acked(struct moonrail_peer *p, uint64_t ack)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *op;
	struct moonrail_out *o;

	if (ack <= p->acked)
		return;
	p->acked = ack;
	if (p->mark_seq && ack > p->mark_seq) {
		if (p->mark_ns > p->heard_us_ns + PEER_SURE_NS)
			p->sure_seq = p->mark_seq;
		p->heard_us_ns = p->mark_ns;
		p->mark_seq = 0;
	}
	while (!tei_list_empty(&p->sent)) {
		o = tei_list_first(&p->sent, struct moonrail_out, link);
		if (o->wire.seq >= ack)
			break;
		tei_list_del(&o->link);
		p->nsent--;
		op = o->op;
		free(o);
		if (op)
			moonrail_op_done(op);
	}
	p->ping_wait_ns = PEER_PING_NS;
	peer_flush(p);
}

/* It was asked: what was sent before that and is not there is lost. */
static void peer_send_again(struct moonrail_peer *p, uint64_t ack)
	TEI_REQUIRES(moonrail_held)
{
	bool late = p->ping_wait_ns >= PEER_LOST_NS;
	struct moonrail_out *o;

	tei_list_foreach(o, &p->sent, struct moonrail_out, link) {
		if (o->wire.seq >= p->ping_seq)
			return;
		if (o->wire.seq < ack)
			continue;
		if (late)
			tei_rail_no_way_back(p->rail);
		late = false;
		if (peer_post(p, o, false))
			return;
	}
}

static void peer_keep_early(struct moonrail_peer *p, uint64_t seq,
			    struct tei_rail_message *m)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_early *e, *at;
	struct tei_list *pos = &p->early;

	tei_list_foreach(at, &p->early, struct moonrail_early, link) {
		if (at->seq == seq)
			goto out_drop;
		if (at->seq > seq)
			break;
		pos = &at->link;
	}
	e = p->nearly < PEER_EARLY_MAX ? malloc(sizeof(*e)) : NULL;
	if (!e)
		goto out_drop;
	e->seq = seq;
	e->message = m;
	tei_list_insert_after(pos, &e->link);
	p->nearly++;
	return;
out_drop:
	tei_rail_message_free(m);
}

static void peer_wire(const struct tei_rail_message *m, struct moonrail_wire *w)
{
	memcpy(w, m->data, sizeof(*w));
	moonrail_wire_turn(w);
}

static bool peer_take(struct moonrail_peer *p, const struct tei_rail_message *m)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_wire w;

	peer_wire(m, &w);
	if (!moonrail_deliver(p, &w, m->data + sizeof(w),
			      m->len - (uint32_t)sizeof(w)))
		return false;
	p->expected++;
	p->unacked += w.flags & MOONRAIL_WIRE_WANT_ACK ? MOONRAIL_ACK_EVERY : 1;
	return true;
}

static void peer_take_early(struct moonrail_peer *p)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_early *e;

	while (!tei_list_empty(&p->early)) {
		e = tei_list_first(&p->early, struct moonrail_early, link);
		if (e->seq > p->expected)
			return;
		if (e->seq == p->expected && !peer_take(p, e->message))
			return;
		tei_list_del(&e->link);
		p->nearly--;
		tei_rail_message_free(e->message);
		free(e);
	}
}

static void peer_in(struct moonrail_peer *p, const struct moonrail_wire *w,
		    struct tei_rail_message *m) TEI_REQUIRES(moonrail_held)
{
	p->since_ns = 0;
	if (!w->seq && w->op == MOONRAIL_WIRE_ACK &&
	    moonrail_flow_heard(p, w, m->data + sizeof(*w),
				m->len - (uint32_t)sizeof(*w)))
		peer_flush(p);
	peer_acked(p, w->ack);
	if (!w->seq) {
		if (w->op == MOONRAIL_WIRE_PING)
			/* such a question is about other ways, too */
			peer_post_loose(p, MOONRAIL_WIRE_ACK,
					MOONRAIL_WIRE_ECHO, false);
		else if (w->flags & MOONRAIL_WIRE_ECHO)
			peer_send_again(p, w->ack);
		tei_rail_message_free(m);
		return;
	}
	if (w->seq > p->expected) {
		peer_keep_early(p, w->seq, m);
		return;
	}
	if (w->seq == p->expected && peer_take(p, m))
		peer_take_early(p);
	tei_rail_message_free(m);
	if (p->unacked >= MOONRAIL_ACK_EVERY ||
	    w->flags & MOONRAIL_WIRE_WANT_ACK)
		peer_post_loose(p, MOONRAIL_WIRE_ACK, 0, true);
}

/* --- who is who ---------------------------------------------------------- */

static struct moonrail_peer *peer_find(struct moonrail_domain *d, uint64_t inc)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_peer *p;

	tei_list_foreach(p, moonrail_bucket(d->known, inc), struct moonrail_peer,
			 hash_link)
		if (p->incarnation == inc)
			return p;
	return NULL;
}

static void peer_is(struct moonrail_peer *p, uint64_t inc)
	TEI_REQUIRES(moonrail_held)
{
	p->incarnation = inc;
	tei_list_add_tail(moonrail_bucket(p->domain->known, inc),
			  &p->hash_link);
}

/* rail: a reference, taken over; NULL: this domain itself */
static struct moonrail_peer *peer_new(struct moonrail_domain *d, uint64_t inc,
				      struct tei_rail_peer *rail)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_peer *p = calloc(1, sizeof(*p));

	if (!p) {
		if (rail)
			tei_rail_peer_put(rail);
		return NULL;
	}
	p->domain = d;
	p->rail = rail;
	p->next_seq = 1;
	p->expected = 1;
	p->acked = 1;
	tei_list_init(&p->entries);
	tei_list_init(&p->queue);
	tei_list_init(&p->sent);
	tei_list_init(&p->parked);
	tei_list_init(&p->waiting);
	tei_list_init(&p->unsure);
	tei_list_init(&p->rma);
	tei_list_init(&p->keys);
	tei_list_init(&p->early);
	tei_list_add_tail(&d->peers, &p->link);
	tei_list_init(&p->hash_link);
	tei_list_init(&p->idle_link);
	if (inc)
		peer_is(p, inc);
	return p;
}

/* A sockaddr says nothing about the provider: that of a rail that fits. */
static int peer_first(struct moonrail_domain *d, const struct moonrail_name *n,
		      struct tei_rail_addr *first)
{
	struct tei_rail_desc desc;
	size_t i;

	memset(first, 0, sizeof(*first));
	first->protocol = n->protocol;
	first->protocol_version = n->protocol_version;
	first->addr_format = n->format;
	first->len = n->len;
	memcpy(first->bytes, n->address, n->len);
	if (n->incarnation)
		return tei_rail_addr_fits(d->dp, first) ? 0 : -FI_EHOSTUNREACH;
	for (i = 0; i < tei_rail_count(d->dp); i++) {
		if (tei_rail_describe(d->dp, i, &desc) || !desc.open ||
		    desc.known.addr_format != n->format)
			continue;
		first->protocol = desc.known.protocol;
		first->protocol_version = desc.known.protocol_version;
		return 0;
	}
	return -FI_EHOSTUNREACH;
}

struct moonrail_peer *moonrail_peer_get(struct moonrail_domain *d,
					const struct moonrail_name *n)
{
	struct tei_rail_peer *rail = NULL;
	struct tei_rail_addr first;
	struct moonrail_peer *p;

	if (!peer_find(d, d->incarnation) && !peer_new(d, d->incarnation, NULL))
		return NULL;
	if (n->incarnation)
		p = peer_find(d, n->incarnation);
	else
		p = moonrail_name_ours(d, n, true) ?
			    peer_find(d, d->incarnation) : NULL;
	if (p) {
		if (tei_list_empty(&p->entries))
			peer_wake(p);
		return p;
	}
	if (peer_first(d, n, &first))
		return NULL;
	if (n->incarnation ?
		    tei_rail_peer_get(d->dp, "", n->incarnation, &first, 1,
				      NULL, &rail) :
		    tei_rail_peer_seek(d->dp, &first, NULL, &rail))
		return NULL;
	return peer_new(d, n->incarnation, rail);
}

void moonrail_stream_in(struct moonrail_domain *d, struct tei_rail_message *m)
{
	uint64_t inc = tei_rail_peer_incarnation(m->peer);
	struct moonrail_peer *p = peer_find(d, inc);
	struct moonrail_wire w;

	if (m->len < sizeof(w))
		goto out_drop;
	peer_wire(m, &w);
	if (!p) {
		tei_rail_peer_hold(m->peer);
		p = peer_new(d, inc, m->peer);
		/* it may have taken leave since */
		tei_rail_attend(m->peer);
	}
	if (!p || !peer_lives(p))
		goto out_drop;
	if (p->silent || tei_list_empty(&p->entries))
		peer_wake(p);
	if (w.version != MOONRAIL_WIRE_VERSION) {
		TEI_ERROR("prov",
			  "a process speaks version %u of the provider's protocol, this one %u",
			  w.version, MOONRAIL_WIRE_VERSION);
		moonrail_peer_fail(p, FI_ENOPROTOOPT);
		goto out_drop;
	}
	peer_in(p, &w, m);
	return;
out_drop:
	tei_rail_message_free(m);
}

/* Its operations are those of the one that it turned out to be. */
static void peer_merge_keys(struct moonrail_peer *from,
			    struct moonrail_peer *to)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_key *k;

	while (!tei_list_empty(&from->keys)) {
		k = tei_list_first(&from->keys, struct moonrail_key, link);
		if (moonrail_rma_find_key(to, k->key)) {
			moonrail_rma_drop_key(k);
			continue;
		}
		tei_list_del(&k->link);
		tei_list_del(&k->hash_link);
		moonrail_rma_add_key(to, k);
	}
}

static void peer_merge(struct moonrail_peer *from, struct moonrail_peer *to)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o;
	struct moonrail_op *op;
	uint32_t i;

	from->same = to;
	moonrail_peer_use(to);
	peer_look_at(from);
	to->ntx += from->ntx;
	from->ntx = 0;
	for (i = 0; i < MOONRAIL_CLASSES; i++) {
		to->under[i] += from->under[i];
		from->under[i] = 0;
	}
	tei_list_foreach(op, &from->waiting, struct moonrail_op, link)
		moonrail_op_with(op, to);
	tei_list_foreach(op, &from->rma, struct moonrail_op, link)
		moonrail_op_with(op, to);
	tei_list_splice_tail(&to->waiting, &from->waiting);
	tei_list_splice_tail(&to->rma, &from->rma);
	peer_merge_keys(from, to);
	if (tei_list_empty(&to->entries))
		peer_wake(to);
	moonrail_av_merge(from, to);
	while (!tei_list_empty(&from->queue)) {
		o = tei_list_first(&from->queue, struct moonrail_out, link);
		tei_list_del(&o->link);
		moonrail_stream_send(to, o);
	}
	from->nqueue = 0;
	moonrail_recv_known(to);
	if (to->err)
		moonrail_peer_fail(to, to->err);
}

/* A process that was looked for has said hello. False: it has gone since, or was
 * parted with, so that it is as if it had not. */
static bool peer_found(struct moonrail_peer *p, uint64_t inc)
	TEI_REQUIRES(moonrail_held)
{
	struct tei_rail_peer *rail = tei_rail_peer_known(p->domain->dp, inc);
	struct moonrail_peer *known = peer_find(p->domain, inc);

	if (!rail)
		return false;
	tei_rail_peer_put(p->rail);
	p->rail = rail;
	if (known) {
		p->incarnation = inc;
		peer_merge(p, known);
		return true;
	}
	peer_is(p, inc);
	peer_flush(p);
	tei_rail_attend(rail);
	return true;
}

/* --- its state machine --------------------------------------------------- */

/* Nothing heard for so long that it is given up. This is looked at by ping_ns:
 * if it is much later, it is this process that stood still. */
static bool peer_too_long(struct moonrail_peer *p, uint64_t now)
{
	uint64_t max = p->domain->settings.slice_timeout_s * TEI_NS_PER_SEC;
	uint64_t late = now - p->ping_ns;

	if (!p->since_ns)
		p->since_ns = now;
	if (late > PEER_LATE_NS)
		p->since_ns = p->since_ns + late < now ? p->since_ns + late :
							  now;
	return now - p->since_ns > max;
}

/* Whether nobody needs to be asked: what was sent since the last look was
 * taken, or some of what is owed was. */
static bool peer_moves(struct moonrail_peer *p, bool owed)
{
	bool moves = p->acked != p->look_acked ||
		     (!owed && p->next_seq != p->look_seq);

	if (!owed)
		p->since_ns = 0;
	p->look_acked = p->acked;
	p->look_seq = p->next_seq;
	return moves;
}

/*
 * It took leave. What it said before that may come by another rail, or be in the
 * hands of a thread that has just read it, and still counts.
 */
static uint64_t peer_gone(struct moonrail_peer *p, uint64_t now)
	TEI_REQUIRES(moonrail_held)
{
	if (!p->gone_ns)
		p->gone_ns = now + PEER_LAST_NS;
	if (now < p->gone_ns)
		return p->gone_ns;
	moonrail_peer_fail(p, FI_ECONNRESET);
	return 0;
}

static uint64_t peer_run(struct moonrail_peer *p, uint64_t now)
	TEI_REQUIRES(moonrail_held)
{
	bool owed;

	if (p->incarnation && tei_rail_peer_gone(p->rail))
		return peer_gone(p, now);
	moonrail_recv_tell(p);
	if (p->incarnation)
		peer_flush(p);
	/* whoever waits for an answer learns that there is nobody any more */
	owed = !p->silent && (p->nends || !tei_list_empty(&p->queue) ||
			   !tei_list_empty(&p->sent) || p->nparked ||
			   !tei_list_empty(&p->waiting) ||
			   !tei_list_empty(&p->unsure) ||
			   !tei_list_empty(&p->rma));
	if (!p->ping_ns || now < p->ping_ns)
		return p->ping_ns || !owed ? p->ping_ns : now + PEER_PING_NS;
	if (peer_moves(p, owed)) {
		p->ping_wait_ns = PEER_PING_NS;
		p->ping_ns = now + p->ping_wait_ns;
		return p->ping_ns;
	}
	if (!owed) {
		p->ping_ns = 0;
		return 0;
	}
	if (peer_too_long(p, now)) {
		moonrail_peer_fail(p, FI_ETIMEDOUT);
		return 0;
	}
	if (p->incarnation) {
		p->ping_seq = tei_list_empty(&p->sent) ? p->next_seq :
			      tei_container_of(p->sent.prev,
					       struct moonrail_out,
					       link)->wire.seq + 1;
		peer_post_loose(p, MOONRAIL_WIRE_PING, 0, false);
	}
	p->ping_wait_ns = p->ping_wait_ns * 2 < PEER_PING_MAX ?
				  p->ping_wait_ns * 2 : PEER_PING_MAX;
	p->ping_ns = now + p->ping_wait_ns;
	return p->ping_ns;
}

/* One that has failed. */
static uint64_t peer_rest(struct moonrail_peer *p, uint64_t now)
	TEI_REQUIRES(moonrail_held)
{
	if (p->unsure_ns && now >= p->unsure_ns)
		peer_end_waiting(p);
	return p->unsure_ns;
}

uint64_t moonrail_peer_run(struct moonrail_domain *d,
			   struct tei_rail_peer *rail, uint64_t now)
{
	uint64_t inc = tei_rail_peer_incarnation(rail);
	struct moonrail_peer *p;

	if (inc) {
		p = peer_find(d, inc);
		if (!p || p->rail != rail)
			return 0;
		return peer_lives(p) ? peer_run(p, now) : peer_rest(p, now);
	}
	/* one that is looked for */
	tei_list_foreach(p, &d->peers, struct moonrail_peer, link) {
		if (p->rail != rail || p->same)
			continue;
		if (!peer_lives(p))
			return peer_rest(p, now);
		inc = tei_rail_peer_found(rail);
		return inc && peer_found(p, inc) ? 0 : peer_run(p, now);
	}
	return 0;
}

bool moonrail_peer_flushed(struct moonrail_domain *d)
{
	struct moonrail_peer *p;

	tei_list_foreach(p, &d->peers, struct moonrail_peer, link)
		if (moonrail_peer_hears(p) && (p->nqueue || p->nsent ||
					       p->nparked || p->nends))
			return false;
	return true;
}

bool moonrail_peer_confirmed(struct moonrail_domain *d)
{
	struct moonrail_peer *p;
	bool all = true;

	tei_list_foreach(p, &d->peers, struct moonrail_peer, link) {
		if (!p->unacked || !moonrail_peer_hears(p) ||
		    tei_rail_peer_gone(p->rail))
			continue;
		/* before the word that this domain leaves */
		peer_post_loose(p, MOONRAIL_WIRE_ACK, 0, false);
		all = all && !p->unacked;
	}
	return all;
}

static void peer_free(struct moonrail_peer *p)
{
	struct moonrail_early *e, *etmp;
	struct moonrail_key *k, *ktmp;
	struct moonrail_out *o, *otmp;

	tei_list_foreach_safe(e, etmp, &p->early, struct moonrail_early, link) {
		tei_rail_message_free(e->message);
		free(e);
	}
	tei_list_foreach_safe(k, ktmp, &p->keys, struct moonrail_key, link)
		free(k);	/* with all others of the domain */
	tei_list_splice_tail(&p->sent, &p->queue);
	tei_list_splice_tail(&p->sent, &p->parked);
	free(p->full);
	free(p->stopped);
	tei_list_foreach_safe(o, otmp, &p->sent, struct moonrail_out, link)
		free(o);
	if (p->rail)
		tei_rail_peer_put(p->rail);
	free(p);
}

void moonrail_peer_sweep(struct moonrail_domain *d)
{
	struct moonrail_peer *p;

	while (!tei_list_empty(&d->idle)) {
		p = tei_list_first(&d->idle, struct moonrail_peer, idle_link);
		tei_list_del(&p->idle_link);
		if (!peer_needless(p))
			continue;
		while (!tei_list_empty(&p->keys))
			moonrail_rma_drop_key(tei_list_first(&p->keys,
						struct moonrail_key, link));
		if (p->same)
			moonrail_peer_unuse(p->same);
		tei_list_del(&p->hash_link);
		tei_list_del(&p->link);
		peer_free(p);
	}
}

/* No endpoint is left, so no operation is either. */
void moonrail_peer_free_all(struct moonrail_domain *d)
{
	struct moonrail_peer *p, *tmp;
	uint32_t i;

	tei_list_foreach_safe(p, tmp, &d->peers, struct moonrail_peer, link)
		peer_free(p);
	tei_list_init(&d->peers);
	tei_list_init(&d->idle);
	for (i = 0; i < MOONRAIL_HASH; i++) {
		tei_list_init(&d->known[i]);
		tei_list_init(&d->keys[i]);
	}
}
