/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_WIRE_H
#define TEI_META_META_WIRE_H

/*
 * The control channel on the wire, version 1. Over one TCP connection, a client
 * sends any number of requests, one after the other. A request is one frame,
 * and so is its reply. All numbers are big-endian. A frame consists of a struct
 * meta_wire_header and a payload.
 *
 *	PING		-				PONG	incarnation
 *	GET_DESC	name, not terminated		DESC	JSON text
 *	GET_STATS	-				STATS	JSON text
 *	AUTH		nonce of the client		CHALLENGE nonce
 *	RESPONSE	proof				-
 *	any frame	-				ERROR	code, text
 *
 * Without a shared secret, statistics are sent only to clients of the same
 * host. The server closes the connection after an ERROR that answers an invalid
 * frame or refuses the connection.
 *
 * With a shared secret, a client begins with AUTH. After the CHALLENGE, it
 * sends RESPONSE and its request together. The server answers the request if
 * the proof is right. Before that, it has sent only a random number. All frames
 * after RESPONSE are signed, except an ERROR after which the server closes the
 * connection. In a signed frame, the flag META_WIRE_SIGNED is set, and the
 * payload ends with a tag, which length includes:
 *
 *	session	= MAC(control key, version, both nonces)
 *	proof	= MAC(session, "client")
 *	tag	= MAC(session, header, number of the frame, SHA-256 of the rest)
 *
 * The frame number counts from 0 in each direction; the type in the header
 * identifies the direction. A tag proves that its sender knows the secret and
 * has seen the nonces of this connection, and that the frame was not changed,
 * dropped, repeated or reflected. A server with a secret answers all other
 * requests with an ERROR whose code is META_WIRE_DENIED. A server without a
 * secret answers AUTH in this way.
 */

#include <assert.h>
#include <endian.h>
#include <stdint.h>
#include <string.h>

#define META_WIRE_MAGIC		"MRcc"
#define META_WIRE_VERSION	1
#define META_WIRE_ERROR_TEXT	256	/* greatest length of the text in an
					 * ERROR frame, bytes; the frame
					 * contains no terminator */

enum meta_wire_type {
	META_WIRE_PING = 1,
	META_WIRE_GET_DESC = 2,
	META_WIRE_GET_STATS = 3,
	META_WIRE_AUTH = 15,
	META_WIRE_RESPONSE = 16,
	META_WIRE_REPLY = 128, /* bit that the types of all replies have */
	META_WIRE_PONG = 129,
	META_WIRE_DESC = 130,
	META_WIRE_STATS = 131,
	META_WIRE_CHALLENGE = 144,
	META_WIRE_ERROR = 255,
};

/* flag of GET_DESC: if the name is unknown, the server sends the descriptor of
 * its primary segment */
#define META_WIRE_ANY		1u
/* flag of any frame: a tag is at the end of the payload */
#define META_WIRE_SIGNED	0x8000u

/* length of a nonce in AUTH and CHALLENGE, bytes */
#define META_WIRE_NONCE 32
#define META_WIRE_TAG	32 /* length of a tag or a proof, bytes */
/* code of an ERROR frame whose cause is a missing, wrong or unexpected
 * secret */
#define META_WIRE_DENIED 13

struct meta_wire_header {		/* since version 1 */
	uint8_t magic[4];
	uint8_t version;
	uint8_t type;			/* type of the frame, a value of enum
					 * meta_wire_type */
	uint8_t flags[2];		/* a request with unknown flags is
					 * refused */
	uint8_t id[4];			/* number that the client gives to the
					 * request; the reply repeats the
					 * number */
	uint8_t length[4];		/* length of the payload that follows,
					 * bytes */
};
static_assert(sizeof(struct meta_wire_header) == 16, "wire format");

struct meta_wire_pong {			/* since version 1 */
	uint8_t incarnation[8];
};
static_assert(sizeof(struct meta_wire_pong) == 8, "wire format");

struct meta_wire_error {		/* since version 1; the text of the
					 * error follows */
	uint8_t code[4];		/* a value of enum tei_code in two's
					 * complement, or META_WIRE_DENIED */
};
static_assert(sizeof(struct meta_wire_error) == 4, "wire format");

static inline uint16_t meta_wire_get16(const uint8_t b[2])
{
	uint16_t v;

	memcpy(&v, b, sizeof(v));
	return be16toh(v);
}

static inline uint32_t meta_wire_get32(const uint8_t b[4])
{
	uint32_t v;

	memcpy(&v, b, sizeof(v));
	return be32toh(v);
}

static inline uint64_t meta_wire_get64(const uint8_t b[8])
{
	uint64_t v;

	memcpy(&v, b, sizeof(v));
	return be64toh(v);
}

static inline void meta_wire_put32(uint8_t b[4], uint32_t v)
{
	v = htobe32(v);
	memcpy(b, &v, sizeof(v));
}

static inline void meta_wire_put64(uint8_t b[8], uint64_t v)
{
	v = htobe64(v);
	memcpy(b, &v, sizeof(v));
}

static inline void meta_wire_fill(struct meta_wire_header *h, uint8_t type,
				  uint16_t flags, uint32_t id, uint32_t length)
{
	memcpy(h->magic, META_WIRE_MAGIC, sizeof(h->magic));
	h->version = META_WIRE_VERSION;
	h->type = type;
	h->flags[0] = (uint8_t)(flags >> 8);
	h->flags[1] = (uint8_t)flags;
	meta_wire_put32(h->id, id);
	meta_wire_put32(h->length, length);
}

#endif /* TEI_META_META_WIRE_H */
