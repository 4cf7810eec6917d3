/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The peer protocol: builds messages, sends them, and handles those that
 * arrive. A state machine repeats each request until it is answered, so every
 * handler must accept the same message twice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/wire/rail_wire.h"

#define MSG_PAIR_SHIFT                                      \
	8 /* in peer->received: shift of the remote's index \
	   * plus 1 */
#define MSG_HEARD_NS                                               \
	TEI_NS_PER_SEC /* time for which peer->received is used to \
			* choose a route */
#define MSG_SILENT_NS	(200 * TEI_NS_PER_MS)
#define MSG_TX_SPARE	8	/* buffers reserved for connections that use
				 * none */
#define MSG_LOST_TRIES	4	/* the last of this many tries uses other rail
				 * pairs */

/* --- sending ------------------------------------------------------------- */

struct rail_lane *rail_msg_lane(struct rail *rail, uint32_t index)
{
	struct rail_lane *lane = &rail->tx_lanes[index * RAIL_LANE_SLOTS];
	int i;

	for (i = 0; i < RAIL_LANE_SLOTS; i++)
		if (rail_lane_active(&lane[i]))
			return &lane[i];
	return NULL;
}

/*
 * Takes a send buffer for the connection, or returns NULL if the connection may
 * not have one.
 *
 * A connection may use at most twice as many buffers as are left, so that a
 * peer that accepts nothing does not take all of them: dynamic thresholds,
 * Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998. Several
 * such peers could still use up the remaining buffers step by step, so the last
 * buffers are reserved for connections that use none.
 */
static struct rail_tx *msg_tx_take(struct rail *rail, struct rail_conn *conn)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_tx *tx;

	if (!rail->tx_left || (conn && conn->msgs &&
			       (conn->msgs >= 2 * rail->tx_left ||
				rail->tx_left <= MSG_TX_SPARE)))
		return NULL;
	tx = tei_list_first(&rail->tx_free, struct rail_tx, link);
	tei_list_del(&tx->link);
	rail->tx_left--;
	rail_conn_send(conn, tx);
	return tx;
}

static struct rail_tx *msg_tx_get(struct rail *rail, struct rail_conn *conn)
{
	struct rail_tx *tx;

	rail_sched_enter(rail->dp);
	tx = msg_tx_take(rail, conn);
	rail_sched_leave(rail->dp);
	return tx;
}

void rail_msg_tx_put(struct rail_tx *tx)
{
	__atomic_fetch_sub(&tx->lane->msgs, 1, __ATOMIC_RELAXED);
	tx->lane = NULL;
	rail_conn_sent(tx);
	tei_list_add_tail(&tx->rail->tx_free, &tx->link);
	tx->rail->tx_left++;
}

/* The result of msg_admit. */
struct msg_conn {
	bool busy;			/* slices are in flight on the
					 * connection */
	bool ready;
	struct rail_tx *tx;		/* send buffer if ready; NULL: all are
					 * in use */
};

/* Requests a place in the endpoint cache for the connection, and takes a send
 * buffer if the connection has an address handle. Returns false if no place is
 * free now. */
static bool msg_admit(struct tei_rail_peer *peer, struct rail_lane *lane,
		      uint16_t remote, struct rail_conn *conn, uint64_t now,
		      struct msg_conn *is) TEI_REQUIRES(lane->lock)
{
	bool good;

	is->tx = NULL;
	rail_sched_enter(lane->rail->dp);
	good = rail_cache_admit_msg(lane, conn, now);
	is->busy = conn->inflight != 0;
	is->ready = good && rail_conn_is_ready(peer, conn, lane, remote);
	if (is->ready)
		is->tx = msg_tx_take(lane->rail, conn);
	rail_sched_leave(lane->rail->dp);
	return good;
}

/* Sends the message in the buffer tx to an address of the lane's address
 * vector. Returns -FI_ENOMEM if tx is NULL. Frees tx on failure. */
static ssize_t msg_post_to(struct tei_rail_peer *peer, struct rail_lane *lane,
			   uint16_t remote, struct rail_tx *tx,
			   fi_addr_t addr, const void *msg, size_t len)
	TEI_REQUIRES(lane->lock)
{
	struct rail *rail = lane->rail;
	ssize_t ret;

	if (!tx)
		return -FI_ENOMEM;
	memcpy(tx->buf, msg, len);
	tx->buf[RAIL_WIRE_FLAGS_AT + 1] |= (uint8_t)(rail->index + 1);
	rail_auth_sign(peer, tx->buf, len);
	tx->lane = lane;
	tx->incarnation = peer->incarnation;
	tx->remote = remote;
	__atomic_fetch_add(&lane->msgs, 1, __ATOMIC_RELAXED);
	ret = fi_send(lane->ep, tx->buf, len,
		      rail->tx_mr ? fi_mr_desc(rail->tx_mr) : NULL, addr,
		      &tx->op.ctx);
	if (ret) {
		rail_sched_enter(rail->dp);
		rail_msg_tx_put(tx);
		rail_sched_leave(rail->dp);
	}
	return ret;
}

/* The provider found no route. Marks the rail pair faulty only if it is the
 * peer's current route; other pairs were only tried. */
static void msg_refused(struct tei_rail_peer *peer, struct rail_lane *lane,
			struct rail_conn *conn, int err, uint64_t now)
	TEI_REQUIRES(lane->lock)
{
	rail_conn_block(conn, now, false);
	conn->since_ns = 0; /* the connection is not being established */
	__atomic_store_n(&conn->suspect, true, __ATOMIC_RELAXED);
	rail_sched_enter(peer->dp);
	if (conn->remote == peer->route[lane->rail->index])
		rail_health_refused(peer, lane->rail, conn->remote, err);
	rail_sched_leave(peer->dp);
}

/* Posts the message on the connection, establishing it if necessary. Returns 0,
 * -FI_EAGAIN, or -FI_EHOSTUNREACH if the provider refused the message. */
