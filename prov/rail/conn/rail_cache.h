/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_CACHE_H
#define TEI_PROV_RAIL_CONN_RAIL_CACHE_H

/*
 * The endpoint cache: limits the connections of a tx lane. A connection gets a
 * place in the cache when it is first used. When all MC_MAX_EP_PER_CTX places
 * are taken, SIEVE chooses the connection to evict, and this connection is
 * closed.
 *
 * Busy connections are not evicted. A connection is busy while slices are
 * posted on it, a message is under way, it is being established, or a fence is
 * awaited from a peer that still gives signs of life. There is one exception:
 * if other peers wait for a place, and the peer of a busy connection has not
 * answered requests for a sign of life for a while, the connection is cut and
 * its slices wait for a fence. Slices on the awaiting-fence list
 * (peer->tasks.awaiting_fence) need no place.
 *
 * One place is never given to slices, so that FENCE messages and their answers
 * can always be sent. A connection that finds no place for its slices joins a
 * waiting list. While the list is not empty, connections that have had their
 * place for long enough are asked to yield: they take no new slices until they
 * have been idle once. Silent peers together get at most a quarter of the
 * places, but at least one. Otherwise their attempts to connect would leave no
 * place for peers that answer.
 *
 * Closing: the socket of the connection is shut down, which the provider
 * handles as a lost connection. If the socket cannot be found (the provider has
 * none), the connection stays open as a leftover, which counts towards the
 * limit. When a quarter of the places are leftovers, the lane is retired, and
 * the new lane connects again to the peers in use. The connections of the old
 * lane, while it drains, are not counted towards the limit.
 *
 * An extra lane (conn/rail_width.h) has no places of its own: its connections
 * borrow free places of another lane's cache, at most a quarter of them. If
 * that cache needs places, each of its extra lanes is asked to evict an idle
 * connection and so to return a place. Until that has happened, connections of
 * the cache itself are evicted as usual. While connections wait for a place
 * there, those of the extra lanes take no new slices.
 *
 * An off-route connection (one that was used while the route was in doubt, for
 * example) is evicted after it has been idle for a while. Otherwise, if no
 * other peer needs its place, every rail pair would keep a connection for ever.
 *
 * There is one cache for each lane number of a rail; it serves both slots of
 * the lane. All fields of the cache are guarded by dp->sched unless marked.
 * Some fields of a connection need the lock of the active lane in addition.
 */

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/sieve.h"

struct rail_conn;

/* A place in the cache. Owned by the cache until the cache is freed. A place is
 * assigned to a connection (struct rail_conn), or it is on the closing list or
 * the free list. */
struct rail_cache_slot {
	struct tei_sieve_entry entry;	/* link in rail_cache.held */
	struct tei_list link;		/* link in rail_cache.closing or
					 * rail_cache.free */
	struct rail_cache *cache;
	struct rail_conn *conn;		/* connection that has the place; NULL
					 * while the place is in the list
					 * "closing" or "free" */
	uint64_t since_ns;		/* time at which the connection got the
					 * place, ns */
	bool yield;			/* the connection gets no slices until
					 * it has been idle once */
	uint64_t moves;			/* value of conn->moves at the last
					 * check by rail_cache_tidy */
	uint64_t moved_ns;		/* time at which such a check last found
					 * that the connection was in use */
	/* the connection to be closed, while the place is on the closing
	 * list */
	struct rail_conn *was; /* connection that had the place; NULL if its
				* object was freed */
	fi_addr_t fi_addr;
	uint32_t lane_gen;
	bool used;
};

struct rail_cache {
	uint32_t cap;			/* fixed: number of places */
	bool retires_only;		/* fixed: the provider's sockets are
					 * never shut down; a lane with many
					 * leftovers is retired instead */
	struct tei_sieve held;
	struct tei_list waiting;	/* connections that wait for a place
					 * (rail_conn.wait_link) */
	struct rail_conn *first;	/* former first entry of "waiting",
					 * which gets the next free place; or
					 * NULL */
	uint64_t yield_ns;		/* time of the last request to yield,
					 * ns */
	/*
	 * Time of the last search that found no place for a peer that is not
	 * silent, ns. Further searches at the same time are skipped, because
	 * they would fail, too. 0 if a connection has become idle or has lost
	 * its place since then, so that a search may succeed.
	 */
	uint64_t full_ns;
	uint32_t busy;			/* number of places whose connections
					 * have slices in flight */
	struct tei_list closing;	/* places whose evicted connection must
					 * be closed */
	uint32_t nclosing;		/* atomic: number of entries of
					 * "closing", plus 1 if "recalled" is
					 * true */
	bool recalled;			/* extra lane only: the lender needs
					 * places, so an idle connection must be
					 * evicted under the lane's lock */
	uint32_t leftovers;		/* atomic: number of leftovers: evicted
					 * connections that could not be
					 * closed */
	bool wears;			/* atomic: the lane has had a leftover,
					 * so some places are reserved for
					 * leftovers */
	struct tei_list free;
	struct rail_cache_chunk *chunks;
	uint64_t made, evicted;
	struct rail_cache *lender;	/* fixed: for an extra lane, the cache
					 * whose places it borrows; otherwise
					 * NULL */
	struct rail_cache *borrowers;	/* fixed: first of the caches that
					 * borrow places; the others follow at
					 * intervals of "stride" */
	uint32_t nborrowers, stride;	/* fixed */
	uint32_t lent;			/* number of places that other caches
					 * have borrowed */
};

