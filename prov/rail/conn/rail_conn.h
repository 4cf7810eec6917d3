/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_CONN_H
#define TEI_PROV_RAIL_CONN_RAIL_CONN_H

/* Connections and routes. */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"

struct rail;
struct rail_conn;
struct rail_remote;
struct rail_tx;

/* Returns the connection of this lane to that remote rail, or NULL if
 * rail_conn_table or, for an extra lane, rail_conn_widen has not allocated it
 * yet. */
struct rail_conn *rail_conn_get(struct tei_rail_peer *peer,
				struct rail_lane *lane, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if the connection has an address handle for the current
 * generations of its lane and of its remote rail. The lane's lock is held
 * too. */
bool rail_conn_is_ready(const struct tei_rail_peer *peer,
			const struct rail_conn *conn,
			const struct rail_lane *lane, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);

/*
 * Gives the connection an address handle for the current generations of its
 * lane and of its remote rail. gen: lane generation of the remote rail for
 * which a slice was cut; 0 means any generation. Returns 0, -FI_EAGAIN if the
 * caller must try again later (for example because the remote rail no longer
 * has generation gen), or another -FI_E*.
 */
int rail_conn_ready(struct tei_rail_peer *peer, struct rail_conn *conn,
		    struct rail_lane *lane, uint16_t remote, uint32_t gen)
	TEI_REQUIRES(lane->lock);

/* Blocks posts to the connection for a while after a post has returned
 * -FI_EAGAIN. busy: slices are posted on the connection, so the reason was a
 * full queue. Returns true if the attempt to connect has taken suspiciously
 * long. */
bool rail_conn_block(struct rail_conn *conn, uint64_t now, bool busy);

/* Returns true if the connection appears to be up. Checks the connection's
 * sockets, because the loss of an idle connection causes no completion. */
bool rail_conn_lives(struct rail_lane *lane, struct rail_conn *conn)
	TEI_REQUIRES(lane->lock);

/* Returns the index of a local rail that can reach addr; -1 if there is
 * none. */
int rail_conn_fit_any(struct tei_rail_dp *dp, const struct tei_rail_addr *addr);

/* Returns the remote rail for the next slice of a local rail, or -1 if the
 * local rail has no route. */
int16_t rail_conn_route(struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);

/* Allocates the connections of every pair of rails and chooses the routes.
 * Returns 0 or TEI_ERR_MEMORY. May be called by the progress thread or during
 * set-up. */
int rail_conn_table(struct tei_rail_peer *peer) TEI_REQUIRES(rail_sched_held);

/* Allocates the connections of the extra lanes, if the peer has none yet. If
 * memory is short, the peer still has none afterwards. */
void rail_conn_widen(struct tei_rail_peer *peer) TEI_REQUIRES(rail_sched_held);

/* Returns how well a local rail can reach a remote rail. The values are: 0 if
 * it cannot, or if the remote rail is only an address for hellos
 * (rail_remote.hint); 1 if it perhaps can, through a router; 2 if both are in
 * the same network; 3 if both have the same address. */
int rail_conn_fit(const struct rail *rail, const struct rail_remote *remote);

/* Returns what rail_conn_fit returns, but rates an address for hellos
 * (rail_remote.hint) like any other remote rail. */
int rail_conn_reach(const struct rail *rail, const struct rail_remote *remote);

/* Decides whether remote rails must be selected per slice (rail_select_remote).
 * Must be called whenever routes or ranks have changed. */
void rail_select_table(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Chooses the routes again after a pair has failed or recovered: the affected
 * local rails are routed to another remote rail, or back to their usual one. */
void rail_conn_reroute(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/*
 * Returns an off-route remote rail that the local rail might reach, for
 * messages. Consecutive values of "turn" select one rail after the other. A
 * doubtful pair (rail_health_doubtful) is returned only if all other pairs are
 * doubtful as well: it may then be the only way for the fence. Returns -1 if
 * there is no such rail.
 */
int16_t rail_conn_other(const struct tei_rail_peer *peer,
			const struct rail *rail, uint32_t turn)
	TEI_REQUIRES(rail_sched_held);
void rail_conn_free_all(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* rail_conn_take counts a slice on the connection for which it was cut.
 * rail_conn_put removes the slice from the count when the slice has completed,
 * failed or could not be posted. */
void rail_conn_take(struct rail_conn *conn, struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);
void rail_conn_put(struct rail_slice *slice) TEI_REQUIRES(rail_sched_held);

/* rail_conn_send counts a message on its connection; conn may be NULL.
 * rail_conn_sent removes the message from the count when it has completed,
 * failed or could not be posted; tx->conn may be NULL. */
void rail_conn_send(struct rail_conn *conn, struct rail_tx *tx)
	TEI_REQUIRES(rail_sched_held);
void rail_conn_sent(struct rail_tx *tx) TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_CONN_RAIL_CONN_H */
