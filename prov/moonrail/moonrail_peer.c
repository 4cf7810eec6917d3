/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers, and the two streams of messages between this domain and each peer.
 *
 * A message gets its number when it is queued, and is kept until the peer
 * acknowledges it. If nothing has been received for a while, a PING requests an
 * ACK. Messages that were sent before the PING and that the ACK does not
 * acknowledge are sent again. So a message may be sent several times, but the
 * receiver handles it once. If the receiver has no room for a message, it drops
 * the message without acknowledging it, and the sender repeats it.
 *
 * After a timeout, the operations with the peer fail, but the streams are kept,
 * because the peer may only have been suspended. The numbers of the
 * unacknowledged messages stay in use: each such message is replaced by an
 * empty one with the same number. So the peer either receives a message from
 * before its suspension or never sees it. Answers are not emptied, because the
 * peer may wait for them, and messages from the peer are still handled. New
 * operations fail, so that the application learns that messages were lost. They
 * succeed again when the peer's address is inserted into an address vector
 * after all its addresses were removed, or, if no address vector contains it,
 * when the peer sends something.
 *
 * A resolver, a peer whose incarnation is not known yet, can time out too. Its
 * queued messages are dropped, and its streams begin if the process is found
 * later, so that its messages can be received. Its address works again when it
 * is inserted again.
 *
 * Read-back checks: only the sender knows that a message has timed out. After a
 * pause, a receiver may start to read an announced message whose source buffer
 * has been reused. So the receiver asks after the read whether the message was
 * still valid (STILL). It need not ask if the sender cannot have timed out
 * since it announced the message, because the two have exchanged messages
 * without a pause (moonrail_peer_waits). A sender that fails a peer for another
 * reason than silence keeps the announced buffers until no receiver can rely on
 * this rule any longer (PEER_UNSURE_NS).
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_int.h"

#define PEER_PING_NS	(5 * TEI_NS_PER_MS)	/* first PING interval; it
						 * doubles up to
						 * PEER_PING_MAX */
#define PEER_PING_MAX	(200 * TEI_NS_PER_MS)
#define PEER_LOST_NS	(8 * PEER_PING_NS)	/* from this PING interval on,
						 * unacknowledged messages count
						 * as lost and not only late */
#define PEER_LATE_NS	(1000 * TEI_NS_PER_MS)	/* the timer is so late only if
						 * this process was suspended */
#define PEER_SURE_NS	(750 * TEI_NS_PER_MS)	/* a message exchanged within
						 * this time proves that the
						 * peer has not timed out;
						 * shorter than every
						 * MC_SLICE_TIMEOUT */
#define PEER_UNSURE_NS	(1000 * TEI_NS_PER_MS)	/* PEER_SURE_NS, and time for a
						 * read to end */
#define PEER_LAST_NS	(20 * TEI_NS_PER_MS)	/* wait for late messages after
						 * a BYE */
#define PEER_OUT_OF_ORDER_MAX (2 * MOONRAIL_WINDOW)

struct moonrail_peer *moonrail_peer_real(struct moonrail_peer *p)
{
	while (p->same)
		p = p->same;
	return p;
}

/* --- references ---------------------------------------------------------- */

/* Schedules the check that frees the peer if it is no longer needed. */
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
 * Returns true if the peer can be freed: nothing refers to it, and its streams
 * have ended or never began. A peer that is alive may continue its streams, so
 * their state is kept.
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

/* --- failing a peer ------------------------------------------------------ */

static void peer_end_outs(struct tei_list *l, int err)
	TEI_REQUIRES(moonrail_held)
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

/* Returns true for messages that carry an operation of this domain. Returns
 * false for answers to operations of the peer, because their sequence may never
 * end. */
static bool peer_is_posted(uint8_t op)
{
	return op == MOONRAIL_WIRE_DATA || op == MOONRAIL_WIRE_RTS ||
	       op == MOONRAIL_WIRE_ATOMIC || op == MOONRAIL_WIRE_DONE;
}

/* Returns true for messages that the peer may wait for, or that answer a
 * message of the peer. */
static bool peer_is_answer(uint8_t op)
{
	return op == MOONRAIL_WIRE_FIN || op == MOONRAIL_WIRE_KEY_IS ||
	       op == MOONRAIL_WIRE_KEY_NOT || op == MOONRAIL_WIRE_ATOMIC_REP ||
	       op == MOONRAIL_WIRE_STILL || op == MOONRAIL_WIRE_STILL_IS;
}

/* Replaces a numbered message by an empty one with the same number. */
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

/* Empties the messages of a list that carry operations, and fails these
 * operations. Keeps the answers. */
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
			moonrail_op_end(op, err);
	}
}

/* Drops the keys that were requested and not answered, because the requests
 * have been dropped. */
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

/* Drops all messages for a peer to which nothing has been sent, and restarts
 * the numbering. */
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
		op->type->answered(op, p->err);
	}
}

