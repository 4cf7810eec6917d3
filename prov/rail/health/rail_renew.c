/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Renews tx lanes. A lane whose connections no longer work is retired, and its
 * sibling lane is opened in its place. The slices of other peers on the retired
 * lane have half of the fence timeout to complete. Then the retired lane is
 * closed, and its operations no longer change local memory.
 */

#include <rdma/fi_domain.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_timing.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/sieve.h"

/* Closes the lane. If wait is true, does so on the calling thread, because the
 * slot of the lane is needed at once; otherwise on a closer thread. */
static void renew_close(struct rail_lane *lane, bool wait)
{
	struct tei_list aborted;
	struct rail_done done;

	tei_list_init(&aborted);
	rail_done_init(&done);
	tei_mutex_lock(&lane->lock);
	if (!tei_list_empty(&lane->posted))
		rail_disconnect(lane, &done);
	if (wait)
		rail_lane_close(lane, &aborted);
	else
		rail_closing_start(lane);
	tei_mutex_unlock(&lane->lock);
	rail_done_run(lane->rail->dp, &done);
	rail_op_abort_all(lane->rail->dp, &aborted);
}

/* Collects the lane if a closer thread has closed it. Returns true if the lane
 * was collected. */
static bool renew_collect(struct rail_lane *lane)
{
	struct tei_list aborted;
	bool over;

	if (!rail_closing_under_way(lane))
		return false;
	tei_list_init(&aborted);
	tei_mutex_lock(&lane->lock);
	over = rail_closing_collect(lane, &aborted);
	tei_mutex_unlock(&lane->lock);
	rail_op_abort_all(lane->rail->dp, &aborted);
	return over;
}

/* Returns the other slot of the tx lane. */
static struct rail_lane *renew_sibling(struct rail_lane *lane)
{
	struct rail_lane *base =
		&lane->rail->tx_lanes[lane->index * RAIL_LANE_SLOTS];

	return lane == base ? base + 1 : base;
}

/* Returns the usual time for which the slices of a retired lane may still
 * complete before it is closed, ns. */
static uint64_t renew_drain(const struct rail_lane *lane)
{
	return lane->rail->dp->settings->failure.fence_ms * TEI_NS_PER_MS / 2;
}

/* Makes the lane take no new work. The lane is closed as soon as nothing is
 * posted on it, at the latest after drain_ns. If the sibling lane is open, it
 * is closed at once. */
static void renew_leave(struct rail_lane *lane, uint64_t drain_ns)
{
	struct rail_lane *next = renew_sibling(lane);

	if (__atomic_load_n(&next->state, __ATOMIC_ACQUIRE) != RAIL_LANE_CLOSED)
		renew_close(next, true);
	tei_mutex_lock(&lane->lock);
	__atomic_store_n(&lane->state, RAIL_LANE_RETIRING, __ATOMIC_RELEASE);
	lane->drained_ns = tei_now_ns() + drain_ns;
	tei_mutex_unlock(&lane->lock);
	tei_mutex_lock(&next->lock);
	/* the sibling gets the next higher generation when it is opened, so
	 * that the two slots never have the same one */
	if (next->gen < lane->gen)
		__atomic_store_n(&next->gen, lane->gen, __ATOMIC_RELEASE);
	tei_mutex_unlock(&next->lock);
}

/* Retires the lane, so that new work goes to its sibling. The lane is closed as
 * soon as nothing is posted on it, at the latest after drain_ns. */
static void renew_retire(struct rail_lane *lane, uint64_t drain_ns,
			 const char *why)
{
	renew_leave(lane, drain_ns);
	if (!rail_width_extra(lane))
		__atomic_fetch_add(&lane->rail->link.away, 1, __ATOMIC_RELAXED);
	rail_reopen_start(renew_sibling(lane));
	TEI_INFO("rail", "%s: tx lane retired: %s", lane->rail->name, why);
}

void rail_renew_lane(struct rail_lane *lane, uint64_t drain_ns)
{
	renew_retire(lane, drain_ns, "one of its connections was cut");
}

/* Returns true if slices of the peer are posted on the lane and the lane is
 * active. */
static bool renew_carries(struct rail_lane *lane,
			  const struct tei_rail_peer *peer)
{
	struct rail_slice *s;
	bool found = false;

	tei_mutex_lock(&lane->lock);
	if (lane->state == RAIL_LANE_ACTIVE)
		tei_list_foreach (s, &lane->posted, struct rail_slice, link)
			found |= s->peer == peer;
	tei_mutex_unlock(&lane->lock);
	return found;
}

