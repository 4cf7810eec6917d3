/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_CALL_H
#define TEI_META_META_ZOOKEEPER_CALL_H

/*
 * Calls of the ZooKeeper client library.
 */

#include "meta/meta_zookeeper_int.h"

/*
 * Each of these functions makes one call. It waits until deadline_ns for a
 * connection and then for the answer. ZOPERATIONTIMEOUT and other transient
 * results do not tell whether the call was executed. Reads are repeated while
 * the result is transient.
 */
struct zk_reply {
	char *data; /* terminated text, which the caller frees, or NULL */
	size_t len;
	struct Stat stat;
};

enum zk_watch_kind {
	ZK_WATCH_NONE,
	ZK_WATCH_SEGMENT, /* the event notifies the user of the store */
	ZK_WATCH_OWN,	  /* the event makes the keeper check the node */
	ZK_WATCH_FOLDER,  /* the event makes the store check all folders
			   * again */
};

bool zk_transient(int rc);

/*
 * Returns true if further attempts and waits are useless: the store is being
 * closed, the deadline has passed, or the caller is the keeper and has more
 * urgent work because the session has ended or the servers' names must be
 * resolved.
 */
bool zk_must_stop(const struct zk *zk, uint64_t deadline_ns)
	TEI_REQUIRES(zk->lock);
/*
 * Ends the calls of the session that have no result from the library. Called
 * after the handle of the session was closed.
 */
void zk_calls_end(struct zk *zk, const struct zk_session *session)
	TEI_REQUIRES(zk->lock);
int zk_get(struct zk *zk, const char *path, enum zk_watch_kind watch,
	   uint64_t deadline_ns, struct zk_reply *out);
int zk_exists(struct zk *zk, const char *path, enum zk_watch_kind watch,
	      uint64_t deadline_ns, struct Stat *stat);
/*
 * Does what zk_exists does for several paths, at most ZK_TOGETHER, in one round
 * trip. Returns the first result that is not ZOK; if all results are ZOK, fills
 * stats.
 */
int zk_exists_all(struct zk *zk, const char *const *paths, int count,
		  enum zk_watch_kind watch, uint64_t deadline_ns,
		  struct Stat *stats);
/* Creates a persistent, empty folder. If open is true, every user may use the
 * folder. */
int zk_mkdir(struct zk *zk, const char *path, bool open, uint64_t deadline_ns);
/* Removes the library's watch on the segment, if there is one. */
void zk_unwatch(struct zk *zk, const char *path) TEI_REQUIRES(zk->lock);
/*
 * Runs a transaction. *failed receives the index of the operation that failed,
 * or -1; failed may be NULL.
 */
int zk_multi(struct zk *zk, const zoo_op_t *ops, int count,
	     uint64_t deadline_ns, int *failed);
/*
 * Reads the permissions of a node. Sets *ours to true if only this user may
 * access the node. The watch is set before the permissions are read.
 */
int zk_get_acl(struct zk *zk, const char *path, enum zk_watch_kind watch,
	       uint64_t deadline_ns, bool *ours, struct Stat *stat);
const struct ACL_vector *zk_acl(const struct zk *zk);

/*
 * Result of a call whose error is described in err already; the code is
 * TEI_ERR_METADATA.
 */
#define ZK_REPORTED (-9000)

/*
 * Fills err for the result rc, with a text that begins with "what 'name'".
 * Returns the code.
 */
int zk_fail(const struct zk *zk, int rc, const char *what, const char *name,
	    struct tei_err *err);

/* Adds the names of path's children to names. */
int zk_children(struct zk *zk, const char *path, uint64_t deadline_ns,
		struct meta_names *names);

#endif /* TEI_META_META_ZOOKEEPER_CALL_H */
