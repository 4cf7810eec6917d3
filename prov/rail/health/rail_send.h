/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_HEALTH_RAIL_SEND_H
#define TEI_PROV_RAIL_HEALTH_RAIL_SEND_H

/* The choice of a rail pair for a message. rail_int.h has the functions. */

#include "prov/rail/rail_int.h"

/* In peer->received, the index of the remote rail plus 1 is shifted by this
 * number of bits; the index of the local rail is below it. */
#define RAIL_RECEIVED_SHIFT	8

#endif /* TEI_PROV_RAIL_HEALTH_RAIL_SEND_H */
