/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fence: makes sure that nothing posted earlier can still land.
 *
 * Withdrawing a key is not enough: a provider may check the key once and
 * continue to write. Posted reads and writes cannot be cancelled portably.
 * Closing the endpoint stops them with every provider. So:
 *
 * - The target closes its rx lane of the generation named in the request before
 *   it answers. Then it opens a replacement and announces it with a hello. The
 *   other initiators that use the lane see an error, learn the new generation
 *   from the hello and post their slices again.
 * - The initiator retires its own lane if slices do not complete on it. New
 *   slices go to the replacement. The slices of other peers get half of the
 *   fence timeout to complete. Then the lane is closed, and local memory does
 *   not change any more.
 *
 * No part of this runs unless there is a failure.
 */
#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/health/rail_health.h"

/* A connection that is not established after this time is stuck. RDMA devices
 * have a connection manager, which needs longer. If opening a lane is slow, the
 * time is that of opening FENCE_STUCK_OPENS lanes. */
#define FENCE_STUCK_NS	(400 * TEI_NS_PER_MS)
#define FENCE_STUCK_NIC_NS	(4000 * TEI_NS_PER_MS)
/* Longest wait for a process whose kernel has accepted the connection. */
#define FENCE_ANSWER_NS	(4000 * TEI_NS_PER_MS)
/* The interval between new lanes for one peer is doubled after each of the
 * first FENCE_STUCK_TRIES new lanes. */
#define FENCE_STUCK_TRIES	4
/* Shortest time between two new lanes of a rail while the old lane serves other
 * peers. A peer counts as served if its last sign of life is at most
 * FENCE_SERVES_NS old. */
#define FENCE_SPACE_NS	(15 * TEI_NS_PER_SEC)
#define FENCE_SERVES_NS	TEI_NS_PER_SEC
/* Shortest time between two new lanes of a rail if the peer to be connected is
 * alive: its last sign of life is at most FENCE_LIVES_NS old. */
#define FENCE_LIVES_NS	(2 * TEI_NS_PER_SEC)
#define FENCE_LIVES_SPACE_NS TEI_NS_PER_SEC
/* Interval at which connections are checked for silence, about two TCP
 * retransmissions. The checks may use one part in FENCE_SILENT_PART of the
 * time. */
#define FENCE_SILENT_NS	(600 * TEI_NS_PER_MS)
#define FENCE_SILENT_LOOK_NS (100 * TEI_NS_PER_MS)
#define FENCE_SILENT_PART 8
/* After this number of new lanes without success, the network is assumed to be
 * at fault. */
#define FENCE_HOPELESS	2u
#define FENCE_STUCK_OPENS	4

void rail_fence_want(struct tei_rail_peer *peer, uint16_t remote, uint32_t gen)
{
	struct rail_fence *f = &peer->remotes[remote].fence;

	if (f->wanted && f->gen >= gen)
		return;
	peer->stats.fences++;
	f->wanted = true;
	if (f->gen < gen)
		f->gen = gen;
	f->tries = 0;
	f->next_ns = 0;
	f->since_ns = 0;
	rail_peer_attend(peer);
}

bool rail_fence_wanted(const struct tei_rail_peer *peer)
{
	uint16_t i;

	for (i = 0; i < peer->nremotes; i++)
		if (peer->remotes[i].fence.wanted)
			return true;
	return false;
}

void rail_fence_abort(struct tei_rail_dp *dp, struct tei_list *aborted)
{
	struct rail_slice *s, *tmp;
	struct rail_done done;

	rail_done_init(&done);
	rail_sched_enter(dp);
	tei_list_foreach_safe(s, tmp, aborted, struct rail_slice, link) {
		tei_list_del(&s->link);
		s->prov_err = 0;
		rail_slice_handle_error(dp, s, FI_ECANCELED, &done);
	}
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
}

/* Closes the lane on a closer thread. wait: closes the lane on the calling
 * thread, because its slot is needed at once. */
