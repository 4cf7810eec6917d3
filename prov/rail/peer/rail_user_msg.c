/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends and receives user messages. The calling thread posts a message; any
 * thread that polls a lane receives messages. This file also contains the
 * resolvers, which find out the incarnation of a process of which only an
 * address is known. */

#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/peer/rail_reverse.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"

_Static_assert(TEI_RAIL_MESSAGE_HEAD == RAIL_WIRE_HEADER, "head");
_Static_assert(TEI_RAIL_MESSAGE_MAX == RAIL_MSG_MAX, "length");

/* --- sending ------------------------------------------------------------- */

/* Makes the progress thread check a connection that has not been established
 * for a while. */
static void user_doubt(struct tei_rail_peer *p, struct rail_conn *conn)
{
	if (!__atomic_exchange_n(&conn->suspect, false, __ATOMIC_RELAXED))
		return;
	rail_sched_enter(p->dp);
	p->pairs.stuck = true;
	rail_peer_attend(p);
	rail_sched_leave(p->dp);
}

static int user_send_on(struct tei_rail_peer *p, uint32_t index,
			const uint8_t *buf, size_t len)
{
	struct rail *rail = rail_at(p->dp, index);
	struct rail_lane *lane;
	struct rail_conn *conn;
	int ret;

	ret = rail_msg_try_on(p, rail, 0, buf, len, &lane, &conn);
	if (ret != -FI_EAGAIN || !lane)
		return ret;
	user_doubt(p, conn);
	/* while the lane is polled, connections are established and send
	 * buffers become free */
	rail_lane_run(lane);
	return rail_msg_try_on(p, rail, 0, buf, len, &lane, &conn);
}

static void user_poll_rx(struct rail *rail)
{
	struct rail_lane *lane = &rail->rx_lane;
	struct rail_done done;

	if (!tei_mutex_trylock(&lane->lock))
		return;
	rail_done_init(&done);
	lane->recv.visited = true;
	rail_lane_poll(lane, &done);
	lane->recv.visited = false;
	tei_mutex_unlock(&lane->lock);
	rail_done_run(rail->dp, &done);
}

/* Tries a reverse-path send. Returns true if the message was sent. */
static bool user_send_back(struct tei_rail_peer *p, uint32_t index,
			   const uint8_t *buf, size_t len)
{
	struct rail *rail = rail_at(p->dp, index);
	int ret = rail_reverse_send(p, rail, buf, len);

	if (ret == -FI_EAGAIN) {
		user_poll_rx(rail);
		ret = rail_reverse_send(p, rail, buf, len);
	}
	return !ret;
}

static bool user_ready(struct tei_rail_peer *p)
{
	bool ready;

	if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) == RAIL_PEER_READY)
		return true;
	rail_sched_enter(p->dp);
	ready = p->state == RAIL_PEER_READY;
	if (p->state == RAIL_PEER_NEW && !p->hello.wanted) {
		p->hello.wanted = true;
		rail_peer_attend(p);
	}
	rail_sched_leave(p->dp);
	return ready;
}

int tei_rail_send(struct tei_rail_peer *p, uint8_t *buf, size_t len, bool back,
		  uint32_t *prefer)
{
	uint32_t i, n = rail_count(p->dp), at;
	int ret, worst = -FI_EHOSTUNREACH;
	bool works;
	struct rail_wire w;

	if (!user_ready(p))
		return -FI_EAGAIN;
	rail_msg_begin(p, &w, buf, RAIL_MSG_USER, 0);
	w.pos = len;
	rail_msg_end(&w);
	/* the first round tries the rails that work, the second one the
	 * others */
	for (i = 0; i < 2 * n; i++) {
		if (i == n && worst == -FI_EAGAIN)
			break;
		at = (*prefer + i) % n;
		works = rail_msg_works(p, rail_at(p->dp, at));
		if (works != (i < n))
			continue;
		ret = back && works && user_send_back(p, at, buf, len) ?
			      0 : user_send_on(p, at, buf, len);
		if (!ret) {
			*prefer = at;
			rail_progress_stir(p->dp);
			return 0;
		}
		if (ret == -FI_EAGAIN)
			worst = ret;
	}
	return rail_msg_verdict(p, worst);
}

