/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_RECORD_H
#define TEI_META_META_ZOOKEEPER_RECORD_H

/* Functions that make and check the paths of nodes. */

#include "meta/meta_zookeeper_int.h"

/*
 * Returns true for "", and for a path like "/a/b" in which no part is empty,
 * "." or "..", and which does not end with a slash. All other paths must be
 * refused: the client library refuses them too, but crashes if a transaction
 * contains one.
 */
bool zk_path_fine(const char *path);

/*
 * Each of these functions returns the path of one of the nodes of a segment
 * name. The caller frees the path. The functions return NULL if the path would
 * not be valid or memory is short.
 */
char *zk_path_ram(const struct zk *zk, const char *name);
char *zk_path_rpc(const struct zk *zk, const char *name);
char *zk_path_ownership(const struct zk *zk, const char *name,
			uint64_t incarnation);

#endif /* TEI_META_META_ZOOKEEPER_RECORD_H */