/* Makes all slices that are posted to a peer return. If the peer is silent,
 * only the connections to this peer are cut, so that other peers can still use
 * the lanes. Otherwise all lanes that carry slices for the peer are retired and
 * drain. */
void rail_renew_for_peer(struct tei_rail_peer *peer, uint64_t now)
{
	struct tei_rail_dp *dp = peer->dp;
	uint16_t remotes, r;
	struct rail *rail;
	uint32_t i, j;
	bool silent;

	rail_sched_enter(dp);
	remotes = peer->nremotes;
	silent = now > peer->alive_ns +
			       dp->settings->failure.fence_ms * TEI_NS_PER_MS;
	rail_sched_leave(dp);
	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		for (r = 0; silent && r < remotes; r++)
			rail_health_cut(peer, rail, r, true);
		for (j = 0; !silent && j < rail->ntx * RAIL_LANE_SLOTS; j++)
			if (renew_carries(&rail->tx_lanes[j], peer))
				renew_retire(
					&rail->tx_lanes[j],
					renew_drain(&rail->tx_lanes[j]),
					"slices of a peer do not complete");
	}
}

/*
 * Returns how long this process waits for a connection to be established before
 * it renews the lane, ns.
 *
 * The connection manager of an RDMA device repeats its requests itself and
 * reports when it gives up. If this process closed the lane earlier, the
 * requests would only start from the beginning. If opening a lane is slow (a
 * provider may fill tens of megabytes with receive buffers), a peer that is
 * opening a lane answers just as late. If this process replaced its lane before
 * the answer arrives, that would only add to the delay.
 */
static uint64_t renew_patience(const struct rail *rail)
{
	uint64_t least = rail->fab.mr_mode & FI_MR_LOCAL
				 ? RAIL_RENEW_STUCK_NIC_NS
				 : RAIL_RENEW_STUCK_NS;
	uint64_t opens =
		RAIL_RENEW_STUCK_OPENS *
		__atomic_load_n(&rail->dp->health.open_ns, __ATOMIC_RELAXED);

	return opens > least ? opens : least;
}

/* Returns true if the connection has been tried recently but has not been
 * established within the time "patience". *since is then set to the time of
 * the first attempt, ns. */
static bool renew_conn_stuck(struct rail_lane *lane, struct rail_conn *conn,
			     uint64_t now, uint64_t patience, uint64_t *since)
{
	bool stuck;

	*since = 0;
	tei_mutex_lock(&lane->lock);
	/* a lane that is not active, or of another generation, does not own
	 * the other fields of conn: the lock of the sibling lane guards them */
	stuck = lane->state == RAIL_LANE_ACTIVE &&
		conn->lane_gen == lane->gen && conn->since_ns &&
		now > conn->since_ns + patience &&
		now < conn->blocked_ns + RAIL_TRIED_NS &&
		!rail_conn_lives(lane, conn);
	if (stuck)
		*since = conn->since_ns;
	tei_mutex_unlock(&lane->lock);
	return stuck;
}

/* Returns true if the lane has connections to other peers that are alive. All
 * of them would have to be made again on a new lane. */
static bool renew_serves(struct rail_lane *lane,
			 const struct tei_rail_peer *peer, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail_cache *c = &lane->rail->cache[lane->index];
	const struct rail_conn *p;
	struct tei_sieve_entry *e;

	tei_list_foreach (e, &c->held.order, struct tei_sieve_entry, link) {
		p = tei_container_of(e, struct rail_cache_slot, entry)->conn;
		if (p->peer != peer &&
		    now < p->peer->alive_ns + RAIL_RENEW_SERVES_NS)
			return true;
	}
	return false;
}

/*
 * Returns true if the peer has given a sign of life since the first attempt to
 * establish the connection. Such a peer may still hold an old connection that
 * this side has reset: as long as the peer sends nothing over the old
 * connection, it does not notice the reset. The peer then refuses a new
 * connection from this lane.
 */
static bool renew_peer_lives(const struct tei_rail_peer *peer, uint64_t since,
			     uint64_t now) TEI_REQUIRES(rail_sched_held)
{
	uint64_t seen = peer->alive_ns > peer->addrs.found_ns
				? peer->alive_ns
				: peer->addrs.found_ns;

	return seen > since && now < seen + RAIL_RENEW_LIVES_NS;
}

