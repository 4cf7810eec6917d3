/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_LEASE_WIRE_H
#define TEI_API_ENGINE_LEASE_WIRE_H

/*
 * What engines say to each other about leased slots (engine_lease.h), version
 * 1: one struct lease_msg per message of the data plane, behind its
 * TEI_RAIL_MESSAGE_HEAD bytes. Numbers are little-endian.
 */

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>

#define LEASE_MAGIC	0x31534c4du	/* "MLS1" */

enum lease_type {
	/* of the initiator, again and again until it is answered */
	LEASE_ASK = 1,		/* a slot for this piece; then: it is still mine */
	LEASE_GO,		/* a write's bytes are in the slot, and final */
	LEASE_FREE,		/* nothing is moved to or from the slot any more,
				   but see LEASE_UNFENCED */
	/* of the target, for each of those that wants one */
	LEASE_READY,		/* the slot is the initiator's, with the bytes
				   of a read in it */
	LEASE_DONE,		/* the lease is over: code */
};

/* Flags of a message. */
#define LEASE_READS	1u	/* ASK: from GPU memory; otherwise to it */
#define LEASE_UNFENCED	2u	/* FREE: what was moved may still be under way */

struct lease_msg {
	uint32_t magic;
	uint8_t version;		/* 1 */
	uint8_t type;			/* enum lease_type */
	uint16_t flags;			/* LEASE_… */
	uint64_t id;			/* of the piece; grows with each one of
					   an initiator at a target */
	uint64_t base, extent;		/* ASK: GPU memory of its whole task */
	uint64_t at;			/* ASK: the piece's first byte there;
					   READY: the slot's address */
	uint32_t length;		/* ASK: bytes of the piece */
	int32_t code;			/* DONE: 0 or a tei_code */
};
_Static_assert(sizeof(struct lease_msg) == 48, "on the wire");

/* To the wire's byte order and back. */
static inline void lease_msg_swap(struct lease_msg *m)
{
	m->magic = htole32(m->magic);
	m->flags = htole16(m->flags);
	m->id = htole64(m->id);
	m->base = htole64(m->base);
	m->extent = htole64(m->extent);
	m->at = htole64(m->at);
	m->length = htole32(m->length);
	m->code = (int32_t)htole32((uint32_t)m->code);
}

#endif /* TEI_API_ENGINE_LEASE_WIRE_H */
