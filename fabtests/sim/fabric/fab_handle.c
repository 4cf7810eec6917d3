/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles packets of messages at the side that receives them. */

#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

void fab_msg_put(struct fab_msg *m)
{
	if (--m->refs)
		return;
	if (m->of)
		fab_msg_put(m->of);
	free(m->held);
	free(m->copy);
	free(m);
}

/* Copies `len` bytes to the memory of the iov entries, beginning at their byte
 * with the number `off`. Drops bytes that lie behind the last entry. */
static void handle_scatter(const struct iovec *iov, size_t n, uint64_t off,
			   const char *from, uint64_t len)
{
	uint64_t part;
	size_t i;

	for (i = 0; i < n && len; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		part = iov[i].iov_len - off;
		part = part < len ? part : len;
		memcpy((char *)iov[i].iov_base + off, from, part);
		from += part;
		len -= part;
		off = 0;
	}
}

/* --- answers --- */

static struct fab_msg *handle_answer(struct fab_msg *of, enum fab_msg_kind kind)
{
	struct fab_msg *m = fab_alloc(sizeof(*m));

	m->refs = 1;
	m->kind = kind;
	m->of = of;
	of->refs++;
	tei_list_init(&m->link);
	tei_list_init(&m->coming);
	tei_list_init(&m->waiting);
	return m;
}

static void handle_queue(struct fab_side *s, struct fab_msg *m)
{
	if (s->state != FAB_SIDE_UP || s->shut) {
		fab_msg_put(m);
		return;
	}
	tei_list_add_tail(&s->queue, &m->link);
	fab_wire_want(s);
}

/* Answers an operation that has ended at this target, if the initiator waits
 * for that. */
static void handle_ack(struct fab_side *s, struct fab_msg *of)
{
	if (of->acked)
		handle_queue(s, handle_answer(of, FAB_ACK));
}

/* Answers an operation with the error `err`. If conf.refusal_breaks is true,
 * also closes the side. */
static void handle_refuse(struct fab_side *s, struct fab_msg *of, int err)
{
	struct fab_conn *c = s->conn;
	struct fab_pkt *p = fab_pkt_new(c, !s->index, FAB_P_MSG, 0);

	of->refused = err;
	fab_net->stats.refused++;
	SIM_TRACE(c->addr[s->index].at.host, "refused", c->id, of->number, err);
	p->msg = handle_answer(of, FAB_ACK);
	p->msg->status = err;
	fab_wire_send(p);
	if (fab_net->conf.refusal_breaks)
		fab_side_close(s, fab_conn_error(), true);
}

/* --- writes and reads --- */

/* Checks the keys of all remote ranges of the message, and sets m->at. Returns
 * 0 or FI_EACCES. */
static int handle_check(struct fab_ep *ep, struct fab_msg *m, uint64_t access)
{
	size_t i;

	for (i = 0; i < m->nrma; i++)
		if (!fab_mr_check(ep, m->rma[i].key, m->rma[i].addr,
				  m->rma[i].len, access, &m->at[i]))
			return FI_EACCES;
	m->started = true;
	return 0;
}

static void handle_count(struct fab_ep *ep)
{
	if (ep->remote)
		ep->remote->value++;
}

static void handle_write(struct fab_side *s, struct fab_pkt *p)
{
	struct iovec iov[FAB_IOV];
	struct fab_msg *m = p->msg;
	size_t i;

	if (m->refused)
		return;
	if (!m->started || fab_net->conf.key_per_packet) {
		if (handle_check(s->ep, m, FI_REMOTE_WRITE)) {
			handle_refuse(s, m, FI_EACCES);
			return;
		}
	}
	for (i = 0; i < m->nrma; i++) {
		iov[i].iov_base = m->at[i];
		iov[i].iov_len = m->rma[i].len;
	}
	handle_scatter(iov, m->nrma, p->off, p->data, p->len);
	m->landed += p->len;
	if (!m->op && m->acked)
		fab_net->stats.late++;
	if (m->landed < m->len)
		return;
	handle_count(s->ep);
	handle_ack(s, m);
}

