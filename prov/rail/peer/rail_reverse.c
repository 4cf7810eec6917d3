/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reverse-path sends.
 *
 * Normally each of two processes sends its messages over a connection that it
 * has made itself. Over TCP the receiver then has to acknowledge each message
 * with a packet of its own before it handles the message (RFC 9293, 3.8.6.3).
 * If one connection carries the messages of both directions, the
 * acknowledgement is part of the answer.
 *
 * So of two processes, the one with the lower incarnation also receives user
 * messages on its tx lanes. When a user message has arrived at the rx lane of
 * this process, the process sends REVERSE over its own connection to the peer.
 * From then on the peer sends user messages from its rx lane over that
 * connection. If this is not possible, the peer uses a connection of its own as
 * before. A message that is lost on the reverse path is not repeated here: the
 * owner of the data plane repeats it, over the normal path.
 *
 * If the connection has ended meanwhile, the provider would make a new one from
 * the rx lane to the tx lane, and a search for the connection by its address
 * would not find it. The reverse path is therefore valid only for one second
 * after the last message that arrived over the connection. It also becomes
 * invalid when a message cannot be posted. A connection that the provider has
 * made in this way ends when either lane is closed.
 *
 * Only user messages use the reverse path; reads and writes never do.
 */

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_loss.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_reverse.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

/* Time for which a reverse path stays valid after the last message that arrived
 * over its connection. */
#define REVERSE_RECEIVED_NS TEI_NS_PER_SEC
/* Shortest time between two REVERSE messages. */
#define REVERSE_NOTIFY_NS (200 * TEI_NS_PER_MS)

bool rail_reverse_fits(const struct rail *rail)
{
	switch (rail->fab.info->addr_format) {
	case FI_SOCKADDR:
	case FI_SOCKADDR_IN:
	case FI_SOCKADDR_IN6:
		return rail->dp->conf.back &&
		       !(rail->fab.mr_mode & FI_MR_LOCAL) &&
		       strstr(rail->nic.provider, "tcp");
	default:
		return false;
	}
}

/* Returns true if this process receives user messages on its tx lanes. Of two
 * processes, only one does so. */
static bool reverse_is_ours(const struct tei_rail_peer *p)
{
	return p->dp->incarnation < p->incarnation;
}

/* --- receiver of user messages ------------------------------------------- */

void rail_reverse_missed(struct tei_rail_peer *p, const struct rail_lane *lane)
{
	if (!lane->is_rx || lane->contact || !lane->rail->caps.back ||
	    !reverse_is_ours(p) || p->alive_ns < p->reverse.next_ns)
		return;
	p->reverse.next_ns = p->alive_ns + REVERSE_NOTIFY_NS;
	p->reverse.rails |= UINT64_C(1) << lane->rail->index;
	rail_peer_attend(p);
}

/* Sends REVERSE over the rail. REVERSE is not repeated if it is lost: the next
 * user message causes another one. */
static void reverse_notify(struct tei_rail_peer *p, struct rail *rail,
			   uint8_t *buf)
{
	struct rail_lane *lane = rail_msg_lane(rail, 0);
	struct tei_rail_addr addr;
	struct rail_conn *conn;
	struct rail_wire w;
	uint32_t gen = 0;
	int16_t remote;

	rail_sched_enter(p->dp);
	remote = p->routes.route[rail->index];
	if (remote >= 0)
		gen = p->remotes[remote].gen;
	rail_sched_leave(p->dp);
	if (!lane || !gen)
		return;
	tei_mutex_lock(&lane->lock);
	addr = lane->addr;
	__atomic_store_n(&lane->receives, lane->ep != NULL, __ATOMIC_RELAXED);
	tei_mutex_unlock(&lane->lock);
	rail_msg_begin(p, &w, buf, RAIL_MSG_REVERSE, 0);
	rail_wire_put(&w, gen, 4);
	rail_addr_put(&w, &addr);
	rail_msg_try_on(p, rail, 0, buf, rail_msg_end(&w), &lane, &conn);
}

uint64_t rail_ctl_reverse(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	uint64_t rails;
	uint32_t i;

	(void)now;
	rail_sched_enter(p->dp);
	rails = p->state == RAIL_PEER_READY ? p->reverse.rails : 0;
	p->reverse.rails = 0;
	rail_sched_leave(p->dp);
	for (i = 0; rails >> i; i++)
		if (rails >> i & 1)
			reverse_notify(p, rail_at(p->dp, i), buf);
	return 0;
}

/* --- sender of user messages --------------------------------------------- */

void rail_reverse_received(struct tei_rail_peer *p,
			   const struct rail_lane *lane)
{
	struct rail_reverse *b = p->reverse.path[lane->rail->index];

	if (b && lane->is_rx && !lane->contact)
		__atomic_store_n(&b->received_ns, p->alive_ns,
				 __ATOMIC_RELAXED);
}

/* Removes the addresses of freed peers from the address vector of the lane. */
static void back_sweep(struct rail_lane *lane)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	struct tei_list *left = &lane->rail->reverse_left;
	struct rail_reverse *b;

	while (!tei_list_empty(left)) {
		b = tei_list_first(left, struct rail_reverse, link);
		tei_list_del(&b->link);
		if (b->gen == lane->gen)
			fi_av_remove(lane->av, &b->addr, 1, 0);
		free(b);
	}
}

/* Returns true if "a" is an IP address with the same format and protocol as
 * "own", the address of the rail. */
