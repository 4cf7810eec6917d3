/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_WIRE_RAIL_WIRE_H
#define TEI_PROV_RAIL_WIRE_RAIL_WIRE_H

/*
 * The peer protocol on the wire, version 4; docs/PROTOCOL.md describes it
 * together with the other formats. Each message is one FI_MSG of at most
 * RAIL_MSG_MAX bytes. All numbers are little-endian and unaligned. Every
 * message begins with this header. The number after the name of a field is its
 * size in bytes.
 *
 *	magic	4	"MRP1"
 *	version	1	4
 *	type	1	enum rail_msg_type
 *	flags	2	RAIL_WIRE_…
 *	length	4	length of the whole message, bytes
 *	table	4	version of the sender's rail table
 *	src	8	incarnation of the sender, not 0
 *	dst	8	incarnation of the receiver; 0 only in a first hello
 *	number	8	if signed: number of the message, which grows with each
 *			message to this receiver
 *	mac	16	if signed: HMAC-SHA-256, truncated to this length, of
 *			the receiver's nonce (HELLO, REFUSE: none), the header
 *			and the body
 *
 * The body follows the header:
 *
 *	HELLO	nonce 16 of the sender for this receiver,
 *		ack 4 (version of the newest rail table that the sender has from
 *		the receiver), name text, number of rails 2, for each rail:
 *		index 2, lane generation 4, key flags 1, prefix length 1,
 *		address, name text; then fields that may be absent: session 8
 *		that the sender gives the receiver; number of contact addresses
 *		2 and these addresses; contact number 2 of the hello that is
 *		answered, and contact number 2 of this hello
 *	REFUSE	refused incarnation 8, code 2 (enum rail_refusal), reason text
 *		for the log, nonce 16 of the refused hello, its contact number 2
 *		(may be absent)
 *	KEY_REQ	address 8, length 8
 *	KEY_REP	address 8 and length 8 of the request, code 4, key epoch 4,
 *		number of regions 2, for each region: base 8, length 8, id 8,
 *		access flags 1, number of keys 2, for each key: rail index 1,
 *		rank 1 of the rail (0: near the memory), offset 8 of the base in
 *		that rail's registration, key bytes
 *	FENCE	rail index 2, lane generation 4
 *	FENCED	rail index 2, lane generation 4 of the FENCE, current lane
 *		generation 4, address (length 0: the rail is closed for now)
 *	REVOKE	key epoch 4, number of regions 2, for each region: id 8
 *	REVOKED	number of regions 2, for each region: id 8
 *	NOTIFY	session 8 that the receiver gave the sender, stream 8 (session
 *		that the sender gave the receiver), number 8 of the oldest
 *		notification that the sender still holds, number 8 of this
 *		notification, turn 8 of this message, name length 4, text length
 *		4, offset 4 of the fragment in name and text, bytes of the
 *		fragment (none with RAIL_WIRE_NOTE_ASK)
 *	NOTE_ACK	stream 8, number 8 of the notification expected next
 *		(all lower numbers have been delivered), number 4 of its bytes
 *		that were received, turn 8 of the message that is answered, code
 *		2 (enum rail_notify_code)
 *	BYE	nothing
 *	ATOMIC	session 8, number of operations 2, for each operation: number 8,
 *		operation 1 (enum tei_atomic_op), width 1, address 8, operand 8,
 *		compare value 8
 *	ATOMIC_REP	session 8, number of answers 2, for each answer:
 *		number 8 of the operation, code 4, old value 8
 *	PING	number 8 of a probe, or 0 if only a sign of life is requested
 *	PONG	number 8 of the PING that is answered
 *	REVERSE	generation 4 of the receiver's rx lane, as the sender knows it,
 *		address to which user messages may be sent over the connection
 *		that carried this message
 *	BYTES	start of the counters 8 (clock of the sender, ns, not 0), number
 *		8 of bytes that the sender has written to the receiver since
 *		then, number 8 of bytes that it has read from the receiver
 *
 * USER has no format: its body is the bytes of tei_rail_send.
 *
 * "address" is a fabric address: protocol 4, protocol version 4, format 4,
 * address bytes (rail_wire_addr.c).
 *
 * "text" and "bytes" are a length of 2 followed by that many bytes. A contact
 * number says to which contact address a hello was sent: it is the position,
 * from 1, in the list of the receiver's contact addresses that the sender of
 * the hello has. It is 0 if the hello was not sent to a contact address, or if
 * no such hello is answered. Absent fields count as 0.
 */

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "prov/rail/core/rail_refusal.h"

