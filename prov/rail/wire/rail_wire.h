/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_WIRE_RAIL_WIRE_H
#define TEI_PROV_RAIL_WIRE_RAIL_WIRE_H

/*
 * The peer protocol on the wire, version 4; docs/PROTOCOL.md describes it
 * together with the other formats. Each message is one FI_MSG of at most
 * RAIL_MSG_MAX bytes. All numbers are little-endian and unaligned. Every
 * message begins with this header (sizes in bytes):
 *
 *	magic	4	"MRP1"
 *	version	1	4
 *	type	1	enum rail_msg_type
 *	flags	2	RAIL_WIRE_…
 *	length	4	of the whole message
 *	table	4	version of the sender's rail table
 *	src	8	incarnation of the sender, not 0
 *	dst	8	incarnation of the receiver; 0 only in a first hello
 *	number	8	grows with each message to that receiver, if signed
 *	mac	16	if signed: HMAC-SHA-256, truncated to this length, of
 *			the receiver's nonce (HELLO, REFUSE: none), the header
 *			and the body
 *
 * followed by the body:
 *
 *	HELLO	nonce 16 of the sender for this receiver,
 *		ack 4 (newest rail table of the receiver that the sender has),
 *		name text, rails 2, per rail: id 2, generation 4, key flags 1,
 *		prefix length 1, address, name text; then session 8 that the
 *		sender gives the receiver (absent: none); then number 2 of
 *		contact addresses (absent: none), then each address; then
 *		contact number 2 of the hello that is answered, 0: none, and
 *		contact number 2 of this hello, 0: none (both absent: none)
 *	REFUSE	refused incarnation 8, code 2 (enum rail_refusal), reason text
 *		for the log, nonce 16 of the refused hello, its contact number 2
 *		(absent: none)
 *	KEY_REQ	address 8, length 8
 *	KEY_REP	address 8, length 8, code 4, key epoch 4, regions 2, per region:
 *		base 8, length 8, id 8, access 1 (flags), keys 2, per key:
 *		rail 1, rank 1 of the rail (0: near the memory), offset 8 of
 *		base in that rail's registration, key bytes
 *	FENCE	rail 2, generation 4
 *	FENCED	rail 2, generation 4 that was asked for, current generation 4,
 *		address (of length 0: the rail is closed for now)
 *	REVOKE	key epoch 4, regions 2, per region: id 8
 *	REVOKED	regions 2, per region: id 8
 *	NOTIFY	session 8 that the receiver gave the sender, stream 8 (session
 *		that the sender gave the receiver), number 8 of the oldest
 *		notification that the sender still holds, number 8 of this one,
 *		turn 8 of this message, name length 4, text length 4, offset 4
 *		in name and text, bytes of the fragment (ASK: none)
 *	NOTE_ACK	stream 8, number 8 of the notification expected next
 *		(those below it have been delivered), bytes 4 received of it,
 *		turn 8 of the message that is answered, code 2 (enum
 *		rail_notify_code)
 *	BYE	nothing
 *	ATOMIC	session 8, operations 2, per operation: number 8, operation 1
 *		(enum tei_atomic_op), width 1, address 8, operand 8, compare 8
 *	ATOMIC_REP	session 8, answers 2, per answer: number 8, code 4,
 *		old value 8
 *	PING	number 8 of a probe; 0: only a sign of life is wanted
 *	PONG	number 8 of the PING that is answered
 *	REVERSE	generation 4 of the receiver's rx lane, as the sender knows it,
 *		address: user messages may be sent there over the connection
 *		that carried this message
 *	BYTES	start of the counters 8 (clock of the sender, ns, not 0), bytes
 *		8 that the sender has written to the receiver since then, bytes
 *		8 that it has read from the receiver
 *
 * USER has no format: its body is the bytes of tei_rail_send.
 *
 * "address" is a fabric address: protocol 4, protocol version 4, format 4,
 * address bytes (rail_wire_addr.c).
 *
 * "text" and "bytes" are a length of 2 followed by that many bytes. A contact
 * number is the position, from 1, of the address to which a hello was sent, in
 * the list of contact addresses of the sender of that hello. 0: the hello was
 * not sent to a contact address, or it answers none.
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
#define RAIL_WIRE_REPLY		1u	/* HELLO: the sender wants an answer */
#define RAIL_WIRE_UNDRAINED	2u	/* BYE: writes of the sender may still
					 * land at the receiver */
