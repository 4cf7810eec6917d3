/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The endpoint cache.
 *
 * Invariants
 * - Nothing is posted on a connection without a place. held.count + leftovers
 *   <= cap, except when the very first connection becomes a leftover.
 * - The thread that holds the lane's lock closes evicted connections before the
 *   next post. So an evicted connection is closed before its successor is made.
 * - rail_cache.busy is the number of assigned places whose connections have
 *   slices in flight.
 * - A connection is in the waiting list at most once. It leaves the list when
 *   it gets a place, when its peer has no slices left to post or becomes
 *   silent, or when it is freed.
 */

#include <rdma/fi_domain.h>
#include <stdlib.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"
#include "util/sieve.h"

/* A connection keeps its place in three cases:
 * - while it is being established, for at most CACHE_CONNECT_NS, if a post was
 * tried within the last CACHE_TRIED_NS;
 * - for CACHE_ANSWER_NS after a message, if tasks wait for the answer;
 * - while it awaits a fence, if the peer gave a sign of life within the last
 * CACHE_ALIVE_NS. */
#define CACHE_CONNECT_NS	TEI_NS_PER_SEC
#define CACHE_TRIED_NS		(500 * TEI_NS_PER_MS)
#define CACHE_ANSWER_NS		(100 * TEI_NS_PER_MS)
#define CACHE_ALIVE_NS		TEI_NS_PER_SEC
/* Time after which a peer that has got a place, but gives no sign of life,
 * counts as silent. */
#define CACHE_SILENT_NS		TEI_NS_PER_SEC
/* A connection keeps its place for at least CACHE_TURN_NS before it is asked to
 * yield. At most one connection is asked in CACHE_YIELD_NS. */
#define CACHE_TURN_NS		(10 * TEI_NS_PER_MS)
#define CACHE_YIELD_NS		TEI_NS_PER_MS
/* CACHE_TIDY_NS: interval of the checks of off-route connections.
 * CACHE_IDLE_NS: idle time after which such a connection is evicted. */
#define CACHE_TIDY_NS		(500 * TEI_NS_PER_MS)
#define CACHE_IDLE_NS		(2 * TEI_NS_PER_SEC)

/* An allocation of 64 places. */
struct rail_cache_chunk {
	struct rail_cache_chunk *next;
	struct rail_cache_slot slot[64];
};

/* Returns the largest number of places that a cache with "cap" places lends. */
static uint32_t cache_lendable(uint32_t cap)
{
	return cap / 4;
}

/* Returns the number of places of one base lane. */
static uint32_t cache_cap(const struct rail *rail)
{
	return rail->dp->settings->lanes.max_conns / rail->nbase;
}

bool rail_cache_lends(const struct rail *rail)
{
	return cache_lendable(cache_cap(rail)) != 0;
}

/* Initializes an empty cache with "cap" places, but at least 2. */
static void cache_init(struct rail_cache *c, uint32_t cap)
{
	tei_sieve_init(&c->held);
	tei_list_init(&c->waiting);
	tei_list_init(&c->closing);
	tei_list_init(&c->free);
	/* at least one place for slices and one for messages */
	c->cap = cap < 2 ? 2 : cap;
}

void rail_cache_init_all(struct rail *rail)
{
	struct rail_cache *c;
	uint32_t i;

	for (i = 0; i < rail->ntx; i++)
		cache_init(&rail->cache[i], cache_cap(rail));
	for (i = rail->nbase; i < rail->ntx; i++) {
		c = &rail->cache[i % rail->nbase];
		rail->cache[i].lender = c;
		if (!c->nborrowers++)
			c->borrowers = &rail->cache[i];
		c->stride = rail->nbase;
	}
}

/* Clears the pointers to the place in the connection that has it and in the one
 * that had it. */
static void cache_unhold(struct rail_cache_slot *slot)
{
	if (slot->conn)
		slot->conn->slot = NULL;
	if (slot->was)
		slot->was->leaving = NULL;
}

