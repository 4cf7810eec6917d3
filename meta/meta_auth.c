/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "meta/meta_int.h"
#include "meta/meta_wire.h"

/* Computes keys, proofs and tags from the shared secret. meta_wire.h describes
 * the protocol. */

static_assert(META_WIRE_TAG == TEI_MAC_SIZE, "wire format");

void meta_auth_key(const struct tei_secret *secret, struct tei_mac_key *out)
{
	tei_secret_key(secret, "control channel", out);
}

void meta_session_derive(const struct tei_mac_key *key,
			 const uint8_t client_nonce[],
			 const uint8_t server_nonce[], struct meta_session *out)
{
	const uint8_t version = META_WIRE_VERSION;
	const struct tei_mac_part parts[] = {
		{ &version, 1 },
		{ client_nonce, META_WIRE_NONCE },
		{ server_nonce, META_WIRE_NONCE },
	};

	memset(out, 0, sizeof(*out));
	tei_mac(key, parts, 3, out->key.bytes);
}

void meta_session_proof(const struct meta_session *session,
			uint8_t out[TEI_MAC_SIZE])
{
	const struct tei_mac_part part = { "client", 6 };

	tei_mac(&session->key, &part, 1, out);
}

static void session_tag(const struct meta_session *session,
			const struct meta_wire_header *head, uint64_t number,
			const uint8_t digest[TEI_MAC_SIZE],
			uint8_t tag[TEI_MAC_SIZE])
{
	uint8_t n[8];
	const struct tei_mac_part parts[] = {
		{ head, sizeof(*head) },
		{ n, sizeof(n) },
		{ digest, TEI_MAC_SIZE },
	};

	meta_wire_put64(n, number);
	tei_mac(&session->key, parts, 3, tag);
}

void meta_session_sign(struct meta_session *session,
		       const struct meta_wire_header *head,
		       const uint8_t digest[TEI_MAC_SIZE],
		       uint8_t tag[TEI_MAC_SIZE])
{
	session_tag(session, head, session->sent++, digest, tag);
}

bool meta_session_check(struct meta_session *session,
			const struct meta_wire_header *head,
			const void *payload, size_t len,
			const uint8_t tag[TEI_MAC_SIZE])
{
	uint8_t digest[TEI_MAC_SIZE], want[TEI_MAC_SIZE];

	tei_digest(payload, len, digest);
	session_tag(session, head, session->received++, digest, want);
	return tei_mac_equal(want, tag, TEI_MAC_SIZE);
}