#define RAIL_WIRE_NOTE_ASK	1u	/* NOTIFY: the message has no fragment
					 * and only asks whether the receiver
					 * has room */
#define RAIL_WIRE_NOTE_AGAIN	2u	/* NOTIFY: the notification may have
					 * been delivered in an earlier
					 * session */
/* NOTIFY: the text of the notification may contain zero bytes. */
#define RAIL_WIRE_NOTE_BINARY 4u
#define RAIL_WIRE_BY_SHIFT	8	/* position of a field in the flags: 1 +
					 * index of the sender's rail that
					 * carries the message, or 0 if the rail
					 * is unknown */
#define RAIL_WIRE_BY_MASK	0x7fu
#define RAIL_WIRE_SIGNED	0x8000u	/* the fields number and mac are
					 * valid */

/* Codes in the answer to a NOTIFY. */
enum rail_notify_code {
	RAIL_NOTIFY_OK,	       /* the fragment was received, or room is
				* reserved for the notification */
	RAIL_NOTIFY_FULL,		/* the receiver has no room and has
					 * dropped the fragment */
	RAIL_NOTIFY_GAP,       /* an earlier fragment is missing */
	RAIL_NOTIFY_FORGOTTEN,		/* the notification was perhaps
					 * delivered in an earlier session, so
					 * it is not accepted */
};

/* Key flags of a rail in HELLO: how the rail's keys are used. */
#define RAIL_WIRE_VIRT_ADDR	1u	/* reads and writes name virtual
					 * addresses, not offsets in the
					 * registration */
#define RAIL_WIRE_GEN_KEYS	2u	/* the rail's keys change with each lane
					 * generation */

/* Access flags of a region in KEY_REP. */
#define RAIL_WIRE_READ_ONLY	1u	/* peers must not write to the region */

/* A bounded cursor for reading or writing. After an access beyond the end, bad
 * is set and stays set, and reads return 0. */
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

/* Writes the low n bytes of v (n is at most 8). */
static inline void rail_wire_put(struct rail_wire *w, uint64_t v, size_t n)
{
	if (!rail_wire_room(w, n))
		return;
	v = htole64(v);
	memcpy(w->p + w->pos, &v, n);
	w->pos += n;
}

/* Reads and returns a number of n bytes (n is at most 8). */
static inline uint64_t rail_wire_get(struct rail_wire *w, size_t n)
{
	uint64_t v = 0;

	if (!rail_wire_room(w, n))
		return 0;
	memcpy(&v, w->p + w->pos, n);
	w->pos += n;
	return le64toh(v);
}

/* Overwrites the number of n bytes at position `at` with v. The cursor's
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

/* Reads a length of 2 bytes, then up to cap bytes into dst; a greater length is
 * malformed. Returns the length. */
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

/* Does what rail_wire_get_bytes does, and terminates the text; a null byte in
 * the text is malformed. */
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
					 * RAIL_WIRE_REPLY: an answer is
					 * wanted */
	RAIL_MSG_REFUSE = 2,		/* refuses a hello, with a code of enum
					 * rail_refusal */
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
	RAIL_MSG_PING = 14, /* asks for a sign of life, or probes a pair */
	RAIL_MSG_PONG = 15,
	RAIL_MSG_REVERSE = 16,		/* allows the receiver to send USER
					 * messages over the connection that
					 * carried this message */
	RAIL_MSG_NOTE_ACK = 17,
	RAIL_MSG_BYTES = 18,		/* totals of the bytes that the sender
					 * has moved (rail_served.h) */
};

/* Starts a message in buf, which has RAIL_MSG_MAX bytes: writes the header. */
void rail_msg_begin(struct tei_rail_peer *peer, struct rail_wire *w,
		    uint8_t *buf, enum rail_msg_type type, uint16_t flags);

/* Writes the message length into the header. Returns the length, or 0 if the
 * message did not fit into the buffer. */
size_t rail_msg_end(struct rail_wire *w);

/* --- rail_wire_addr.c: fabric addresses ---------------------------------- */
/* Writes the address in the encoding that rail_wire_addr.c describes. */
void rail_addr_put(struct rail_wire *w, const struct tei_rail_addr *addr);
/* Reads an address. Returns false if it is malformed, which sets bad, or if its
 * length is 0. */
bool rail_addr_get(struct rail_wire *w, struct tei_rail_addr *addr);

#endif /* TEI_PROV_RAIL_WIRE_RAIL_WIRE_H */
