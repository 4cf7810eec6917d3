/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_RECORD_H
#define TEI_META_META_ZOOKEEPER_RECORD_H

/*
 * Paths of the nodes.
 */

#include "meta/meta_zookeeper_int.h"

/*
 * Returns true for "", and for a path like "/a/b" in which no part is empty,
 * "." or "..", and which does not end with a slash. The library's transactions
 * crash on a path that the library refuses, so such a path must be refused
 * before.
 */
bool zk_path_fine(const char *path);

/*
 * Each of these functions returns the path of a node for a name. The caller
 * frees the path. NULL means that the name is not valid for a node, or that
 * memory is short.
 */
char *zk_path_ram(const struct zk *zk, const char *name);
char *zk_path_rpc(const struct zk *zk, const char *name);
char *zk_path_ownership(const struct zk *zk, const char *name,
			uint64_t incarnation);

#endif /* TEI_META_META_ZOOKEEPER_RECORD_H */