/* Returns true if a new lane should be opened now because a connection has not
 * been established. since: time of the first attempt to establish it. hopeless:
 * true if earlier new lanes have not helped. */
static bool renew_worth(struct tei_rail_peer *peer, struct rail_lane *lane,
			uint64_t since, bool hopeless, uint64_t now)
{
	uint64_t space = RAIL_RENEW_SPACE_NS;
	bool worth;

	rail_sched_enter(peer->dp);
	/* if several new lanes have not connected either, the cause is probably
	 * the network and not the lane */
	if (!hopeless && renew_peer_lives(peer, since, now))
		space = RAIL_RENEW_LIVES_SPACE_NS;
	/* no new lane is opened for a silent peer that is not in use */
	worth = (!peer->life.probing || peer->refs) &&
		(now > lane->rail->link.stuck_ns + space ||
		 !renew_serves(lane, peer, now));
	rail_sched_leave(peer->dp);
	return worth;
}

/*
 * Returns true if the peer's kernel has accepted the connection, but the
 * process has not handled it yet. A new lane would be one more connection to
 * handle, and it would take time to open.
 */
static bool renew_pending(struct rail_lane *lane, const struct rail_conn *conn,
			  uint64_t now)
{
	uint8_t addr[TEI_RAIL_ADDR_MAX];
	size_t len = sizeof(addr);
	bool pending;

	tei_mutex_lock(&lane->lock);
	pending = lane->ep && conn->ready && conn->lane_gen == lane->gen &&
		  now < conn->since_ns + RAIL_RENEW_ANSWER_NS &&
		  !fi_av_lookup(lane->av, conn->fi_addr, addr, &len) &&
		  rail_disconnect_pending(lane, addr, len);
	tei_mutex_unlock(&lane->lock);
	return pending;
}

/* Increments failed_attempts of each other connection of the old lane that has
 * not been established within the time "patience". */
static void renew_others_stuck(struct rail_lane *lane,
			       const struct rail_conn *conn, uint64_t now,
			       uint64_t patience)
{
	const struct rail_cache *c = &lane->rail->cache[lane->index];
	struct tei_sieve_entry *e;
	struct rail_conn *p;

	tei_mutex_lock(&lane->lock);
	rail_sched_enter(lane->rail->dp);
	tei_list_foreach (e, &c->held.order, struct tei_sieve_entry, link) {
		p = tei_container_of(e, struct rail_cache_slot, entry)->conn;
		if (p != conn && p->since_ns && !p->connected &&
		    now > p->since_ns + patience)
			__atomic_fetch_add(&p->failed_attempts, 1,
					   __ATOMIC_RELAXED);
	}
	rail_sched_leave(lane->rail->dp);
	tei_mutex_unlock(&lane->lock);
}

/*
 * Returns true if the provider only copies between processes of this host
 * (shm). A connection is then established only when the peer polls its
 * endpoint, so a new lane would have to wait as well. If the old lane is closed
 * before the peer has polled, the peer crashes: libfabric 1.17 reads the
 * connection request and maps the memory of an endpoint that no longer exists,
 * without a check.
 */
static bool renew_waits_for_poll(const struct rail *rail)
{
	return rail->fab.info->addr_format == FI_ADDR_STR;
}

void rail_renew_if_stuck(struct tei_rail_peer *peer, struct rail_lane *lane,
			 struct rail_conn *conn, uint64_t now)
{
	struct rail_renew *renew = &peer->renew.rails[lane->rail->index];
	uint64_t patience = renew_patience(lane->rail);
	uint64_t since;

	/* a connection that has failed before stays in back-off, even if other
	 * connections have been established */
	if (__atomic_exchange_n(&renew->linked, false, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&conn->failed_attempts, __ATOMIC_RELAXED)) {
		renew->tries = 0;
		renew->next_ns = 0;
	}
	if (now < renew->next_ns || renew_waits_for_poll(lane->rail) ||
	    !renew_conn_stuck(lane, conn, now, patience, &since) ||
	    !renew_worth(
		    peer, lane, since,
		    __atomic_load_n(&conn->failed_attempts, __ATOMIC_RELAXED) >=
			    RAIL_RENEW_HOPELESS,
		    now))
		return;
	if (renew_pending(lane, conn, now)) {
		renew->next_ns = now + RAIL_RENEW_STUCK_NS;
		return;
	}
	if (renew->tries < RAIL_RENEW_STUCK_TRIES)
		renew->tries++;
	renew->next_ns = now + (patience << renew->tries);
	lane->rail->link.stuck_ns = now;
	renew_others_stuck(lane, conn, now, patience);
	renew_retire(lane, renew_drain(lane),
		     "a connection is not established in time");
	if (__atomic_add_fetch(&conn->failed_attempts, 1, __ATOMIC_RELAXED) >=
	    RAIL_RENEW_HOPELESS)
		rail_stall_ask(peer, renew_sibling(lane), conn->remote,
			       __atomic_load_n(&conn->moves, __ATOMIC_RELAXED),
			       now);
}

