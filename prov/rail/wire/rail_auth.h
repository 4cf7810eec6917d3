/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_WIRE_RAIL_AUTH_H
#define TEI_PROV_RAIL_WIRE_RAIL_AUTH_H

/* Authentication of messages by a shared secret. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tei_rail_dp;
struct tei_rail_peer;

/* If a shared secret is set, writes the message number and the MAC into a
 * complete message to the peer. dp->sched must not be held. */
void rail_auth_sign(struct tei_rail_peer *peer, uint8_t *msg, size_t len);

/* Returns true if the MAC proves that the message was signed for this process
 * with the shared secret. peer: the sender, or NULL if unknown. The message
 * must contain at least a header. */
bool rail_auth_fits(const struct tei_rail_dp *dp,
		    const struct tei_rail_peer *peer, const uint8_t *msg,
		    size_t len);

/* Returns true, and records the number, if no message with this number has been
 * received from the peer. Returns false if such a message was received before,
 * or if the number is so old that the answer is no longer known. */
bool rail_auth_once(struct tei_rail_peer *peer, uint64_t number);

/* Returns true, and records the number, if no hello with this or a higher
 * number has been received from the peer. */
bool rail_auth_newest_hello(struct tei_rail_peer *peer, uint64_t number);

#endif /* TEI_PROV_RAIL_WIRE_RAIL_AUTH_H */