void rail_cache_fini(struct rail_cache *c)
{
	struct rail_cache_chunk *chunk;
	struct rail_conn *p;
	size_t i;

	while (!tei_list_empty(&c->waiting)) {
		p = tei_list_first(&c->waiting, struct rail_conn, wait_link);
		tei_list_del(&p->wait_link);
	}
	while ((chunk = c->chunks)) {
		c->chunks = chunk->next;
		for (i = 0; i < sizeof(chunk->slot) / sizeof(*chunk->slot); i++)
			cache_unhold(&chunk->slot[i]);
		free(chunk);
	}
}

/* --- places -------------------------------------------------------------- */

/* Returns the number of places that are reserved for leftovers if the lane has
 * had one. With this number of leftovers, the lane is degraded. */
static uint32_t cache_reserve(const struct rail_cache *c)
{
	return c->cap < 8 ? 1 : c->cap / 4;
}

/* Returns the number of places that may be assigned. Places that were lent are
 * not counted. If the lane has had leftovers, some of the places are reserved
 * for further leftovers and are not counted either. */
static uint32_t cache_places(const struct rail_cache *c)
{
	uint32_t gone = c->lent;

	if (__atomic_load_n(&c->wears, __ATOMIC_RELAXED))
		gone += cache_reserve(c);
	return c->cap > 2 + gone ? c->cap - gone : 2;
}

/* Returns true if the connection of an extra lane may have a place, or keep it
 * for new slices. Always returns true for other lanes. */
static bool cache_may_borrow(const struct rail_cache *c,
			     const struct rail_conn *conn)
{
	const struct rail_cache *l = c->lender;

	if (!l)
		return true;
	return tei_list_empty(&l->waiting) &&
	       (conn->slot || (l->lent < cache_lendable(l->cap) &&
			       l->held.count + 1 < cache_places(l)));
}

/* Adds a place without a connection to the free list. If the place was
 * borrowed, it is returned. */
static void cache_add_free(struct rail_cache *c, struct rail_cache_slot *slot)
{
	tei_list_add_tail(&c->free, &slot->link);
	if (!c->lender)
		return;
	c->lender->lent--;
	c->lender->full_ns = 0;
}

static bool cache_grow(struct rail_cache *c)
{
	struct rail_cache_chunk *chunk = calloc(1, sizeof(*chunk));
	size_t i;

	if (!chunk)
		return false;
	chunk->next = c->chunks;
	c->chunks = chunk;
	for (i = 0; i < sizeof(chunk->slot) / sizeof(*chunk->slot); i++) {
		chunk->slot[i].cache = c;
		tei_list_add_tail(&c->free, &chunk->slot[i].link);
	}
	return true;
}

/* Gives the connection a free place. The cache must have a free place. */
static void cache_hold(struct rail_cache *c, struct rail_conn *conn,
		       uint64_t now)
{
	struct rail_cache_slot *slot =
		tei_list_first(&c->free, struct rail_cache_slot, link);

	tei_list_del(&slot->link);
	tei_list_del(&conn->wait_link);
	if (conn->peer->tried_ns <= conn->peer->alive_ns)
		conn->peer->tried_ns = now;
	slot->conn = conn;
	slot->since_ns = now;
	slot->yield = false;
	slot->moves = UINT64_MAX;
	conn->slot = slot;
	c->busy += conn->inflight != 0;
	if (c->lender)
		c->lender->lent++;
	c->made++;
	tei_sieve_insert(&c->held, &slot->entry);
}

/* Links the place, which is on the closing list, with the connection that had
 * it, so that the socket to be closed can be recorded in the connection. */
static void cache_leave(struct rail_cache_slot *slot, struct rail_conn *conn)
{
	if (conn->leaving)
		conn->leaving->was = NULL;
	conn->leaving = slot;
	slot->was = conn;
}

/* Takes the place from its connection. The connection is closed later by a
 * thread that holds the lane's lock. */