static ssize_t msg_post(struct tei_rail_peer *peer, struct rail_lane *lane,
			uint16_t remote, struct rail_conn *conn,
			const void *msg, size_t len, uint64_t now)
	TEI_REQUIRES(lane->lock)
{
	struct msg_conn is;
	ssize_t ret = 0;

	if (lane->state != RAIL_LANE_ACTIVE || conn->blocked_ns > now ||
	    !msg_admit(peer, lane, remote, conn, now, &is))
		return -FI_EAGAIN;
	rail_cache_close(lane);
	if (!is.ready)
		ret = rail_conn_ready(peer, conn, lane, remote, 0);
	if (ret == -FI_EAGAIN)
		return ret;
	if (!ret) {
		conn->used = true;
		if (!is.ready)
			is.tx = msg_tx_get(lane->rail, conn);
		ret = msg_post_to(peer, lane, remote, is.tx, conn->fi_addr, msg,
				  len);
	}
	switch (ret) {
	case 0:
		conn->since_ns = 0;
		conn->asked_ns = now;
		conn->backoff_us = 0;
		__atomic_store_n(&conn->suspect, false, __ATOMIC_RELAXED);
		return 0;
	case -FI_EAGAIN:
		__atomic_store_n(&conn->suspect,
				 rail_conn_block(conn, now, is.busy),
				 __ATOMIC_RELAXED);
		return ret;
	case -FI_ENOMEM:	/* no buffer is free; the connection is not at
				 * fault */
		return -FI_EAGAIN;
	default:
		msg_refused(peer, lane, conn, (int)-ret, now);
		return -FI_EHOSTUNREACH;
	}
}

int rail_msg_post(struct tei_rail_peer *peer, struct rail_lane *lane,
		  uint16_t remote, fi_addr_t addr, const void *msg, size_t len)
{
	ssize_t ret = -FI_EHOSTUNREACH;

	tei_mutex_lock(&lane->lock);
	if (lane->ep)
		ret = msg_post_to(peer, lane, remote,
				  msg_tx_get(lane->rail, NULL), addr, msg, len);
	tei_mutex_unlock(&lane->lock);
	return ret == -FI_ENOMEM ? -FI_EAGAIN : (int)ret;
}

int rail_msg_post_reverse(struct tei_rail_peer *peer, struct rail_lane *lane,
			  fi_addr_t addr, const void *msg, size_t len)
{
	struct rail_lane *forth = rail_msg_lane(lane->rail, 0);
	struct rail_conn *conn = NULL;
	struct rail_tx *tx = NULL;
	int16_t remote;
	ssize_t ret;

	/* the buffer is counted on the connection to the route's remote rail */
	rail_sched_enter(peer->dp);
	remote = peer->route[lane->rail->index];
	if (forth && remote >= 0)
		conn = rail_conn_get(peer, forth, (uint16_t)remote);
	if (conn)
		tx = msg_tx_take(lane->rail, conn);
	rail_sched_leave(peer->dp);
	if (!tx)
		return -FI_EAGAIN;
	ret = msg_post_to(peer, lane, (uint16_t)remote, tx, addr, msg, len);
	return ret == -FI_EAGAIN ? -FI_ENOTCONN : (int)ret;
}

int rail_msg_try_pair(struct tei_rail_peer *peer, struct rail *rail,
		      uint32_t index, int16_t remote, const void *msg,
		      size_t len, struct rail_lane **which,
		      struct rail_conn **way)
{
	struct rail_lane *lane = rail_msg_lane(rail, index);
	struct rail_conn *conn = NULL;
	ssize_t ret;

