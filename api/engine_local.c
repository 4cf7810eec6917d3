/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local identity of a process, as the descriptor contains it. If there is a
 * shared secret, a keyed hash follows the identity. A kernel copy does not
 * involve the target process, so the initiator itself must check that both have
 * the same secret. If they differ, the initiator uses the rails instead, and
 * the target refuses its requests there.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/engine_int.h"
#include "meta/tei_meta_store.h"
#include "prov/local/tei_local.h"
#include "util/secret.h"

#define SEAL_BYTES	16

static_assert(TEI_LOCAL_ID_TEXT + 1 + 2 * SEAL_BYTES <= TEI_META_LOCAL_MAX,
	      "an identity and its hash fit");

/* Computes the keyed hash of the first n bytes of text. */
static void local_seal(const struct tei_secret *secret, const char *text,
		       size_t n, char out[2 * SEAL_BYTES + 1])
{
	const struct tei_mac_part part = { text, n };
	uint8_t mac[TEI_MAC_SIZE];
	struct tei_mac_key key;
	int i;

	tei_secret_key(secret, "local copies", &key);
	tei_mac(&key, &part, 1, mac);
	tei_wipe(&key, sizeof(key));
	for (i = 0; i < SEAL_BYTES; i++)
		snprintf(out + 2 * i, 3, "%02x", mac[i]);
}

int engine_local_format(struct engine *e, const struct tei_local_id *id,
			char *out, size_t len)
{
	const struct tei_secret *secret = tei_meta_store_secret(e->store);
	int rc = tei_local_id_format(id, out, len);
	size_t n = rc ? 0 : strlen(out);

	if (rc || !secret)
		return rc;
	if (n + 1 + 2 * SEAL_BYTES >= len)
		return TEI_ERR_INVALID;
	out[n] = '~';
	local_seal(secret, out, n, out + n + 1);
	return 0;
}

const char *engine_local_why(int not_local)
{
	switch (not_local) {
	case 0:
		return "";
	case ENGINE_NOT_LOCAL_SECRET_THERE:
		return "the peer has a shared secret, this process has none";
	case ENGINE_NOT_LOCAL_SECRET_HERE:
		return "this process has a shared secret, the peer has none";
	case ENGINE_NOT_LOCAL_SECRET_OTHER:
		return "the peer has another shared secret";
	case ENGINE_NOT_LOCAL_UNREADABLE:
		return "the peer's local identity is malformed";
	default:
		return tei_local_reason_text((enum tei_local_reason)not_local);
	}
}

int engine_local_parse(struct engine *e, const char *text,
		       struct tei_local_id *out)
{
	const struct tei_secret *secret = tei_meta_store_secret(e->store);
	char unresolved[TEI_META_LOCAL_MAX], seal[2 * SEAL_BYTES + 1];
	size_t n = strcspn(text, "~");

	if (!secret && text[n])
		return ENGINE_NOT_LOCAL_SECRET_THERE;
	if (secret && !text[n])
		return ENGINE_NOT_LOCAL_SECRET_HERE;
	if (secret) {
		local_seal(secret, text, n, seal);
		if (strlen(text + n + 1) != 2 * SEAL_BYTES ||
		    !tei_mac_equal(text + n + 1, seal, 2 * SEAL_BYTES))
			return ENGINE_NOT_LOCAL_SECRET_OTHER;
	}
	snprintf(unresolved, sizeof(unresolved), "%.*s", (int)n, text);
	return tei_local_id_parse(unresolved, out) ? ENGINE_NOT_LOCAL_UNREADABLE
						   : 0;
}
