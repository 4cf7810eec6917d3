/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_ACL_H
#define TEI_META_META_ZOOKEEPER_ACL_H

/* Functions that check whether only this process's ZooKeeper user can have
 * created a node. */

#include "meta/meta_zookeeper_call.h"
#include "meta/meta_zookeeper_int.h"

/*
 * Checks all folders in path, from "mooncake" downwards. If another user may
 * change one of them, that user can replace the nodes in it; the function then
 * fills err and returns ZK_REPORTED. If this process has no credentials,
 * returns ZOK without a check.
 */
int zk_folders_ours(struct zk *zk, const char *path, const char *name,
		    uint64_t deadline_ns, struct tei_err *err);
/* Does what zk_get does. If this process has credentials and another user may
 * have written or deleted the node, fills err and returns ZK_REPORTED. */
int zk_get_ours(struct zk *zk, const char *path, const char *name,
		enum zk_watch_kind watch, uint64_t deadline_ns,
		struct zk_reply *out, struct tei_err *err);
/* The function check of struct meta_store_ops: checks the folders of all kinds
 * of nodes. */
int zk_check(struct tei_meta_store *store, uint64_t deadline_ns,
	     struct tei_err *err);
/* Forgets which folders are trusted. Called for a new session, because the
 * servers may have other data than in the session before. */
void zk_acl_forget(struct zk *zk) TEI_REQUIRES(zk->lock);
/* Forgets which folders are trusted, so that all of them are checked again.
 * Called when a folder may have been deleted or replaced. */
void zk_folders_gone(struct zk *zk);

#endif /* TEI_META_META_ZOOKEEPER_ACL_H */