	*which = NULL;
	if (!__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
		return -FI_EHOSTUNREACH;
	if (!lane)	/* the lane is being renewed, or could not be opened
			 * again */
		return __atomic_load_n(&rail->lost, __ATOMIC_RELAXED) ?
			       -FI_EHOSTUNREACH : -FI_EAGAIN;
	rail_sched_enter(peer->dp);
	if (remote < 0)
		remote = peer->route[rail->index];
	if (remote >= 0)
		conn = rail_conn_get(peer, lane, (uint16_t)remote);
	rail_sched_leave(peer->dp);
	if (!conn)
		return -FI_EHOSTUNREACH;
	tei_mutex_lock(&lane->lock);
	ret = msg_post(peer, lane, (uint16_t)remote, conn, msg, len,
		       tei_now_ns());
	tei_mutex_unlock(&lane->lock);
	*which = lane;
	*way = conn;
	return (int)ret;
}

enum rail_msg_link rail_msg_link(struct tei_rail_peer *peer, struct rail *rail,
				 uint32_t index)
{
	struct rail_lane *lane = rail_msg_lane(rail, index);
	enum rail_msg_link link = RAIL_MSG_UNLINKED;
	struct rail_conn *conn = NULL;

	rail_sched_enter(peer->dp);
	if (lane && peer->route[rail->index] >= 0)
		conn = rail_conn_get(peer, lane,
				     (uint16_t)peer->route[rail->index]);
	if (conn && conn->msgs)
		link = RAIL_MSG_LINKING;
	rail_sched_leave(peer->dp);
	if (!conn)
		return link;
	tei_mutex_lock(&lane->lock);
	if (rail_conn_lives(lane, conn))
		link = RAIL_MSG_LINKED;
	tei_mutex_unlock(&lane->lock);
	return link;
}

int rail_msg_try_on(struct tei_rail_peer *peer, struct rail *rail,
		    uint32_t index, const void *msg, size_t len,
		    struct rail_lane **which, struct rail_conn **way)
{
	return rail_msg_try_pair(peer, rail, index, -1, msg, len, which, way);
}

int rail_msg_send_on(struct tei_rail_peer *peer, struct rail *rail,
		     uint32_t index, const void *msg, size_t len)
{
	uint64_t now = tei_now_ns();
	struct rail_lane *lane;
	struct rail_conn *conn;
	int ret;

	ret = rail_msg_try_on(peer, rail, index, msg, len, &lane, &conn);
	if (!ret)
		peer->again_ns = 0;
	else if (ret == -FI_EAGAIN && !peer->again_ns)
		peer->again_ns = now;
	if (ret == -FI_EAGAIN && lane) {
		/* connecting needs progress on the lane */
		rail_lane_run(lane);
		if (!peer->unauthenticated)
			rail_renew_if_stuck(peer, lane, conn, now);
	}
	return ret;
}

bool rail_msg_works(struct tei_rail_peer *peer, const struct rail *rail)
{
	int16_t remote;
	bool works;

	if (__atomic_load_n(&rail->link_down, __ATOMIC_RELAXED))
		return false;
	if (!__atomic_load_n(&peer->dp->nfaults, __ATOMIC_RELAXED))
		return true;
	rail_sched_enter(peer->dp);
	remote = peer->route[rail->index];
	works = remote >= 0 &&
		!rail_health_doubtful(peer, rail, (uint16_t)remote);
	rail_sched_leave(peer->dp);
	return works;
}

/* Sends the message over the first rail that accepts it. works: uses only rails
 * whose route works; otherwise only rails whose route does not. first: index of
 * the rail to start at. */
static int msg_send_over(struct tei_rail_peer *peer, const void *msg,
			 size_t len, uint32_t first, bool works)
{
	uint32_t i, n = rail_count(peer->dp);
	int ret, worst = -FI_EHOSTUNREACH;
	struct rail *rail;

	for (i = 0; i < n; i++) {
		rail = rail_at(peer->dp, (first + i) % n);
		if (rail_msg_works(peer, rail) != works)
			continue;
		ret = rail_msg_send_on(peer, rail, 0, msg, len);
		if (!ret)
			return 0;
		if (ret == -FI_EAGAIN)
			worst = ret;
	}
	return worst;
}

/* Returns true if the rail's route to the peer does not connect or is in
 * doubt. */
static bool msg_route_fails(struct tei_rail_peer *peer, const struct rail *rail)
{
	const struct rail_conn *conn = NULL;
	struct rail_lane *lane;
	int16_t remote;
	bool fails;

	lane = rail_msg_lane(rail_at(peer->dp, rail->index), 0);
	rail_sched_enter(peer->dp);
	remote = peer->route[rail->index];
	fails = remote >= 0 &&
		rail_health_doubtful(peer, rail, (uint16_t)remote);
	if (remote >= 0 && lane)
		conn = rail_conn_get(peer, lane, (uint16_t)remote);
	rail_sched_leave(peer->dp);
	return fails ||
	       (conn && __atomic_load_n(&conn->suspect, __ATOMIC_RELAXED));
}

/* Sends the message over a rail pair that is not a route. Uses only local rails
 * whose route fails, or all local rails if all is set. The peer may be
 * reachable over such a pair, and the peer's answer shows whether the route
 * works. */
static int msg_send_deferred(struct tei_rail_peer *peer, const void *msg,
			     size_t len, bool all)
{
	uint32_t i, n = rail_count(peer->dp);
	struct rail_lane *lane;
	struct rail_conn *conn;
	struct rail *rail;
	int16_t remote;
	uint32_t turn;
	int ret;

	if (rail_peer_remotes(peer) < 2)
		return -FI_EHOSTUNREACH;
	turn = peer->msg_turn++;
	for (i = 0; i < n; i++) {
		rail = rail_at(peer->dp, (turn + i) % n);
		if (__atomic_load_n(&rail->link_down, __ATOMIC_RELAXED) ||
		    (!all && !msg_route_fails(peer, rail)))
			continue;
		rail_sched_enter(peer->dp);
		remote = rail_conn_other(peer, rail, turn / n);
		rail_sched_leave(peer->dp);
		if (remote < 0)
			continue;
		ret = rail_msg_try_pair(peer, rail, 0, remote, msg, len, &lane,
					&conn);
		if (!ret)
			return 0;
		if (ret != -FI_EAGAIN || !lane)
			continue;
		rail_lane_run(lane);
		if (all && !peer->unauthenticated)
			rail_renew_if_stuck(peer, lane, conn, tei_now_ns());
	}
	return -FI_EHOSTUNREACH;
}

/* Returns true if some local rail can reach a rail of the peer, in whatever
 * state that rail is, or if a rail of the peer has no address at present, so
 * that it may be reachable later. */
static bool msg_fits(struct tei_rail_peer *peer)
{
	bool fits = false;
	uint32_t i;

	rail_sched_enter(peer->dp);
	for (i = 0; i < peer->nremotes; i++)
		fits |= peer->remotes[i].away ||
			(peer->remotes[i].hint && peer->remotes[i].addr.len);
	for (i = 0; i < rail_count(peer->dp); i++)
		fits |= peer->route[i] >= 0 &&
			__atomic_load_n(&rail_at(peer->dp, i)->open,
					__ATOMIC_ACQUIRE);
	rail_sched_leave(peer->dp);
	return fits;
}

int rail_msg_verdict(struct tei_rail_peer *peer, int ret)
{
	return ret == -FI_EHOSTUNREACH && msg_fits(peer) ? -FI_EAGAIN : ret;
}

/* Sends the message over the rail pair of the peer's last message, if that pair
 * is not a route. The peer used this pair because its own routes fail. Returns
 * an error if the pair has become doubtful since. */
static int msg_send_back(struct tei_rail_peer *peer, const void *msg,
			 size_t len, int32_t received)
{
	int16_t remote = (int16_t)((received >> MSG_PAIR_SHIFT) - 1);
	struct rail_lane *lane;
	struct rail_conn *conn;
	struct rail *rail;
	bool elsewhere;

	if (received < 0 || remote < 0)
		return -FI_EHOSTUNREACH;
	rail = rail_at(peer->dp, (uint32_t)received & 0xff);
	rail_sched_enter(peer->dp);
	elsewhere = remote < peer->nremotes &&
		    remote != peer->route[rail->index] &&
		    !rail_health_doubtful(peer, rail, (uint16_t)remote) &&
		    tei_now_ns() < peer->alive_ns + MSG_HEARD_NS;
	rail_sched_leave(peer->dp);
	return elsewhere ? rail_msg_try_pair(peer, rail, 0, remote, msg, len,
					     &lane, &conn)
			 : -FI_EHOSTUNREACH;
}

/* Returns true if the message should use other rail pairs: it was sent several
 * times without an answer, and a rail pair is known to be broken. The routes
 * may then accept messages without delivering them. If no pair is known to be
 * broken, the peer is silent on all routes, and other pairs would not help. */
static bool msg_is_lost(struct tei_rail_peer *peer, uint32_t attempt)
{
	bool broken = false;
	struct rail_fault *f;

	if (attempt % MSG_LOST_TRIES != MSG_LOST_TRIES - 1)
		return false;
	rail_sched_enter(peer->dp);
	tei_list_foreach(f, &peer->faults, struct rail_fault, peer_link)
		broken |= f->stage == RAIL_FAULT_SUSPECT ||
			  f->stage == RAIL_FAULT_DOWN;
	rail_sched_leave(peer->dp);
	return broken;
}

/* Starts with the rail of the peer's last message, because that rail works. */
int rail_msg_send(struct tei_rail_peer *peer, const void *msg, size_t len,
		  uint32_t attempt)
{
	int32_t received = __atomic_load_n(&peer->received, __ATOMIC_RELAXED);
	uint32_t first =
		attempt + (received > 0 ? (uint32_t)received & 0xff : 0);
	int ret;

	if (!(attempt % 2) && !msg_send_back(peer, msg, len, received))
		return 0;
	if (msg_is_lost(peer, attempt) &&
	    !msg_send_deferred(peer, msg, len, true))
		return 0;
	ret = msg_send_over(peer, msg, len, first, true);
	if (ret == -FI_EHOSTUNREACH && !(attempt % 2))
		ret = msg_send_over(peer, msg, len, first, false);
	if (ret && !msg_send_deferred(peer, msg, len, false))
		return 0;
	if (ret == -FI_EHOSTUNREACH && attempt % 2)
		ret = msg_send_over(peer, msg, len, first, false);
	return rail_msg_verdict(peer, ret);
}

bool rail_msg_idle(struct rail *rail)
{
	bool idle = true;
	int i;

	rail_sched_enter(rail->dp);
	for (i = 0; i < RAIL_TX_MSGS; i++)
		idle &= !rail->tx[i].lane || rail->tx[i].lane->is_rx;
	rail_sched_leave(rail->dp);
	return idle;
}

/* --- hello --------------------------------------------------------------- */

static uint8_t msg_key_flags(const struct rail *rail)
{
	uint8_t flags = 0;

	if (rail->mr_mode & FI_MR_VIRT_ADDR)
		flags |= RAIL_WIRE_VIRT_ADDR;
	if (rail->mr_mode & FI_MR_ENDPOINT)
		flags |= RAIL_WIRE_GEN_KEYS;
	return flags;
}

static void msg_put_rail(struct rail_wire *w, struct rail *rail)
{
	struct rail_lane *lane = &rail->rx_lane;

	rail_wire_put(w, rail->index, 2);
	rail_wire_put(w, lane->gen, 4);
	rail_wire_put(w, msg_key_flags(rail), 1);
	rail_wire_put(w, rail->prefix, 1);
	rail_msg_put_addr(w, &lane->addr);
	rail_wire_put_bytes(w, rail->name, strlen(rail->name));
}

/*
 * Returns true if a hello to the peer lists the rail. A replaced rail is still
 * listed for the peers that know it, because a rail that is not listed counts
 * as closed.
 */
static bool msg_lists_rail(const struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	return !__atomic_load_n(&rail->hidden, __ATOMIC_ACQUIRE) ||
	       peer->notified_rails >> rail->index & 1;
}

static void msg_put_firsts(struct rail_wire *w, struct tei_rail_dp *dp,
			   const bool *lists, uint32_t n)
{
	bool held[TEI_RAIL_MAX];
	uint32_t i, all = 0;

	for (i = 0; i < n; i++) {
		held[i] = lists[i] && rail_contact_lane_held(rail_at(dp, i));
		all += held[i];
	}
	rail_wire_put(w, all, 2);
	for (i = 0; i < n; i++)
		if (held[i])
			rail_msg_put_addr(w, &rail_at(dp, i)->own);
}

size_t rail_msg_hello(struct tei_rail_peer *peer, bool want_reply, uint8_t *buf)
{
	struct tei_rail_dp *dp = peer->dp;
	uint32_t i, n = rail_count(dp), open = 0;
	bool lists[TEI_RAIL_MAX], there[TEI_RAIL_MAX];
	struct rail_wire w;

	rail_sched_enter(dp);
	/* Only this thread changes rx lanes, except those of rails that are
	 * being closed, so they are read without their lock. */
	for (i = 0; i < n; i++) {
		lists[i] = msg_lists_rail(peer, rail_at(dp, i));
		there[i] =
			lists[i] && rail_lane_active(&rail_at(dp, i)->rx_lane);
		open += there[i];
		if (there[i])
			peer->notified_rails |= UINT64_C(1) << i;
	}
	rail_msg_begin(peer, &w, buf, RAIL_MSG_HELLO,
		       want_reply ? RAIL_WIRE_REPLY : 0);
	rail_wire_put_raw(&w, peer->nonce, sizeof(peer->nonce));
	rail_wire_put(&w, peer->table_seen, 4);
	rail_sched_leave(dp);
	rail_wire_put_bytes(&w, dp->name, strlen(dp->name));
	rail_wire_put(&w, open, 2);
	for (i = 0; i < n; i++)
		if (there[i])
			msg_put_rail(&w, rail_at(dp, i));
	rail_wire_put(&w, peer->atomics.own_session, 8);
	msg_put_firsts(&w, dp, lists, n);
	rail_wire_put(&w, peer->its_contact, 2);
	/* rail_contact.c writes the contact number into the last two bytes */
	rail_wire_put(&w, 0, 2);
	return rail_msg_end(&w);
}

static bool msg_get_rail(struct rail_wire *w, struct rail_remote *r)
{
	uint8_t keys;
	bool there;

	memset(r, 0, sizeof(*r));
	r->id = (uint16_t)rail_wire_get(w, 2);
	r->gen = (uint32_t)rail_wire_get(w, 4);
	keys = (uint8_t)rail_wire_get(w, 1);
	r->virt_addr = keys & RAIL_WIRE_VIRT_ADDR;
	r->gen_keys = keys & RAIL_WIRE_GEN_KEYS;
	r->prefix = (uint8_t)rail_wire_get(w, 1);
	there = rail_msg_get_addr(w, &r->addr);
	rail_wire_get_text(w, r->name, sizeof(r->name));
	return !w->bad && there && r->id < TEI_RAIL_MAX;
}

/* Returns the entry of the peer's rail with that id, or NULL. */
static struct rail_remote *msg_remote(struct tei_rail_peer *peer, uint16_t id)
{
	uint16_t i;

