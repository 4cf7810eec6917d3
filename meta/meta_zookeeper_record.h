/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_RECORD_H
#define TEI_META_META_ZOOKEEPER_RECORD_H

/*
 * Paths and contents of the nodes.
 */

#include "meta/meta_zookeeper_int.h"

/*
 * Returns true for "" or "/a/b": no empty part, no "." or "..", no slash at the
 * end. The library's transactions crash on a path that it refuses, so such
 * paths must be refused here.
 */
bool zk_path_fine(const char *path);

/*
 * These return paths for a name, which the caller frees, or NULL if the name is
 * not valid for a node or memory is short.
 */
char *zk_path_ram(const struct zk *zk, const char *name);
char *zk_path_rpc(const struct zk *zk, const char *name);
char *zk_path_ownership(const struct zk *zk, const char *name,
			uint64_t incarnation);

/*
 * Returns terminated text, which the caller frees, or NULL if memory is short.
 */
char *zk_rpc_encode(const char *host, uint16_t port, uint64_t incarnation);
/*
 * Returns false if text is not such a record. *incarnation is 0 if the record
 * has none.
 */
bool zk_rpc_decode(const char *text, size_t len,
		   char endpoint[TEI_META_ENDPOINT_MAX], uint64_t *incarnation);

/*
 * Encodes a descriptor head, for a descriptor that is too long for a node:
 * everything except the buffers, and the endpoint that serves them. closed:
 * without rails, addresses and identity as well, which only processes with the
 * shared secret may learn. The caller frees *text.
 */
int zk_head_encode(const struct tei_meta_desc *desc, const char *endpoint,
		   bool closed, char **text, size_t *len, struct tei_err *err);
/*
 * Gets the incarnation of a descriptor or head. endpoint is "" unless text is a
 * head.
 */
bool zk_head_decode(const char *text, size_t len, uint64_t *incarnation,
		    char endpoint[TEI_META_ENDPOINT_MAX]);

#endif /* TEI_META_META_ZOOKEEPER_RECORD_H */