static void fence_close(struct rail_lane *lane, bool wait)
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
	rail_fence_abort(lane->rail->dp, &aborted);
}

/* Collects the lane if a closer thread has closed it. Returns true if the lane
 * was collected. */
static bool fence_collect(struct rail_lane *lane)
{
	struct tei_list aborted;
	bool over;

	if (!rail_closing_under_way(lane))
		return false;
	tei_list_init(&aborted);
	tei_mutex_lock(&lane->lock);
	over = rail_closing_collect(lane, &aborted);
	tei_mutex_unlock(&lane->lock);
	rail_fence_abort(lane->rail->dp, &aborted);
	return over;
}

/* Returns the other slot of the tx lane. */
static struct rail_lane *fence_sibling(struct rail_lane *lane)
{
	struct rail_lane *base =
		&lane->rail->tx_lanes[lane->index * RAIL_LANE_SLOTS];

	return lane == base ? base + 1 : base;
}

/* Returns the usual time for which the slices of a retired lane may still
 * complete before it is closed, ns. */
static uint64_t fence_drain(const struct rail_lane *lane)
{
	return lane->rail->dp->settings->fence_ms * TEI_NS_PER_MS / 2;
}

/* Retires the lane: new work goes to its sibling, and the lane is closed after
 * drain_ns, or as soon as nothing is posted on it. */
static void fence_retire(struct rail_lane *lane, uint64_t drain_ns,
			 const char *why)
{
	struct rail_lane *next = fence_sibling(lane);

	if (__atomic_load_n(&next->state, __ATOMIC_ACQUIRE) !=
	    RAIL_LANE_CLOSED)
		fence_close(next, true);
	tei_mutex_lock(&lane->lock);
	__atomic_store_n(&lane->state, RAIL_LANE_RETIRING, __ATOMIC_RELEASE);
	lane->drained_ns = tei_now_ns() + drain_ns;
	tei_mutex_unlock(&lane->lock);
	__atomic_fetch_add(&lane->rail->away, 1, __ATOMIC_RELAXED);
	tei_mutex_lock(&next->lock);
	/* the two slots never have the same generation */
	if (next->gen < lane->gen)
		__atomic_store_n(&next->gen, lane->gen, __ATOMIC_RELEASE);
	tei_mutex_unlock(&next->lock);
	rail_reopen_start(next);
	TEI_INFO("rail", "%s: tx lane retired: %s", lane->rail->name, why);
}

void rail_fence_renew_lane(struct rail_lane *lane, uint64_t drain_ns)
{
	fence_retire(lane, drain_ns, "one of its connections was cut");
}

/* Returns true if slices of the peer are posted on the active lane. */
static bool fence_carries(struct rail_lane *lane,
			  const struct tei_rail_peer *peer)
{
	struct rail_slice *s;
	bool found = false;

	tei_mutex_lock(&lane->lock);
	if (lane->state == RAIL_LANE_ACTIVE)
		tei_list_foreach(s, &lane->posted, struct rail_slice, link)
			found |= s->peer == peer;
	tei_mutex_unlock(&lane->lock);
	return found;
}

/* Makes all slices that are posted to a peer return. If the peer is silent,
 * only the connections to this peer are cut, so that other peers can still use
 * the lanes. Otherwise all lanes that carry slices for the peer are retired and
 * drain. */
void rail_fence_retire_peer(struct tei_rail_peer *peer, uint64_t now)
{
	struct tei_rail_dp *dp = peer->dp;
	uint16_t remotes, r;
	struct rail *rail;
	uint32_t i, j;
	bool silent;

	rail_sched_enter(dp);
	remotes = peer->nremotes;
	silent = now > peer->alive_ns + dp->settings->fence_ms * TEI_NS_PER_MS;
	rail_sched_leave(dp);
	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		for (r = 0; silent && r < remotes; r++)
			rail_health_cut(peer, rail, r, true);
		for (j = 0; !silent && j < rail->ntx * RAIL_LANE_SLOTS; j++)
			if (fence_carries(&rail->tx_lanes[j], peer))
				fence_retire(
					&rail->tx_lanes[j],
					fence_drain(&rail->tx_lanes[j]),
					"slices of a peer do not complete");
	}
}

