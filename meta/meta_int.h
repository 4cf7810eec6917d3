/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_INT_H
#define TEI_META_META_INT_H

/* What the sources of meta/ share. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "meta/tei_meta.h"
#include "util/secret.h"

struct addrinfo;

/* --- descriptors --------------------------------------------------------- */

struct meta_chunk;

/*
 * A descriptor with what its readers don't see. Strings, keys and maps live
 * in chunks that are freed together.
 */
struct meta_desc {
	struct tei_meta_desc pub;	/* first: pub's address is ours */
	uint32_t refs;			/* atomic */
	bool frozen;
	/* before freeze, the creating thread only */
	struct meta_chunk *chunks;
	struct tei_meta_rail *rails;
	struct tei_meta_buffer *buffers;
	struct tei_meta_file *files;
	uint32_t rail_room, buffer_room, file_room;
};

static inline struct meta_desc *meta_desc_of(struct tei_meta_desc *desc)
{
	return (struct meta_desc *)(void *)desc;
}

/*
 * The builders below give 0 or a code with *why, a static text; nothing is
 * logged, so that the caller can say whose descriptor it was.
 */
struct meta_desc *meta_desc_new(void);
int meta_desc_name(struct meta_desc *d, const char *name, const char *protocol,
		   const char **why);
int meta_desc_first(struct meta_desc *d, const struct tei_meta_first *first,
		    const char **why);
int meta_desc_local(struct meta_desc *d, const char *identity,
		   const char **why);
int meta_desc_rail(struct meta_desc *d, const struct tei_meta_rail *rail,
		   const char **why);

/* keys: how many rkey and raw (if given) hold; checked by meta_desc_seal. */
int meta_desc_buffer(struct meta_desc *d, const struct tei_meta_buffer *buffer,
		     uint32_t keys, const char **why);
int meta_desc_file(struct meta_desc *d, const struct tei_meta_file *file,
		   const char **why);
int meta_desc_seal(struct meta_desc *d, const char **why);

/* As tei_meta_desc_decode; errors speak of the name that was asked for. */
int meta_desc_decode_as(const char *asked, const char *json, size_t len,
			struct tei_meta_desc **out, struct tei_err *err);

/* As tei_meta_desc_encode, with or without the serial. */
int meta_desc_encode(const struct tei_meta_desc *desc, bool serial,
		     char **json, size_t *len, struct tei_err *err);

/* Copy in d's chunks, terminated; NULL without memory. */
char *meta_desc_copy(struct meta_desc *d, const char *text, size_t len);

/* --- the shared secret --------------------------------------------------- */

struct meta_wire_header;

/* One connection's, either side's. Plain data. */
struct meta_session {
	bool on;			/* frames are signed from now on */
	struct tei_mac_key key;
	uint64_t sent, received;	/* signed frames so far */
};

/* The key that sessions are derived from. */
void meta_auth_key(const struct tei_secret *secret, struct tei_mac_key *out);
void meta_session_derive(const struct tei_mac_key *key,
			 const uint8_t client_nonce[],
			 const uint8_t server_nonce[],
			 struct meta_session *out);
void meta_session_proof(const struct meta_session *session,
			uint8_t out[TEI_MAC_SIZE]);

/* Tag of the next frame sent; digest is that of the payload before it. */
void meta_session_sign(struct meta_session *session,
		       const struct meta_wire_header *head,
		       const uint8_t digest[TEI_MAC_SIZE],
		       uint8_t tag[TEI_MAC_SIZE]);
/* Whether that is the next frame received. */
bool meta_session_check(struct meta_session *session,
			const struct meta_wire_header *head,
			const void *payload, size_t len,
			const uint8_t tag[TEI_MAC_SIZE]);

/* --- sockets ------------------------------------------------------------- */

/* Numeric "host:port" of a socket address; "?" if it is no IP address. */
void meta_address_text(const struct sockaddr *sa, socklen_t len,
		       char out[TEI_META_ENDPOINT_MAX]);
void meta_address_host(const struct sockaddr *sa, socklen_t len,
		       char out[TEI_META_HOST_MAX]);

bool meta_address_loopback(const struct sockaddr *sa);
bool meta_address_wildcard(const struct sockaddr *sa);

/*
 * As tei_meta_resolve; ends early where over(arg) is true, which is asked now
 * and then, without a lock.
 */
int meta_resolve_unless(const char *host, uint16_t port, uint64_t deadline_ns,
			bool (*over)(void *arg), void *arg,
			struct addrinfo **out, const char **why);

/* Milliseconds until deadline_ns for poll, rounded up, at most an hour. */
int meta_poll_ms(uint64_t now_ns, uint64_t deadline_ns);

#endif /* TEI_META_META_INT_H */
