/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_HELLO_H
#define TEI_PROV_RAIL_PEER_RAIL_HELLO_H

/* Hellos: rail_hello.c sends them, rail_hello_msg.c has their format, and
 * rail_hello_recv.c handles received hellos. */

/* The fields of a received hello. */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/lock.h"

struct rail;
struct rail_done;
struct rail_hello {
	struct rail_remote remotes[TEI_RAIL_MAX];
	bool listed[TEI_RAIL_MAX];
	char name[256];
	uint8_t nonce[RAIL_WIRE_NONCE];
	uint32_t ack;
	uint16_t n;
	uint64_t session;		/* number of the sender's session; 0
					 * means that the sender executes no
					 * atomics */
	struct tei_rail_addr contacts[TEI_RAIL_MAX];
	uint16_t ncontacts;
	uint16_t answers;		/* contact number of the hello that is
					 * answered; 0 if there is none */
	uint16_t contact;		/* contact number of this hello; 0 if
					 * there is none */
};

/* Reads the part of a hello that follows the message header. Returns false if
 * the hello is malformed. */
bool rail_hello_parse(struct rail_wire *w, struct rail_hello *hello);
/* Handles a hello that arrived over the rail. for_us: true if the hello names
 * this process as its receiver, or names no receiver. to_us: true if the hello
 * names this process. If the hello names another process, its nonce is not
 * meant for this process. */
void rail_hello_received(struct tei_rail_peer *peer, const struct rail *rail,
			 const struct rail_hello *hello, uint16_t flags,
			 uint32_t table, bool for_us, bool to_us,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Handles a REFUSE. proven: true if the message was signed for this process, or
 * if no signature is needed. */
void rail_refuse_received(struct tei_rail_dp *dp, struct rail_wire *w,
			  bool proven, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Returns the entry of peer->remotes for the peer's rail with the number id, or
 * NULL if there is none. */
struct rail_remote *rail_peer_remote(struct tei_rail_peer *peer, uint16_t id)
	TEI_REQUIRES(rail_sched_held);
/* Stores the description of a rail of the peer, if the rail is new or has a
 * newer generation. Returns false if memory is short. */
bool rail_peer_take_remote(struct tei_rail_peer *peer,
			   const struct rail_remote *in, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_PEER_RAIL_HELLO_H */