/*
 * Returns the time in which a connection should be established, ns.
 *
 * The connection manager of an RDMA device repeats its requests itself and
 * reports when it gives up. Closing the lane earlier would only start the
 * requests from the beginning. If opening a lane is slow (a provider may fill
 * tens of megabytes with receive buffers), a peer that is opening a lane
 * answers just as late. Replacing our lane before the answer arrives would only
 * add to the delay.
 */
static uint64_t fence_patience(const struct rail *rail)
{
	uint64_t least = rail->mr_mode & FI_MR_LOCAL ? FENCE_STUCK_NIC_NS :
						       FENCE_STUCK_NS;
	uint64_t opens = FENCE_STUCK_OPENS *
			 __atomic_load_n(&rail->dp->open_ns, __ATOMIC_RELAXED);

	return opens > least ? opens : least;
}

/* Returns true if the connection has been tried recently but has not been
 * established within the time patience. *since is set to the time of the first
 * attempt, ns. */
static bool fence_conn_stuck(struct rail_lane *lane, struct rail_conn *conn,
			     uint64_t now, uint64_t patience, uint64_t *since)
{
	bool stuck;

	tei_mutex_lock(&lane->lock);
	stuck = lane->state == RAIL_LANE_ACTIVE &&
		conn->lane_gen == lane->gen && conn->since_ns &&
		now > conn->since_ns + patience &&
		now < conn->blocked_ns + RAIL_TRIED_NS &&
		!rail_conn_lives(lane, conn);
	*since = conn->since_ns;
	tei_mutex_unlock(&lane->lock);
	return stuck;
}

/* Returns true if the lane has connections to other living peers, which would
 * all have to be established again on a new lane. */
static bool fence_serves(struct rail_lane *lane,
			 const struct tei_rail_peer *peer, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail_cache *c = &lane->rail->cache[lane->index];
	const struct rail_conn *p;
	struct tei_sieve_entry *e;

	tei_list_foreach(e, &c->held.order, struct tei_sieve_entry, link) {
		p = tei_container_of(e, struct rail_cache_slot, entry)->conn;
		if (p->peer != peer &&
		    now < p->peer->alive_ns + FENCE_SERVES_NS)
			return true;
	}
	return false;
}

/*
 * Returns true if the peer has given a sign of life since the connection has
 * been tried. Such a peer may still hold an old connection: the connection was
 * reset only on this side, and the peer sends nothing over it and therefore
 * does not notice. The peer then refuses a new connection from this lane.
 */
static bool fence_peer_lives(const struct tei_rail_peer *peer, uint64_t since,
			     uint64_t now) TEI_REQUIRES(rail_sched_held)
{
	uint64_t seen = peer->alive_ns > peer->found_ns ? peer->alive_ns :
							  peer->found_ns;

	return seen > since && now < seen + FENCE_LIVES_NS;
}

/* Returns true if it is worth opening a new lane now because of a connection
 * that has not been established. since: time of the first attempt to establish
 * it. hopeless: earlier new lanes have not helped. */
static bool fence_worth(struct tei_rail_peer *peer, struct rail_lane *lane,
			uint64_t since, bool hopeless, uint64_t now)
{
	uint64_t space = FENCE_SPACE_NS;
	bool worth;

	rail_sched_enter(peer->dp);
	/* if several new lanes have not connected either, the network is
	 * probably at fault and not the lane */
	if (!hopeless && fence_peer_lives(peer, since, now))
		space = FENCE_LIVES_SPACE_NS;
	/* an unused, silent peer does not justify a new lane */
	worth = (!peer->probing || peer->refs) &&
		(now > lane->rail->stuck_ns + space ||
		 !fence_serves(lane, peer, now));
	rail_sched_leave(peer->dp);
	return worth;
}