/* Renews the lane if one of its connections to the peer is stuck. */
static void renew_stuck_lane(struct tei_rail_peer *peer, struct rail_lane *lane,
			     uint64_t now)
{
	struct rail_conn *conn = NULL;
	bool hint = false;
	uint16_t r = 0;

	do {
		rail_sched_enter(peer->dp);
		conn = rail_conn_get(peer, lane, r);
		hint = r < peer->nremotes && peer->remotes[r].hint;
		r++;
		rail_sched_leave(peer->dp);
		if (conn && !hint)
			rail_renew_if_stuck(peer, lane, conn, now);
	} while (conn);
}

void rail_renew_stuck(struct tei_rail_peer *peer, uint64_t now)
{
	uint32_t i, j;
	struct rail *rail;

	for (i = 0; i < rail_count(peer->dp); i++) {
		rail = rail_at(peer->dp, i);
		for (j = 0; j < rail->nbase * RAIL_LANE_SLOTS; j++)
			renew_stuck_lane(peer, &rail->tx_lanes[j], now);
	}
}

/* --- connections that show no sign of life ------------------------------- */

/* Returns true if the TCP connection of conn has received nothing and sent
 * nothing successfully for some time. */
static bool renew_conn_silent(struct rail_lane *lane,
			      const struct rail_conn *conn)
{
	uint8_t addr[TEI_RAIL_ADDR_MAX];
	size_t len = sizeof(addr);
	bool silent;

	tei_mutex_lock(&lane->lock);
	silent = lane->state == RAIL_LANE_ACTIVE && conn->ready &&
		 conn->connected && conn->lane_gen == lane->gen &&
		 !fi_av_lookup(lane->av, conn->fi_addr, addr, &len) &&
		 rail_disconnect_silent(lane, addr, len);
	tei_mutex_unlock(&lane->lock);
	return silent;
}

/* Retires the lane if its connection on the peer's route shows no sign of
 * life. */
static void renew_silent_lane(struct tei_rail_peer *peer, struct rail *rail,
			      uint32_t index, uint64_t now)
{
	struct rail_lane *lane = rail_msg_lane(rail, index);
	struct rail_conn *conn = NULL;
	int16_t remote;

	rail_sched_enter(peer->dp);
	remote = peer->routes.route[rail->index];
	if (lane && remote >= 0)
		conn = rail_conn_get(peer, lane, (uint16_t)remote);
	rail_sched_leave(peer->dp);
	/* a lane is not retired while its sibling still drains, because this
	 * thread would have to wait until the sibling is closed */
	if (!conn || !renew_conn_silent(lane, conn) ||
	    __atomic_load_n(&renew_sibling(lane)->state, __ATOMIC_ACQUIRE) !=
		    RAIL_LANE_CLOSED ||
	    !renew_worth(peer, lane, now - RAIL_RENEW_SILENT_NS, false, now))
		return;
	rail->link.stuck_ns = now;
	renew_retire(lane, renew_drain(lane),
		     "one of its connections shows no sign of life");
}

void rail_renew_silent(struct tei_rail_peer *peer, uint64_t now)
{
	struct tei_rail_dp *dp = peer->dp;
	uint64_t from;
	uint32_t i, j;

	if (now < peer->renew.silent_next_ns || now < dp->health.silent_next_ns)
		return;
	peer->renew.silent_next_ns = now + RAIL_RENEW_SILENT_LOOK_NS;
	from = tei_now_ns();
	for (i = 0; i < rail_count(dp); i++)
		for (j = 0; j < rail_at(dp, i)->ntx; j++)
			renew_silent_lane(peer, rail_at(dp, i), j, now);
	/* Examining a thousand connections takes milliseconds, so the next
	 * check waits for a multiple of the time that this one took. */
	dp->health.silent_next_ns =
		now + RAIL_RENEW_SILENT_PART * (tei_now_ns() - from);
}

/* --- closing retired lanes ------------------------------------------------ */

