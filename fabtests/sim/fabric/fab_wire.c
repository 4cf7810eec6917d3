/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets on the way. A NIC sends one packet at a time; its sides send in turn.
 * A packet arrives after the latency of its path. If the path is blocked at
 * that time, the packet waits in the list fab_side.held of the sending side, in
 * the order of arrival.
 */

#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

#define WIRE_HEADER 64 /* size of a packet's header on the wire, bytes */
#define WIRE_TURN                                        \
	16 /* maximum number of packets that one fi_cq_read \
	    * handles for an endpoint */

/* --- packets --- */

struct fab_pkt *fab_pkt_new(struct fab_conn *conn, int to,
			    enum fab_pkt_kind kind, uint32_t len)
{
	struct fab_pkt *p = fab_alloc(sizeof(*p) + len);

	tei_list_init(&p->link);
	p->conn = conn;
	p->to = to;
	p->kind = kind;
	p->len = len;
	conn->refs++;
	return p;
}

void fab_pkt_free(struct fab_pkt *p)
{
	tei_list_del(&p->link);
	if (p->msg)
		fab_msg_put(p->msg);
	fab_conn_put(p->conn);
	free(p);
}

static struct fab_side *wire_sender(const struct fab_pkt *p)
{
	return &p->conn->side[!p->to];
}

void fab_wire_done(struct fab_pkt *p)
{
	struct fab_side *sender = wire_sender(p);

	sender->flight -= p->len;
	if (p->kind == FAB_P_END || p->kind == FAB_P_REFUSE)
		p->conn->reset[p->to] = false;
	fab_wire_want(sender);
	fab_pkt_free(p);
}

/* --- arrival --- */

static void wire_handle(struct fab_pkt *p)
{
	if (p->kind == FAB_P_MSG)
		fab_handle(&p->conn->side[p->to], p);
	else
		fab_conn_handle(p);
}

/* Returns the endpoint that handles the packet, or NULL if there is none. */
static struct fab_ep *wire_ep(const struct fab_pkt *p)
{
	const struct fab_side *s = &p->conn->side[p->to];

	if (p->kind == FAB_P_CONNECT && s->state == FAB_SIDE_NONE)
		return fab_ep_at(&p->conn->addr[p->to]);
	return s->shut ? NULL : s->ep;
}

static void wire_deliver(struct fab_pkt *p)
{
	struct fab_side *sender = wire_sender(p), *s = &p->conn->side[p->to];
	struct fab_ep *ep = wire_ep(p);

	sender->on_wire--;
	if (!ep) {
		if (p->kind != FAB_P_END && p->kind != FAB_P_REFUSE)
			fab_conn_reset(p->conn, !p->to);
		fab_wire_done(p);
		return;
	}
	sender->ack_ns = sim_now();
	sender->acked_bytes += p->len;
	s->received_bytes += p->len;
	s->recv_ns = sim_now();
	/* CONNECT is handled by the process in fi_cq_read even if the NIC
	 * handles all other packets */
	if (fab_net->conf.auto_progress && p->kind != FAB_P_CONNECT) {
		wire_handle(p);
		return;
	}
	tei_list_add_tail(&ep->inbox, &p->link);
	fab_ep_notify(ep);
}

void fab_wire_progress(struct fab_ep *ep)
{
	struct fab_pkt *p;
	int i;

	for (i = 0; i < WIRE_TURN && !tei_list_empty(&ep->inbox); i++) {
		p = tei_list_first(&ep->inbox, struct fab_pkt, link);
		tei_list_del(&p->link);
		wire_handle(p);
	}
}

void fab_wire_clear(struct fab_ep *ep)
{
	struct fab_pkt *p;

	while (!tei_list_empty(&ep->inbox)) {
		p = tei_list_first(&ep->inbox, struct fab_pkt, link);
		tei_list_del(&p->link);
		if (p->kind == FAB_P_CONNECT)
			fab_conn_reset(p->conn, !p->to);
		fab_wire_done(p);
	}
}

/* --- blocked paths --- */

/* Called when the held packets of the side have waited for too long: closes the
 * side and drops the packets. */
static void wire_give_up(void *arg)
{
	struct fab_side *s = arg;
	struct fab_conn *c = s->conn;

	s->retry = 0;
	if (s->state != FAB_SIDE_CLOSED)
		fab_side_close(s, FI_ETIMEDOUT, false);
	fab_wire_drop(s);
	fab_conn_put(c);
}

/* Starts the timer that drops the side's held packets. If the side is closed,
 * they wait for conf.linger_ns. Otherwise they wait for conf.retry_ns; if that
 * is 0 or the path is stalled, starts no timer. */
