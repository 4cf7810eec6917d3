/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_CALL_H
#define TEI_META_META_ZOOKEEPER_CALL_H

/* Blocking calls of the ZooKeeper client library. */

#include "meta/meta_zookeeper_int.h"

/*
 * The answer to zk_get. This function and the other ones with the parameter
 * deadline_ns make one call each and return the result code of the library.
 * They wait for a connection and then for the answer, until deadline_ns at
 * most. After ZOPERATIONTIMEOUT or another transient result (zk_transient), the
 * caller does not know whether the server has executed the call. Reads are
 * repeated while their result is transient.
 */
struct zk_reply {
	char *data; /* terminated text, which the caller frees, or NULL */
	size_t len;
	struct Stat stat;
};

enum zk_watch_kind {
	ZK_WATCH_NONE,
	ZK_WATCH_SEGMENT, /* the event makes the store notify its user of a
			   * changed segment */
	ZK_WATCH_OWN,	  /* the event makes the keeper check a node of this
			   * process */
	ZK_WATCH_FOLDER,  /* the event makes the store check all folders
			   * again */
};

bool zk_transient(int rc);

/*
 * Returns true if the caller must stop trying and waiting: the store is being
 * closed, the deadline has passed, or the caller is the keeper and has more
 * urgent work. The keeper has more urgent work if the session has ended or the
 * servers' names must be resolved.
 */
bool zk_must_stop(const struct zk *zk, uint64_t deadline_ns)
	TEI_REQUIRES(zk->lock);
/* Called after the handle of the session was closed. Ends all calls of the
 * session for which the library has not reported a result. */
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
/* Creates a persistent, empty node, which is used as a folder. If "open" is
 * true, all users may access the folder. */
int zk_mkdir(struct zk *zk, const char *path, bool open, uint64_t deadline_ns);
/* Makes the library forget its watch on the segment's node at path, if there is
 * one. */
void zk_unwatch(struct zk *zk, const char *path) TEI_REQUIRES(zk->lock);
/* Runs a transaction. Sets *failed, unless failed is NULL, to the index of the
 * operation that has failed, or to -1 if none has. */
int zk_multi(struct zk *zk, const zoo_op_t *ops, int count,
	     uint64_t deadline_ns, int *failed);
/* Reads the permissions of a node. Sets *ours to true if only this process's
 * user may access the node. Sets the watch before it reads the permissions. */
int zk_get_acl(struct zk *zk, const char *path, enum zk_watch_kind watch,
	       uint64_t deadline_ns, bool *ours, struct Stat *stat);
const struct ACL_vector *zk_acl(const struct zk *zk);

/* Result of a function that has already filled err; the code in err is
 * TEI_ERR_METADATA. */
#define ZK_REPORTED (-9000)

/* Fills err for the result rc of a call, with an error text that begins with
 * "WHAT 'NAME'". Returns the code in err. */
int zk_fail(const struct zk *zk, int rc, const char *what, const char *name,
	    struct tei_err *err);

/* Adds the names of the children of the node at path to names. */
int zk_children(struct zk *zk, const char *path, uint64_t deadline_ns,
		struct meta_names *names);

#endif /* TEI_META_META_ZOOKEEPER_CALL_H */