	for (i = 0; i < peer->nremotes; i++)
		if (peer->remotes[i].id == id && !peer->remotes[i].hint)
			return &peer->remotes[i];
	return NULL;
}

/* Stores a rail of the peer, if it is new or has a newer generation. Returns
 * false if memory is short. */
static bool msg_take_remote(struct tei_rail_peer *peer,
			    const struct rail_remote *in,
			    struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_remote *r = msg_remote(peer, in->id);
	struct rail_fence fence;

	/* a rail whose lane was closed may get its address later */
	if (r && (r->gen > in->gen ||
		  (r->gen == in->gen && (r->addr.len || !in->addr.len))))
		return true;
	if (!r) {
		/* remote keys that were received earlier contain no key for
		 * this rail */
		rail_key_drop_all(peer);
		if (rail_peer_reserve(peer, peer->nremotes + 1u))
			return false;
		r = &peer->remotes[peer->nremotes++];
		memset(r, 0, sizeof(*r));
	} else if (in->gen_keys) {
		rail_key_drop_all(peer);
	}
	fence = r->fence;
	*r = *in;
	r->fence = fence;
	r->away = !in->addr.len;
	r->serial = ++peer->serial;
	peer->routes_changed = true;
	rail_peer_attend(peer);
	/* the target has closed all earlier generations */
	rail_sched_fenced(peer, (uint16_t)(r - peer->remotes), in->gen - 1,
			  done);
	return true;
}

/* Marks the rails that the peer no longer lists as closed. */
static void msg_drop_missing(struct tei_rail_peer *peer, const bool *listed,
			     struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i;

	for (i = 0; i < peer->nremotes; i++) {
		if (peer->remotes[i].hint || listed[peer->remotes[i].id])
			continue;
		peer->remotes[i].away = false;
		if (!peer->remotes[i].addr.len)
			continue;
		memset(&peer->remotes[i].addr, 0,
		       sizeof(peer->remotes[i].addr));
		peer->remotes[i].serial = ++peer->serial;
		rail_sched_fenced(peer, i, UINT32_MAX - 1, done);
	}
}

/* The fields of a received hello. */
struct msg_hello {
	struct rail_remote remotes[TEI_RAIL_MAX];
	bool listed[TEI_RAIL_MAX];
	char name[256];
	uint8_t nonce[RAIL_WIRE_NONCE];
	uint32_t ack;
	uint16_t n;
	uint64_t session;		/* 0: the sender does not execute
					 * atomics */
	struct tei_rail_addr firsts[TEI_RAIL_MAX];
	uint16_t nfirsts;
	uint16_t answers;		/* contact number of the hello that is
					 * answered, 0: none */
	uint16_t contact;		/* contact number of this hello, 0: none */
};

static bool msg_get_firsts(struct rail_wire *w, struct msg_hello *h)
{
	uint16_t i;

	h->nfirsts = w->cap == w->pos ? 0 : (uint16_t)rail_wire_get(w, 2);
	if (w->bad || h->nfirsts > TEI_RAIL_MAX)
		return false;
	for (i = 0; i < h->nfirsts; i++)
		if (!rail_msg_get_addr(w, &h->firsts[i]))
			return false;
	return true;
}

static bool msg_parse_hello(struct rail_wire *w, struct msg_hello *h)
{
	uint16_t i;

	memset(h->listed, 0, sizeof(h->listed));
	rail_wire_get_raw(w, h->nonce, sizeof(h->nonce));
	h->ack = (uint32_t)rail_wire_get(w, 4);
	rail_wire_get_text(w, h->name, sizeof(h->name));
	h->n = (uint16_t)rail_wire_get(w, 2);
	if (w->bad || h->n > TEI_RAIL_MAX)
		return false;
	for (i = 0; i < h->n; i++) {
		if (!msg_get_rail(w, &h->remotes[i]))
			return false;
		h->listed[h->remotes[i].id] = true;
	}
	h->session = w->cap == w->pos ? 0 : rail_wire_get(w, 8);
	h->answers = 0;
	h->contact = 0;
	if (!msg_get_firsts(w, h))
		return false;
	if (w->cap == w->pos)
		return true;
	h->answers = (uint16_t)rail_wire_get(w, 2);
	h->contact = (uint16_t)rail_wire_get(w, 2);
	return !w->bad;
}

/* Handles a hello. for_us: the hello names this process as its receiver, or
 * names no receiver. to_us: the hello names this process. If the hello names
 * another process, its nonce is not meant for this process. */
static void msg_on_hello(struct tei_rail_peer *peer, const struct rail *rail,
			 const struct msg_hello *h, uint16_t flags, uint32_t table, bool for_us,
			 bool to_us, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i;

	if (peer->state == RAIL_PEER_GONE)
		return;
	if (!*peer->name)
		snprintf(peer->name, sizeof(peer->name), "%s", h->name);
	if (for_us)
		memcpy(peer->its_nonce, h->nonce, sizeof(peer->its_nonce));
	peer->known_us = true;
	peer->rehello = false;
	if (to_us && h->ack > peer->table_acked)
		peer->table_acked = h->ack;
	if (to_us)
		rail_atomic_session(peer, h->session, done);
	if (flags & RAIL_WIRE_REPLY)
		peer->reply_hello = true;
	peer->its_contact = h->contact;
	if (table > peer->table_seen || peer->state == RAIL_PEER_NEW) {
		/* if memory is short the contact addresses are kept, and the
		 * hello is repeated */
		if (peer->state == RAIL_PEER_NEW) {
			if (rail_peer_reserve(peer, h->n))
				return;
			rail_contact_answered(peer, rail, h->answers);
			peer->nremotes = 0;
		}
		for (i = 0; i < h->n; i++)
			if (!msg_take_remote(peer, &h->remotes[i], done))
				return;
		msg_drop_missing(peer, h->listed, done);
		rail_peer_take_firsts(peer, h->firsts, h->nfirsts);
		rail_peer_drop_hint(peer);
		if (rail_conn_table(peer))
			return;
		peer->table_seen = table;
		if (peer->state == RAIL_PEER_NEW)
			rail_peer_ready(peer);
	}
	rail_peer_attend(peer);
	rail_peer_activate(peer);
	rail_progress_signal(peer->dp);
}

/* --- handlers of the other messages -------------------------------------- */

/*
 * Handles a REFUSE. Such a message carries the nonce of the refused hello, so
 * that an attacker cannot replay the refusal of another hello. The nonce is
 * enough proof as long as the peer has not answered, because an attacker able
 * to read the hello can also keep the two processes from connecting. Once the
 * peer has answered, the refusal must be signed.
 */
static void msg_on_refuse(struct tei_rail_dp *dp, struct rail_wire *w,
			  bool proven, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t refused = rail_wire_get(w, 8);
	uint16_t code = (uint16_t)rail_wire_get(w, 2);
	uint8_t nonce[RAIL_WIRE_NONCE];
	struct tei_rail_peer *peer;
	uint16_t contact = 0;
	char reason[128];

	rail_wire_get_text(w, reason, sizeof(reason));
	rail_wire_get_raw(w, nonce, sizeof(nonce));
	if (!w->bad && w->pos < w->cap)
		contact = (uint16_t)rail_wire_get(w, 2);
	peer = w->bad ? NULL : rail_peer_find(dp, refused);
	if (!peer)
		return;
	if (!proven && peer->state != RAIL_PEER_NEW)
		return;
	if ((dp->signs || !proven) &&
	    !tei_mac_equal(nonce, peer->nonce, sizeof(nonce)))
		return;
	/* that another process answers at one address proves nothing, because
	 * the peer may have another address */
	if (code != RAIL_REFUSE_STALE)
		rail_peer_refused(peer, reason, done);
	else if (!rail_contact_refused(peer, contact) &&
		 !rail_peer_not_there(peer))
		rail_peer_set_gone(peer, reason, rail_peer_searched(peer) ?
				   RAIL_GONE_PERHAPS : RAIL_GONE_OVER, done);
}

static bool msg_get_key(struct rail_wire *w, uint64_t base,
			struct rail_rkey_part *part)
{
	memset(part, 0, sizeof(*part));
	part->rail_id = (uint16_t)rail_wire_get(w, 1);
	part->rank = (uint8_t)rail_wire_get(w, 1);
	part->offset = rail_wire_get(w, 8);
	part->key_len = (uint8_t)rail_wire_get_bytes(w, part->key,
						     sizeof(part->key));
	if (w->bad || part->key_len < sizeof(part->key64) ||
	    part->offset > base)
		return false;
	memcpy(&part->key64, part->key, sizeof(part->key64));
	return true;
}

static struct rail_rkey *msg_get_region(struct rail_wire *w)
{
	uint64_t base = rail_wire_get(w, 8), len = rail_wire_get(w, 8);
	uint64_t id = rail_wire_get(w, 8);
	uint8_t access = (uint8_t)rail_wire_get(w, 1);
	uint16_t i, n = (uint16_t)rail_wire_get(w, 2);
	struct rail_rkey *k;

