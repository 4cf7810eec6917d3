/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_INT_H
#define TEI_META_META_ZOOKEEPER_INT_H

/*
 * Shared by the sources of the ZooKeeper back end.
 *
 * Nodes, below the chroot. All are ephemeral except folders and persistent
 * segment records:
 *
 *	mooncake/[cluster/]ram/<segment>	descriptor, or its head
 *	mooncake/[cluster/]rpc_meta/<segment>	address of the control channel,
 *						and incarnation
 *	mooncake/[cluster/]moonrail/<segment>.<incarnation>
 *						ownership node, empty
 *	mooncake/[cluster/]nvmeof/<name>	persistent segment record
 *
 * With a shared secret, a node contains only a closed head. The rest is fetched
 * over the control channel, which requires the secret, and a node that contains
 * a whole descriptor is not trusted.
 *
 * The ownership node. The version of a node starts at 0
 * each time the node is created, so a version does not distinguish an owner's
 * node from the node of another process that was created meanwhile. The name of
 * the ownership node contains the incarnation, and ownership node, ram and
 * rpc_meta are created, replaced and deleted in one transaction (or together by
 * the server, when their session ends). Therefore, if a transaction finds this
 * owner's ownership node, the other two nodes belong to the same owner.
 *
 * Other users. Without access control they can delete each of the three nodes.
 * So the owner watches all three, and the keeper thread examines changes. With
 * credentials, nodes are only created in folders that no other user may change,
 * and nodes that other users may have created are not trusted.
 *
 * Threads. The client library has two threads per session; its watchers and
 * completions run there and only record events. Calls that wait do so on the
 * caller's thread until its deadline. The keeper thread creates a new session
 * after a loss, resolves the servers' names again if there is no connection,
 * gives the session up if that lasts, publishes the entries again, sets the
 * watches again, and notifies again of changes that could not be read.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef THREADED
#define THREADED
#endif
#include <zookeeper/zookeeper.h>

#include "meta/meta_store_int.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

/* greatest number of operations in one transaction */
#define ZK_OPS_MAX		6
#define ZK_WHERE		40
/* size of a text that describes an owner, bytes */
#define ZK_WHO			136
#define ZK_PING_NS		TEI_NS_PER_SEC
#define ZK_RETRY_NS		TEI_NS_PER_SEC
/* Time limit of the first attempt to connect. It is doubled with each
 * attempt. */
#define ZK_TRY_NS		(500 * TEI_NS_PER_MS)
#define ZK_DEFAULT_PORT		2181
/* Length of the longest descriptor that is stored as a whole, bytes. If a
 * descriptor is longer, only its head is stored in the node. */
#define ZK_INLINE_MAX		65536
#define ZK_CHECK_NS		(250 * TEI_NS_PER_MS)
/* greatest number of trusted folders that are remembered */
#define ZK_CLOSED 8
/* greatest number of calls in one round trip */
#define ZK_TOGETHER 3
/* First pause between two name look-ups. It is doubled with each attempt. */
#define ZK_LOOKUP_NS		TEI_NS_PER_SEC
#define ZK_LOOKUP_MAX_NS	(8 * TEI_NS_PER_SEC)
/* First and longest delay before a change that could not be read is notified
 * again. The delay is doubled with each attempt. */
#define ZK_NOTIFY_NS		(250 * TEI_NS_PER_MS)
#define ZK_NOTIFY_MAX_NS	(30 * TEI_NS_PER_SEC)
#define ZK_WATCH_BUCKETS	1024
/* greatest number of entries that are kept although their watch has fired */
#define ZK_WATCH_IDLE 4096
/* Greatest sum of the lengths of paths, bytes, for which the client library may
 * set its watches again in one request. */
#define ZK_WATCH_BYTES 262144

struct zk;

/*
 * One session with its handle of the library. Created and closed by open, close
 * and the keeper; zk->lock guards the pointer to it.
 */
struct zk_session {
	struct zk *zk;
	zhandle_t *zh; /* guarded by zk->lock; NULL until the handle is
			* created */
};

