/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections. The initiator sends CONNECT, and the target answers with ACCEPT
 * or REFUSE. If two endpoints connect to each other at the same time, they
 * share one connection. Each side closes on its own. The other side notices
 * that when END arrives, or when it sends something.
 */

#include <stdlib.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

int fab_conn_error(void)
{
	return fab_net->conf.ip ? FI_ECONNRESET : FI_EIO;
}

static void conn_trace(const char *kind, const struct fab_side *s, int err)
{
	const struct fab_conn *c = s->conn;

	SIM_TRACE(c->addr[s->index].at.host, kind, c->id, s->index,
		  c->addr[s->index].at.nic, c->addr[!s->index].at.host, err);
}

void fab_conn_put(struct fab_conn *c)
{
	if (--c->refs)
		return;
	tei_list_del(&c->link);
	free(c);
}

static struct tei_list *conn_bucket(const struct fab_ep *ep,
				    const struct fab_addr *to)
{
	uint32_t hash = (to->at.host * 64 + to->at.nic) * 31 + to->port;

	return &ep->by_peer[hash * UINT32_C(2654435761) >> 24];
}

struct fab_side *fab_conn_find(const struct fab_ep *ep,
			       const struct fab_addr *to)
{
	struct fab_side *s;

	if (!ep->by_peer)
		return NULL;
	tei_list_foreach (s, conn_bucket(ep, to), struct fab_side, by_peer)
		if (fab_addr_same(&s->conn->addr[!s->index], to))
			return s;
	return NULL;
}

static void conn_side_init(struct fab_conn *c, int index)
{
	struct fab_side *s = &c->side[index];

	s->conn = c;
	s->index = index;
	s->fd = -1;
	tei_list_init(&s->link);
	tei_list_init(&s->by_peer);
	tei_list_init(&s->queue);
	tei_list_init(&s->ops);
	tei_list_init(&s->sending);
	tei_list_init(&s->held);
	tei_list_init(&s->holding);
	tei_list_init(&s->parked);
	tei_list_init(&s->receiving);
}

/* Makes the side belong to the endpoint, and sets its state. */
static void conn_attach(struct fab_side *s, struct fab_ep *ep,
			enum fab_side_state state)
{
	int i;

	if (!ep->by_peer) {
		ep->by_peer = fab_alloc(FAB_PEERS * sizeof(*ep->by_peer));
		for (i = 0; i < FAB_PEERS; i++)
			tei_list_init(&ep->by_peer[i]);
	}
	s->ep = ep;
	s->state = state;
	tei_list_add_tail(&ep->sides, &s->link);
	tei_list_add_tail(conn_bucket(ep, &s->conn->addr[!s->index]),
			  &s->by_peer);
	s->conn->refs++;
}

/* Called if no answer to CONNECT has arrived in time: closes both sides, so the
 * attempt to connect fails. */
static void conn_give_up(void *arg)
{
	struct fab_conn *c = arg;

	c->attempt = 0;
	c->refs++;
	fab_wire_drop(&c->side[0]);
	fab_side_close(&c->side[1], FI_ETIMEDOUT, false);
	fab_side_close(&c->side[0], FI_ETIMEDOUT, false);
	fab_conn_put(c);
}

/* If the endpoint at the address `to` is already connecting to `ep`, returns
 * the side of `ep` in that connection. Otherwise returns NULL. */
static struct fab_side *conn_crossing(const struct fab_ep *ep,
				      const struct fab_addr *to)
{
	const struct fab_ep *peer = fab_ep_at(to);
	struct fab_side *s = peer ? fab_conn_find(peer, &ep->addr) : NULL;

	if (!s || s->index || s->state != FAB_SIDE_CONNECTING ||
	    s->conn->side[1].state != FAB_SIDE_NONE)
		return NULL;
	return &s->conn->side[1];
}

/* Counts the connections that the endpoint has started and not closed, and
 * updates the largest such number in the statistics. */
static void conn_count(const struct fab_ep *ep)
{
	const struct fab_side *s;
	uint32_t n = 0;

	tei_list_foreach (s, &ep->sides, struct fab_side, link)
		n += s->started && !s->shut;
	if (n > fab_net->stats.started_max)
		fab_net->stats.started_max = n;
}