	if (w->bad || !len || base + (len - 1) < base || n > TEI_RAIL_MAX)
		return NULL;
	k = calloc(1, sizeof(*k) + n * sizeof(k->part[0]));
	if (!k)
		return NULL;
	k->base = base;
	k->len = len;
	k->id = id;
	k->read_only = access & RAIL_WIRE_READ_ONLY;
	k->nparts = n;
	for (i = 0; i < n; i++) {
		if (!msg_get_key(w, base, &k->part[i])) {
			free(k);
			return NULL;
		}
	}
	return k;
}

/* Returns true if the peer's rails differ in rank for the region. */
static bool msg_ranked(const struct rail_rkey *k)
{
	uint16_t i;

	for (i = 1; i < k->nparts; i++)
		if (k->part[i].rank != k->part[0].rank)
			return true;
	return false;
}

static void msg_on_key_rep(struct tei_rail_peer *peer, struct rail_wire *w,
			   uint32_t table, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t addr = rail_wire_get(w, 8), len = rail_wire_get(w, 8);
	int32_t code = (int32_t)rail_wire_get(w, 4);
	uint32_t epoch = (uint32_t)rail_wire_get(w, 4);
	uint16_t i, n = (uint16_t)rail_wire_get(w, 2);
	struct rail_rkey *k;

	/* A reply is void if it is older than a revocation that has been
	 * answered, or older than the peer's rail table. The KEY_REQ is then
	 * repeated. */
	if (w->bad || epoch < peer->key_epoch || table < peer->table_seen)
		return;
	for (i = 0; i < n; i++) {
		k = msg_get_region(w);
		if (!k)
			return;
		if (msg_ranked(k) && !peer->ranked) {
			peer->ranked = true;
			rail_select_table(peer);
		}
		if (!rail_key_add(peer, k))
			return;
	}
	peer->key_want.since_ns = 0;
	if (peer->key_want.addr == addr && peer->key_want.len == len)
		peer->key_want.active = false;
	if (code)
		rail_sched_no_key(peer, addr, len, code, done);
	k = rail_key_find(peer, addr);
	if (!code && k && k->read_only)
		rail_sched_read_only(peer, addr, len, done);
	rail_peer_activate(peer);
}

static void msg_on_key_req(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t addr = rail_wire_get(w, 8), len = rail_wire_get(w, 8);

	if (w->bad)
		return;
	peer->key_reply.addr = addr;
	peer->key_reply.len = len;
	peer->key_reply.answer_pending = true;
	rail_peer_attend(peer);
}

static void msg_on_fence(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t id = (uint16_t)rail_wire_get(w, 2);
	uint32_t gen = (uint32_t)rail_wire_get(w, 4);

	/* a future generation cannot be fenced */
	if (w->bad || id >= rail_count(peer->dp) ||
	    gen > rail_at(peer->dp, id)->rx_lane.gen)
		return;
	peer->fence_reply[id].gen = gen;
	peer->fence_reply[id].answer_pending = true;
	peer->fences_pending = true;
	rail_peer_attend(peer);
}

static void msg_on_fenced(struct tei_rail_peer *peer, struct rail_wire *w,
			  struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t id = (uint16_t)rail_wire_get(w, 2);
	uint32_t asked = (uint32_t)rail_wire_get(w, 4);
	uint32_t gen = (uint32_t)rail_wire_get(w, 4);
	struct rail_remote in, *r = msg_remote(peer, id);

	if (!r || w->bad || gen <= asked)
		return;
	in = *r;
	memset(&in.addr, 0, sizeof(in.addr));
	in.gen = gen;
	in.addr.addr_format = (uint32_t)rail_wire_get(w, 4);
	in.addr.protocol = (uint32_t)rail_wire_get(w, 4);
	in.addr.protocol_version = (uint32_t)rail_wire_get(w, 4);
	in.addr.len = (uint32_t)rail_wire_get_bytes(w, in.addr.bytes,
						    sizeof(in.addr.bytes));
	if (w->bad)
		return;
	if (r->gen < gen)
		msg_take_remote(peer, &in, done);
	else
		rail_sched_fenced(peer, (uint16_t)(r - peer->remotes), gen - 1,
				  done);
}

static void msg_on_revoke(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t epoch = (uint32_t)rail_wire_get(w, 4);
	uint16_t i, n = (uint16_t)rail_wire_get(w, 2);
	uint64_t id;

	if (!w->bad && epoch > peer->key_epoch)
		peer->key_epoch = epoch;
	for (i = 0; i < n; i++) {
		id = rail_wire_get(w, 8);
		if (w->bad)
			return;
		rail_key_revoked(peer, id);
	}
}

static void msg_on_revoked(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i, n = (uint16_t)rail_wire_get(w, 2);
	uint64_t id;

	for (i = 0; i < n; i++) {
		id = rail_wire_get(w, 8);
		if (w->bad)
			return;
		rail_key_drained(peer, id);
	}
}

static void msg_dispatch(struct tei_rail_peer *peer, struct rail_lane *lane,
			 enum rail_msg_type type, uint16_t flags,
			 uint32_t table, struct rail_wire *w,
			 struct rail_done *done)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	switch (type) {
	case RAIL_MSG_KEY_REQ:
		msg_on_key_req(peer, w);
		break;
	case RAIL_MSG_KEY_REP:
		msg_on_key_rep(peer, w, table, done);
		break;
	case RAIL_MSG_FENCE:
		msg_on_fence(peer, w);
		break;
	case RAIL_MSG_FENCED:
		msg_on_fenced(peer, w, done);
		break;
	case RAIL_MSG_REVOKE:
		msg_on_revoke(peer, w);
		break;
	case RAIL_MSG_REVOKED:
		msg_on_revoked(peer, w);
		break;
	case RAIL_MSG_NOTIFY:
		rail_notify_received(peer, flags, w, done);
		break;
	case RAIL_MSG_NOTE_ACK:
		rail_notify_answered(peer, w);
		break;
	case RAIL_MSG_ATOMIC:
		rail_atomic_asked(peer, w);
		break;
	case RAIL_MSG_ATOMIC_REP:
		rail_atomic_answered(peer, w, done);
		break;
	case RAIL_MSG_USER:
		rail_reverse_missed(peer, lane);
		rail_user_received(peer, w, done);
		break;
	case RAIL_MSG_PING:
		rail_msg_on_ping(peer, lane, w);
		break;
	case RAIL_MSG_PONG:
		rail_msg_on_pong(peer, w);
		break;
	case RAIL_MSG_REVERSE:
		rail_reverse_notified(peer, lane, w);
		break;
	case RAIL_MSG_BYTES:
		rail_served_reported(peer, w);
		break;
	case RAIL_MSG_BYE:
		rail_peer_set_gone(peer, "the peer closed its engine",
				   flags & RAIL_WIRE_UNDRAINED ?
					   RAIL_GONE_OVER : RAIL_GONE_LEFT,
				   done);
		break;
	default:
		break;
	}
}