/* Returns true if the peer may still be reading announced messages without a
 * read-back check. Returns false for a peer that has sent BYE or has been
 * silent for MC_SLICE_TIMEOUT. */
static bool peer_is_unsure(const struct moonrail_peer *p, int err)
{
	return !tei_list_empty(&p->waiting) && p->rail &&
	       err != FI_ETIMEDOUT && err != FI_ECONNRESET;
}

void moonrail_peer_fail(struct moonrail_peer *p, int err)
{
	struct moonrail_op *op;

	/* streams that have been dropped cannot resume */
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
		op->type->answered(op, err);
	}
	while (!tei_list_empty(&p->rma)) {
		op = tei_list_first(&p->rma, struct moonrail_op, link);
		tei_list_del(&op->link);
		op->type->answered(op, err);
	}
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

/* Posts a message once. back: the message may use the reverse path, a
 * connection that the peer has made. The reverse path is not used while
 * messages are announced, because the peer reads their bytes over that
 * connection and the message would queue behind them. */
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

/* Sends a loose message. A failure is ignored, because loose messages may be
 * lost. */
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

/* Sends queued messages until the window is full or the rails refuse one. */
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
 * Starts the timer of a peer if it is not running, and wakes the progress
 * thread so that it notices. While the timer runs, the progress thread wakes by
 * itself.
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

/* Passes a message of the stream to its handler. Returns false if the handler
 * has no room or memory for it. */
static bool peer_deliver(struct moonrail_peer *p, const struct moonrail_wire *w,
			 const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held)
{
	moonrail_message_fn handle = w->op < MOONRAIL_WIRE_OPS ?
					     p->domain->handlers[w->op] : NULL;

	return !handle || handle(p, w, payload, len);
}

static int peer_to_self(struct moonrail_peer *p, struct moonrail_out *o)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *op = o->op;
	bool taken = peer_deliver(p, &o->wire, moonrail_out_payload(o),
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
		moonrail_op_end(o->op, err);
	free(o);
}

/* Queues an answer for a peer that has timed out. If too many are queued, ends
 * the streams, so that a peer that never returns does not hold memory for
 * ever. */
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

/* Resumes the streams of a peer that has timed out, because the peer was
 * inserted again or has given a sign of life. */
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

/* Returns true if the streams of the peer are in use. */
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
		op->type->answered(op, p->err ? p->err : FI_ENOMEM);
		return;
	}
	o->wire.id = op->id;
	tei_list_add_tail(&p->unsure, &op->link);
	if (p->silent)			/* a read of the peer's memory has just
					 * succeeded */
		peer_wake(p);
	moonrail_stream_send(p, o);
}

/* The function requests an acknowledgement with an empty message at the end of
 * the stream; its acknowledgement covers all earlier messages. One request is
 * sent per value of posted_seq. */
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

/* Handles an acknowledged number: the peer has received all messages with
 * numbers below ack. */
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

/* Handles the answer to a PING: repeats the messages that were sent before the
 * PING and that the peer does not have. */
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
			tei_rail_no_reverse_path(p->rail);
		late = false;
		if (peer_post(p, o, false))
			return;
	}
}

static void peer_keep_out_of_order(struct moonrail_peer *p, uint64_t seq,
				   struct tei_rail_message *m)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out_of_order *e, *at;
	struct tei_list *pos = &p->out_of_order;

	tei_list_foreach (at, &p->out_of_order, struct moonrail_out_of_order,
			  link) {
		if (at->seq == seq)
			goto out_drop;
		if (at->seq > seq)
			break;
		pos = &at->link;
	}
	e = p->nearly < PEER_OUT_OF_ORDER_MAX ? malloc(sizeof(*e)) : NULL;
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
	if (!peer_deliver(p, &w, m->data + sizeof(w),
			  m->len - (uint32_t)sizeof(w)))
		return false;
	p->expected++;
	p->unacked += w.flags & MOONRAIL_WIRE_WANT_ACK ? MOONRAIL_ACK_EVERY : 1;
	return true;
}

static void peer_take_out_of_order(struct moonrail_peer *p)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out_of_order *e;

	while (!tei_list_empty(&p->out_of_order)) {
		e = tei_list_first(&p->out_of_order,
				   struct moonrail_out_of_order, link);
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
			/* not over the reverse path, because it may be the
			 * reverse path that loses messages */
			peer_post_loose(p, MOONRAIL_WIRE_ACK,
					MOONRAIL_WIRE_ECHO, false);
		else if (w->flags & MOONRAIL_WIRE_ECHO)
			peer_send_again(p, w->ack);
		tei_rail_message_free(m);
		return;
	}
	if (w->seq > p->expected) {
		peer_keep_out_of_order(p, w->seq, m);
		return;
	}
	if (w->seq == p->expected && peer_take(p, m))
		peer_take_out_of_order(p);
	tei_rail_message_free(m);
	if (p->unacked >= MOONRAIL_ACK_EVERY ||
	    w->flags & MOONRAIL_WIRE_WANT_ACK)
		peer_post_loose(p, MOONRAIL_WIRE_ACK, 0, true);
}

