/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_PEER_H
#define TEI_PROV_RAIL_TEI_RAIL_PEER_H

/* Peers, a part of tei_rail.h. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/tei_rail_base.h"
#include "util/err.h"

#define TEI_RAIL_CONTACTS	64	/* most contact addresses that are used
					 * for one peer */

/*
 * Takes a reference to the peer with that incarnation, and creates the peer if
 * it is unknown. Sends nothing. at: the n contact addresses of the process, of
 * which the first TEI_RAIL_CONTACTS are used. The data plane tries all of these
 * until the peer has answered for the first time. The caller drops the
 * reference with tei_rail_peer_put.
 */
int tei_rail_peer_get(struct tei_rail_dp *dp, const char *name,
		      uint64_t incarnation, const struct tei_rail_addr *at,
		      size_t n, struct tei_err *err,
		      struct tei_rail_peer **peer);
void tei_rail_peer_hold(struct tei_rail_peer *peer);
void tei_rail_peer_put(struct tei_rail_peer *peer);
const char *tei_rail_peer_name(const struct tei_rail_peer *peer);
uint64_t tei_rail_peer_incarnation(const struct tei_rail_peer *peer);

/*
 * Passes the result of ops->resolve to the data plane: the current incarnation
 * and contact addresses of the process. May block for a moment. If the
 * incarnation differs from the peer's, later tasks must use a new peer object.
 * The tasks of this peer end as FAILED if its process is found to have ended or
 * fences the posted slices, otherwise as UNFENCED.
 */
void tei_rail_peer_resolved(struct tei_rail_peer *peer, uint64_t incarnation,
			    const struct tei_rail_addr *at, size_t n);

/*
 * Reports, as the result of ops->resolve, that the port of the peer's control
 * channel refuses connections. If the peer's rails refuse connections as well
 * and no connection to the peer is left, the peer's tasks end as UNFENCED.
 * Blocks for a moment.
 */
void tei_rail_peer_no_control(struct tei_rail_peer *peer);

/*
 * Reports that the process behind the peer seems to have ended. The process
 * that the caller has observed may be a different one, so the report is
 * accepted only if none of the peer's rails listens any longer. The peer's
 * tasks then end as FAILED. Returns true if the peer is known to be gone.
 * Blocks for a moment.
 */
bool tei_rail_peer_ended(struct tei_rail_peer *peer, const char *why);

/* Returns true if a local rail can reach the address. */
bool tei_rail_addr_fits(struct tei_rail_dp *dp,
			const struct tei_rail_addr *addr);

/* Returns false if the peer is gone, or if a fence of one of its rails is
 * outstanding or was abandoned; otherwise true, even if the peer has not
 * answered yet. */
bool tei_rail_peer_sound(struct tei_rail_peer *peer);

/* Returns true if tei_rail_peer_sound returns true and the peer gave a sign of
 * life in the last 5 milliseconds. */
bool tei_rail_peer_healthy(struct tei_rail_peer *peer);

/* A local rail and its route to a peer. The remote rail has no name before the
 * peer has answered. */
struct tei_rail_path_info {
	char transport[16];
	char provider[32];
	char rail[64];
	char address[96];		/* current address of the local rail's
					 * rx lane */
	char remote_rail[64];
	char remote_address[96];
	int numa;			/* NUMA node of the local rail, -1 if
					 * unknown */
	uint8_t rank;			/* rank of the local rail for the
					 * memory, enum tei_topo_rank */
	uint32_t connections;		/* number of established connections */
};

/* Fills the array "out" with the routes to a peer, at most one per local rail,
 * and returns their number. The ranks are computed for memory at "location"; if
 * it is NULL, for memory at no particular location. */
size_t tei_rail_peer_paths(struct tei_rail_peer *peer, const char *location,
			   struct tei_rail_path_info out[TEI_RAIL_MAX]);
/* Does what tei_rail_peer_paths does, but does not fill in the members rank and
 * connections, because computing these is slow. */
size_t tei_rail_peer_routes(struct tei_rail_peer *peer,
			    struct tei_rail_path_info out[TEI_RAIL_MAX]);

enum tei_rail_peer_condition {
	TEI_RAIL_PEER_NEW,		/* the peer has not answered yet */
	TEI_RAIL_PEER_READY,
	TEI_RAIL_PEER_FENCING,		/* a fence of the peer is outstanding */
	TEI_RAIL_PEER_GONE,
};

/* Counters of a peer since it was created. */
struct tei_rail_peer_stats {
	uint64_t tx_bytes, rx_bytes;	/* bytes that completed slices have
					 * written and read */
	uint64_t completed, failed, unfenced, canceled;	/* number of tasks that
							 * have ended in each of
							 * these ways */
	uint64_t retries;		/* number of times that a slice was
					 * posted again */
	uint64_t fences;		/* number of fences that this process
					 * has requested */
	uint64_t alive_ns;		/* time of the last sign of life; 0 if
					 * there is none */
	uint32_t queued;		/* number of tasks that are not
					 * completely cut into slices */
	uint32_t posted;		/* number of slices that are posted
					 * now */
	enum tei_rail_peer_condition state;
};
void tei_rail_peer_get_stats(struct tei_rail_peer *peer,
			     struct tei_rail_peer_stats *out);

/*
 * Bytes that a peer has written to this process and read from it, as the peer
 * reports them about once a second. They are not verified.
 */
struct tei_rail_served {
	char name[96];			/* name that the peer has reported; ""
					 * if unknown */
	uint64_t incarnation;
	uint64_t tx_bytes, rx_bytes;	/* bytes that the peer has written, and
					 * bytes that it has read */
	uint64_t ns;			/* time of the last report, ns */
};
/* Fills the array "out" with at most "room" elements. The peers are sorted by
 * the time of their last message, newest first. Returns the number of peers
 * that have reported bytes. */
size_t tei_rail_served(struct tei_rail_dp *dp, struct tei_rail_served *out,
		       size_t room);

/* Returns true if the process of this incarnation is known to be gone. */
bool tei_rail_peer_gone(struct tei_rail_peer *peer);

/* Returns true if the process of this incarnation is known to be gone. Returns
 * false if the incarnation is no longer known. */
bool tei_rail_gone(struct tei_rail_dp *dp, uint64_t incarnation);

/* Connects every rail with the peer (warm-up). Blocks for up to timeout_ns. May
 * be repeated. */
int tei_rail_peer_warmup(struct tei_rail_peer *peer, uint64_t timeout_ns,
			 struct tei_err *err);

#endif /* TEI_PROV_RAIL_TEI_RAIL_PEER_H */
