/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_INT_H
#define TEI_META_META_INT_H

/* Declarations that the sources of meta/ share. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "meta/tei_meta_desc.h"
#include "util/secret.h"

struct addrinfo;

/* --- descriptors --------------------------------------------------------- */

struct meta_chunk;

/* A descriptor with its private members. The memory of the strings, keys and
 * local paths is allocated in chunks, which are freed with the descriptor. */
struct meta_desc {
	struct tei_meta_desc pub;	/* the public members; must be the first
					 * member */
	uint32_t refs;			/* number of references; atomic */
	bool frozen;
	/* used by the creating thread only, until the freeze */
	struct meta_chunk *chunks;
	struct tei_meta_rail *rails;
	struct tei_meta_buffer *buffers;
	struct tei_meta_file *files;
	struct tei_meta_label *labels;
	uint32_t rail_room, buffer_room, file_room, label_room;
	/* set by the freeze */
	const struct tei_meta_label **by_text; /* labels sorted by text; the
						* array belongs to the
						* descriptor */
};

static inline struct meta_desc *meta_desc_of(struct tei_meta_desc *desc)
{
	return (struct meta_desc *)(void *)desc;
}

/*
 * The following functions fill a descriptor before the freeze. They return 0,
 * or an error code after they have set *why to a static text. They log nothing:
 * the caller logs the text together with the name of the descriptor.
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

/*
 * Adds a buffer. buffer->rkey has "keys" elements, and so has buffer->raw
 * unless it is NULL. meta_desc_seal checks that "keys" is the number of rails.
 */
int meta_desc_buffer(struct meta_desc *d, const struct tei_meta_buffer *buffer,
		     uint32_t keys, const char **why);
int meta_desc_file(struct meta_desc *d, const struct tei_meta_file *file,
		   const char **why);
int meta_desc_seal(struct meta_desc *d, const char **why);

/* meta_desc_label adds a label. meta_desc_seal_labels sorts and checks the
 * labels; meta_desc_seal calls it after it has sorted the buffers. */
int meta_desc_label(struct meta_desc *d, const struct tei_meta_label *label,
		    const char **why);
int meta_desc_seal_labels(struct meta_desc *d, const char **why);

/* Does what tei_meta_desc_decode does. Error texts contain "asked", which is
 * the name of the requested segment. */
int meta_desc_decode_as(const char *asked, const char *json, size_t len,
			struct tei_meta_desc **out, struct tei_err *err);

/* Does what tei_meta_desc_encode does. If "serial" is false, the text contains
 * neither the serial nor the present time. */
int meta_desc_encode(const struct tei_meta_desc *desc, bool serial,
		     char **json, size_t *len, struct tei_err *err);

/*
 * Returns true if text is the descriptor of a Mooncake process: an object with
 * a protocol and buffers, and without the incarnation that this library writes.
 * Returns false for a persistent segment record, which belongs to no process.
 */
bool meta_desc_of_mooncake(const char *json, size_t len);

/*
 * Makes sure that *array has space for one more element. *array contains
 * "count" elements of the size "element", bytes, and has space for *room of
 * them. Returns false if memory is short.
 */
bool meta_desc_grow(void **array, uint32_t count, uint32_t *room,
		    size_t element);

/* Sets *why to text and returns code. */
int meta_desc_why(const char **why, const char *text, int code);
/* Sets *why to the text of the error that memory is short, and returns
 * TEI_ERR_MEMORY. */
int meta_desc_oom(const char **why);

/* Returns a terminated copy of text, which is freed with d, or NULL if memory
 * is short. */
char *meta_desc_copy(struct meta_desc *d, const char *text, size_t len);

/* --- the shared secret --------------------------------------------------- */

struct meta_wire_header;

/* The authentication state of one end of a connection. */
struct meta_session {
	bool on; /* true: all further frames in both directions are signed */
	struct tei_mac_key key;
	uint64_t sent, received; /* numbers of signed frames that were sent and
				  * received so far */
};

/* Derives from the shared secret the key that meta_session_derive needs. */
void meta_auth_key(const struct tei_secret *secret, struct tei_mac_key *out);
void meta_session_derive(const struct tei_mac_key *key,
			 const uint8_t client_nonce[],
			 const uint8_t server_nonce[],
			 struct meta_session *out);
void meta_session_proof(const struct meta_session *session,
			uint8_t out[TEI_MAC_SIZE]);

/* Computes the tag of the next frame to send and counts that frame. digest is
 * the digest of the payload without the tag. */
void meta_session_sign(struct meta_session *session,
		       const struct meta_wire_header *head,
		       const uint8_t digest[TEI_MAC_SIZE],
		       uint8_t tag[TEI_MAC_SIZE]);
/* Returns true if tag is the right tag for the next received frame, which
 * consists of head and payload. Counts that frame. */
bool meta_session_check(struct meta_session *session,
			const struct meta_wire_header *head,
			const void *payload, size_t len,
			const uint8_t tag[TEI_MAC_SIZE]);

/* --- sockets ------------------------------------------------------------- */

/* Writes the socket address as numeric "host:port", or "?" if it is not an IP
 * address. */
void meta_address_text(const struct sockaddr *sa, socklen_t len,
		       char out[TEI_META_ENDPOINT_MAX]);
void meta_address_host(const struct sockaddr *sa, socklen_t len,
		       char out[TEI_META_HOST_MAX]);

bool meta_address_loopback(const struct sockaddr *sa);
bool meta_address_wildcard(const struct sockaddr *sa);

/* Does what tei_meta_resolve does, but also stops waiting when over(arg)
 * returns true. Calls "over" several times a second, without a lock. */
int meta_resolve_unless(const char *host, uint16_t port, uint64_t deadline_ns,
			bool (*over)(void *arg), void *arg,
			struct addrinfo **out, const char **why);

/*
 * Returns the time until deadline_ns as an argument for poll: milliseconds,
 * rounded up, at most an hour.
 */
int meta_poll_ms(uint64_t now_ns, uint64_t deadline_ns);

#endif /* TEI_META_META_INT_H */
