/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_WIRE_H
#define TEI_PROV_MOONRAIL_MOONRAIL_WIRE_H

/*
 * What one process sends to another, version 3: a message of the data plane
 * (tei_rail_send) holds this, then its payload. All numbers are little-endian.
 *
 * Between two processes there is one stream each way. Its messages are
 * numbered from 1 on, delivered in that order and once, whatever rail or lane
 * carries them: who receives keeps what came early and drops what came twice,
 * and says in ack which number it waits for; who sends keeps each until then.
 * ACK and PING are of no stream: they may be lost or repeated.
 */

#include <endian.h>
#include <stdint.h>

enum moonrail_wire_op {
	MOONRAIL_WIRE_ACK = 1,	/* nothing but ack; where id is not 0, the id-th
				 * list of the sender's endpoints that are full,
				 * n numbers of four bytes in the payload:
				 * messages for these are to wait */
	MOONRAIL_WIRE_PING,	/* an ACK with flag ECHO is wanted */
	MOONRAIL_WIRE_DATA,	/* a whole message; payload: its bytes */
	MOONRAIL_WIRE_RTS,	/* a message to be read; payload: n pieces */
	MOONRAIL_WIRE_FIN,	/* message id is in its buffer; n: FI_E* or 0;
				 * payload: up to three more of these;
				 * src_ep, where it is the reason: is there no
				 * more, nor ever again */
	MOONRAIL_WIRE_DONE,	/* a remote write that is in place, or a read
				 * that is over: len: of it; payload: the keys,
				 * where the owner wants to count it */
	MOONRAIL_WIRE_KEY,	/* what is registered as key id? */
	MOONRAIL_WIRE_KEY_IS,	/* key id: n: access, tag: where, len: length;
				 * access 0: nothing */
	MOONRAIL_WIRE_KEY_NOT,	/* key id is void */
	MOONRAIL_WIRE_ATOMIC,	/* payload: n places (moonrail_atomic.c), then
				 * numbers; tag: kind << 32 | type << 16 | op */
	MOONRAIL_WIRE_ATOMIC_REP, /* request id: n: FI_E* or 0; payload: what
				 * was there, where that is asked */
	MOONRAIL_WIRE_STILL,	/* does message id, which was announced, still
				 * wait for its FIN? */
	MOONRAIL_WIRE_STILL_IS,	/* message id: n: 0, or FI_E*: it does not */
};

/* moonrail_wire.flags */
#define MOONRAIL_WIRE_TAGGED	1u	/* DATA, RTS: tag counts */
#define MOONRAIL_WIRE_HAS_DATA	2u	/* DATA, RTS, DONE: data counts */
#define MOONRAIL_WIRE_WANT_FIN	4u	/* DATA: FIN is wanted too */
#define MOONRAIL_WIRE_WANT_ACK	8u	/* at once, please */
#define MOONRAIL_WIRE_ECHO	16u	/* ACK: answers a PING */
#define MOONRAIL_WIRE_VIRTUAL	32u	/* KEY_IS: used with addresses */
#define MOONRAIL_WIRE_EVENTS	64u	/* KEY_IS: DONE is wanted */
#define MOONRAIL_WIRE_READ	128u	/* DONE: of a read */

#define MOONRAIL_WIRE_VERSION	3

struct moonrail_wire {
	uint8_t version;
	uint8_t op;			/* enum moonrail_wire_op */
	uint16_t flags;
	uint32_t src_ep, dst_ep;	/* endpoints of the two processes */
	uint32_t n;
	uint64_t seq;			/* 0: not of the stream */
	uint64_t ack;			/* the number that is waited for */
	uint64_t tag, data, len, id;
};

struct moonrail_wire_piece {
	uint64_t addr, len;
};

struct moonrail_wire_end {
	uint64_t id, err;
};

_Static_assert(sizeof(struct moonrail_wire) == 64, "wire");
_Static_assert(sizeof(struct moonrail_wire_piece) == 16, "wire");
_Static_assert(sizeof(struct moonrail_wire_end) == 16, "wire");

/* Both ways: from what the wire has to what the machine has, and back. */
static inline void moonrail_wire_turn(struct moonrail_wire *w)
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