/* Makes the endpoint's side of a connection that the endpoint starts. */
static void conn_attach_started(struct fab_side *s, struct fab_ep *ep)
{
	s->started = true;
	conn_attach(s, ep, FAB_SIDE_CONNECTING);
	conn_count(ep);
}

struct fab_side *fab_conn_start(struct fab_ep *ep, const struct fab_addr *to)
{
	struct fab_side *s = conn_crossing(ep, to);
	struct fab_conn *c;

	if (s) {
		conn_attach_started(s, ep);
		return s;
	}
	c = fab_alloc(sizeof(*c));
	c->id = ++fab_net->next_conn;
	c->addr[0] = ep->addr;
	c->addr[1] = *to;
	c->ephemeral = (uint16_t)(32768 + c->id % 28000);
	conn_side_init(c, 0);
	conn_side_init(c, 1);
	tei_list_add_tail(&fab_net->conns, &c->link);
	conn_attach_started(&c->side[0], ep);
	conn_trace("connect", &c->side[0], 0);
	c->attempt =
		sim_at(sim_now() + fab_net->conf.connect_ns, conn_give_up, c);
	fab_wire_send(fab_pkt_new(c, 1, FAB_P_CONNECT, 0));
	return &c->side[0];
}

static void conn_send(struct fab_conn *c, int to, enum fab_pkt_kind kind,
		      int status)
{
	struct fab_pkt *p = fab_pkt_new(c, to, kind, 0);

	p->status = status;
	fab_wire_send(p);
}

void fab_conn_reset(struct fab_conn *c, int to)
{
	if (c->reset[to] || c->side[to].state == FAB_SIDE_CLOSED)
		return;
	c->reset[to] = true;
	conn_send(c, to,
		  c->side[to].state == FAB_SIDE_CONNECTING ? FAB_P_REFUSE
							   : FAB_P_END,
		  c->side[to].state == FAB_SIDE_CONNECTING ? FI_ECONNREFUSED
							   : fab_conn_error());
}

/* --- closing --- */

/* Drops the messages that wait in the queue of the side. */
static void side_drop_queue(struct fab_side *s)
{
	struct fab_msg *m;

	tei_list_del(&s->sending);
	while (!tei_list_empty(&s->queue)) {
		m = tei_list_first(&s->queue, struct fab_msg, link);
		tei_list_del(&m->link);
		fab_msg_put(m);
	}
}

/* Ends the operations of the side with the error `err`, in the order in which
 * they were posted. If `err` is 0, there are no completions. */
static void side_end_ops(struct fab_side *s, int err)
{
	while (!tei_list_empty(&s->ops))
		fab_op_end(tei_list_first(&s->ops, struct fab_op, link), err,
			   err != 0);
}

/* Drops what the side has received of incomplete messages. If such a message
 * has a receive, the receive fails with the error `err`. A complete message
 * stays until a receive matches it. */
static void side_end_receiving(struct fab_side *s, struct fab_ep *ep, int err)
{
	struct fab_pkt *p;
	struct fab_msg *m;

	while (!tei_list_empty(&s->parked)) {
		p = tei_list_first(&s->parked, struct fab_pkt, link);
		tei_list_del(&p->link);
		ep->nparked--;
		fab_wire_done(p);
	}
	while (!tei_list_empty(&s->receiving)) {
		m = tei_list_first(&s->receiving, struct fab_msg, coming);
		tei_list_del(&m->coming);
		m->side = NULL;
		if (m->recv) {
			fab_recv_fail(ep, m->recv, err);
			m->recv = NULL;
		} else if (m->landed < m->len) {
			tei_list_del(&m->waiting);
			ep->nunexpected--;
			fab_msg_put(m);
		}
	}
}

/* Called when the initiator's side closes. If the other side has joined its
 * attempt to connect, closes that side too, because the attempt has failed. */
static void side_close_crossing(struct fab_side *s)
{
	struct fab_side *other = &s->conn->side[!s->index];

	if (!s->index && other->state == FAB_SIDE_CONNECTING)
		fab_side_close(other, FI_ECONNREFUSED, false);
}

