/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_RECORD_H
#define TEI_META_META_ZOOKEEPER_RECORD_H

/*
 * Paths of the nodes.
 */

#include "meta/meta_zookeeper_int.h"

/*
 * Returns true for "" and for a path like "/a/b" without an empty part, without
 * "." or "..", and without a slash at the end. The library's transactions crash
 * on a path that the library refuses, so such paths must be refused before.
 */
bool zk_path_fine(const char *path);

/*
 * Return the path for a name, which the caller frees, or NULL if the name is
 * not valid for a node or memory is short.
 */
char *zk_path_ram(const struct zk *zk, const char *name);
char *zk_path_rpc(const struct zk *zk, const char *name);
char *zk_path_ownership(const struct zk *zk, const char *name,
			uint64_t incarnation);

#endif /* TEI_META_META_ZOOKEEPER_RECORD_H */
