/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_CACHE_H
#define TEI_PROV_RAIL_RAIL_CACHE_H

/*
 * The endpoint cache: which paths of an initiating lane have a connection. A
 * path gets a place when it is first used. When all MC_MAX_EP_PER_CTX places
 * are taken, SIEVE says who leaves, and that connection is closed.
 *
 * A path with slices posted, a message under way, a fence pending with a peer
 * that is heard of, or a connection that is just being made is busy and does
 * not leave, unless its peer has been asked for a sign of life for a second in
 * vain and others wait: its connection is cut, and what was posted waits for a
 * fence. Slices in limbo wait for a fence and need no place. One place is
 * kept from slices, so that a fence asked for or answered always has a way.
 * Peers that find no place wait in line; for them paths that were served for
 * long enough take no new slices until they have been idle once. Peers that
 * stay silent share a quarter of the places, at least one: connecting in vain,
 * one after the other, they would leave none to those that answer.
 *
 * Closing: the connection's socket is shut down, which the provider takes as
 * its loss. Where there is none to be found (a provider without sockets) the
 * connection stays, as a leftover that counts; when a quarter of the places is
 * leftovers the lane is retired, and the new one connects what is used again.
 * Meanwhile what the old one has posted drains, on top of the limit.
 *
 * A path that is on no route (a detour, or tried while a route was in doubt)
 * leaves when it has been idle for a while: nobody may ever want its place, and
 * each pair of rails would keep a connection for good.
 *
 * One cache per lane number of a rail, for both slots. Everything is guarded
 * by dp->sched unless marked; what is said of a path's own state needs the lock
 * of the active lane too.
 */

#include "prov/rail/rail_int.h"
#include "util/sieve.h"

/* A place. Owned by its cache for good; held by a path, on closing or free. */
struct rail_conn {
	struct tei_sieve_entry entry;	/* rail_cache.held */
	struct tei_list link;		/* rail_cache.closing or free */
	struct rail_cache *cache;
	struct rail_path *path;		/* NULL on closing and free */
	uint64_t since_ns;		/* served since */
	bool yield;			/* takes no slice until it was idle */
	uint64_t moves;			/* of path, as last seen off the routes */
	uint64_t moved_ns;		/* when they had changed */
	/* on closing: what to close */
	struct rail_path *was;		/* of this path, NULL: it is freed */
	fi_addr_t fi_addr;
	uint32_t lane_gen;
	bool used;
};

struct rail_conn_chunk {
	struct rail_conn_chunk *next;
	struct rail_conn conn[64];
};

struct rail_cache {
	uint32_t cap;			/* fixed: places */
	bool retires_only;		/* fixed: no socket is looked for */
	struct tei_sieve held;
	struct tei_list waiting;	/* rail_path.wait_link: for slices */
	struct rail_path *first;	/* of waiting, whose turn it is */
	uint64_t yield_ns;		/* when one was asked to yield last */
	uint32_t busy;			/* places of paths with slices */
	struct tei_list closing;	/* connections to be closed */
	uint32_t nclosing;		/* of closing; atomic */
	uint32_t leftovers;		/* evicted, not closed; atomic */
	bool wears;			/* there were such; atomic */
	struct tei_list free;
	struct rail_conn_chunk *chunks;
	uint64_t made, evicted;
};

static inline struct rail_cache *rail_cache_of(const struct rail_lane *lane)
{
	return &lane->rail->cache[lane->index];
}

void rail_cache_init(struct rail_cache *cache, uint32_t cap);
/* Paths that have a place lose it. */
void rail_cache_fini(struct rail_cache *cache) TEI_REQUIRES(rail_sched_held);

/*
 * A place for the path on this lane, or its own; false: none now. *now: the
 * time, or 0 until it is needed. A peer that has no place for its slices is in
 * line from then on; a message is to be tried again.
 */
bool rail_cache_admit(struct rail_lane *lane, struct rail_path *path,
		      uint64_t *now)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);
bool rail_cache_admit_msg(struct rail_lane *lane, struct rail_path *path,
			  uint64_t now)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);

/* Others wait in line, and the path was asked to yield its place; but what is
 * posted keeps it. */
bool rail_cache_coveted(const struct rail_path *path)
	TEI_REQUIRES(rail_sched_held);

/* Who is first in line is cut for first. Before a bundle; then after it. */
void rail_cache_favour(struct rail_lane *lane)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);
void rail_cache_favoured(struct rail_lane *lane)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);

/* The path loses its place, busy or not: its connection is broken. */
void rail_cache_drop(struct rail_path *path) TEI_REQUIRES(rail_sched_held);

/* As that; it is about to be freed. */
void rail_cache_forget(struct rail_path *path) TEI_REQUIRES(rail_sched_held);

/* Closes what has been evicted; before anything is posted. */
void rail_cache_close(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* Another path of the lane than that is ready for this address: a process that
 * is looked for, or a hint, has the address of a rail that is known. The provider
 * has one connection for both. */
bool rail_cache_shares(struct rail_lane *lane, const struct tei_rail_addr *addr,
		       const struct rail_path *but) TEI_REQUIRES(lane->lock);

/* Paths off the routes that have been idle for long leave. The thread, no lock
 * held; cheap where there are none. Returns when to come again, 0: not for
 * this. */
uint64_t rail_cache_tidy(struct tei_rail_dp *dp, uint64_t now);

/* So much is left over that the lane is to be retired. */
bool rail_cache_worn(const struct rail_cache *cache);
/* It was: with the lane its leftovers go. */
void rail_cache_renewed(struct rail_cache *cache)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_RAIL_CACHE_H */