static void cache_part(struct rail_cache *c, struct rail_cache_slot *slot)
{
	struct rail_conn *conn = slot->conn;

	tei_sieve_remove(&c->held, &slot->entry);
	c->full_ns = 0;
	c->busy -= conn->inflight != 0;
	slot->conn = NULL;
	slot->fi_addr = conn->fi_addr;
	slot->lane_gen = conn->lane_gen;
	slot->used = conn->used;
	conn->slot = NULL;
	if (conn->ready) {
		cache_leave(slot, conn);
		tei_list_add_tail(&c->closing, &slot->link);
		__atomic_fetch_add(&c->nclosing, 1, __ATOMIC_RELAXED);
	} else {
		cache_add_free(c, slot);
	}
	/* if nothing was posted on this connection, conn->cut may still
	 * describe an earlier connection */
	if (conn->ready && conn->used) {
		conn->cut = true;
		conn->old.fd = -1;
		conn->old_ns = 0;
	}
	conn->ready = false;
	conn->connected = false;
	conn->since_ns = 0;
	conn->asked_ns = 0;
	conn->backoff_us = 0;
}

/* Returns true if a message was sent recently over the connection, and tasks
 * wait for its answer. If the connection were closed, the slices of these tasks
 * would have to establish it again. */
static bool cache_awaits(const struct rail_conn *p, uint64_t now)
{
	return p->asked_ns && now < p->asked_ns + CACHE_ANSWER_NS &&
	       !tei_list_empty(&p->peer->tasks.live);
}

/*
 * Returns true while the connection is being established. If many connections
 * are established at the same time, each of them is slow and must keep its
 * place to succeed. If no post has been tried for a while, the connection does
 * not count as being established.
 */
static bool cache_connects(const struct rail_cache_slot *slot, uint64_t now)
{
	const struct rail_conn *p = slot->conn;

	return p->since_ns && !p->connected &&
	       now < slot->since_ns + CACHE_CONNECT_NS &&
	       now < p->blocked_ns + CACHE_TRIED_NS;
}

/* Returns true if the answer to a fence is awaited over the connection. Returns
 * false for a silent peer, because other peers must not wait for a silent peer
 * without limit. */
static bool cache_fences(const struct rail_conn *p, uint64_t now)
{
	return p->remote < p->peer->nremotes &&
	       rail_fence_outstanding(&p->peer->remotes[p->remote].fence) &&
	       now < p->peer->alive_ns + CACHE_ALIVE_NS;
}

/* Returns true if the peer was given a place a while ago and has given no sign
 * of life since. */
static bool cache_silent(const struct tei_rail_peer *peer, uint64_t now)
{
	return peer->tried_ns > peer->alive_ns &&
	       now > peer->tried_ns + CACHE_SILENT_NS;
}

/* Parameters of a search for a place. */
struct cache_check {
	uint64_t now;
	bool of_silent;		/* only places of silent peers may be evicted */
	bool press;		/* places of silent peers may be evicted even
				 * while they are being connected */
};

/* Returns true if the connection that has the place must not be evicted. */
static bool cache_busy(const struct tei_sieve_entry *e, void *arg)
{
	const struct rail_cache_slot *slot =
		tei_container_of(e, const struct rail_cache_slot, entry);
	const struct rail_conn *p = slot->conn;
	const struct cache_check *look = arg;
	bool silent = (look->of_silent || look->press) &&
		      cache_silent(p->peer, look->now);

	return (look->of_silent && !silent) || p->inflight || p->msgs ||
	       cache_awaits(p, look->now) || cache_fences(p, look->now) ||
	       (!(look->press && silent) && cache_connects(slot, look->now));
}

/* Returns true if silent peers, which may be dead, have reached their limit of
 * places. */
static bool cache_silent_enough(const struct rail_cache *c, uint64_t now)
{
	uint32_t n = 0, most = cache_places(c) / 4;
	struct tei_sieve_entry *e;

	tei_list_foreach(e, &c->held.order, struct tei_sieve_entry, link)
		n += cache_silent(
			tei_container_of(e, struct rail_cache_slot, entry)
				->conn->peer,
			now);
	return n >= (most ? most : 1);
}

/* Requests that each extra lane with an idle connection evicts one, because it has
 * borrowed places. The lock of the extra lane is needed for that (cache_return), and
 * the caller holds the lock of another lane. */
static void cache_recall(struct rail_cache *c, struct tei_rail_dp *dp)
{
	struct rail_cache *b;
	bool any = false;
	uint32_t i;

	for (i = 0; i < c->nborrowers; i++) {
		b = &c->borrowers[i * c->stride];
		if (b->busy == b->held.count || b->recalled)
			continue;
		b->recalled = true;
		__atomic_fetch_add(&b->nclosing, 1, __ATOMIC_RELAXED);
		any = true;
	}
	if (any)
		rail_progress_wake(dp);
}

