/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_LOSS_H
#define TEI_PROV_RAIL_CONN_RAIL_LOSS_H

/* The log line about lost connections. rail_int.h has the functions that record
 * them. */

/* Logs lost connections to the peer when they are due. */

#include <stdint.h>

struct tei_rail_peer;
uint64_t rail_ctl_loss(struct tei_rail_peer *peer, uint64_t now);

#endif /* TEI_PROV_RAIL_CONN_RAIL_LOSS_H */
