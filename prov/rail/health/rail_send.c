/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends a message over a rail pair that works: the route of a rail, the pair
 * over which the peer's last message arrived, or any other pair. */

#include <rdma/fi_errno.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

/* Time for which peer->life.received determines the choice of the rail pair. */
#define SEND_RECEIVED_NS TEI_NS_PER_SEC
#define SEND_LOST_TRIES	4	/* every fourth attempt may use other rail pairs
				 * (send_is_lost) */

/* Handles that the provider found no route from the rail to the remote rail.
 * Marks the rail pair faulty only if the pair is a route; a pair that is not a
 * route was used only because the routes had failed. */
static void send_refused(struct tei_rail_peer *peer, struct rail *rail,
			 uint16_t remote, int err)
{
	rail_sched_enter(peer->dp);
	if (remote == peer->routes.route[rail->index])
		rail_health_refused(peer, rail, remote, err);
	rail_sched_leave(peer->dp);
}

/* Handles a message over a lane that is not open. If no peer was contacted over
 * the lane yet, makes the progress thread open it, provided that the rail has a
 * route to the peer. remote: as in rail_msg_try_pair. Returns -FI_EAGAIN if the
 * lane is being opened. */
static int send_without_lane(struct tei_rail_peer *peer, struct rail *rail,
			     uint32_t index, int16_t remote)
{
	if (!rail_use_none(rail, index))
		return __atomic_load_n(&rail->link.lost, __ATOMIC_RELAXED)
			       ? -FI_EHOSTUNREACH
			       : -FI_EAGAIN;
	rail_sched_enter(peer->dp);
	if (remote < 0)
		remote = peer->routes.route[rail->index];
	rail_sched_leave(peer->dp);
	if (remote >= 0 && !rail_use_want(rail, index) &&
	    rail_use_none(rail, index))
		return -FI_EHOSTUNREACH;	/* the data plane is closed */
	return remote >= 0 ? -FI_EAGAIN : -FI_EHOSTUNREACH;
}

int rail_msg_try_pair(struct tei_rail_peer *peer, struct rail *rail,
		      uint32_t index, int16_t remote, const void *msg,
		      size_t len, struct rail_lane **which,
		      struct rail_conn **way)
{
	struct rail_lane *lane = rail_msg_lane(rail, index);
	struct rail_conn *conn = NULL;
	int refused = 0;
	ssize_t ret;