/* Evicts an idle connection of an extra lane if cache_recall has requested it.
 * The place is returned when the connection has been closed. If the lane is not
 * active, its lock does not guard the connections, and the request is dropped:
 * it is repeated while places are needed. */
static void cache_return(struct rail_lane *lane) TEI_REQUIRES(lane->lock)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_cache *c = rail_cache_of(lane);
	struct tei_sieve_entry *e = NULL;
	struct cache_check look = { 0 };

	if (!c->recalled)
		return;
	c->recalled = false;
	__atomic_fetch_sub(&c->nclosing, 1, __ATOMIC_RELAXED);
	look.now = tei_now_ns();
	if (lane->state == RAIL_LANE_ACTIVE)
		e = tei_sieve_evict(&c->held, cache_busy, &look);
	if (!e)
		return;
	c->evicted++;
	cache_part(c, tei_container_of(e, struct rail_cache_slot, entry));
}

/*
 * Returns true if there is a free place for the connection. Evicts another
 * connection if that is necessary. Peers that answer have priority, and silent
 * peers get only a part of the places. Otherwise silent peers could occupy all
 * places one after the other, without ever connecting.
 */
static bool cache_make_room(struct rail_cache *c, const struct rail_conn *conn,
			    uint64_t now)
{
	bool silent = cache_silent(conn->peer, now);
	struct cache_check look = { .now = now };
	struct tei_sieve_entry *e;

	/* The last search at the same time `now` was for a peer that is not
	 * silent, and found no place. Another search would fail as well: for a
	 * silent peer, only places are free that would also be free for other
	 * peers. */
	if (rail_cache_degraded(c) || c->full_ns == now)
		return false;
	if (c->lent && c->held.count >= cache_places(c))
		cache_recall(c, conn->peer->dp);
	look.of_silent = silent && cache_silent_enough(c, now);
	while (look.of_silent || c->held.count >= cache_places(c)) {
		e = tei_sieve_evict(&c->held, cache_busy, &look);
		if (!e && !silent && !look.press) {
			look.press = true;
			continue;
		}
		if (!e) {
			c->full_ns = silent ? c->full_ns : now;
			return false;
		}
		look.of_silent = false;
		c->evicted++;
		cache_part(c,
			   tei_container_of(e, struct rail_cache_slot, entry));
	}
	return !tei_list_empty(&c->free) || cache_grow(c);
}

/* --- the waiting list ---------------------------------------------------- */

/* Asks a connection to yield its place, because another one waits for a place:
 * the busy connection that has had its place longest, and for at least
 * CACHE_TURN_NS. At most one connection is asked per CACHE_YIELD_NS. */
static void cache_press(struct rail_cache *c, uint64_t now)
{
	struct rail_cache_slot *slot, *oldest = NULL;
	struct tei_sieve_entry *e;

	if (now < c->yield_ns + CACHE_YIELD_NS)
		return;
	c->yield_ns = now;
	tei_list_foreach(e, &c->held.order, struct tei_sieve_entry, link) {
		slot = tei_container_of(e, struct rail_cache_slot, entry);
		if (slot->yield || !slot->conn->inflight ||
		    now < slot->since_ns + CACHE_TURN_NS)
			continue;
		if (!oldest || slot->since_ns < oldest->since_ns)
			oldest = slot;
	}
	if (oldest)
		oldest->yield = true;
}

bool rail_cache_contended(const struct rail_conn *conn)
{
	const struct rail_cache_slot *slot = conn->slot;

	return slot && slot->yield && conn->inflight &&
	       !tei_list_empty(&slot->cache->waiting);
}

/* Puts the connection on the waiting list: at the front if it is c->first,
 * which was to be served next; otherwise at the end. Returns false. */
static bool cache_wait(struct rail_cache *c, struct rail_conn *conn,
		       uint64_t now)
{
	if (c->first == conn) {
		tei_list_del(&conn->wait_link);
		tei_list_add_head(&c->waiting, &conn->wait_link);
	} else if (tei_list_empty(&conn->wait_link)) {
		tei_list_add_tail(&c->waiting, &conn->wait_link);
	}
	cache_press(c, now);
	return false;
}