uint32_t tei_rail_peer_rails(struct tei_rail_peer *p,
			     uint8_t rails[TEI_RAIL_MAX])
{
	uint32_t i, n = 0;

	rail_sched_enter(p->dp);
	for (i = 0; i < rail_count(p->dp); i++)
		if (rail_health_works(p, i))
			rails[n++] = (uint8_t)i;
	rail_sched_leave(p->dp);
	return n;
}

void tei_rail_attend(struct tei_rail_peer *p)
{
	rail_sched_enter(p->dp);
	rail_peer_attend(p);
	rail_sched_leave(p->dp);
}

/* --- receiving ----------------------------------------------------------- */

void rail_user_received(struct tei_rail_peer *p, const struct rail_wire *w,
			struct rail_done *done)
{
	size_t len = w->cap - w->pos;
	struct tei_rail_message *m;

	if (!p->dp->ops->message)
		return;
	m = malloc(sizeof(*m) + len);
	if (!m)
		return;
	m->peer = p;
	m->len = (uint32_t)len;
	memcpy(m->data, w->p + w->pos, len);
	p->refs++;
	tei_list_add_tail(&done->messages, &m->link);
}

void tei_rail_message_free(struct tei_rail_message *m)
{
	tei_rail_peer_put(m->peer);
	free(m);
}

static void user_poll_initiating(struct rail *rail, bool work)
{
	struct rail_lane *lane;
	uint32_t j;

	for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
		lane = &rail->tx_lanes[j];
		if (__atomic_load_n(&lane->inflight, __ATOMIC_RELAXED) ||
		    __atomic_load_n(&lane->receives, __ATOMIC_RELAXED) ||
		    __atomic_load_n(&lane->msgs, __ATOMIC_RELAXED) ||
		    (work && rail_lane_takes(lane) &&
		     __atomic_load_n(&lane->state, __ATOMIC_RELAXED) ==
			     RAIL_LANE_ACTIVE))
			rail_lane_run(lane);
	}
}

void tei_rail_progress_all(struct tei_rail_dp *dp)
{
	bool work = __atomic_load_n(&dp->tasks.nactive, __ATOMIC_RELAXED);
	uint32_t n = rail_count(dp), i;
	uint64_t from = tei_now_ns(), now;

	rail_polls_begin(&dp->callers.polls, from);
	rail_polls_begin(&dp->callers.rx_polls, from);
	for (i = 0; i < n; i++) {
		if (!__atomic_load_n(&rail_at(dp, i)->open, __ATOMIC_ACQUIRE))
			continue;
		user_poll_rx(rail_at(dp, i));
		user_poll_initiating(rail_at(dp, i), work);
	}
	now = tei_now_ns();
	rail_polls_end(&dp->callers.polls, from, now);
	rail_polls_end(&dp->callers.rx_polls, from, now);
}

/* --- resolvers ----------------------------------------------------------- */

void rail_user_seen(struct tei_rail_dp *dp, uint64_t inc,
		    const struct tei_rail_addr *addr)
{
	struct tei_rail_peer *p;

	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link) {
		if (!p->addrs.resolver || p->addrs.found || !p->nremotes ||
		    !rail_addr_same(&p->remotes[0].addr, addr))
			continue;
		p->addrs.found = inc;
		p->hello.wanted = false;
		p->hello.again = false;
		rail_peer_attend(p);
	}
}

int tei_rail_peer_resolve(struct tei_rail_dp *dp,
			  const struct tei_rail_addr *first,
			  struct tei_err *err, struct tei_rail_peer **out)
{
	struct tei_rail_peer *p;

	if (!first->len || first->len > sizeof(first->bytes))
		return tei_err_fail(err, TEI_ERR_INVALID, "rail", NULL,
				    "cannot look for a process: its address is empty or too long");
	rail_sched_enter(dp);
	p = rail_peer_resolver(dp, first);
	rail_sched_leave(dp);
	if (!p)
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "no memory for a peer");
	*out = p;
	return 0;
}

uint64_t tei_rail_peer_found(struct tei_rail_peer *p)
{
	uint64_t inc;

	rail_sched_enter(p->dp);
	inc = p->addrs.found;
	rail_sched_leave(p->dp);
	return inc;
}

struct tei_rail_peer *tei_rail_peer_known(struct tei_rail_dp *dp, uint64_t inc)
{
	struct tei_rail_peer *p;

	rail_sched_enter(dp);
	p = inc ? rail_peer_find(dp, inc) : NULL;
	if (p)
		p->refs++;
	rail_sched_leave(dp);
	return p;
}