static void handle_read(struct fab_side *s, struct fab_pkt *p)
{
	struct fab_msg *m = p->msg, *answer;
	size_t i;

	if (handle_check(s->ep, m, FI_REMOTE_READ)) {
		handle_refuse(s, m, FI_EACCES);
		return;
	}
	handle_count(s->ep);
	answer = handle_answer(m, FAB_BYTES);
	answer->len = m->len;
	for (i = 0; i < m->nrma; i++) {
		answer->iov[i].iov_base = m->at[i];
		answer->iov[i].iov_len = m->rma[i].len;
	}
	answer->niov = m->nrma;
	handle_queue(s, answer);
}

static void handle_bytes(struct fab_pkt *p)
{
	struct fab_msg *of = p->msg->of;

	if (!of->op)
		return;
	handle_scatter(of->iov, of->niov, p->off, p->data, p->len);
	of->landed += p->len;
	if (of->landed == of->len)
		fab_op_end(of->op, 0, true);
}

/* --- messages --- */

/* Returns the first posted receive that matches the message, and removes it
 * from the list. Returns NULL if none matches. */
static struct fab_recv *handle_match(struct fab_ep *ep, const struct fab_msg *m)
{
	struct fab_recv *r;

	tei_list_foreach (r, &ep->recvs, struct fab_recv, link) {
		if (r->tagged != m->tagged ||
		    (r->tagged && (r->tag | r->ignore) != (m->tag | r->ignore)))
			continue;
		tei_list_del(&r->link);
		return r;
	}
	return NULL;
}

/* Called when all bytes of the message are in the memory of its receive: adds
 * the completion of the receive and frees it. */
static void handle_received(struct fab_ep *ep, struct fab_msg *m)
{
	struct fab_recv *r = m->recv;
	bool truncated = m->len > r->len;
	struct fi_cq_err_entry e = {
		.op_context = r->context,
		.flags = FI_RECV | (m->tagged ? FI_TAGGED : FI_MSG) |
			 (m->has_data ? FI_REMOTE_CQ_DATA : 0),
		.len = truncated ? r->len : m->len,
		.buf = r->niov ? r->iov[0].iov_base : NULL,
		.data = m->data,
		.tag = m->tag,
		.olen = truncated ? m->len - r->len : 0,
		.err = truncated ? FI_ETRUNC : 0,
	};

	m->recv = NULL;
	ep->rx_used--;
	free(r);
	fab_cq_add(ep->rx_cq, &e, 0);
	tei_list_del(&m->coming);
	if (m->side)
		handle_ack(m->side, m);
	m->side = NULL;
}

void fab_recv_fail(struct fab_ep *ep, struct fab_recv *r, int err)
{
	struct fi_cq_err_entry e = {
		.op_context = r->context,
		.flags = FI_RECV | (r->tagged ? FI_TAGGED : FI_MSG),
		.err = err,
		.prov_errno = err,
	};

	ep->rx_used--;
	free(r);
	if (err)
		fab_cq_add(ep->rx_cq, &e, 0);
}

/* Called for the first packet of a message. Assigns a matching receive to the
 * message, or stores it as an unexpected message. Returns false if the endpoint
 * stores too many of these already. */
static bool handle_send_start(struct fab_side *s, struct fab_msg *m)
{
	struct fab_ep *ep = s->ep;

	m->recv = handle_match(ep, m);
	if (!m->recv) {
		if (ep->nunexpected >= fab_net->conf.unexpected)
			return false;
		m->held = fab_alloc(m->len ? m->len : 1);
		ep->nunexpected++;
		tei_list_add_tail(&ep->unexpected, &m->waiting);
		m->refs++;
	}
	m->started = true;
	m->side = s;
	tei_list_add_tail(&s->receiving, &m->coming);
	return true;
}

