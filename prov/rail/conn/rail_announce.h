/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_ANNOUNCE_H
#define TEI_PROV_RAIL_CONN_RAIL_ANNOUNCE_H

/* Announces that the local rails have changed. */

struct tei_rail_dp;

/* Chooses all routes again and sends a hello to the peers, because the local
 * rails have changed. Calls ops->rails_changed. */
void rail_peer_announce(struct tei_rail_dp *dp);

#endif /* TEI_PROV_RAIL_CONN_RAIL_ANNOUNCE_H */
