/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_HELLO_MSG_H
#define TEI_PROV_RAIL_PEER_RAIL_HELLO_MSG_H

/* Composes the messages HELLO, and the texts of refusals. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/wire/rail_wire.h"

struct tei_rail_peer;

/* Composes a HELLO in buf. want_reply: true if the peer must answer it. Returns
 * the length of the message, or 0 if the message does not fit in buf. */
size_t rail_msg_hello(struct tei_rail_peer *peer, bool want_reply,
		      uint8_t *buf);

/* Returns the text that a REFUSE carries next to its code. */
const char *rail_refusal_text(enum rail_refusal why);

#endif /* TEI_PROV_RAIL_PEER_RAIL_HELLO_MSG_H */
