/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_DISPATCH_H
#define TEI_PROV_RAIL_RAIL_DISPATCH_H

/* Passes received messages of the peer protocol to their handlers. */

#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"

/* Handles a received message. If a caller reads this lane (lane->recv.visited),
 * handles only user messages and defers all other messages to the progress
 * thread. */
void rail_msg_received(struct rail_lane *lane, const uint8_t *buf, size_t len,
		       struct rail_done *done) TEI_REQUIRES(lane->lock);

#endif /* TEI_PROV_RAIL_RAIL_DISPATCH_H */