/*
 * Returns true if the peer's kernel has accepted the connection, but the
 * process has not handled it yet. A new lane would be one more connection to
 * handle, and it would take time to open.
 */
static bool fence_pending(struct rail_lane *lane, const struct rail_conn *conn,
			  uint64_t now)
{
	uint8_t addr[TEI_RAIL_ADDR_MAX];
	size_t len = sizeof(addr);
	bool pending;

	tei_mutex_lock(&lane->lock);
	pending = lane->ep && conn->ready && conn->lane_gen == lane->gen &&
		  now < conn->since_ns + FENCE_ANSWER_NS &&
		  !fi_av_lookup(lane->av, conn->fi_addr, addr, &len) &&
		  rail_disconnect_pending(lane, addr, len);
	tei_mutex_unlock(&lane->lock);
	return pending;
}

/* Counts the new lane as a failed attempt of all other connections of the old
 * lane that have not been established in time. */
static void fence_others_stuck(struct rail_lane *lane,
			       const struct rail_conn *conn, uint64_t now,
			       uint64_t patience)
{
	const struct rail_cache *c = &lane->rail->cache[lane->index];
	struct tei_sieve_entry *e;
	struct rail_conn *p;

	tei_mutex_lock(&lane->lock);
	rail_sched_enter(lane->rail->dp);
	tei_list_foreach(e, &c->held.order, struct tei_sieve_entry, link) {
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
static bool fence_waits_for_poll(const struct rail *rail)
{
	return rail->info->addr_format == FI_ADDR_STR;
}

void rail_fence_maybe_stuck(struct tei_rail_peer *peer, struct rail_lane *lane,
			    struct rail_conn *conn, uint64_t now)
{
	struct rail_renew *renew = &peer->renew[lane->rail->index];
	uint64_t patience = fence_patience(lane->rail);
	uint64_t since;

	/* if this connection has failed before, the success of other
	 * connections does not reset the back-off */
	if (__atomic_exchange_n(&renew->linked, false, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&conn->failed_attempts, __ATOMIC_RELAXED)) {
		renew->tries = 0;
		renew->next_ns = 0;
	}
	if (now < renew->next_ns || fence_waits_for_poll(lane->rail) ||
	    !fence_conn_stuck(lane, conn, now, patience, &since) ||
	    !fence_worth(peer, lane, since,
			 __atomic_load_n(&conn->failed_attempts,
					 __ATOMIC_RELAXED) >= FENCE_HOPELESS,
			 now))
		return;
	if (fence_pending(lane, conn, now)) {
		renew->next_ns = now + FENCE_STUCK_NS;
		return;
	}
	if (renew->tries < FENCE_STUCK_TRIES)
		renew->tries++;
	renew->next_ns = now + (patience << renew->tries);
	lane->rail->stuck_ns = now;
	fence_others_stuck(lane, conn, now, patience);
	fence_retire(lane, fence_drain(lane),
		     "a connection is not established in time");
	if (__atomic_add_fetch(&conn->failed_attempts, 1, __ATOMIC_RELAXED) >=
	    FENCE_HOPELESS)
		rail_stall_ask(peer, fence_sibling(lane), conn->remote,
			       __atomic_load_n(&conn->moves, __ATOMIC_RELAXED),
			       now);
}

/* Renews the lane if one of its connections to the peer is stuck. */
static void fence_unstick_lane(struct tei_rail_peer *peer,
			       struct rail_lane *lane, uint64_t now)
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
			rail_fence_maybe_stuck(peer, lane, conn, now);
	} while (conn);
}

void rail_fence_unstick(struct tei_rail_peer *peer, uint64_t now)
{
	uint32_t i, j;
	struct rail *rail;

	for (i = 0; i < rail_count(peer->dp); i++) {
		rail = rail_at(peer->dp, i);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
			fence_unstick_lane(peer, &rail->tx_lanes[j], now);
	}
}

/* --- connections that show no sign of life ------------------------------- */