/* A name that this process publishes; element of zk->entries. */
struct zk_entry {
	struct tei_list link;
	char *name;			/* name of the segment; name, ram, rpc
					 * and ownership are constant */
	char *ram, *rpc, *ownership;	/* paths of the nodes */
	/* guarded by the writer's token */
	char *text; /* text that the ram node is to have */
	size_t len;
	char *rpc_text; /* text that the rpc_meta node is to
			 * have */
	bool rpc_moved; /* rpc_text is not written to the node
			 * yet */
	bool announced; /* the name was registered at least
			 * once */
	/* guarded by zk->lock */
	bool registered;		/* the current session has registered
					 * the name */
	bool dirty;			/* the keeper must publish the entry */
	uint64_t check_ns;		/* time at which the keeper checks the
					 * nodes; 0: no check is due */
	bool lost;			/* another process has registered the
					 * name */
	bool loss_unreported; /* no caller has received the error about
			       * the lost name yet */
	char lost_to[ZK_WHO]; /* owner of the name when it was last
			       * read; "" if it was not read */
};

/* A segment whose node is watched. In zk->watches, guarded by zk->lock. */
struct zk_watch {
	struct tei_list link; /* element of the list of its hash
			       * bucket */
	char *path, *name;
	int64_t mzxid;	    /* mzxid of the node when it was last
			     * read; 0: no node */
	uint32_t readers;   /* number of calls that use the entry */
	bool armed;	    /* a watch on the node is set in some
			     * session */
	uint32_t tries;	    /* number of failed reads since the
			     * watch has fired */
	uint64_t notify_ns; /* time of the next call of the watcher's
			     * function; 0: no call is due */
	uint64_t epoch;	    /* value of zk->epoch when the watch was
			     * set */
};

/* State of a ZooKeeper store. Created when the store is opened, freed when it
 * is closed. */
struct zk {
	/* the following members do not change after open */
	struct tei_meta_store *store;
	const struct tei_settings *settings;
	char *servers;			/* "host:port,host:port", as
					 * configured */
	char where[ZK_WHERE];		/* "host:port,...", for log lines and
					 * error texts */
	char *chroot;			/* "" or "/a/b" */
	char *auth;			/* "user:password", or NULL */
	pthread_t keeper;

	/* used during open, then by the keeper only */
	char *addresses;  /* numeric addresses of the servers that the session
			   * uses */
	uint32_t lookups; /* number of name look-ups since the connection was
			   * lost */

	/* row 2 of docs/LOCKING.md; taken before the locks of the client
	 * library */
	struct tei_mutex lock;		/* guards the members below */
	pthread_cond_t cond;		/* used with lock; signalled when a
					 * member below has changed */
	struct zk_session *session;	/* present session, or NULL */
	bool connected;
	bool expired; /* the session has ended and cannot be
		       * used */
	bool stop;
	bool writing;			/* a thread has the writer's token */
	bool rearm;			/* the keeper must set the watches
					 * again */
	bool open_logged;		/* the warning that all users can read
					 * the nodes was logged */
	char *closed[ZK_CLOSED];	/* folders that only this user may
					 * change */
	uint32_t closed_next;
	uint64_t closed_epoch;		/* incremented when the trusted folders
					 * are forgotten */
	uint64_t retry_ns;		/* earliest time of the keeper's next
					 * attempt */
	/*
	 * time of the keeper's next name look-up; 0 while there is a connection
	 */
	uint64_t lookup_ns;
	uint32_t session_ms;   /* session timeout that the servers have
				* granted; 0: no session yet */
	uint64_t away_ns;      /* time at which the connection was
				* lost */
	struct tei_list calls; /* list of the calls in progress */
	struct tei_list entries;
	tei_meta_changed_fn fn;
	void *fn_arg;
	uint32_t fn_calls; /* number of calls of fn that are
			    * running */
	struct tei_list watches[ZK_WATCH_BUCKETS];
	uint32_t watch_idle;		/* number of entries whose watch is not
					 * set */
	size_t watch_bytes;		/* sum of the lengths of the paths whose
					 * watches are set */
	uint64_t epoch;			/* a watch that was set in an earlier
					 * epoch no longer exists */
	uint64_t notify_ns;		/* earliest notify_ns of all entries; 0:
					 * none */
};

/* --- meta_zookeeper_session.c -------------------------------------------- */

/* Creates the session and waits until it is connected. */
int zk_session_open(struct zk *zk, uint64_t deadline_ns, struct tei_err *err);
/* Closes the session, if there is one. zk->lock must not be held. */
void zk_session_close(struct zk *zk);
/* Returns the id of the session, or 0. */
int64_t zk_session_id(struct zk *zk);
void *zk_keeper_main(void *arg);
/* Makes the keeper try again later, because the servers do not answer. If the
 * session has ended, the keeper creates the next session at once. Called by the
 * keeper. */
void zk_retry_later(struct zk *zk);

/* --- meta_zookeeper_persistent.c: persistent segment records -------------- */