static void handle_send(struct fab_side *s, struct fab_pkt *p)
{
	struct fab_msg *m = p->msg;

	if (m->recv)
		handle_scatter(m->recv->iov, m->recv->niov, p->off, p->data,
			       p->len);
	else if (m->held)
		memcpy(m->held + p->off, p->data, p->len);
	m->landed += p->len;
	if (m->landed == m->len && m->recv)
		handle_received(s->ep, m);
}

/* Assigns posted receives to the unexpected messages that match. */
static void handle_unexpected(struct fab_ep *ep)
{
	struct fab_msg *m, *tmp;

	tei_list_foreach_safe (m, tmp, &ep->unexpected, struct fab_msg,
			       waiting) {
		m->recv = handle_match(ep, m);
		if (!m->recv)
			continue;
		tei_list_del(&m->waiting);
		ep->nunexpected--;
		handle_scatter(m->recv->iov, m->recv->niov, 0, m->held, m->len);
		if (m->landed == m->len)
			handle_received(ep, m);
		fab_msg_put(m);
	}
}

/* --- all --- */

static void handle_end(struct fab_pkt *p)
{
	struct fab_op *op = p->msg->of->op;

	if (op)
		fab_op_end(op, p->msg->status, true);
}

static void handle_trace(const struct fab_side *s, const struct fab_pkt *p)
{
	SIM_TRACE(s->conn->addr[s->index].at.host, "packet", s->conn->id,
		  p->msg->of ? p->msg->of->number : p->msg->number,
		  p->msg->kind, p->off, p->len);
}

/* Handles a packet at a side that is connected, and frees it. */
static void handle_now(struct fab_side *s, struct fab_pkt *p)
{
	fab_net->stats.packets++;
	fab_net->stats.bytes += p->len;
	handle_trace(s, p);
	switch (p->msg->kind) {
	case FAB_WRITE:
		handle_write(s, p);
		break;
	case FAB_READ:
		handle_read(s, p);
		break;
	case FAB_BYTES:
		handle_bytes(p);
		break;
	case FAB_ACK:
		handle_end(p);
		break;
	case FAB_SEND:
		handle_send(s, p);
		break;
	}
	fab_wire_done(p);
}

/* Returns true if the packet must wait until a receive is posted. */
static bool handle_must_wait(struct fab_side *s, struct fab_pkt *p)
{
	return p->msg->kind == FAB_SEND && !p->msg->started &&
	       !handle_send_start(s, p->msg);
}

void fab_handle(struct fab_side *s, struct fab_pkt *p)
{
	if (s->state != FAB_SIDE_UP) {
		fab_conn_reset(s->conn, !s->index);
		fab_wire_done(p);
	} else if (!tei_list_empty(&s->parked) || handle_must_wait(s, p)) {
		tei_list_add_tail(&s->parked, &p->link);
		s->ep->nparked++;
	} else {
		handle_now(s, p);
	}
}

static void handle_parked(struct fab_side *s)
{
	struct fab_conn *c = s->conn;
	struct fab_pkt *p;

	c->refs++;
	while (!tei_list_empty(&s->parked)) {
		p = tei_list_first(&s->parked, struct fab_pkt, link);
		if (handle_must_wait(s, p))
			break;
		tei_list_del(&p->link);
		s->ep->nparked--;
		handle_now(s, p);
	}
	fab_conn_put(c);
}

void fab_recv_start(struct fab_ep *ep)
{
	struct fab_side *s, *tmp;

	if (!tei_list_empty(&ep->unexpected))
		handle_unexpected(ep);
	if (ep->nparked == 0)
		return;
	tei_list_foreach_safe (s, tmp, &ep->sides, struct fab_side, link)
		if (!tei_list_empty(&s->parked))
			handle_parked(s);
}