/* If the lane is degraded and its sibling does not drain any longer, retires
 * the lane and returns true. A degraded lane has many evicted connections that
 * could not be closed one by one. */
static bool renew_degraded(struct rail_lane *lane)
{
	if (!rail_cache_degraded(rail_cache_of(lane)) ||
	    __atomic_load_n(&renew_sibling(lane)->state, __ATOMIC_ACQUIRE) !=
		    RAIL_LANE_CLOSED)
		return false;
	renew_retire(lane, renew_drain(lane),
		     "too many of its evicted connections could not be closed");
	return true;
}

/* Returns true if the lane takes bulk data or has connections. */
static bool renew_in_use(const struct rail_lane *lane)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	bool used = rail_lane_takes(lane);

	if (used)
		return true;
	rail_sched_enter(dp);
	used = rail_cache_of(lane)->held.count != 0;
	rail_sched_leave(dp);
	return used || rail_cache_closes(lane);
}

/* Closes an extra lane that has not been in use for RAIL_WIDTH_SPARE_NS.
 * Returns the time of the next check, or 0. */
static uint64_t renew_spare(struct rail_lane *lane, uint64_t now)
{
	if (!rail_width_extra(lane))
		return 0;
	if (renew_in_use(lane)) {
		lane->spare_ns = 0;
		return 0;
	}
	if (!lane->spare_ns)
		lane->spare_ns = now;
	if (now < lane->spare_ns + RAIL_WIDTH_SPARE_NS)
		return lane->spare_ns + RAIL_WIDTH_SPARE_NS;
	lane->spare_ns = 0;
	renew_leave(lane, renew_drain(lane));
	return 0;
}

uint64_t rail_renew_run(struct tei_rail_dp *dp, uint64_t now)
{
	uint64_t next = 0, due;
	struct rail_lane *lane;
	struct rail *rail;
	uint32_t i, j;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		renew_collect(&rail->probe.opening.lane);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
			lane = &rail->tx_lanes[j];
			if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) ==
				    RAIL_LANE_ACTIVE &&
			    !renew_degraded(lane)) {
				due = renew_spare(lane, now);
				if (due && (!next || due < next))
					next = due;
			}
			if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) !=
				    RAIL_LANE_RETIRING ||
			    renew_collect(lane) || rail_closing_under_way(lane))
				continue;
			if ((!__atomic_load_n(&lane->inflight,
					      __ATOMIC_RELAXED) &&
			     !__atomic_load_n(&lane->msgs, __ATOMIC_RELAXED)) ||
			    now >= lane->drained_ns)
				renew_close(lane, false);
			else if (!next || lane->drained_ns < next)
				next = lane->drained_ns;
		}
	}
	return next;
}

/* Opens those of the lanes with the numbers first to end - 1 that are in use
 * and have no active slot. */
static void renew_open(struct rail *rail, uint32_t first, uint32_t end)
{
	struct rail_lane *lane;
	uint32_t j;

	for (j = first; j < end; j++) {
		lane = &rail->tx_lanes[j * RAIL_LANE_SLOTS];
		if ((j >= rail->nbase || rail_use_begun(rail, j)) &&
		    lane[0].state != RAIL_LANE_ACTIVE &&
		    lane[1].state != RAIL_LANE_ACTIVE)
			rail_reopen_start(lane[0].state == RAIL_LANE_CLOSED
						  ? lane
						  : &lane[1]);
	}
}

void rail_renew_reopen(struct rail *rail)
{
	renew_open(rail, 0, rail->nbase);
	rail_renew_widen(rail);
}

bool rail_renew_release(struct rail *rail)
{
	struct rail_lane *lane;
	bool all = true;
	uint32_t j;

	for (j = rail->nbase; j < rail->ntx; j++) {
		lane = &rail->tx_lanes[j * RAIL_LANE_SLOTS];
		if (rail_msg_lane(rail, j))
			continue;
		tei_mutex_lock(&lane->lock);
		if (lane[0].state == RAIL_LANE_CLOSED &&
		    __atomic_load_n(&lane[1].state, __ATOMIC_ACQUIRE) ==
			    RAIL_LANE_CLOSED)
			rail_cache_release(lane);
		else
			all = false;
		tei_mutex_unlock(&lane->lock);
	}
	return all;
}

void rail_renew_widen(struct rail *rail)
{
	renew_open(rail, rail->nbase,
		   __atomic_load_n(&rail->load.lanes, __ATOMIC_RELAXED));
}
