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
 * If there is a shared secret, a ram node contains only a head without
 * addresses (meta_head_encode). The descriptor is fetched over the control
 * channel, which requires the secret. A node that contains a whole descriptor
 * is not trusted then.
 *
 * The ownership node. The version of a node starts at 0 each time the node is
 * created. Therefore a version does not show whether a node still belongs to
 * the same owner, or was deleted and created by another process meanwhile. The
 * name of the ownership node contains the owner's incarnation. The ownership
 * node, ram and rpc_meta are created, replaced and deleted in one transaction;
 * when their session ends, the server deletes them together. So if a
 * transaction finds the ownership node of an incarnation, the other two nodes
 * belong to that incarnation too.
 *
 * Other users. Without credentials, all users can delete each of the three
 * nodes. Therefore the owner watches all three, and the keeper thread examines
 * changes. With credentials, nodes are created only in folders that no other
 * user may change, and nodes that another user may have created are not
 * trusted.
 *
 * Threads. The client library has two threads per session; its watchers and
 * completions run there and only record events. Calls that wait do so on the
 * caller's thread until its deadline. The keeper thread creates a new session
 * after the loss of one. If there is no connection, it resolves the servers'
 * names again, and after a while it gives the session up. It publishes the
 * names of this process again, sets the watches again, and notifies the user of
 * the store again of changes that could not be read.
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
/* size of a text that describes the owner of a name, bytes */
#define ZK_WHO			136
#define ZK_PING_NS		TEI_NS_PER_SEC
#define ZK_RETRY_NS		TEI_NS_PER_SEC
/* Time limit of the first attempt to connect. It is doubled with each
 * attempt. */
#define ZK_TRY_NS		(500 * TEI_NS_PER_MS)
#define ZK_DEFAULT_PORT		2181
/* Length of the longest descriptor that is stored as a whole, bytes. For a
 * longer descriptor, only its head is stored in the node. */
#define ZK_INLINE_MAX		65536
#define ZK_CHECK_NS		(250 * TEI_NS_PER_MS)
/* greatest number of folders that the store remembers as trusted */
#define ZK_CLOSED 8
/* greatest number of calls in one round trip */
#define ZK_TOGETHER 3
/* First and longest pause between two look-ups of the servers' names. The pause
 * is doubled with each look-up. */
#define ZK_LOOKUP_NS		TEI_NS_PER_SEC
#define ZK_LOOKUP_MAX_NS	(8 * TEI_NS_PER_SEC)
/* First and longest delay before a change that could not be read is notified
 * again. The delay is doubled with each attempt. */
#define ZK_NOTIFY_NS		(250 * TEI_NS_PER_MS)
#define ZK_NOTIFY_MAX_NS	(30 * TEI_NS_PER_SEC)
#define ZK_WATCH_BUCKETS	1024
/* greatest number of entries in the table of watches that are kept although
 * their watch has fired */
#define ZK_WATCH_IDLE 4096
/*
 * Greatest sum of the lengths of all watched paths, bytes, up to which the
 * client library may set its watches again in one request after a reconnection.
 */
#define ZK_WATCH_BYTES 262144

struct zk;

/*
 * One session and its handle of the client library. zk_session_open and the
 * keeper create sessions; zk_session_close ends them. zk->lock guards
 * zk->session, which points to the present one.
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
	char *text; /* content that the ram node is to have */
	size_t len;
	char *rpc_text; /* content that the rpc_meta node is to have */
	bool rpc_moved; /* rpc_text has changed and is not written to the node
			 * yet */
	bool announced; /* the name was registered at least
			 * once */
	/* guarded by zk->lock */
	bool registered;		/* the current session has registered
					 * the name */
	bool dirty;			/* the keeper must publish the name
					 * again */
	uint64_t check_ns;		/* time at which the keeper checks the
					 * nodes; 0: no check is due */
	bool lost;			/* another process has registered the
					 * name */
	bool loss_unreported; /* no caller has received the error about
			       * the lost name yet */
	char lost_to[ZK_WHO]; /* owner of the name when it was last
			       * read; "" if it was not read */
};

/* A segment that this process reads and whose node has been watched. Element of
 * the table zk->watches; guarded by zk->lock. */
struct zk_watch {
	struct tei_list link; /* element of the list of its hash
			       * bucket */
	char *path, *name;
	int64_t mzxid;	    /* number of the node's last change (mzxid) when the
			     * node was last read; 0: the node did not exist */
	uint32_t readers;   /* number of calls that use the entry at present */
	bool armed;	    /* a watch was set on the node and has not fired */
	uint32_t tries;	    /* number of reads that have failed since the watch
			     * has fired */
	uint64_t notify_ns; /* time of the next call of zk->fn for this segment;
			     * 0: no call is due */
	uint64_t epoch;	    /* value of zk->epoch when the watch was
			     * set */
};

/* State of a ZooKeeper store. Created when the store is opened, freed when it
 * is closed. */
struct zk {
	/* the following members do not change after open */
	struct tei_meta_store *store;
	const struct tei_settings *settings;
	char *servers;			/* servers as configured:
					 * "host:port,host:port" */
	char where[ZK_WHERE];		/* the first servers of the list, for
					 * log lines and error texts */
	char *chroot;			/* path below which all nodes are: ""
					 * or, for example, "/a/b" */
	char *auth;			/* credentials "user:password", or
					 * NULL */
	pthread_t keeper;