static bool back_is_like(const struct tei_rail_addr *own,
			 const struct tei_rail_addr *a)
{
	return rail_addr_is_ip(a) && a->protocol == own->protocol && a->len == own->len &&
	       a->protocol_version == own->protocol_version &&
	       a->addr_format == own->addr_format;
}

/* Returns the reverse path to the peer on that rail. Creates it if necessary.
 * Returns NULL if memory is short. */
static struct rail_reverse *back_of(struct tei_rail_peer *p, uint32_t rail)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_reverse *b = p->reverse.path[rail];

	if (b)
		return b;
	b = calloc(1, sizeof(*b));
	if (b)
		__atomic_store_n(&p->reverse.path[rail], b, __ATOMIC_RELEASE);
	return b;
}

void rail_reverse_notified(struct tei_rail_peer *p, struct rail_lane *lane,
			   struct rail_wire *w)
{
	uint32_t gen = (uint32_t)rail_wire_get(w, 4);
	struct tei_rail_addr addr;
	struct rail_reverse *b;

	if (!rail_addr_get(w, &addr) || !lane->rail->caps.back ||
	    !lane->is_rx || lane->contact || gen != lane->gen || !lane->ep ||
	    reverse_is_ours(p) || !back_is_like(&lane->addr, &addr))
		return;
	b = back_of(p, lane->rail->index);
	if (!b)
		return;
	back_sweep(lane);
	if (b->gen != lane->gen || !rail_addr_same(&b->to, &addr)) {
		if (b->gen == lane->gen)
			fi_av_remove(lane->av, &b->addr, 1, 0);
		b->gen = 0;
		if (fi_av_insert(lane->av, addr.bytes, 1, &b->addr, 0,
				 NULL) != 1)
			return;
		b->gen = gen;
		b->to = addr;
	}
	__atomic_store_n(&b->received_ns, p->alive_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&b->good, true, __ATOMIC_RELAXED);
}

/* Invalidates the reverse path b until the peer sends REVERSE again. Does
 * nothing if b is NULL. */
static void reverse_fails(struct rail_reverse *b)
{
	if (b)
		__atomic_store_n(&b->good, false, __ATOMIC_RELAXED);
}

static void reverse_complete(struct rail_lane *lane,
			     const struct fi_cq_msg_entry *entry, int n,
			     struct rail_done *done)
{
	int i;

	rail_sched_enter(lane->rail->dp);
	for (i = 0; i < n; i++)
		rail_msg_abort(entry[i].op_context, done);
	rail_sched_leave(lane->rail->dp);
}

static void reverse_fail(struct rail_lane *lane,
			 const struct fi_cq_err_entry *err, const char *text,
			 struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct rail_tx *tx =
		tei_container_of(err->op_context, struct rail_tx, op);
	struct tei_rail_peer *p = tx->conn ? tx->conn->peer : NULL;

	rail_loss_log(lane, err, "message to", p, text);
	rail_sched_enter(lane->rail->dp);
	if (p)
		reverse_fails(p->reverse.path[lane->rail->index]);
	rail_msg_abort(&tx->op, done);
	rail_sched_leave(lane->rail->dp);
}

static const struct rail_op_handler reverse_op = {
	.complete = reverse_complete,
	.fail = reverse_fail,
	.abort = rail_msg_abort,
};

int rail_reverse_send(struct tei_rail_peer *p, struct rail *rail,
		      const void *msg, size_t len)
{
	struct rail_reverse *b = __atomic_load_n(&p->reverse.path[rail->index],
						 __ATOMIC_ACQUIRE);
	struct rail_lane *lane = &rail->rx_lane;
	int ret;

	if (!b || !__atomic_load_n(&b->good, __ATOMIC_RELAXED) ||
	    tei_now_about_ns() >
		    __atomic_load_n(&b->received_ns, __ATOMIC_RELAXED) +
			    REVERSE_RECEIVED_NS)
		return -FI_EHOSTUNREACH;
	tei_mutex_lock(&lane->lock);
	ret = lane->state == RAIL_LANE_ACTIVE && lane->ep && b->gen == lane->gen
		      ? rail_msg_post_reverse(p, lane, &reverse_op, b->addr,
					      msg, len)
		      : -FI_EHOSTUNREACH;
	tei_mutex_unlock(&lane->lock);
	if (ret && ret != -FI_EAGAIN)
		reverse_fails(b);
	return ret;
}

void tei_rail_no_reverse_path(struct tei_rail_peer *p)
{
	uint32_t i;

	for (i = 0; i < rail_count(p->dp); i++)
		reverse_fails(
			__atomic_load_n(&p->reverse.path[i], __ATOMIC_ACQUIRE));
}

void rail_reverse_free(struct tei_rail_peer *p)
{
	uint32_t i;

	for (i = 0; i < TEI_RAIL_MAX; i++) {
		if (p->reverse.path[i] && i < rail_count(p->dp))
			tei_list_add_tail(&rail_at(p->dp, i)->reverse_left,
					  &p->reverse.path[i]->link);
		else
			free(p->reverse.path[i]); /* the rail of this reverse
						   * path was freed earlier */
		p->reverse.path[i] = NULL;
	}
}

void rail_reverse_fini(struct rail *rail)
{
	struct rail_reverse *b, *tmp;

	tei_list_foreach_safe (b, tmp, &rail->reverse_left, struct rail_reverse,
			       link)
		free(b);
	tei_list_init(&rail->reverse_left);
}
