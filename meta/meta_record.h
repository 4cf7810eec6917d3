/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_RECORD_H
#define TEI_META_META_RECORD_H

/*
 * The records that a process publishes in a metadata store: the address of its
 * control channel, and the head of a descriptor (docs/PROTOCOL.md). Any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta.h"
#include "meta/tei_meta_desc.h"

struct tei_meta_store;

/*
 * Encodes the record of a control channel. Returns terminated text, which the
 * caller frees, or NULL if memory is short.
 */
char *meta_rpc_encode(const char *host, uint16_t port, uint64_t incarnation);
/*
 * Decodes a record under rpc_meta. Returns false if text is not such a record.
 * *incarnation is 0 if the record has none.
 */
bool meta_rpc_decode(const char *text, size_t len,
		     char endpoint[TEI_META_ENDPOINT_MAX],
		     uint64_t *incarnation);

/*
 * Encodes a descriptor head, for a descriptor that is too long for the store:
 * everything except the buffers, and the endpoint that serves them. If closed
 * is true, the head also lacks rails, addresses and identity, because only
 * processes with the shared secret may read these. The caller frees *text.
 */
int meta_head_encode(const struct tei_meta_desc *desc, const char *endpoint,
		     bool closed, char **text, size_t *len,
		     struct tei_err *err);
/*
 * Reads the incarnation of a descriptor or a head, and the endpoint in a head.
 * For a descriptor, endpoint becomes "". Returns false if text is not valid
 * JSON.
 */
bool meta_head_decode(const char *text, size_t len, uint64_t *incarnation,
		      char endpoint[TEI_META_ENDPOINT_MAX]);

/*
 * Fetches the descriptor of name from the control channel that a head refers
 * to. incarnation is the one in the head. If another process answers there now,
 * sets *again to true and returns 0 without a text; the caller must then read
 * the store again. Blocks. The caller frees *json.
 */
int meta_head_fetch(const struct tei_meta_store *store, const char *endpoint,
		    const char *name, uint64_t incarnation,
		    uint64_t deadline_ns, char **json, size_t *len, bool *again,
		    struct tei_err *err);

#endif /* TEI_META_META_RECORD_H */