void rail_cache_favour(struct rail_lane *lane)
{
	struct rail_cache *c = rail_cache_of(lane);
	struct tei_rail_peer *peer;
	struct rail_conn *p;

	while (!tei_list_empty(&c->waiting)) {
		p = tei_list_first(&c->waiting, struct rail_conn, wait_link);
		tei_list_del(&p->wait_link);
		peer = p->peer;
		if (tei_list_empty(&peer->active_link))
			continue;
		c->first = p;
		tei_list_del(&peer->active_link);
		tei_list_add_head(&peer->dp->tasks.active, &peer->active_link);
		return;
	}
}

void rail_cache_favoured(struct rail_lane *lane)
{
	rail_cache_of(lane)->first = NULL;
}

/* Returns true if no other connection must get a place in the cache before this
 * one does. */
static bool cache_its_turn(const struct rail_cache *c,
			   const struct rail_conn *conn)
{
	return c->first == conn || (!c->first && tei_list_empty(&c->waiting));
}

/* --- off-route connections ----------------------------------------------- */

/* Returns true if the connection is off-route, or on an extra lane beyond the
 * width of its rail pair. With remote rail selection or
 * round-robin, all pairs are in use and none is off-route. */
static bool cache_off_route(const struct rail_lane *lane,
			    const struct rail_conn *conn)
	TEI_REQUIRES(rail_sched_held)
{
	const struct tei_rail_peer *peer = conn->peer;
	const struct rail *rail = lane->rail;

	if (!rail_width_covers(conn, lane))
		return true;
	return peer->routes.route[rail->index] >= 0 &&
	       peer->routes.route[rail->index] != conn->remote &&
	       !peer->routes.choice &&
	       !rail->dp->settings->sched.path_roundrobin;
}

/* If the connection is off-route, makes rail_cache_tidy() run later, which
 * checks all off-route connections. */
static void cache_note_off_route(const struct rail_lane *lane,
				 const struct rail_conn *conn)
	TEI_REQUIRES(rail_sched_held)
{
	if (cache_off_route(lane, conn))
		__atomic_store_n(&lane->rail->dp->off_route.any, true,
				 __ATOMIC_RELAXED);
}

/* Returns true if the connection that has the place has not been used for
 * CACHE_IDLE_NS. */
static bool cache_idle(struct rail_cache_slot *slot, uint64_t now)
{
	uint64_t moves = __atomic_load_n(&slot->conn->moves, __ATOMIC_RELAXED);
	const struct cache_check look = { .now = now };

	if (slot->moves != moves || slot->conn->asked_ns > slot->moved_ns ||
	    cache_busy(&slot->entry, (void *)(uintptr_t)&look)) {
		slot->moves = moves;
		slot->moved_ns = now;
	}
	return now >= slot->moved_ns + CACHE_IDLE_NS;
}

/* Evicts the idle off-route connections of the lane. Returns true if other
 * off-route connections remain. */
static bool cache_tidy(struct rail_lane *lane, uint64_t now)
	TEI_REQUIRES(lane->lock)
{
	struct rail_cache *c = rail_cache_of(lane);
	struct tei_sieve_entry *e, *next;
	struct rail_cache_slot *slot;
	bool left = false;

	/* connections that cannot be closed keep their places */
	if (c->retires_only || lane->state != RAIL_LANE_ACTIVE ||
	    __atomic_load_n(&c->wears, __ATOMIC_RELAXED))
		return false;
	rail_sched_enter(lane->rail->dp);
	tei_list_foreach_safe(e, next, &c->held.order, struct tei_sieve_entry,
			      link) {
		slot = tei_container_of(e, struct rail_cache_slot, entry);
		if (!cache_off_route(lane, slot->conn))
			continue;
		if (cache_idle(slot, now))
			cache_part(c, slot);
		else
			left = true;
	}
	rail_sched_leave(lane->rail->dp);
	rail_cache_close(lane);
	return left;
}

