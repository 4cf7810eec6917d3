/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_WIRE_H
#define TEI_PROV_MOONRAIL_MOONRAIL_WIRE_H

/*
 * Messages between two domains, version 3. A message of the data plane
 * (tei_rail_send) holds a struct moonrail_wire, then its payload. All numbers
 * are little-endian.
 *
 * Two domains have one stream in each direction. The messages of a stream are
 * numbered from 1 and are delivered in this order and exactly once, whichever
 * rail or lane carries them. The receiver keeps out-of-order messages, drops
 * repeated ones, and states in ack the number that it expects next. The sender
 * keeps each message until it is acknowledged. ACK and PING are loose messages:
 * they have no number and may be lost or repeated.
 */

#include <endian.h>
#include <stdint.h>

enum moonrail_wire_op {
	/* Acknowledgement (field ack). If id is not 0, the payload is version
	 * id of the list of the sender's backpressured endpoints: n endpoint
	 * numbers of 4 bytes. Messages for these endpoints must wait. */
	MOONRAIL_WIRE_ACK = 1,
	MOONRAIL_WIRE_PING,	/* requests an ACK with flag ECHO */
	MOONRAIL_WIRE_DATA,	/* a whole message; payload: its bytes */
	MOONRAIL_WIRE_RTS,	/* announces a message to be read; payload: n
				 * ranges */
	/* Message id has been received; n: FI_E* or 0. payload: ids and results
	 * of up to 3 more received messages (moonrail_wire_fin). If src_ep is
	 * not 0, endpoint src_ep has been closed, and n is FI_ECONNREFUSED. */
	MOONRAIL_WIRE_FIN,
	/* The bytes of a write are in place, or a read has ended. len: bytes of
	 * the operation; payload: the keys, if the owner of the memory counts
	 * operations. */
	MOONRAIL_WIRE_DONE,
	MOONRAIL_WIRE_KEY,	/* queries the registration with key id */
	MOONRAIL_WIRE_KEY_IS,	/* describes key id. n: access rights, or 0 if
				 * no registration has the key; tag: address;
				 * len: length of the registration */
	MOONRAIL_WIRE_KEY_NOT,	/* key id is void from now on */
	MOONRAIL_WIRE_ATOMIC,	/* requests an atomic. payload: n ranges (struct
				 * atomic_place), then operands; tag: kind << 32
				 * | type << 16 | op */
	MOONRAIL_WIRE_ATOMIC_REP, /* answers request id; n: FI_E* or 0; payload:
				   * the old values, if requested */
	MOONRAIL_WIRE_STILL,	/* read-back check: is announced message id
				 * still unacknowledged? */
	MOONRAIL_WIRE_STILL_IS,	/* answers STILL for message id; n: 0 if still
				 * unacknowledged, otherwise FI_E* */
	MOONRAIL_WIRE_OPS,
};

/* Flags of a message (moonrail_wire.flags), and the messages that use them. */
#define MOONRAIL_WIRE_TAGGED	1u	/* DATA, RTS: the field tag is valid */
#define MOONRAIL_WIRE_HAS_DATA	2u	/* DATA, RTS, DONE: the field data is
					 * valid */
#define MOONRAIL_WIRE_WANT_FIN	4u	/* DATA: requests a FIN */
#define MOONRAIL_WIRE_WANT_ACK	8u	/* requests an ACK at once */
#define MOONRAIL_WIRE_ECHO	16u	/* ACK: answers a PING */
#define MOONRAIL_WIRE_VIRTUAL	32u	/* KEY_IS: the key is used with virtual
					 * addresses, not offsets */
#define MOONRAIL_WIRE_EVENTS	64u	/* KEY_IS: each access must be followed
					 * by DONE */
#define MOONRAIL_WIRE_READ	128u	/* DONE: the operation is a read */

#define MOONRAIL_WIRE_VERSION	3

struct moonrail_wire {
	uint8_t version;
	uint8_t op;			/* enum moonrail_wire_op */
	uint16_t flags;
	uint32_t src_ep, dst_ep;	/* endpoint numbers; 0 means the oldest
					 * endpoint */
	uint32_t n;
	uint64_t seq;			/* number in the stream; 0 for a loose
					 * message */
	uint64_t ack;			/* number of the message that the sender
					 * expects next */
	uint64_t tag, data, len, id;
};

struct moonrail_wire_range {
	uint64_t addr, len;
};

struct moonrail_wire_fin {
	uint64_t id, err;
};

_Static_assert(sizeof(struct moonrail_wire) == 64, "wire");
_Static_assert(sizeof(struct moonrail_wire_range) == 16, "wire");
_Static_assert(sizeof(struct moonrail_wire_fin) == 16, "wire");

/* Converts all fields between little-endian and native byte order, in both
 * directions. */
static inline void moonrail_wire_swap(struct moonrail_wire *w)
{
	w->flags = htole16(w->flags);
	w->src_ep = htole32(w->src_ep);
	w->dst_ep = htole32(w->dst_ep);
	w->n = htole32(w->n);
	w->seq = htole64(w->seq);
	w->ack = htole64(w->ack);
	w->tag = htole64(w->tag);
	w->data = htole64(w->data);
	w->len = htole64(w->len);
	w->id = htole64(w->id);
}

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_WIRE_H */
