/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_WIRE_H
#define TEI_PROV_STAGING_WIRE_H

/*
 * The messages between engines about remote bounce slots
 * (staging_remote_int.h), version 1. Each message of the data plane has one
 * struct staging_msg after its TEI_RAIL_MESSAGE_HEAD bytes. Numbers are
 * little-endian.
 */

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>

#define STAGING_MAGIC	0x31534c4du	/* the text "MLS1" */

enum staging_msg_type {
	/* from the initiator, repeated until it is answered */
	STAGING_ASK = 1, /* requests a slot for a piece; a repetition reports
			  * that the piece still uses the slot */
	STAGING_GO,	 /* for a write: the slot has all bytes of the
			  * piece */
	STAGING_FREE,	 /* the initiator no longer uses the slot; see
			  * STAGING_UNFENCED */
	/* from the target, as an answer */
	STAGING_READY, /* grants the slot; for a read, the slot has the
			* bytes */
	STAGING_DONE,  /* the piece has ended; its result is in code */
};

/* Flags of a message. */
#define STAGING_READS	1u	/* in ASK: the piece is read from GPU memory; if
				 * not set, it is written */
#define STAGING_UNFENCED	2u	/* in FREE: the transfer may still be in
					 * progress */

struct staging_msg {
	uint32_t magic;
	uint8_t version;		/* always 1 */
	uint8_t type;			/* enum staging_msg_type */
	uint16_t flags;			/* STAGING_READS, STAGING_UNFENCED */
	uint64_t id;			/* number of the piece; grows from piece
					 * to piece of one initiator at one
					 * target */
	uint64_t base, extent;		/* in ASK: range of the whole task in
					 * GPU memory. In READY, base is the
					 * serial of the registered region that
					 * contains the range, 0 means unknown;
					 * extent is the serial of the slot in
					 * the shared registration table of the
					 * target, 0 means no copies inside the
					 * host */
	uint64_t at;			/* in ASK: address of the piece in GPU
					 * memory; in READY: address of the
					 * slot */
	uint32_t length;		/* in ASK: bytes of the piece */
	int32_t code;			/* in DONE: 0 if the piece was moved,
					 * otherwise a TEI_ERR_ code */
};
_Static_assert(sizeof(struct staging_msg) == 48, "on the wire");

/* Converts all fields between host byte order and little-endian, in both
 * directions. */
static inline void staging_msg_swap(struct staging_msg *m)
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

#endif /* TEI_PROV_STAGING_WIRE_H */