static inline struct rail_cache *rail_cache_of(const struct rail_lane *lane)
{
	return &lane->rail->cache[lane->index];
}

/* Returns true if the caches of the rail's base lanes have enough places to lend
 * some to extra lanes. Needs rail->nbase only. */
bool rail_cache_lends(const struct rail *rail);
/* Initializes the caches of all tx lanes of a rail. The base lanes have
 * MC_MAX_EP_PER_CTX places together, but each at least 2. */
void rail_cache_init_all(struct rail *rail);
/* Frees all places, even those that are assigned to connections. */
void rail_cache_fini(struct rail_cache *cache) TEI_REQUIRES(rail_sched_held);

/*
 * Return true if the connection "conn" has a place or gets one now, and slices
 * (rail_cache_admit) or a message (rail_cache_admit_msg) may be posted on it.
 *
 * If rail_cache_admit() returns false, the connection waits for a place, unless
 * its peer is silent. If rail_cache_admit_msg() returns false, the caller must
 * try again later. *now: the present time, or 0; if it is 0 and
 * rail_cache_admit() needs the time, the function sets *now.
 */
bool rail_cache_admit(struct rail_lane *lane, struct rail_conn *conn,
		      uint64_t *now) TEI_REQUIRES(lane->lock)
	TEI_REQUIRES(rail_sched_held);
bool rail_cache_admit_msg(struct rail_lane *lane, struct rail_conn *conn,
			  uint64_t now) TEI_REQUIRES(lane->lock)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if the connection is contended: other connections wait for a
 * place, and this connection has been asked to yield, but still has slices
 * posted and keeps its place. */
bool rail_cache_contended(const struct rail_conn *conn)
	TEI_REQUIRES(rail_sched_held);

/* rail_cache_favour() moves the peer of the first waiting connection to the
 * front of dp->tasks.active, so that this connection gets the next free place.
 * Must be called before a bundle of slices is cut. After the bundle,
 * rail_cache_favoured() ends this preference. */
void rail_cache_favour(struct rail_lane *lane)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);
void rail_cache_favoured(struct rail_lane *lane)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);

/* Takes the place from the connection, even if the connection is busy.
 * rail_cache_close() then closes the connection. */
void rail_cache_drop(struct rail_conn *conn) TEI_REQUIRES(rail_sched_held);

/* Does what rail_cache_drop() does, for a connection object that is about to be
 * freed. */
void rail_cache_forget(struct rail_conn *conn) TEI_REQUIRES(rail_sched_held);

/* Closes the evicted connections; on an extra lane, first evicts a connection
 * if the lender needs its place. Must be called before anything is posted on the
 * lane. */
void rail_cache_close(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* Takes the places from all connections of a lane whose two slots are closed,
 * so that an extra lane returns the places that it has borrowed. */
void rail_cache_release(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* Returns true if a connection of the lane, other than "but", leads to this
 * address. Two peers may have the same address for a while: a resolver may lead
 * to a rail that is already known. The provider then makes only one connection
 * for both peers. */
bool rail_cache_shares(struct rail_lane *lane, const struct tei_rail_addr *addr,
		       const struct rail_conn *but) TEI_REQUIRES(lane->lock);

/* Returns true if the lane has evicted connections that must be closed, or must
 * return a borrowed place. */
bool rail_cache_closes(const struct rail_lane *lane);

/* Evicts off-route connections, and connections on extra lanes beyond the width
 * of their rail pair, that have been idle for long. Runs on the
 * progress thread without a lock; cheap if there are no off-route connections.
 * Returns the time at which it must run again, ns; 0 if it need not. */
uint64_t rail_cache_tidy(struct tei_rail_dp *dp, uint64_t now);

/* Returns true if the lane is degraded: it has so many leftovers that it must
 * be retired. */
bool rail_cache_degraded(const struct rail_cache *cache);
/* Resets the number of leftovers after the lane has been replaced, because the
 * leftovers end with the old lane. */
void rail_cache_renewed(struct rail_cache *cache)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_CONN_RAIL_CACHE_H */