void fab_side_close(struct fab_side *s, int err, bool inform)
{
	struct fab_conn *c = s->conn;
	struct fab_ep *ep = s->ep;
	bool up = s->state == FAB_SIDE_UP;

	if (s->state == FAB_SIDE_CLOSED || s->state == FAB_SIDE_NONE)
		return;
	conn_trace("closed", s, err);
	s->state = FAB_SIDE_CLOSED;
	s->ep = NULL;
	tei_list_del(&s->link);
	tei_list_del(&s->by_peer);
	fab_ep_forget(ep, s);
	if (s->fd >= 0)
		fab_fd_close(s->fd);
	s->fd = -1;
	side_drop_queue(s);
	side_end_ops(s, err);
	side_end_receiving(s, ep, err);
	if (!s->index && c->attempt) {
		sim_cancel(c->attempt);
		c->attempt = 0;
	}
	side_close_crossing(s);
	if (inform && up)
		conn_send(c, !s->index, FAB_P_END, 0);
	fab_wire_linger(s);
	fab_conn_put(c);
}

void fab_side_shut(struct fab_side *s)
{
	struct fab_pkt *p;

	if (s->shut || s->state == FAB_SIDE_CLOSED)
		return;
	s->shut = true;
	conn_trace("shut", s, 0);
	side_drop_queue(s);
	if (s->state == FAB_SIDE_UP)
		conn_send(s->conn, !s->index, FAB_P_END, 0);
	p = fab_pkt_new(s->conn, s->index, FAB_P_CUT, 0);
	tei_list_add_tail(&s->ep->inbox, &p->link);
	fab_ep_notify(s->ep);
}

/* --- packets --- */

/* Returns true if the endpoint may accept the connection. If it has another
 * connection to the same initiator, this depends on conf.stale_refuses: if it
 * is true, returns false; if not, closes the old connection and returns
 * true. */
static bool conn_may_accept(struct fab_ep *ep, struct fab_conn *c)
{
	struct fab_side *old = fab_conn_find(ep, &c->addr[0]);

	if (!old || old->conn == c)
		return true;
	if (fab_net->conf.stale_refuses)
		return false;
	fab_side_close(old, fab_conn_error(), true);
	return true;
}

static void conn_accept(struct fab_conn *c)
{
	struct fab_side *s = &c->side[1];
	struct fab_ep *ep = s->ep ? s->ep : fab_ep_at(&c->addr[1]);

	if (s->state == FAB_SIDE_CLOSED || !ep || !conn_may_accept(ep, c)) {
		conn_send(c, 0, FAB_P_REFUSE, FI_ECONNREFUSED);
		return;
	}
	if (s->state == FAB_SIDE_NONE)
		conn_attach(s, ep, FAB_SIDE_UP);
	s->state = FAB_SIDE_UP;
	fab_net->stats.connects++;
	conn_trace("accept", s, 0);
	conn_send(c, 0, FAB_P_ACCEPT, 0);
	fab_wire_want(s);
}

static void conn_accepted(struct fab_conn *c)
{
	struct fab_side *s = &c->side[0];

	if (s->state != FAB_SIDE_CONNECTING)
		return;
	s->state = FAB_SIDE_UP;
	if (c->attempt)
		sim_cancel(c->attempt);
	c->attempt = 0;
	conn_trace("connected", s, 0);
	fab_wire_want(s);
	fab_ep_notify(s->ep);
}

void fab_conn_handle(struct fab_pkt *p)
{
	struct fab_conn *c = p->conn;
	struct fab_side *s = &c->side[p->to];

	switch (p->kind) {
	case FAB_P_CONNECT:
		conn_accept(c);
		break;
	case FAB_P_ACCEPT:
		conn_accepted(c);
		break;
	case FAB_P_REFUSE:
		fab_side_close(s, p->status, false);
		break;
	case FAB_P_END:
		fab_side_close(s, p->status ? p->status : fab_conn_error(),
			       false);
		break;
	case FAB_P_CUT:
		fab_side_close(s, fab_conn_error(), false);
		break;
	case FAB_P_MSG:
		break;
	}
	if (p->kind == FAB_P_CUT)
		fab_pkt_free(p);
	else
		fab_wire_done(p);
}