static void msg_log_bad(struct rail *rail, const char *what)
{
	tei_log_repeated(&rail->err_repeat, TEI_LOG_WARN, "rail",
			 "%s: message dropped: %s", rail->name, what);
}

/* The header of a message. */
struct msg_head {
	enum rail_msg_type type;
	uint16_t flags;
	uint32_t table;
	uint64_t src, dst, number;
};

/* Returns NULL, or the reason why the header is not valid. */
static const char *msg_parse_head(struct rail_wire *w, struct msg_head *h)
{
	uint32_t magic = (uint32_t)rail_wire_get(w, 4), total;
	uint8_t version = (uint8_t)rail_wire_get(w, 1);

	h->type = (enum rail_msg_type)rail_wire_get(w, 1);
	h->flags = (uint16_t)rail_wire_get(w, 2);
	total = (uint32_t)rail_wire_get(w, 4);
	h->table = (uint32_t)rail_wire_get(w, 4);
	h->src = rail_wire_get(w, 8);
	h->dst = rail_wire_get(w, 8);
	h->number = rail_wire_get(w, 8);
	rail_wire_get(w, 8);
	rail_wire_get(w, 8);
	if (w->bad || magic != RAIL_WIRE_MAGIC || total != w->cap || !h->src)
		return "not of the peer protocol";
	if (version != RAIL_WIRE_VERSION)
		return "another protocol version";
	return NULL;
}