uint64_t rail_cache_tidy(struct tei_rail_dp *dp, uint64_t now)
{
	struct rail_lane *lane;
	struct rail *rail;
	bool left = false;
	uint32_t i, j;

	if (!__atomic_load_n(&dp->off_route.any, __ATOMIC_RELAXED))
		return 0;
	if (now < dp->off_route.tidy_ns)
		return dp->off_route.tidy_ns;
	dp->off_route.tidy_ns = now + CACHE_TIDY_NS;
	__atomic_store_n(&dp->off_route.any, false, __ATOMIC_RELAXED);
	rail_sched_enter(dp);
	left = rail_width_tidy(dp, now);
	rail_sched_leave(dp);
	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
			lane = &rail->tx_lanes[j];
			tei_mutex_lock(&lane->lock);
			left |= cache_tidy(lane, now);
			tei_mutex_unlock(&lane->lock);
		}
	}
	if (!left)
		return 0;
	__atomic_store_n(&dp->off_route.any, true, __ATOMIC_RELAXED);
	return dp->off_route.tidy_ns;
}

/* --- admission ----------------------------------------------------------- */

/* Returns true if more slices may be posted now on a connection that has a
 * place. Returns false if waiting connections must be served first. */
static bool cache_go_on(struct rail_cache *c, struct rail_conn *conn,
			uint64_t *now)
{
	struct rail_cache_slot *slot = conn->slot;

	if (conn->inflight)
		return !slot->yield;
	if (!slot->yield && c->busy + 1 < cache_places(c)) {
		tei_list_del(&conn->wait_link);
		return true;
	}
	if (!*now)
		*now = tei_now_ns();
	if (c->busy + 1 >= cache_places(c) || !cache_its_turn(c, conn))
		return cache_wait(c, conn, *now);
	tei_list_del(&conn->wait_link);
	slot->since_ns = *now;
	slot->yield = false;
	return true;
}

bool rail_cache_admit(struct rail_lane *lane, struct rail_conn *conn,
		      uint64_t *now)
{
	struct rail_cache *c = rail_cache_of(lane);

	if (!cache_may_borrow(c, conn))
		return false;
	if (conn->slot) {
		tei_sieve_visit(&conn->slot->entry);
		return cache_go_on(c, conn, now);
	}
	if (!*now)
		*now = tei_now_ns();
	if (cache_silent(conn->peer, *now)) {
		/* a silent peer does not join the waiting list, and no
		 * connection yields to it */
		tei_list_del(&conn->wait_link);
		if (c->busy + 1 >= cache_places(c) ||
		    !cache_make_room(c, conn, *now))
			return false;
	} else if (c->busy + 1 >= cache_places(c) || !cache_its_turn(c, conn) ||
		   !cache_make_room(c, conn, *now)) {
		return cache_wait(c, conn, *now);
	}
	cache_hold(c, conn, *now);
	cache_note_off_route(lane, conn);
	return true;
}

bool rail_cache_admit_msg(struct rail_lane *lane, struct rail_conn *conn,
			  uint64_t now)
{
	struct rail_cache *c = rail_cache_of(lane);

	if (conn->slot) {
		tei_sieve_visit(&conn->slot->entry);
		return true;
	}
	if (!cache_may_borrow(c, conn) || !cache_make_room(c, conn, now))
		return false;
	cache_hold(c, conn, now);
	cache_note_off_route(lane, conn);
	return true;
}

void rail_cache_drop(struct rail_conn *conn)
{
	tei_list_del(&conn->wait_link);
	if (conn->slot)
		cache_part(conn->slot->cache, conn->slot);
}

void rail_cache_forget(struct rail_conn *conn)
{
	rail_cache_drop(conn);
	if (conn->leaving)
		conn->leaving->was = NULL;
	conn->leaving = NULL;
}

/* --- closing ------------------------------------------------------------- */

static bool cache_addr(struct rail_lane *lane, fi_addr_t fi_addr,
		       struct tei_rail_addr *addr) TEI_REQUIRES(lane->lock)
{
	size_t len = sizeof(addr->bytes);

	memset(addr, 0, sizeof(*addr));
	if (fi_av_lookup(lane->av, fi_addr, addr->bytes, &len) ||
	    len > sizeof(addr->bytes))
		return false;
	addr->len = (uint32_t)len;
	return true;
}