struct tei_rail_addr;
struct tei_rail_peer;

#define RAIL_WIRE_MAGIC		0x3150524du	/* "MRP1" */
#define RAIL_WIRE_VERSION	4
#define RAIL_WIRE_HEADER	56
#define RAIL_WIRE_FLAGS_AT	6
#define RAIL_WIRE_MAC_AT	40
#define RAIL_WIRE_MAC		16
#define RAIL_WIRE_NONCE		16

/* Flags in the header. */
#define RAIL_WIRE_REPLY		1u	/* HELLO: the receiver must answer */
#define RAIL_WIRE_UNDRAINED	2u	/* BYE: writes of the sender may still
					 * land at the receiver */
#define RAIL_WIRE_NOTE_ASK	1u	/* NOTIFY: the message has no fragment;
					 * it only queries whether the receiver
					 * can accept the notification */
#define RAIL_WIRE_NOTE_AGAIN	2u	/* NOTIFY: the notification may have
					 * been delivered in an earlier
					 * session */
/* NOTIFY: the text of the notification may contain zero bytes. */
#define RAIL_WIRE_NOTE_BINARY 4u
#define RAIL_WIRE_BY_SHIFT	8	/* position of a bit field of "flags": 1
					 * + index of the sender's rail that
					 * carries the message, or 0 if the rail
					 * is unknown */
#define RAIL_WIRE_BY_MASK	0x7fu
#define RAIL_WIRE_SIGNED	0x8000u	/* the message is signed: the fields
					 * "number" and "mac" are valid */

/* Codes in the answer to a NOTIFY. */
enum rail_notify_code {
	RAIL_NOTIFY_OK,	       /* the fragment was received, or memory is
				* reserved for the notification */
	RAIL_NOTIFY_FULL,		/* the receiver has no memory for the
					 * notification and has dropped the
					 * fragment */
	RAIL_NOTIFY_GAP,       /* an earlier fragment is missing */
	RAIL_NOTIFY_FORGOTTEN,		/* the notification is not accepted,
					 * because it may have been delivered in
					 * an earlier session */
};

/* Key flags of a rail in HELLO: how the rail's keys are used. */
#define RAIL_WIRE_VIRT_ADDR	1u	/* reads and writes are posted with
					 * virtual addresses, not with offsets
					 * in the registration */
#define RAIL_WIRE_GEN_KEYS	2u	/* the rail's keys change with each lane
					 * generation */

/* Access flags of a region in KEY_REP. */
#define RAIL_WIRE_READ_ONLY	1u	/* peers must not write to the region */

/* A bounded cursor for reading or writing. After an access beyond the end,
 * "bad" is true and stays true, and all reads return 0. */
struct rail_wire {
	uint8_t *p;
	size_t pos, cap;
	bool bad;
};

static inline bool rail_wire_room(struct rail_wire *w, size_t n)
{
	if (w->bad || w->cap - w->pos < n) {
		w->bad = true;
		return false;
	}
	return true;
}

/* Writes the n low bytes of v; n is at most 8. */
static inline void rail_wire_put(struct rail_wire *w, uint64_t v, size_t n)
{
	if (!rail_wire_room(w, n))
		return;
	v = htole64(v);
	memcpy(w->p + w->pos, &v, n);
	w->pos += n;
}

/* Reads and returns a number of n bytes; n is at most 8. */
static inline uint64_t rail_wire_get(struct rail_wire *w, size_t n)
{
	uint64_t v = 0;

	if (!rail_wire_room(w, n))
		return 0;
	memcpy(&v, w->p + w->pos, n);
	w->pos += n;
	return le64toh(v);
}

/* Overwrites the number of n bytes at position "at" with v. The cursor's
 * position does not change. */
static inline void rail_wire_set(struct rail_wire *w, size_t at, uint64_t v,
				 size_t n)
{
	size_t pos = w->pos;

	w->pos = at;
	rail_wire_put(w, v, n);
	w->pos = pos;
}

