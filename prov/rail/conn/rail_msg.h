/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_MSG_H
#define TEI_PROV_RAIL_CONN_RAIL_MSG_H

/* Posting messages of the peer protocol on connections. */

#include "prov/rail/rail_int.h"

/*
 * Posts the message on the connection, establishing it if necessary. Returns 0,
 * -FI_EAGAIN, or -FI_EHOSTUNREACH if the provider refused the message; then
 * *refused is the provider's error (FI_E*), otherwise it is unchanged.
 */
int rail_msg_post_on(struct tei_rail_peer *peer, struct rail_lane *lane,
		     struct rail_conn *conn, const void *msg, size_t len,
		     int *refused) TEI_REQUIRES(lane->lock);

#endif /* TEI_PROV_RAIL_CONN_RAIL_MSG_H */