static void wire_wait(struct fab_side *s, bool stalled)
{
	const struct sim_net_conf *conf = &fab_net->conf;
	bool closed = s->state == FAB_SIDE_CLOSED;
	uint64_t wait = closed ? conf->linger_ns : conf->retry_ns;

	if (s->retry || (!closed && (!wait || stalled)))
		return;
	s->retry = sim_at(sim_now() + wait, wire_give_up, s);
	s->conn->refs++;
}

static void wire_hold(struct fab_pkt *p, bool stalled)
{
	struct fab_side *s = wire_sender(p);

	if (tei_list_empty(&s->held)) {
		s->held_ns = sim_now();
		tei_list_add_tail(&fab_net->held, &s->holding);
	}
	tei_list_add_tail(&s->held, &p->link);
	wire_wait(s, stalled);
}

void fab_wire_linger(struct fab_side *s)
{
	if (!tei_list_empty(&s->held))
		wire_wait(s, false);
}

static void wire_unhold(struct fab_side *s)
{
	struct fab_conn *c = s->conn;

	tei_list_del(&s->holding);
	if (!s->retry)
		return;
	sim_cancel(s->retry);
	s->retry = 0;
	fab_conn_put(c);
}

void fab_wire_drop(struct fab_side *s)
{
	struct fab_conn *c = s->conn;
	struct fab_pkt *p;

	c->refs++;
	while (!tei_list_empty(&s->held)) {
		p = tei_list_first(&s->held, struct fab_pkt, link);
		s->on_wire--;
		fab_wire_done(p);
	}
	wire_unhold(s);
	fab_conn_put(c);
}

static void wire_arrive(void *arg)
{
	struct fab_pkt *p = arg;
	struct fab_conn *c = p->conn;
	bool stalled;

	tei_list_del(&p->link);
	if (!fab_net->hosts[c->addr[!p->to].at.host].power) {
		wire_sender(p)->on_wire--;
		fab_wire_done(p);
		return;
	}
	if (fab_path_blocked(c->addr[!p->to].at, c->addr[p->to].at, &stalled))
		wire_hold(p, stalled);
	else
		wire_deliver(p);
}

/* --- sending --- */

/* Returns true if the packet may overtake other packets of its connection. */
static bool wire_overtakes(const struct fab_pkt *p)
{
	return fab_net->conf.unordered && p->msg &&
	       (p->msg->kind == FAB_WRITE || p->msg->kind == FAB_BYTES);
}

static uint64_t wire_time(uint64_t bytes, uint64_t bandwidth)
{
	return bandwidth ? bytes * SIM_SEC / bandwidth : 0;
}

/* Computes when the packet arrives, and adds the event of its arrival. left_ns
 * is the time at which the packet has left the NIC. */
static void wire_fly(struct fab_pkt *p, uint64_t left_ns)
{
	struct sim_net_nic from = p->conn->addr[!p->to].at;
	struct fab_side *s = wire_sender(p);
	struct fab_nic *nic = fab_nic_get(from);
	struct sim_net_path path;
	uint64_t when = left_ns, least, *free_ns;

	fab_path_find(from, p->conn->addr[p->to].at, &path, &free_ns);
	if (free_ns) {
		if (*free_ns > when)
			when = *free_ns;
		when += wire_time(p->len + WIRE_HEADER, path.bandwidth);
		*free_ns = when;
	}
	when += path.latency_ns;
	if (path.jitter_ns)
		when += sim_rng_below(&nic->rng, path.jitter_ns + 1);
	if (path.loss_ppm && sim_rng_chance(&nic->rng, path.loss_ppm))
		when += fab_net->conf.rto_ns;
	/* A packet that makes or closes the connection is not overtaken. */
	least = wire_overtakes(p) ? s->floor_ns : s->arrive_ns;
	if (when < least)
		when = least;
	if (when > s->arrive_ns)
		s->arrive_ns = when;
	if (p->kind != FAB_P_MSG)
		s->floor_ns = when;
	s->on_wire++;
	s->sent_ns = sim_now();
	tei_list_add_tail(&fab_net->flying, &p->link);
	sim_at(when, wire_arrive, p);
}

void fab_wire_send(struct fab_pkt *p)
{
	wire_sender(p)->flight += p->len;
	wire_fly(p, sim_now());
}

/* Delivers all held packets of the side. */
static void wire_resume(struct fab_side *s)
{
	struct fab_conn *c = s->conn;
	struct fab_pkt *p;

	c->refs++;
	wire_unhold(s);
	while (!tei_list_empty(&s->held)) {
		p = tei_list_first(&s->held, struct fab_pkt, link);
		tei_list_del(&p->link);
		wire_deliver(p);
	}
	fab_conn_put(c);
}

