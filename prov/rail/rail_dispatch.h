/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_DISPATCH_H
#define TEI_PROV_RAIL_RAIL_DISPATCH_H

/* Receives the messages of the peer protocol and passes them to their
 * handlers. */

#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"

/* Handles a received message. If the caller is not the progress thread, leaves
 * every message except user messages to the progress thread. */
void rail_msg_received(struct rail_lane *lane, const uint8_t *buf, size_t len,
		       struct rail_done *done) TEI_REQUIRES(lane->lock);

#endif /* TEI_PROV_RAIL_RAIL_DISPATCH_H */
