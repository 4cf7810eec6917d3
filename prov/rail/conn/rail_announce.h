/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_ANNOUNCE_H
#define TEI_PROV_RAIL_CONN_RAIL_ANNOUNCE_H

/* Announces to the peers that the local rails have changed. */

struct tei_rail_dp;

/* Chooses all routes again, makes the progress thread send a hello to each
 * peer, and calls ops->rails_changed. Must be called when the local rails have
 * changed. */
void rail_peer_announce(struct tei_rail_dp *dp);

#endif /* TEI_PROV_RAIL_CONN_RAIL_ANNOUNCE_H */