const char *rail_msg_refusal_text(enum rail_refusal why)
{
	switch (why) {
	case RAIL_REFUSE_NONE:
		break;
	case RAIL_REFUSE_STALE:
		return "another process answers at this address: stale incarnation";
	case RAIL_REFUSE_NO_SECRET:
		return "the asked process has no shared secret, the asking one has";
	case RAIL_REFUSE_UNSIGNED:
		return "the asked process wants a shared secret";
	case RAIL_REFUSE_SECRETS_DIFFER:
		return "the shared secrets differ";
	case RAIL_REFUSE_TOO_MANY_PEERS:
		return "it holds MOONRAIL_MAX_PEERS peers already";
	}
	return "no reason given";
}

/* Returns the reason why messages of this sender are refused, or
 * RAIL_REFUSE_NONE. */
static enum rail_refusal msg_unauthenticated(struct tei_rail_dp *dp,
					     const struct msg_head *h,
					     const uint8_t *buf, size_t len)
	TEI_REQUIRES(rail_sched_held)
{
	bool is_signed = h->flags & RAIL_WIRE_SIGNED;

	if (!dp->signs)
		return is_signed ? RAIL_REFUSE_NO_SECRET : RAIL_REFUSE_NONE;
	if (!is_signed)
		return RAIL_REFUSE_UNSIGNED;
	if (!rail_auth_fits(dp, rail_peer_find(dp, h->src), buf, len))
		return RAIL_REFUSE_SECRETS_DIFFER;
	return RAIL_REFUSE_NONE;
}

/* Refuses a hello. Messages of other types are dropped without an answer. */
static void msg_turn_away(struct tei_rail_dp *dp, const struct msg_head *h,
			  const struct msg_hello *hello, enum rail_refusal why)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *p;
	uint16_t i = 0;

	if (h->type != RAIL_MSG_HELLO || h->dst != dp->incarnation)
		return;
	while (i < hello->n &&
	       rail_conn_fit_any(dp, &hello->remotes[i].addr) < 0)
		i++;
	if (i == hello->n)
		return;
	p = rail_peer_unauthenticated(dp, h->src, &hello->remotes[i].addr, why);
	if (p)
		memcpy(p->refuse_nonce, hello->nonce,
		       sizeof(p->refuse_nonce));
}

/* Returns the peer that sent the message, or NULL. A hello may create the
 * peer. */
static struct tei_rail_peer *msg_sender(struct tei_rail_dp *dp,
					const struct msg_head *h,
					const struct msg_hello *hello)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *peer = rail_peer_find(dp, h->src);

	if (peer || h->type != RAIL_MSG_HELLO || h->src == dp->incarnation)
		return peer;
	peer = rail_peer_new(dp, "", h->src);
	/* If memory is short, no refusal is sent. The sender repeats the
	 * hello. */
	if (!peer && rail_peer_no_room(dp))
		msg_turn_away(dp, h, hello, RAIL_REFUSE_TOO_MANY_PEERS);
	return peer;
}

/*
 * Returns false if a signed message was received before, or if it is a hello
 * and a later hello has been received. Unsigned messages always pass. The
 * sender numbers its messages separately for each receiver, so the number of a
 * message for another process is ignored.
 */
static bool msg_fresh(struct tei_rail_peer *peer, const struct msg_head *h)
{
	if (!peer->dp->signs)
		return true;
	if (h->dst && h->dst != peer->dp->incarnation)
		return peer->state == RAIL_PEER_NEW;
	if (h->type == RAIL_MSG_HELLO &&
	    !rail_auth_newest_hello(peer, h->number))
		return false;
	return rail_auth_once(peer, h->number);
}

/* Refuses a hello that names another process, which had this address
 * earlier. */
static void msg_refuse(struct tei_rail_peer *peer, uint64_t dst,
		       const struct msg_hello *hello)
	TEI_REQUIRES(rail_sched_held)
{
	if (peer->state == RAIL_PEER_GONE)
		return;
	peer->refuse = dst;
	peer->refusal = RAIL_REFUSE_STALE;
	memcpy(peer->refuse_nonce, hello->nonce, sizeof(peer->refuse_nonce));
	peer->refuse_contact = hello->contact;
	rail_peer_attend(peer);
}

