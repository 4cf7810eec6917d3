/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_CONN_STRUCT_H
#define TEI_PROV_RAIL_CORE_RAIL_CONN_STRUCT_H

/* A connection: a tx lane and a remote rail. */

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/clock.h"
#include "util/list.h"
#include "util/world.h"

struct rail_cache_slot;
struct rail_width;
struct tei_rail_peer;

#define RAIL_TRIED_NS		(500 * TEI_NS_PER_MS) /* time for which an
						       * attempt to connect
						       * counts as recent */

/*
 * A connection: a tx lane and a remote rail. Owned by the peer. The two slots
 * of the tx lane share this object, which always describes the connection of
 * the active slot.
 */
struct rail_conn {
	/* fixed */
	struct tei_rail_peer *peer;
	struct rail_width *width;	/* width of the rail pair, which all
					 * connections of the pair share; NULL
					 * if the pair never has connections on
					 * extra lanes */
	uint16_t remote;		/* remote rail: index into
					 * peer->remotes */

	/* guarded by the lock of the active lane */
	bool ready;			/* fi_addr is valid for lane_gen and
					 * remote_serial */
	bool used;			/* a slice or message was posted to
					 * fi_addr */
	bool cut;			/* the provider's connection of lane_gen
					 * was cut, and the provider may not
					 * have closed it yet */
	bool connected;			/* the connection is established: an
					 * operation has completed on it */
	bool excluded;			/* the connection has just been cut
					 * because of the peer, so errors are
					 * not counted against the rail */
	bool blocked_now;		/* a post of the current bundle has
					 * returned -FI_EAGAIN */
	uint32_t lane_gen, remote_serial; /* lane generation and
					   * rail_remote.serial for which
					   * fi_addr is valid */
	fi_addr_t fi_addr;
	struct tei_socket old;		/* if "cut" is true: socket of the cut
					 * connection; fd is -1 if the socket is
					 * unknown */
	uint64_t old_ns;		/* if "cut" is true: start of the wait
					 * until the provider has closed the
					 * connection; 0 if there is no wait */
	uint32_t posted;		/* number of slices posted on the
					 * connection in lane generation
					 * lane_gen and not completed */
	uint32_t backoff_us;		/* present back-off after failed posts,
					 * microseconds; 0 if there is none */
	uint64_t moves;			/* atomic: progress counter: incremented
					 * when a slice completes, or is posted
					 * on the idle connection */
	/* thread: check_moves: value of "moves" at the last check for stalls;
	 * check_ns: time of the first check that found this value */
	uint64_t check_moves, check_ns;
	uint64_t looked_ns;		/* thread: time of the last check for
					 * stalls that listed this connection
					 * (check_next) */
	struct rail_conn *check_next;	/* thread: next connection on the list
					 * of the check at looked_ns
					 * (rail_stall.c) */
	uint64_t blocked_ns;		/* earliest time of the next post on the
					 * connection; 0 means any time */
	uint64_t since_ns;		/* start of the present attempt to
					 * connect; 0 if the connection is not
					 * being established */
	uint64_t asked_ns;		/* time of the last message sent on the
					 * connection; 0 if no message was
					 * sent */
	uint32_t failed_attempts; /* atomic: number of lanes that were renewed
				   * because this connection did not connect;
				   * set to 0 when it connects */

	bool suspect; /* atomic: a send has found that the connection does not
		       * come up; the progress thread has not handled this
		       * yet */

	/* guarded by dp->sched */
	uint32_t inflight;		/* number of slices that were cut for
					 * the connection and have not ended
					 * yet. A slice ends if it completes or
					 * fails, or if it is given back without
					 * a post */
	uint32_t took_in;		/* last accounting round
					 * (rail->bulk.turn) in which the
					 * connection took bulk data; 0 if it
					 * took none yet */
	uint64_t bytes;			/* payload of the slices that "inflight"
					 * counts, bytes */
	uint64_t bulk_bytes;		/* bulk data among "bytes" */
	uint32_t room;			/* limit of the slices that the provider
					 * accepts on the connection at a time;
					 * 0 if no limit is known */
	uint32_t fits;			/* number of slices cut since "room"
					 * last changed */
	uint32_t msgs;			/* number of messages sent on the
					 * connection and not completed */
	struct rail_cache_slot *slot;	/* the connection's place in the
					 * endpoint cache, or NULL */
	struct rail_cache_slot *leaving; /* if the connection was evicted and
					  * must still be closed: its former
					  * place, on the cache's closing list;
					  * otherwise NULL */
	struct tei_list wait_link;	/* in rail_cache.waiting, or unlinked */
};

/* Increments the progress counter, because a slice was posted on the idle
 * connection, or a slice has completed. The lane's lock is held. */
static inline void rail_conn_moved(struct rail_conn *conn)
{
	__atomic_store_n(&conn->moves, conn->moves + 1, __ATOMIC_RELAXED);
}

#endif /* TEI_PROV_RAIL_CORE_RAIL_CONN_STRUCT_H */