/* Returns true if the TCP connection of the path shows no sign of life. */
static bool fence_conn_silent(struct rail_lane *lane,
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
static void fence_renew_silent(struct tei_rail_peer *peer, struct rail *rail,
			       uint32_t index, uint64_t now)
{
	struct rail_lane *lane = rail_msg_lane(rail, index);
	struct rail_conn *conn = NULL;
	int16_t remote;

	rail_sched_enter(peer->dp);
	remote = peer->route[rail->index];
	if (lane && remote >= 0)
		conn = rail_conn_get(peer, lane, (uint16_t)remote);
	rail_sched_leave(peer->dp);
	/* if the sibling still drains, retiring the lane would have to wait for
	 * it */
	if (!conn || !fence_conn_silent(lane, conn) ||
	    __atomic_load_n(&fence_sibling(lane)->state, __ATOMIC_ACQUIRE) !=
		    RAIL_LANE_CLOSED ||
	    !fence_worth(peer, lane, now - FENCE_SILENT_NS, false, now))
		return;
	rail->stuck_ns = now;
	fence_retire(lane, fence_drain(lane),
		     "one of its connections shows no sign of life");
}

void rail_fence_silent(struct tei_rail_peer *peer, uint64_t now)
{
	struct tei_rail_dp *dp = peer->dp;
	uint64_t from;
	uint32_t i, j;

	if (now < peer->silent_next_ns || now < dp->silent_next_ns)
		return;
	peer->silent_next_ns = now + FENCE_SILENT_LOOK_NS;
	from = tei_now_ns();
	for (i = 0; i < rail_count(dp); i++)
		for (j = 0; j < dp->settings->lanes_per_rail; j++)
			fence_renew_silent(peer, rail_at(dp, i), j, now);
	/* the check of a thousand connections takes milliseconds */
	dp->silent_next_ns = now + FENCE_SILENT_PART * (tei_now_ns() - from);
}

/* Retires a degraded lane, which has many evicted connections that could not be
 * closed one by one, unless its sibling still drains. */
static void fence_renew_degraded(struct rail_lane *lane)
{
	if (rail_cache_degraded(rail_cache_of(lane)) &&
	    __atomic_load_n(&fence_sibling(lane)->state, __ATOMIC_ACQUIRE) ==
		    RAIL_LANE_CLOSED)
		fence_retire(lane, fence_drain(lane),
			     "too many of its evicted connections could not be closed");
}

/* Called when the rail's rx lane has been closed: opens the next rx lane and
 * answers the peers that wait for the fence. */
static void fence_target_closed(struct rail *rail)
{
	struct tei_rail_peer *p;

	TEI_INFO("rail", "%s: rx lane fenced: its generation is now %u",
		 rail->name, rail->rx_lane.gen + 1);
	rail_reopen_start(&rail->rx_lane);
	rail_contact_lane_left(rail);
	rail_sched_enter(rail->dp);
	tei_list_foreach(p, &rail->dp->peers, struct tei_rail_peer, link)
		if (p->fences_pending)
			rail_peer_attend(p);
	rail_sched_leave(rail->dp);
}

uint64_t rail_fence_retiring(struct tei_rail_dp *dp, uint64_t now)
{
	uint64_t next = 0;
	struct rail_lane *lane;
	struct rail *rail;
	uint32_t i, j;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (fence_collect(&rail->rx_lane))
			fence_target_closed(rail);
		fence_collect(&rail->probe.lane);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
			lane = &rail->tx_lanes[j];
			if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) ==
			    RAIL_LANE_ACTIVE)
				fence_renew_degraded(lane);
			if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) !=
				    RAIL_LANE_RETIRING ||
			    fence_collect(lane) || rail_closing_under_way(lane))
				continue;
			if ((!__atomic_load_n(&lane->inflight,
					      __ATOMIC_RELAXED) &&
			     !__atomic_load_n(&lane->msgs, __ATOMIC_RELAXED)) ||
			    now >= lane->drained_ns)
				fence_close(lane, false);
			else if (!next || lane->drained_ns < next)
				next = lane->drained_ns;
		}
	}
	return next;
}