/* --- finding a peer ------------------------------------------------------ */

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

/* Creates a peer. Takes ownership of the reference rail; NULL: this domain
 * itself. */
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
	tei_list_init(&p->out_of_order);
	tei_list_add_tail(&d->peers, &p->link);
	tei_list_init(&p->hash_link);
	tei_list_init(&p->idle_link);
	if (inc)
		peer_is(p, inc);
	return p;
}

/* Writes the first contact address of a peer. A sockaddr does not tell the
 * provider, so the provider of a rail with the same address format is used.
 * Returns 0 or -FI_EHOSTUNREACH. */
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
		/* the peer may have sent BYE in the meantime */
		tei_rail_attend(m->peer);
	}
	if (!p || !peer_lives(p))
		goto out_drop;
	if (p->silent || tei_list_empty(&p->entries))
		peer_wake(p);
	if (w.version != MOONRAIL_WIRE_VERSION) {
		TEI_ERROR("prov",
			  "peer: its provider protocol has version %u, this process has version %u; use the same release of moonrail in both",
			  w.version, MOONRAIL_WIRE_VERSION);
		moonrail_peer_fail(p, FI_ENOPROTOOPT);
		goto out_drop;
	}
	peer_in(p, &w, m);
	return;
out_drop:
	tei_rail_message_free(m);
}

/* Moves the keys of a resolver to the peer that it has found. */
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

/* Moves the operations, addresses and queued messages of a resolver to the
 * known peer that it has found. */
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

/* Handles that a resolver has found its process, with incarnation inc. Returns
 * false if this process has left or was dropped in the meantime; the search
 * then continues. */
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

/* --- the state machine --------------------------------------------------- */

/* Returns true if the peer has timed out. The time by which the timer is late
 * does not count if this process was suspended. */
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

/* Returns true if no PING is needed: messages have been acknowledged since the
 * last run, or nothing is owed and new messages were sent. */
static bool peer_moves(struct moonrail_peer *p, bool answer_pending)
{
	bool moves = p->acked != p->look_acked ||
		     (!answer_pending && p->next_seq != p->look_seq);

	if (!answer_pending)
		p->since_ns = 0;
	p->look_acked = p->acked;
	p->look_seq = p->next_seq;
	return moves;
}

/*
 * Handles the BYE of a peer. Messages from before the BYE may still arrive over
 * another rail, or a thread may have read them and not handled them yet. These
 * messages are still accepted: the peer fails only PEER_LAST_NS later.
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
	bool answer_pending;

	if (p->incarnation && tei_rail_peer_gone(p->rail))
		return peer_gone(p, now);
	moonrail_recv_tell(p);
	if (p->incarnation)
		peer_flush(p);
	/* the operations must time out if the peer does not send an answer that
	 * it owes */
	answer_pending =
		!p->silent &&
		(p->nends || !tei_list_empty(&p->queue) ||
		 !tei_list_empty(&p->sent) || p->nparked ||
		 !tei_list_empty(&p->waiting) || !tei_list_empty(&p->unsure) ||
		 !tei_list_empty(&p->rma));
	if (!p->ping_ns || now < p->ping_ns)
		return p->ping_ns || !answer_pending ? p->ping_ns
						     : now + PEER_PING_NS;
	if (peer_moves(p, answer_pending)) {
		p->ping_wait_ns = PEER_PING_NS;
		p->ping_ns = now + p->ping_wait_ns;
		return p->ping_ns;
	}
	if (!answer_pending) {
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

/* Runs a peer that has failed. */
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
	/* a resolver */
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
		if (moonrail_peer_receives(p) &&
		    (p->nqueue || p->nsent || p->nparked || p->nends))
			return false;
	return true;
}

bool moonrail_peer_confirmed(struct moonrail_domain *d)
{
	struct moonrail_peer *p;
	bool all = true;

	tei_list_foreach(p, &d->peers, struct moonrail_peer, link) {
		if (!p->unacked || !moonrail_peer_receives(p) ||
		    tei_rail_peer_gone(p->rail))
			continue;
		/* the ACK must be sent before the BYE of this domain */
		peer_post_loose(p, MOONRAIL_WIRE_ACK, 0, false);
		all = all && !p->unacked;
	}
	return all;
}

static void peer_free(struct moonrail_peer *p)
{
	struct moonrail_out_of_order *e, *etmp;
	struct moonrail_key *k, *ktmp;
	struct moonrail_out *o, *otmp;

	tei_list_foreach_safe (e, etmp, &p->out_of_order,
			       struct moonrail_out_of_order, link) {
		tei_rail_message_free(e->message);
		free(e);
	}
	tei_list_foreach_safe(k, ktmp, &p->keys, struct moonrail_key, link)
		free(k);	/* domain->keys is emptied as a whole */
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

/* No endpoint is open, so no operation is under way. */
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