bool rail_cache_shares(struct rail_lane *lane, const struct tei_rail_addr *addr,
		       const struct rail_conn *but)
{
	const struct rail_cache *c = rail_cache_of(lane);
	const struct rail_conn *p;
	struct tei_rail_addr other;
	struct tei_sieve_entry *e;
	bool shares = false;

	rail_sched_enter(lane->rail->dp);
	tei_list_foreach(e, &c->held.order, struct tei_sieve_entry, link) {
		p = tei_container_of(e, struct rail_cache_slot, entry)->conn;
		if (p == but || !p->ready || p->lane_gen != lane->gen ||
		    !cache_addr(lane, p->fi_addr, &other))
			continue;
		other.addr_format = addr->addr_format;
		shares = rail_addr_same(&other, addr);
		if (shares)
			break;
	}
	rail_sched_leave(lane->rail->dp);
	return shares;
}

/* Shuts the evicted connection down, unless another peer uses it too. Returns
 * false if the connection may have stayed open, so that it counts as a
 * leftover. */
static bool cache_close_one(struct rail_lane *lane,
			    const struct rail_cache_slot *slot,
			    struct tei_socket *which) TEI_REQUIRES(lane->lock)
{
	fi_addr_t fi_addr = slot->fi_addr;
	struct tei_rail_addr addr;
	bool closed = !slot->used;

	if (!closed && cache_addr(lane, fi_addr, &addr))
		closed = rail_cache_shares(lane, &addr, NULL) ||
			 (!rail_cache_of(lane)->retires_only &&
			  rail_disconnect_one(lane, addr.bytes, addr.len,
					      which) != RAIL_CUT_UNKNOWN);
	fi_av_remove(lane->av, &fi_addr, 1, 0);
	return closed;
}

void rail_cache_close(struct rail_lane *lane)
{
	struct rail_cache *c = rail_cache_of(lane);
	struct tei_rail_dp *dp = lane->rail->dp;
	struct tei_socket which;
	struct rail_cache_slot *slot;
	bool left;

	if (!__atomic_load_n(&c->nclosing, __ATOMIC_RELAXED))
		return;
	rail_sched_enter(dp);
	cache_return(lane);
	while (!tei_list_empty(&c->closing)) {
		slot = tei_list_first(&c->closing, struct rail_cache_slot,
				      link);
		tei_list_del(&slot->link);
		__atomic_fetch_sub(&c->nclosing, 1, __ATOMIC_RELAXED);
		rail_sched_leave(dp);
		which.fd = -1;
		/* a connection of an older lane generation was closed with its
		 * endpoint */
		left = lane->ep && slot->lane_gen == lane->gen &&
		       !cache_close_one(lane, slot, &which);
		rail_sched_enter(dp);
		if (slot->was) {
			slot->was->old = which;
			slot->was->leaving = NULL;
			slot->was = NULL;
		}
		if (left) {
			__atomic_store_n(&c->wears, true, __ATOMIC_RELAXED);
			__atomic_fetch_add(&c->leftovers, 1, __ATOMIC_RELAXED);
		}
		cache_add_free(c, slot);
	}
	left = rail_cache_degraded(c);
	rail_sched_leave(dp);
	if (left)
		rail_progress_wake(dp);
}

void rail_cache_release(struct rail_lane *lane)
{
	struct rail_cache *c = rail_cache_of(lane);
	struct tei_sieve_entry *e;

	rail_sched_enter(lane->rail->dp);
	while (!tei_list_empty(&c->held.order)) {
		e = tei_list_first(&c->held.order, struct tei_sieve_entry,
				   link);
		cache_part(c, tei_container_of(e, struct rail_cache_slot,
					       entry));
	}
	rail_sched_leave(lane->rail->dp);
	rail_cache_close(lane);
}

bool rail_cache_closes(const struct rail_lane *lane)
{
	return __atomic_load_n(&rail_cache_of(lane)->nclosing,
			       __ATOMIC_RELAXED) != 0;
}

bool rail_cache_degraded(const struct rail_cache *c)
{
	return __atomic_load_n(&c->leftovers, __ATOMIC_RELAXED) >=
	       cache_reserve(c);
}

void rail_cache_renewed(struct rail_cache *c)
{
	__atomic_store_n(&c->leftovers, 0, __ATOMIC_RELAXED);
}