	/* used during open, then by the keeper only */
	char *addresses;  /* numeric addresses of the servers that the session
			   * uses */
	uint32_t lookups; /* number of name look-ups since the connection was
			   * lost */

	/* row 2 of docs/LOCKING.md; taken before the locks of the client
	 * library */
	struct tei_mutex lock;		/* guards all members below */
	pthread_cond_t cond;		/* signalled when one of the members
					 * below has changed */
	struct zk_session *session;	/* present session, or NULL */
	bool connected;
	bool expired; /* the session has ended and cannot be used any longer */
	bool stop;
	bool writing;			/* true while a thread has the writer's
					 * token */
	bool rearm;			/* the keeper must set the watches
					 * again */
	bool open_logged;		/* the warning that all users may change
					 * the nodes was logged */
	char *closed[ZK_CLOSED];	/* trusted folders: only this user may
					 * change them */
	uint32_t closed_next;
	uint64_t closed_epoch;		/* number of times that the trusted
					 * folders were forgotten */
	uint64_t retry_ns;		/* time before which the keeper begins
					 * no work */
	/*
	 * time of the keeper's next name look-up; 0 while there is a connection
	 */
	uint64_t lookup_ns;
	uint32_t session_ms;   /* session timeout that the servers have granted,
				* ms; 0: there was no session yet */
	uint64_t away_ns;      /* time at which the connection was lost, or the
				* session was started, last */
	struct tei_list calls; /* calls in progress: list of struct zk_call */
	struct tei_list entries;
	tei_meta_changed_fn fn;
	void *fn_arg;
	uint32_t fn_calls; /* number of threads that are calling fn */
	struct tei_list watches[ZK_WATCH_BUCKETS];
	uint32_t watch_idle;		/* number of entries in watches that are
					 * not armed */
	size_t watch_bytes;		/* sum of the lengths of the paths whose
					 * watches are set */
	/* number that grows when all watches are lost; a watch that was set in
	 * an earlier epoch does not exist any longer */
	uint64_t epoch;
	uint64_t notify_ns;		/* earliest notify_ns of all entries in
					 * watches; 0: no call is due */
};

/* --- meta_zookeeper_session.c -------------------------------------------- */

/* Creates a session and waits until it is connected. */
int zk_session_open(struct zk *zk, uint64_t deadline_ns, struct tei_err *err);
/* Closes the session, if there is one. zk->lock must not be held. */
void zk_session_close(struct zk *zk);
/* Returns the id of the present session, or 0 if there is none. */
int64_t zk_session_id(struct zk *zk);
void *zk_keeper_main(void *arg);
/*
 * Makes the keeper pause before its next attempt. If the session has ended, the
 * keeper creates the next session without a pause. Called by the keeper if the
 * servers do not answer.
 */
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
 * Creates all missing folders in path. All users may use the folders above the
 * last one of the chroot, because other users may have their own chroots there.
 */
int zk_folders(struct zk *zk, const char *path, uint64_t deadline_ns);
/* Does what zk_folders does, and checks the folders as zk_folders_ours does.
 * Fills err if it fails. */
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
/* Does what zk_must_stop does, for callers that do not hold zk->lock. */
bool zk_must_stop_unlocked(struct zk *zk, uint64_t deadline_ns);
/* Publishes all entries that are dirty, and checks those whose check is due.
 * Called by the keeper. zk->lock must not be held. */
void zk_republish(struct zk *zk);
bool zk_entries_dirty(struct zk *zk) TEI_REQUIRES(zk->lock);
/* Returns the time at which the next check of a registered entry is due, or 0
 * if no check is due. */
uint64_t zk_entries_check_due(struct zk *zk) TEI_REQUIRES(zk->lock);
/* Makes the keeper check all registered entries. Called when their watches no
 * longer exist. */
void zk_entries_check_now(struct zk *zk) TEI_REQUIRES(zk->lock);
/*
 * Handles an event of a node that this process has registered. zk->lock must
 * not be held.
 */
void zk_own_event(struct zk *zk, int type, const char *path);
/* Marks all entries as not registered. Called when a new session begins. */
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
/* Makes the keeper notify the user of the store now of all changes that could
 * not be read before. Called when the connection is restored. */
void zk_notify_again_now(struct zk *zk) TEI_REQUIRES(zk->lock);
/* Notifies the user of the store again of those changes whose next notification
 * is due. Called by the keeper. zk->lock must not be held. */
void zk_notify_due(struct zk *zk);
/*
 * Records that a call has set the watch on the node at path. "mzxid" is the
 * number of the node's last change at that time, or 0 if the node does not
 * exist.
 */
void zk_segment_watched(struct zk *zk, const char *path, int64_t mzxid)
	TEI_REQUIRES(zk->lock);
/* Handles an event of a segment's node. zk->lock must not be held. */
void zk_segment_event(struct zk *zk, const char *path);
/*
 * Called when the connection is lost. If there are many watches, makes the
 * library forget them, because a request that sets all of them again would be
 * too long for the server.
 */
void zk_watches_lost(struct zk *zk) TEI_REQUIRES(zk->lock);
/* Sets the watches of earlier epochs again, and notifies the user of the store
 * of changes that were missed meanwhile. Called by the keeper. */
void zk_watches_rearm(struct zk *zk);
void zk_watches_init(struct zk *zk);
void zk_watches_free(struct zk *zk);

#endif /* TEI_META_META_ZOOKEEPER_INT_H */