/* Reports the addresses in a hello to the resolvers, because a resolver may
 * search for the sender. */
static void msg_seen(struct tei_rail_dp *dp, const struct msg_head *h,
		     const struct msg_hello *hello)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i;

	for (i = 0; dp->nseekers && i < hello->n; i++)
		rail_user_seen(dp, h->src, &hello->remotes[i].addr);
	for (i = 0; dp->nseekers && i < hello->nfirsts; i++)
		rail_user_seen(dp, h->src, &hello->firsts[i]);
}

/*
 * Returns the rail pair over which the message arrived, for peer->received. A
 * peer that knows only one contact address may send a hello over any of its
 * rails, so such a hello does not mean that a route has failed. A hello to one
 * of several contact addresses shows which pair works, so the answer uses that
 * pair.
 */
static int32_t msg_pair(const struct tei_rail_peer *peer,
			const struct rail *rail, const struct msg_head *h,
			uint16_t contact)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t by = h->flags >> RAIL_WIRE_BY_SHIFT & RAIL_WIRE_BY_MASK;
	uint16_t r;

	if (h->type == RAIL_MSG_HELLO && !contact)
		return (int32_t)rail->index;
	for (r = 0; by && r < peer->nremotes; r++)
		if (peer->remotes[r].id == by - 1)
			return (int32_t)rail->index | (r + 1) << MSG_PAIR_SHIFT;
	return (int32_t)rail->index;
}

/* Sends a hello with the present addresses to a peer that still uses the
 * contact address although the rx lane has moved. */
static void msg_came_first(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held)
{
	if (peer->state != RAIL_PEER_READY)
		return;
	peer->reply_hello = true;
	rail_peer_attend(peer);
}

/* Handles a message from a sender that is not refused. */
static void msg_take(struct rail_lane *lane, const struct msg_head *h,
		     struct rail_wire *w, const struct msg_hello *hello,
		     struct rail_done *done)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	struct rail *rail = lane->rail;
	struct tei_rail_dp *dp = rail->dp;
	struct tei_rail_peer *peer = msg_sender(dp, h, hello);
	bool to_us = h->dst == dp->incarnation;
	uint64_t now;

	if (!peer)
		return;
	if (h->type == RAIL_MSG_HELLO && h->dst && !to_us)
		msg_refuse(peer, h->dst, hello);
	if (!msg_fresh(peer, h))
		return;
	now = tei_now_ns();
	if (now - peer->alive_ns > MSG_SILENT_NS)
		rail_ctl_sleep_end(peer);
	rail_peer_alive(peer, now);
	if (h->type != RAIL_MSG_HELLO)
		__atomic_store_n(&peer->received, msg_pair(peer, rail, h, 0),
				 __ATOMIC_RELAXED);
	if (h->type == RAIL_MSG_HELLO) {
		msg_seen(dp, h, hello);
		msg_on_hello(peer, rail, hello, h->flags, h->table,
			     to_us || !h->dst, to_us, done);
		/* the hello has added the peer's rails, so the pair can be
		 * found now */
		__atomic_store_n(&peer->received,
				 msg_pair(peer, rail, h, hello->contact),
				 __ATOMIC_RELAXED);
	} else if (to_us) {
		if (lane->first)
			msg_came_first(peer);
		rail_reverse_received(peer, lane);
		msg_dispatch(peer, lane, h->type, h->flags, h->table, w, done);
	}
}

/* Defers a control message to the progress thread if a caller of the data plane
 * reads the lane (lane->visited). Returns true if the reading thread must not
 * handle the message. If memory is short the message is dropped, and its sender
 * repeats it. */
static bool msg_set_deferred(struct rail_lane *lane, enum rail_msg_type type,
			     const uint8_t *buf, size_t len)
	TEI_REQUIRES(lane->lock)
{
	struct rail_deferred *a;

	if (!lane->visited || type == RAIL_MSG_USER)
		return false;
	a = malloc(sizeof(*a) + len);
	if (a) {
		a->len = (uint32_t)len;
		memcpy(a->buf, buf, len);
		tei_list_add_tail(&lane->deferred, &a->link);
		__atomic_store_n(&lane->naside, lane->naside + 1,
				 __ATOMIC_RELAXED);
		rail_progress_wake(lane->rail->dp);
	}
	return true;
}

void rail_msg_defer(struct rail_lane *lane, struct rail_done *done)
{
	struct rail_deferred *a;

	while (!tei_list_empty(&lane->deferred)) {
		a = tei_list_first(&lane->deferred, struct rail_deferred, link);
		tei_list_del(&a->link);
		rail_msg_received(lane, a->buf, a->len, done);
		free(a);
	}
	__atomic_store_n(&lane->naside, 0, __ATOMIC_RELAXED);
}

void rail_msg_drop_deferred(struct rail_lane *lane)
{
	struct rail_deferred *a, *tmp;

	tei_list_foreach_safe (a, tmp, &lane->deferred, struct rail_deferred,
			       link)
		free(a);
	tei_list_init(&lane->deferred);
	__atomic_store_n(&lane->naside, 0, __ATOMIC_RELAXED);
}

void rail_msg_received(struct rail_lane *lane, const uint8_t *buf, size_t len,
		       struct rail_done *done)
{
	struct rail_wire w = { .p = (uint8_t *)(uintptr_t)buf, .cap = len };
	struct tei_rail_dp *dp = lane->rail->dp;
	enum rail_refusal refusal;
	struct msg_hello hello;
	struct msg_head h;
	const char *why = msg_parse_head(&w, &h);

	if (!why && !lane->is_rx && h.type != RAIL_MSG_USER)
		why = "type not allowed at a tx lane";
	if (!why && msg_set_deferred(lane, h.type, buf, len))
		return;
	/* parse the hello before anything is stored about an unauthenticated
	 * peer */
	if (!why && h.type == RAIL_MSG_HELLO && !msg_parse_hello(&w, &hello))
		why = "malformed hello";
	if (why) {
		msg_log_bad(lane->rail, why);
		return;
	}
	rail_sched_enter(dp);
	refusal = msg_unauthenticated(dp, &h, buf, len);
	if (h.type == RAIL_MSG_REFUSE && h.dst == dp->incarnation)
		msg_on_refuse(dp, &w, refusal == RAIL_REFUSE_NONE, done);
	else if (refusal != RAIL_REFUSE_NONE)
		msg_turn_away(dp, &h, &hello, refusal);
	else
		msg_take(lane, &h, &w, &hello, done);
	rail_sched_leave(dp);
	if (refusal != RAIL_REFUSE_NONE)
		msg_log_bad(lane->rail, rail_msg_refusal_text(refusal));
}
