/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_RECORD_H
#define TEI_META_META_RECORD_H

/*
 * The two records that a process publishes in a metadata store
 * (docs/PROTOCOL.md): the address of its control channel, and the head of its
 * descriptor. Any thread may call these functions.
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
 * Decodes the record of a control channel, which is under the key rpc_meta.
 * Returns false if text is not such a record. *incarnation becomes 0 if the
 * record contains no incarnation.
 */
bool meta_rpc_decode(const char *text, size_t len,
		     char endpoint[TEI_META_ENDPOINT_MAX],
		     uint64_t *incarnation);

/*
 * Encodes a descriptor head, which replaces a descriptor that is too long for
 * the store. The head contains everything except the buffers and labels, and
 * "endpoint", the address of the control channel that serves them. If "closed"
 * is true, the head contains no rails, addresses and local identity either,
 * because only processes with the shared secret may read them. The caller frees
 * *text.
 */
int meta_head_encode(const struct tei_meta_desc *desc, const char *endpoint,
		     bool closed, char **text, size_t *len,
		     struct tei_err *err);
/*
 * Reads the incarnation in a descriptor or a descriptor head. Sets endpoint to
 * the address in a head, and to "" for a whole descriptor. Returns false if
 * text is not valid JSON.
 */
bool meta_head_decode(const char *text, size_t len, uint64_t *incarnation,
		      char endpoint[TEI_META_ENDPOINT_MAX]);

/*
 * Fetches the descriptor of name from the control channel that a head refers
 * to. "incarnation" is the one in the head. If another process now answers at
 * that address, sets *again to true and returns 0, but sets no *json; the
 * caller must then read the store again. If deadline_ns has passed, returns an
 * error in this case. Blocks. The caller frees *json.
 */
int meta_head_fetch(const struct tei_meta_store *store, const char *endpoint,
		    const char *name, uint64_t incarnation,
		    uint64_t deadline_ns, char **json, size_t *len, bool *again,
		    struct tei_err *err);

#endif /* TEI_META_META_RECORD_H */