/* Writes the length as 2 bytes, then n bytes. */
static inline void rail_wire_put_bytes(struct rail_wire *w, const void *src,
				       size_t n)
{
	rail_wire_put(w, n, 2);
	if (n > UINT16_MAX || !rail_wire_room(w, n)) {
		w->bad = true;
		return;
	}
	memcpy(w->p + w->pos, src, n);
	w->pos += n;
}

/* Writes n bytes without a length. */
static inline void rail_wire_put_raw(struct rail_wire *w, const void *src,
				     size_t n)
{
	if (!rail_wire_room(w, n))
		return;
	memcpy(w->p + w->pos, src, n);
	w->pos += n;
}

static inline void rail_wire_get_raw(struct rail_wire *w, void *dst, size_t n)
{
	if (!rail_wire_room(w, n)) {
		memset(dst, 0, n);
		return;
	}
	memcpy(dst, w->p + w->pos, n);
	w->pos += n;
}

/* Reads a length of 2 bytes, then that many bytes into dst. A length above
 * "cap" is malformed. Returns the length, or 0 if the message is malformed. */
static inline size_t rail_wire_get_bytes(struct rail_wire *w, void *dst,
					 size_t cap)
{
	size_t n = (size_t)rail_wire_get(w, 2);

	if (n > cap || !rail_wire_room(w, n)) {
		w->bad = true;
		return 0;
	}
	memcpy(dst, w->p + w->pos, n);
	w->pos += n;
	return n;
}

/* Reads a length of 2 bytes, then a text of that length into dst, and
 * terminates the text. A length of "cap" or more, or a null byte in the text,
 * is malformed. */
static inline void rail_wire_get_text(struct rail_wire *w, char *dst,
				      size_t cap)
{
	size_t n = rail_wire_get_bytes(w, dst, cap - 1);

	dst[n] = '\0';
	if (memchr(dst, 0, n))
		w->bad = true;
}

enum rail_msg_type {
	RAIL_MSG_HELLO = 1,		/* name and rail table of the sender;
					 * with RAIL_WIRE_REPLY, the receiver
					 * must answer */
	RAIL_MSG_REFUSE = 2,		/* refuses a hello, with a reason of
					 * enum rail_refusal */
	RAIL_MSG_KEY_REQ = 3,
	RAIL_MSG_KEY_REP = 4,
	RAIL_MSG_FENCE = 5,
	RAIL_MSG_FENCED = 6,
	RAIL_MSG_REVOKE = 7,
	RAIL_MSG_REVOKED = 8,
	RAIL_MSG_NOTIFY = 9,
	RAIL_MSG_BYE = 10,
	RAIL_MSG_ATOMIC = 11,
	RAIL_MSG_ATOMIC_REP = 12,
	RAIL_MSG_USER = 13,		/* user message: the bytes of
					 * tei_rail_send */
	RAIL_MSG_PING = 14, /* requests a sign of life, or probes a rail pair */
	RAIL_MSG_PONG = 15,
	RAIL_MSG_REVERSE = 16,		/* allows the receiver to send USER
					 * messages over the connection that
					 * carried this message */
	RAIL_MSG_NOTE_ACK = 17,
	RAIL_MSG_BYTES = 18,		/* totals of the bytes that the sender
					 * has moved (rail_served.h) */
};

/* Starts a message to the peer: writes the header to buf, which has
 * RAIL_MSG_MAX bytes, and sets *w to the position after it. */
void rail_msg_begin(struct tei_rail_peer *peer, struct rail_wire *w,
		    uint8_t *buf, enum rail_msg_type type, uint16_t flags);

/* Writes the message length into the header. Returns the length, or 0 if the
 * message did not fit into the buffer. */
size_t rail_msg_end(struct rail_wire *w);

/* --- rail_wire_addr.c: fabric addresses ---------------------------------- */
/* Writes the address in the encoding that rail_wire_addr.c describes. */
void rail_addr_put(struct rail_wire *w, const struct tei_rail_addr *addr);
/* Reads an address. Returns false if the address is malformed, in which case
 * w->bad is set, or if its length is 0. */
bool rail_addr_get(struct rail_wire *w, struct tei_rail_addr *addr);

#endif /* TEI_PROV_RAIL_WIRE_RAIL_WIRE_H */