/* Opens the lane again, unless the rail is closed. Returns false on failure. */
static bool fence_reopen_lane(struct rail_lane *lane)
{
	struct tei_err err;
	int ret = 0;

	tei_mutex_lock(&lane->lock);
	/* the thread that removes the rail closes its lanes after clearing
	 * rail->open */
	if (!lane->ep && __atomic_load_n(&lane->rail->open, __ATOMIC_ACQUIRE))
		ret = rail_lane_open(lane, &err);
	tei_mutex_unlock(&lane->lock);
	return !ret;
}

/*
 * Replaces the rx lane of a rail with FI_MR_ENDPOINT, whose registrations are
 * bound to the endpoint and must be renewed with it. Acquires dp->admin, so it
 * may wait for a registration by another thread. Only devices with
 * FI_MR_ENDPOINT have this delay, and only after a failure.
 */
static void fence_renew_bound(struct rail *rail)
{
	tei_mutex_lock(&rail->dp->admin);
	rail_mr_unbind(rail);
	rail_lane_shutdown(&rail->rx_lane, false);
	rail_contact_lane_left(rail);
	if (fence_reopen_lane(&rail->rx_lane))
		rail_mr_rebind(rail);
	else
		__atomic_store_n(&rail->lost, true, __ATOMIC_RELAXED);
	tei_mutex_unlock(&rail->dp->admin);
	rail_peer_announce(rail->dp);
}

/* Opens the rx lane of a rail with FI_MR_ENDPOINT again after an attempt has
 * failed. */
static void fence_reopen_bound(struct rail *rail)
{
	tei_mutex_lock(&rail->dp->admin);
	if (fence_reopen_lane(&rail->rx_lane))
		rail_mr_rebind(rail);
	else
		__atomic_store_n(&rail->lost, true, __ATOMIC_RELAXED);
	tei_mutex_unlock(&rail->dp->admin);
	if (rail->rx_lane.ep)
		rail_peer_announce(rail->dp);
}

uint32_t rail_fence_target(struct rail *rail, uint32_t gen)
{
	/* only the progress thread changes the rx lane */
	uint32_t now = rail->rx_lane.gen;

	if (now > gen)
		return now;
	if (rail_closing_under_way(&rail->rx_lane))
		return 0;
	if (!rail->rx_lane.ep)
		return gen + 1;
	if (!(rail->mr_mode & FI_MR_ENDPOINT)) {
		rail_lane_shutdown(&rail->rx_lane, true);
		return 0;
	}
	fence_renew_bound(rail);
	/* a lane that must still be opened gets the next generation */
	now = rail->rx_lane.gen + !rail->rx_lane.ep;
	TEI_INFO("rail", "%s: rx lane fenced: its generation is now %u",
		 rail->name, now);
	return now;
}

void rail_fence_reopened(struct rail *rail)
{
	TEI_DEBUG_LOG("rail", "%s: rx lane opened again, generation %u",
		      rail->name, rail->rx_lane.gen);
	rail_peer_announce(rail->dp);
}

/* rail_reopen.c logs failed attempts at a limited rate. */
void rail_fence_reopen(struct rail *rail)
{
	struct rail_lane *lane;
	uint32_t j;

	for (j = 0; j < rail->ntx; j++) {
		lane = &rail->tx_lanes[j * RAIL_LANE_SLOTS];
		if (lane[0].state != RAIL_LANE_ACTIVE &&
		    lane[1].state != RAIL_LANE_ACTIVE)
			rail_reopen_start(lane[0].state == RAIL_LANE_CLOSED ?
						  lane : &lane[1]);
	}
	if (!rail->rx_lane.ep && rail->mr_mode & FI_MR_ENDPOINT)
		fence_reopen_bound(rail);
	else if (!rail->rx_lane.ep)
		rail_reopen_start(&rail->rx_lane);
	rail_reopen_whole(rail);
	rail_sched_enter(rail->dp);
	rail_health_state(rail);
	rail_sched_leave(rail->dp);
}
