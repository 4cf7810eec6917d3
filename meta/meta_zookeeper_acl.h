/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_ACL_H
#define TEI_META_META_ZOOKEEPER_ACL_H

/*
 * Checks that only this user can have created a node.
 */

#include "meta/meta_zookeeper_call.h"
#include "meta/meta_zookeeper_int.h"

/*
 * Checks every folder of path, from "mooncake" on. With credentials, returns
 * ZK_REPORTED if another user may change one of the folders: a user who may add
 * or delete nodes in a folder can replace its nodes. Without credentials,
 * returns ZOK.
 */
int zk_folders_ours(struct zk *zk, const char *path, const char *name,
		    uint64_t deadline_ns, struct tei_err *err);
/*
 * Does what zk_get does. With credentials, also returns ZK_REPORTED if another
 * user may have written or deleted the node.
 */
int zk_get_ours(struct zk *zk, const char *path, const char *name,
		enum zk_watch_kind watch, uint64_t deadline_ns,
		struct zk_reply *out, struct tei_err *err);
/* Checks the folders of all published nodes. */
int zk_check(struct tei_meta_store *store, uint64_t deadline_ns,
	     struct tei_err *err);
/*
 * Forgets which folders are trusted, because the session is a new one and the
 * servers may have other data.
 */
void zk_acl_forget(struct zk *zk) TEI_REQUIRES(zk->lock);
/*
 * Forgets which folders are trusted, because a folder was deleted or replaced.
 * All folders are checked again.
 */
void zk_folders_gone(struct zk *zk);

#endif /* TEI_META_META_ZOOKEEPER_ACL_H */