	*which = NULL;
	if (!__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
		return -FI_EHOSTUNREACH;
	if (!lane)
		return send_without_lane(peer, rail, index, remote);
	rail_sched_enter(peer->dp);
	if (remote < 0)
		remote = peer->routes.route[rail->index];
	if (remote >= 0)
		conn = rail_conn_get(peer, lane, (uint16_t)remote);
	rail_sched_leave(peer->dp);
	if (!conn)
		return -FI_EHOSTUNREACH;
	tei_mutex_lock(&lane->lock);
	ret = rail_msg_post_on(peer, lane, conn, msg, len, &refused);
	tei_mutex_unlock(&lane->lock);
	if (refused)
		send_refused(peer, rail, (uint16_t)remote, refused);
	*which = lane;
	*way = conn;
	return (int)ret;
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
		peer->life.again_ns = 0;
	else if (ret == -FI_EAGAIN && lane && !peer->life.again_ns)
		/* From this time on, attempts become rare (rail_ctl_again).
		 * If lane is NULL, the lane is being opened; this ends soon,
		 * so the attempts stay frequent. */
		peer->life.again_ns = now;
	if (ret == -FI_EAGAIN && lane) {
		/* a connection is established only while the lane is polled */
		rail_lane_run(lane);
		if (!peer->refusal.unauthenticated)
			rail_renew_if_stuck(peer, lane, conn, now);
	}
	return ret;
}

bool rail_msg_works(struct tei_rail_peer *peer, const struct rail *rail)
{
	int16_t remote;
	bool works;

	if (__atomic_load_n(&rail->link.down, __ATOMIC_RELAXED))
		return false;
	if (!__atomic_load_n(&peer->dp->health.nfaults, __ATOMIC_RELAXED))
		return true;
	rail_sched_enter(peer->dp);
	remote = peer->routes.route[rail->index];
	works = remote >= 0 &&
		!rail_health_doubtful(peer, rail, (uint16_t)remote);
	rail_sched_leave(peer->dp);
	return works;
}

/* Sends the message over the route of the first rail that accepts it. works: if
 * true, tries only rails whose route works, otherwise only rails whose route
 * does not work. first: index of the rail that is tried first. */
static int send_over(struct tei_rail_peer *peer, const void *msg,
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

/* Returns true if the rail's route to the peer is not connected or is in
 * doubt. */
static bool send_route_fails(struct tei_rail_peer *peer, const struct rail *rail)
{
	const struct rail_conn *conn = NULL;
	struct rail_lane *lane;
	int16_t remote;
	bool fails;

	lane = rail_msg_lane(rail_at(peer->dp, rail->index), 0);
	rail_sched_enter(peer->dp);
	remote = peer->routes.route[rail->index];
	fails = remote >= 0 &&
		rail_health_doubtful(peer, rail, (uint16_t)remote);
	if (remote >= 0 && lane)
		conn = rail_conn_get(peer, lane, (uint16_t)remote);
	rail_sched_leave(peer->dp);
	return fails ||
	       (conn && __atomic_load_n(&conn->suspect, __ATOMIC_RELAXED));
}

/* Sends the message over a rail pair that is not a route, because the peer may
 * be reachable over such a pair although its routes fail. all: true if all
 * local rails may be used; otherwise only those whose route fails. */
static int send_elsewhere(struct tei_rail_peer *peer, const void *msg,
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
	turn = peer->life.msg_turn++;
	for (i = 0; i < n; i++) {
		rail = rail_at(peer->dp, (turn + i) % n);
		if (__atomic_load_n(&rail->link.down, __ATOMIC_RELAXED) ||
		    (!all && !send_route_fails(peer, rail)))
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
		if (all && !peer->refusal.unauthenticated)
			rail_renew_if_stuck(peer, lane, conn, tei_now_ns());
	}
	return -FI_EHOSTUNREACH;
}

/* Returns true if a local rail can reach a rail of the peer, whatever the state
 * of that rail is. Also returns true if a rail of the peer has no address at
 * present, because that rail may be reachable later. */
static bool send_fits(struct tei_rail_peer *peer)
{
	bool fits = false;
	uint32_t i;

	rail_sched_enter(peer->dp);
	for (i = 0; i < peer->nremotes; i++)
		fits |= peer->remotes[i].away ||
			(peer->remotes[i].hint && peer->remotes[i].addr.len);
	for (i = 0; i < rail_count(peer->dp); i++)
		fits |= peer->routes.route[i] >= 0 &&
			__atomic_load_n(&rail_at(peer->dp, i)->open,
					__ATOMIC_ACQUIRE);
	rail_sched_leave(peer->dp);
	return fits;
}

int rail_msg_verdict(struct tei_rail_peer *peer, int ret)
{
	return ret == -FI_EHOSTUNREACH && send_fits(peer) ? -FI_EAGAIN : ret;
}

/* Sends the message over the rail pair of the peer's last message, if that pair
 * is not a route. The peer used this pair because its own routes fail. Returns
 * an error if a fault of the pair has become known since. */
static int send_to_received(struct tei_rail_peer *peer, const void *msg,
			 size_t len, int32_t received)
{
	int16_t remote = (int16_t)((received >> RAIL_RECEIVED_SHIFT) - 1);
	struct rail_lane *lane;
	struct rail_conn *conn;
	struct rail *rail;
	bool elsewhere;

	if (received < 0 || remote < 0)
		return -FI_EHOSTUNREACH;
	rail = rail_at(peer->dp, (uint32_t)received & 0xff);
	rail_sched_enter(peer->dp);
	elsewhere = remote < peer->nremotes &&
		    remote != peer->routes.route[rail->index] &&
		    !rail_health_doubtful(peer, rail, (uint16_t)remote) &&
		    tei_now_ns() < peer->alive_ns + SEND_RECEIVED_NS;
	rail_sched_leave(peer->dp);
	return elsewhere ? rail_msg_try_pair(peer, rail, 0, remote, msg, len,
					     &lane, &conn)
			 : -FI_EHOSTUNREACH;
}

/* Returns true if the message should use other rail pairs: it was sent several
 * times without an answer, and a rail pair is known to be broken. The routes
 * may then accept messages without delivering them. If no pair is known to be
 * broken, the peer is silent on all routes, and other pairs would not help. */
static bool send_is_lost(struct tei_rail_peer *peer, uint32_t attempt)
{
	bool broken = false;
	struct rail_fault *f;

	if (attempt % SEND_LOST_TRIES != SEND_LOST_TRIES - 1)
		return false;
	rail_sched_enter(peer->dp);
	tei_list_foreach(f, &peer->faults, struct rail_fault, peer_link)
		broken |= f->stage == RAIL_FAULT_SUSPECT ||
			  f->stage == RAIL_FAULT_DOWN;
	rail_sched_leave(peer->dp);
	return broken;
}

/* In every other attempt, first tries the rail pair of the peer's last message.
 * Then tries the routes that work, beginning with the route of the local rail
 * that has received the peer's last message. If none of them accepts the
 * message, tries rail pairs that are not routes, and the routes that do not
 * work. */
int rail_msg_send(struct tei_rail_peer *peer, const void *msg, size_t len,
		  uint32_t attempt)
{
	int32_t received =
		__atomic_load_n(&peer->life.received, __ATOMIC_RELAXED);
	uint32_t first =
		attempt + (received > 0 ? (uint32_t)received & 0xff : 0);
	int ret;

	if (!(attempt % 2) && !send_to_received(peer, msg, len, received))
		return 0;
	if (send_is_lost(peer, attempt) &&
	    !send_elsewhere(peer, msg, len, true))
		return 0;
	ret = send_over(peer, msg, len, first, true);
	if (ret == -FI_EHOSTUNREACH && !(attempt % 2))
		ret = send_over(peer, msg, len, first, false);
	if (ret && !send_elsewhere(peer, msg, len, false))
		return 0;
	if (ret == -FI_EHOSTUNREACH && attempt % 2)
		ret = send_over(peer, msg, len, first, false);
	return rail_msg_verdict(peer, ret);
}