int zk_persistent_read(struct tei_meta_store *store, const char *name,
		       uint64_t deadline_ns, char **json, size_t *len,
		       int64_t *version, struct tei_err *err);
int zk_persistent_write(struct tei_meta_store *store, const char *name,
			const char *json, size_t len, int64_t version,
			uint64_t deadline_ns, struct tei_err *err);
int zk_list(struct tei_meta_store *store, const char *folder,
	    uint64_t deadline_ns, struct meta_names *names,
	    struct tei_err *err);

/* --- meta_zookeeper_registration.c: names published by this process ------- */

/*
 * Creates all folders of path. The folders above the last folder of the chroot
 * are open to every user, because other users may have their own chroot there.
 */
int zk_folders(struct zk *zk, const char *path, uint64_t deadline_ns);
/*
 * Creates the missing folders, with the permissions that zk_folders_ours
 * requires.
 */
int zk_folders_make(struct zk *zk, const char *path, const char *name,
		    uint64_t deadline_ns, struct tei_err *err);
int zk_publish(struct tei_meta_store *store, const struct tei_meta_desc *desc,
	       const char *json, size_t len, bool report_loss,
	       uint64_t deadline_ns, struct tei_err *err);
/* Returns the length of the longest descriptor that is stored as a whole.
 * Returns 0 if there is a shared secret, because only processes with the secret
 * may see the buffers. */
size_t zk_inline_max(const struct tei_meta_store *store);
bool zk_owns(struct tei_meta_store *store, const char *name);
int zk_withdraw(struct tei_meta_store *store, const char *name,
		uint64_t deadline_ns, struct tei_err *err);
/* Does what zk_must_stop does; zk->lock must not be held. */
bool zk_must_stop_unlocked(struct zk *zk, uint64_t deadline_ns);
/* Publishes the dirty entries. Called by the keeper. zk->lock must not be
 * held. */
void zk_republish(struct zk *zk);
bool zk_entries_dirty(struct zk *zk) TEI_REQUIRES(zk->lock);
/* Returns the time at which registered entries must be checked, or 0 if no
 * check is due. */
uint64_t zk_entries_check_due(struct zk *zk) TEI_REQUIRES(zk->lock);
/* Requests a check of all registered entries, because their watches are
 * gone. */
void zk_entries_check_now(struct zk *zk) TEI_REQUIRES(zk->lock);
/*
 * Handles an event of a node that this process has registered. zk->lock must
 * not be held.
 */
void zk_own_event(struct zk *zk, int type, const char *path);
/* Marks all entries as not registered, because the session is a new one. */
void zk_entries_unregistered(struct zk *zk) TEI_REQUIRES(zk->lock);
void zk_entries_free(struct zk *zk);

/* --- meta_zookeeper_watch.c: segments read by this process ---------------- */

int zk_fetch(struct tei_meta_store *store, const char *name,
	     uint64_t deadline_ns, char **json, size_t *len,
	     struct tei_err *err);
int zk_resolve(struct tei_meta_store *store, const char *server,
	       uint64_t deadline_ns, char endpoint[TEI_META_ENDPOINT_MAX],
	       struct tei_err *err);
void zk_watch(struct tei_meta_store *store, tei_meta_changed_fn fn,
	      tei_meta_wanted_fn wanted, void *arg);
void zk_notify_again(struct tei_meta_store *store, const char *name);
/* A notification waits if the change of its node could not be read. Makes all
 * waiting notifications due now. Called when the connection is restored. */
void zk_notify_again_now(struct zk *zk) TEI_REQUIRES(zk->lock);
/*
 * Notifies of the changes that are due. Called by the keeper. zk->lock must not
 * be held.
 */
void zk_notify_due(struct zk *zk);
/* Records that a call has set the watch on a node, and that the node's mzxid
 * was mzxid then. */
void zk_segment_watched(struct zk *zk, const char *path, int64_t mzxid)
	TEI_REQUIRES(zk->lock);
/* Handles an event of a segment's node. zk->lock must not be held. */
void zk_segment_event(struct zk *zk, const char *path);
/* If there are many watches, makes the library forget them, so that it can
 * reconnect. */
void zk_watches_lost(struct zk *zk) TEI_REQUIRES(zk->lock);
/* Sets the lost watches again, and notifies of changes that were missed. Called
 * by the keeper. */
void zk_watches_rearm(struct zk *zk);
void zk_watches_init(struct zk *zk);
void zk_watches_free(struct zk *zk);

#endif /* TEI_META_META_ZOOKEEPER_INT_H */