void fab_wire_release(void)
{
	struct tei_list todo;
	struct fab_side *s;
	bool stalled;

	tei_list_init(&todo);
	tei_list_splice_tail(&todo, &fab_net->held);
	while (!tei_list_empty(&todo)) {
		s = tei_list_first(&todo, struct fab_side, holding);
		if (!fab_path_blocked(s->conn->addr[s->index].at,
				      s->conn->addr[!s->index].at, &stalled)) {
			/* Deliver the held packets now and not with a new
			 * event: packets that are still on the way must not
			 * overtake them. */
			wire_resume(s);
			continue;
		}
		tei_list_del(&s->holding);
		tei_list_add_tail(&fab_net->held, &s->holding);
		if (!stalled)
			wire_wait(s, false);
	}
}

/* Copies `len` bytes of a message from its memory to `to`, beginning at the
 * byte with the number `off`. */
static void wire_read(const struct fab_msg *m, uint64_t off, char *to,
		      uint64_t len)
{
	uint64_t n;
	size_t i;

	for (i = 0; i < m->niov && len; i++) {
		if (off >= m->iov[i].iov_len) {
			off -= m->iov[i].iov_len;
			continue;
		}
		n = m->iov[i].iov_len - off;
		n = n < len ? n : len;
		memcpy(to, (char *)m->iov[i].iov_base + off, n);
		to += n;
		len -= n;
		off = 0;
	}
}

/* Returns true if the side has a message to send and may send a packet of it
 * now. */
static bool wire_ready(const struct fab_side *s)
{
	return s->state == FAB_SIDE_UP && !s->shut &&
	       !tei_list_empty(&s->queue) &&
	       (!s->flight || s->flight < fab_net->conf.window);
}

/* Sends the next packet of the first message in the side's queue. */
static void wire_next(struct fab_side *s, uint64_t now)
{
	struct fab_msg *m = tei_list_first(&s->queue, struct fab_msg, link);
	bool bytes = m->kind != FAB_READ && m->kind != FAB_ACK;
	uint64_t len = bytes ? m->len - m->sent : 0;
	struct fab_nic *nic = fab_nic_get(s->conn->addr[s->index].at);
	struct fab_pkt *p;

	if (len > fab_net->conf.packet)
		len = fab_net->conf.packet;
	p = fab_pkt_new(s->conn, !s->index, FAB_P_MSG, (uint32_t)len);
	p->msg = m;
	m->refs++;
	p->off = m->sent;
	wire_read(m, m->sent, p->data, len);
	m->sent += len;
	s->flight += len;
	nic->free_ns =
		now + wire_time(len + WIRE_HEADER, fab_net->conf.bandwidth);
	wire_fly(p, nic->free_ns);
	if (bytes && m->sent < m->len)
		return;
	tei_list_del(&m->link);
	if (m->op && !m->acked && m->kind != FAB_READ)
		fab_op_end(m->op, 0, true);
	fab_msg_put(m);
}

/* Sends packets of the NIC's sides until the NIC is busy or no side has
 * something to send. */
static void wire_pump(struct fab_nic *nic)
{
	uint64_t now = sim_now();
	struct fab_side *s;

	while (!tei_list_empty(&nic->sending)) {
		if (nic->free_ns > now)
			return;
		s = tei_list_first(&nic->sending, struct fab_side, sending);
		tei_list_del(&s->sending);
		if (!wire_ready(s))
			continue;
		wire_next(s, now);
		if (wire_ready(s) && tei_list_empty(&s->sending))
			tei_list_add_tail(&nic->sending, &s->sending);
	}
}

static void wire_pump_later(void *arg)
{
	struct fab_nic *nic = arg;

	nic->pump = 0;
	wire_pump(nic);
	if (!tei_list_empty(&nic->sending) && !nic->pump)
		nic->pump = sim_at(nic->free_ns, wire_pump_later, nic);
}

void fab_wire_want(struct fab_side *s)
{
	struct fab_nic *nic;

	if (!wire_ready(s) || !tei_list_empty(&s->sending))
		return;
	nic = fab_nic_get(s->conn->addr[s->index].at);
	tei_list_add_tail(&nic->sending, &s->sending);
	if (!nic->pump)
		nic->pump = sim_at(nic->free_ns, wire_pump_later, nic);
}

void fab_wire_end(void)
{
	struct fab_side *s, *tmp;
	struct fab_pkt *p;

	tei_list_foreach_safe (s, tmp, &fab_net->held, struct fab_side, holding)
		fab_wire_drop(s);
	while (!tei_list_empty(&fab_net->flying)) {
		p = tei_list_first(&fab_net->flying, struct fab_pkt, link);
		fab_pkt_free(p);
	}
}
