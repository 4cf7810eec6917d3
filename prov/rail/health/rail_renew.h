/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_HEALTH_RAIL_RENEW_H
#define TEI_PROV_RAIL_HEALTH_RAIL_RENEW_H

/*
 * Renewal of tx lanes. A tx lane has two slots. Renewing the lane retires the
 * active slot, so that it takes no new work, and opens the other slot, its
 * sibling, in its place.
 *
 * The progress thread calls all functions, without a lock. None of them can
 * fail: a lane that cannot be opened marks its rail as lost, and
 * rail_renew_reopen tries again.
 */

#include <stdbool.h>
#include <stdint.h>

struct rail;
struct rail_conn;
struct rail_lane;
struct tei_rail_dp;
struct tei_rail_peer;

/* Renews the lane: retires it, so that new work uses the sibling lane, and
 * closes its endpoint at the latest after drain_ns. */
void rail_renew_lane(struct rail_lane *lane, uint64_t drain_ns);
/* Makes the slices that are posted to the peer return. If the peer is silent,
 * cuts its connections; otherwise retires the lanes that carry the slices. */
void rail_renew_for_peer(struct tei_rail_peer *peer, uint64_t now);
/* Renews the lane if the connection is not established although the peer may be
 * alive: some providers refuse a new connection from an address as long as they
 * hold an old connection from it. Backs off as long as no connection to the
 * peer is established. */
void rail_renew_if_stuck(struct tei_rail_peer *peer, struct rail_lane *lane,
			 struct rail_conn *conn, uint64_t now);
/* Calls rail_renew_if_stuck for all connections to the peer that were tried
 * recently, except those on extra lanes, without which a rail pair works. */
void rail_renew_stuck(struct tei_rail_peer *peer, uint64_t now);
/*
 * Replaces the lanes whose connections to the peer show no sign of life,
 * because a firewall or NAT may have dropped their state while new connections
 * would pass. Called while requests or answers to the peer get lost; does
 * nothing if it was called a short time ago.
 */
void rail_renew_silent(struct tei_rail_peer *peer, uint64_t now);
/* Closes each retired lane on which nothing is posted any longer, or whose time
 * for draining has passed. Also collects the tx lanes and probe endpoints that
 * closer threads have closed. Returns the time at which it must be called
 * again, or 0 if it need not be. */
uint64_t rail_renew_run(struct tei_rail_dp *dp, uint64_t now);
/* Tries again to open those tx lanes of the rail that could not be opened. */
void rail_renew_reopen(struct rail *rail);

/* Starts to open the extra lanes that are in use (rail_load.lanes) and have no
 * endpoint. Progress thread. */
void rail_renew_widen(struct rail *rail);

/* Gives back the places that extra lanes without an endpoint have borrowed from
 * other endpoint caches. Returns false if it must be called again, because a
 * retired slot of such a lane is still open. Progress thread. */
bool rail_renew_release(struct rail *rail);

#endif /* TEI_PROV_RAIL_HEALTH_RAIL_RENEW_H */
