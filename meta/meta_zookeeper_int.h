/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_INT_H
#define TEI_META_META_ZOOKEEPER_INT_H

/*
 * What the sources of the ZooKeeper back end share.
 *
 * Nodes, below the chroot. All but the folders and kept segments are
 * ephemeral:
 *
 *	mooncake/[cluster/]ram/<segment>	descriptor, or its head
 *	mooncake/[cluster/]rpc_meta/<segment>	control channel and incarnation
 *	mooncake/[cluster/]moonrail/<segment>.<incarnation>	empty: the guard
 *	mooncake/[cluster/]nvmeof/<name>	descriptor of a kept segment
 *
 * With a shared secret a node holds no more than a closed head: the rest is
 * fetched over the control channel, which asks for the secret, and what lies
 * in a node as a whole is not believed.
 *
 * The guard. A node's version starts at 0 with every new node, so a version
 * alone does not tell an owner's node from that of a third process which came
 * in between. A guard's name holds the incarnation, and guard, ram and
 * rpc_meta are made, replaced and deleted in one transaction (or together, by
 * the server, with their session). So "this owner's guard is still there" in
 * a transaction means that the other two nodes are still that owner's.
 *
 * Strangers. Where they may write, they can take away any of the three. So
 * the owner watches all of them, and what changed is looked at by the keeper.
 * With credentials nothing is made in a folder that others may change, and
 * nothing is believed that they may have made.
 *
 * Threads. The client library has two of its own per session; its watchers
 * and completions run there and only note things. Calls that wait do so on
 * their caller's thread, until its deadline. The keeper thread makes a new
 * session after a loss, looks for the servers elsewhere where they stay away,
 * gives the session up where that lasts, publishes again what is published,
 * sets the watches again, and tells again of changes that could not be read.
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
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

#define ZK_OPS_MAX		6	/* of one transaction */
#define ZK_WHERE		40
#define ZK_WHO			136	/* text that says who has a name */
#define ZK_PING_NS		TEI_NS_PER_SEC
#define ZK_RETRY_NS		TEI_NS_PER_SEC
#define ZK_TRY_NS		(500 * TEI_NS_PER_MS)	/* doubled per try */
#define ZK_DEFAULT_PORT		2181
#define ZK_INLINE_MAX		65536	/* longer descriptors: the head alone */
#define ZK_LOOK_NS		(250 * TEI_NS_PER_MS)
#define ZK_CLOSED		8	/* folders remembered */
#define ZK_TOGETHER		3	/* calls of one round trip */
#define ZK_LOOKUP_NS		TEI_NS_PER_SEC		/* doubled per try */
#define ZK_LOOKUP_MAX_NS	(8 * TEI_NS_PER_SEC)
#define ZK_AGAIN_NS		(250 * TEI_NS_PER_MS)	/* doubled per try */
#define ZK_AGAIN_MAX_NS		(30 * TEI_NS_PER_SEC)
#define ZK_WATCH_BUCKETS	1024
#define ZK_WATCH_IDLE		4096	/* unarmed ones kept */
#define ZK_WATCH_BYTES		262144	/* of paths that the library sets again */

struct zk;

/*
 * One session with its library handle. Made and closed by open, close and
 * the keeper; zk->lock guards the pointer to it.
 */
struct zk_session {
	struct zk *zk;
	zhandle_t *zh;			/* zk->lock; NULL until set up */
};

/* A name that this process publishes. In zk->entries. */
struct zk_entry {
	struct tei_list link;
	char *name;			/* these four fixed */
	char *ram, *rpc, *guard;	/* paths */
	/* writer's token: */
	char *text;			/* of ram: what is wanted there */
	size_t len;
	char *rpc_text;
	bool announced;			/* was there once */
	/* zk->lock */
	bool held;			/* there, by this session */
	bool dirty;			/* the keeper is to see to it */
	uint64_t look_ns;		/* the keeper: is it still there? 0: no
					 * need to look */
	bool lost;			/* to another process, */
	bool untold;			/* which no caller knows yet */
	char lost_to[ZK_WHO];		/* the process that holds the name, as
					 * last seen; "" if not seen */
};

/* A segment whose node is watched. In zk->watches, guarded by zk->lock. */
struct zk_watch {
	struct tei_list link;		/* bucket */
	char *path, *name;
	int64_t mzxid;			/* as last seen, 0: not there */
	uint32_t readers;		/* calls at work with it */
	bool armed;			/* by a watch of some session */
	uint32_t tries;			/* reads that failed since its event */
	uint64_t again_ns;		/* its change is told again; 0: not */
	uint64_t epoch;			/* of the zk's when it was armed */
};

/* Made by the store's open, freed by its close. */
struct zk {
	/* fixed after open */
	struct tei_meta_store *store;
	const struct tei_settings *settings;
	char *servers;			/* "h:p,h:p", as given */
	char where[ZK_WHERE];		/* "h:p,...": for texts */
	char *chroot;			/* "" or "/a/b" */
	char *auth;			/* "user:password", or NULL */
	pthread_t keeper;

	/* open's, then the keeper's */
	char *addresses;		/* servers, as the session knows them */
	uint32_t lookups;		/* since there was a connection */

	/* row 2 of docs/LOCKING.md; the client library's own are below it */
	struct tei_mutex lock;		/* guards what follows */
	pthread_cond_t cond;		/* anything below has changed */
	struct zk_session *session;	/* NULL: none now */
	bool connected;
	bool expired;			/* session is of no use any more */
	bool stop;
	bool writing;			/* somebody has the writer's token */
	bool rearm;			/* watches are to be set again */
	bool told_open;			/* about nodes that all can read */
	char *closed[ZK_CLOSED];	/* folders that are ours alone */
	uint32_t closed_next;
	uint64_t closed_epoch;		/* ends when they are forgotten */
	uint64_t retry_ns;		/* the keeper: not before */
	uint64_t lookup_ns;		/* the keeper: the servers' names;
					 * 0: there is a connection */
	uint32_t session_ms;		/* as granted; 0: no session yet */
	uint64_t away_ns;		/* since when it has no connection */
	struct tei_list calls;		/* under way */
	struct tei_list entries;
	tei_meta_changed_fn fn;
	void *fn_arg;
	uint32_t fn_calls;		/* running now */
	struct tei_list watches[ZK_WATCH_BUCKETS];
	uint32_t watch_idle;		/* unarmed */
	size_t watch_bytes;		/* paths of the armed ones */
	uint64_t epoch;			/* watches of earlier ones are gone */
	uint64_t again_ns;		/* no watch's is earlier; 0: none has */
};

/* --- meta_zookeeper_text.c: connection strings, records ------------------- */

/* Servers and chroot of "zookeeper://…"; both freed by the caller. */
int zk_text_split(const char *conn, char **servers, char **chroot,
		  struct tei_err *err);

/* The first of the servers, for texts: what is left out shows as "...". */
void zk_text_where(const char *servers, char out[ZK_WHERE]);

/*
 * The servers as numeric addresses, for the client library, in any order, so
 * that clients spread over them; to be freed. Ends where the store is being
 * closed.
 */
int zk_text_resolve(struct zk *zk, uint64_t deadline_ns, char **out,
		    struct tei_err *err);

/* The first of a list of them goes to its end. */
void zk_text_turn(char *addresses);

/* Whether a list of them has one that known lacks. */
bool zk_text_news(const char *addresses, const char *known);

/* The whole first line of the file, to be freed; TEI_ERR_INVALID. */
int zk_text_auth(const char *file, char **out, struct tei_err *err);

/* Paths of a name, to be freed; NULL if no node can have it, or no memory. */
char *zk_path_ram(const struct zk *zk, const char *name);
char *zk_path_rpc(const struct zk *zk, const char *name);
char *zk_path_guard(const struct zk *zk, const char *name,
		    uint64_t incarnation);

/* Terminated, to be freed; NULL without memory. */
char *zk_rpc_encode(const char *host, uint16_t port, uint64_t incarnation);
/* False if it is no such record; incarnation 0 where there is none. */
bool zk_rpc_decode(const char *text, size_t len,
		   char endpoint[TEI_META_ENDPOINT_MAX],
		   uint64_t *incarnation);

/*
 * What stands for a descriptor that is too long for a node: all but its
 * buffers, and where they are to be had. closed: no rails, addresses nor
 * identity either, which only who has the shared secret is to learn. To be
 * freed.
 */
int zk_head_encode(const struct tei_meta_desc *desc, const char *endpoint,
		   bool closed, char **text, size_t *len, struct tei_err *err);
/* Incarnation of a descriptor or head; endpoint "" unless it is a head. */
bool zk_head_decode(const char *text, size_t len, uint64_t *incarnation,
		    char endpoint[TEI_META_ENDPOINT_MAX]);

/* --- meta_zookeeper_session.c -------------------------------------------- */

/* Makes the session and waits until it is connected. */
int zk_session_open(struct zk *zk, uint64_t deadline_ns, struct tei_err *err);
/* Ends the session, if any; zk->lock is not held. */
void zk_session_close(struct zk *zk);
/* Its id, 0 without one. */
int64_t zk_session_id(struct zk *zk);
void *zk_keeper_main(void *arg);
/* The keeper's: servers do not answer, another try after a while; where the
 * session is over that is known, and it makes the next at once. */
void zk_retry_later(struct zk *zk);

/* --- meta_zookeeper_call.c ----------------------------------------------- */

/*
 * One call each, waited for until deadline_ns; a result of ZOPERATIONTIMEOUT
 * or another "transient" one says nothing about what became of it. They wait
 * for a connection first. Reads are tried again while transient.
 */
struct zk_reply {
	char *data;			/* terminated, to be freed, or NULL */
	size_t len;
	struct Stat stat;
};

enum zk_watch_kind {
	ZK_WATCH_NONE,
	ZK_WATCH_SEGMENT,		/* tells the store's user */
	ZK_WATCH_OWN,			/* tells the keeper */
	ZK_WATCH_FOLDER,		/* ends what is known of folders */
};

bool zk_transient(int rc);

/*
 * No further try, nor a wait for one: the store is being closed, time is up,
 * or the caller is the keeper and what there is to do goes before: the session
 * is over, or the servers are to be looked for.
 */
bool zk_in_vain(const struct zk *zk, uint64_t deadline_ns)
	TEI_REQUIRES(zk->lock);
/* After its handle was closed: ends what that has left unanswered. */
void zk_calls_end(struct zk *zk, const struct zk_session *session)
	TEI_REQUIRES(zk->lock);
int zk_get(struct zk *zk, const char *path, enum zk_watch_kind watch,
	   uint64_t deadline_ns, struct zk_reply *out);
int zk_exists(struct zk *zk, const char *path, enum zk_watch_kind watch,
	      uint64_t deadline_ns, struct Stat *stat);
/*
 * The same of several, ZK_TOGETHER at most, in one round trip; the first result
 * that is not ZOK, else all of stats.
 */
int zk_exists_all(struct zk *zk, const char *const *paths, int count,
		  enum zk_watch_kind watch, uint64_t deadline_ns,
		  struct Stat *stats);
/* A folder: persistent, empty. open: anybody may go in. */
int zk_mkdir(struct zk *zk, const char *path, bool open, uint64_t deadline_ns);
/* Has the library forget the segment's watch, if it has one. */
void zk_unwatch(struct zk *zk, const char *path) TEI_REQUIRES(zk->lock);
/* failed (may be NULL) gets the index of the operation that failed, or -1. */
int zk_multi(struct zk *zk, const zoo_op_t *ops, int count,
	     uint64_t deadline_ns, int *failed);
/* ours: nobody else may do anything there. The watch is set before it is read. */
int zk_get_acl(struct zk *zk, const char *path, enum zk_watch_kind watch,
	       uint64_t deadline_ns, bool *ours, struct Stat *stat);
const struct ACL_vector *zk_acl(const struct zk *zk);

/*
 * Among the results of calls: it was said already, in err, what is wrong; the
 * code is TEI_ERR_METADATA.
 */
#define ZK_SAID			(-9000)

/* Fails with a code and text for rc, after "what 'name'". */
int zk_fail(const struct zk *zk, int rc, const char *what, const char *name,
	    struct tei_err *err);

/* Adds the names of path's children. */
int zk_children(struct zk *zk, const char *path, uint64_t deadline_ns,
		struct meta_names *names);

/* --- meta_zookeeper_kept.c: kept segments -------------------------------- */

int zk_kept_read(struct tei_meta_store *store, const char *name,
		 uint64_t deadline_ns, char **json, size_t *len,
		 int64_t *version, struct tei_err *err);
int zk_kept_write(struct tei_meta_store *store, const char *name,
		  const char *json, size_t len, int64_t version,
		  uint64_t deadline_ns, struct tei_err *err);
int zk_kept_list(struct tei_meta_store *store, uint64_t deadline_ns,
		 struct meta_names *names, struct tei_err *err);

/* --- meta_zookeeper_trust.c: what only we may have made ------------------- */

/*
 * With credentials: ZK_SAID unless every folder of path, from "mooncake" on,
 * is ours alone; a folder that others may add to or delete from lets them
 * replace what is in it, whoever made that. Without: ZOK.
 */
int zk_folders_ours(struct zk *zk, const char *path, const char *name,
		    uint64_t deadline_ns, struct tei_err *err);
/*
 * As zk_get; with credentials ZK_SAID for what others may have written or
 * taken away.
 */
int zk_get_ours(struct zk *zk, const char *path, const char *name,
		enum zk_watch_kind watch, uint64_t deadline_ns,
		struct zk_reply *out, struct tei_err *err);
/* The folders of all that is published. */
int zk_check(struct tei_meta_store *store, uint64_t deadline_ns,
	     struct tei_err *err);
/* The session is another one, and the servers' data may be. */
void zk_trust_forget(struct zk *zk) TEI_REQUIRES(zk->lock);
/* One is not there any more, or another by now: all are looked at anew. */
void zk_folders_gone(struct zk *zk);

/* --- meta_zookeeper_holder.c: who has a name ------------------------------ */

struct zk_holder {
	uint64_t incarnation;		/* 0: not one of ours */
	char endpoint[TEI_META_ENDPOINT_MAX];	/* "": can't be asked */
	char since[32];
	int32_t ram_version, rpc_version;	/* -1: no such node */
	int64_t ram_czxid, rpc_czxid;		/* 0: no such node */
	bool folder;		/* it is one of other names, and nobody's */
	bool guard;
	int64_t ram_owner, rpc_owner;	/* sessions; 0: persistent, or none */
	bool ram_damaged, rpc_damaged;	/* its text cannot be read or decoded */
	const char *blocks;	/* path of a node of a live session that gives no
				 * address; owned by the entry; NULL: none */
	int64_t session;	/* session that owns that node */
};

/* ZBADVERSION: it changed meanwhile. */
int zk_holder_read(struct zk *zk, const struct zk_entry *e,
		   uint64_t deadline_ns, struct zk_holder *out);
/* ZOK as long as the nodes are those that were read; else ZBADVERSION. */
int zk_holder_same(struct zk *zk, const struct zk_entry *e,
		   const struct zk_holder *h, uint64_t deadline_ns);
/* Of the holder, for people. */
void zk_holder_text(const struct zk_holder *h, char *out, size_t len);
/*
 * Whether the holder is alive: asked where it says that it listens. What
 * answers there as another process, or as we (own), is not the holder. A holder
 * that cannot be asked is alive as long as its session is; persistent nodes have
 * no session. A holder that is busy or has another secret is alive.
 */
bool zk_holder_alive(const struct zk_holder *h, uint64_t own,
		     const struct tei_secret *secret, uint64_t deadline_ns);

/* --- meta_zookeeper_claim.c: what this process publishes ----------------- */

/*
 * All folders of path. Those above the chroot's last one are anybody's: other
 * users may have their own chroot there.
 */
int zk_folders(struct zk *zk, const char *path, uint64_t deadline_ns);
/* Makes those that are missing, as zk_folders_ours wants them. */
int zk_folders_make(struct zk *zk, const char *path, const char *name,
		    uint64_t deadline_ns, struct tei_err *err);
int zk_publish(struct tei_meta_store *store, const struct tei_meta_desc *desc,
	       const char *json, size_t len, bool told, uint64_t deadline_ns,
	       struct tei_err *err);
/* Returns 0 if there is a shared secret: only processes that know it may learn
 * of buffers. */
size_t zk_inline_max(const struct tei_meta_store *store);
bool zk_sound(struct tei_meta_store *store, const char *name);
int zk_withdraw(struct tei_meta_store *store, const char *name,
		uint64_t deadline_ns, struct tei_err *err);
/* As zk_in_vain; zk->lock not held. */
bool zk_over(struct zk *zk, uint64_t deadline_ns);
/* The keeper's: sees to what is dirty. zk->lock not held. */
void zk_republish(struct zk *zk);
bool zk_entries_dirty(struct zk *zk) TEI_REQUIRES(zk->lock);
/* When to look after what is held, 0: no need. */
uint64_t zk_entries_look(struct zk *zk) TEI_REQUIRES(zk->lock);
/* Watches on what is held are gone. */
void zk_entries_look_now(struct zk *zk) TEI_REQUIRES(zk->lock);
/* A node of ours has changed; zk->lock not held. */
void zk_own_event(struct zk *zk, int type, const char *path);
/* The session is another one: nothing is held any more. */
void zk_entries_unheld(struct zk *zk) TEI_REQUIRES(zk->lock);
void zk_entries_free(struct zk *zk);

/* --- meta_zookeeper_watch.c: what this process reads --------------------- */

int zk_fetch(struct tei_meta_store *store, const char *name,
	     uint64_t deadline_ns, char **json, size_t *len,
	     struct tei_err *err);
int zk_resolve(struct tei_meta_store *store, const char *server,
	       uint64_t deadline_ns, char endpoint[TEI_META_ENDPOINT_MAX],
	       struct tei_err *err);
void zk_watch(struct tei_meta_store *store, tei_meta_changed_fn fn, void *arg);
void zk_unread(struct tei_meta_store *store, const char *name);
/* Connected again: what could not be read is due now. */
void zk_unread_now(struct zk *zk) TEI_REQUIRES(zk->lock);
/* The keeper's: tells of those that are due. zk->lock not held. */
void zk_unread_tell(struct zk *zk);
/* A call has set the watch on what was there as of mzxid. */
void zk_segment_watched(struct zk *zk, const char *path, int64_t mzxid)
	TEI_REQUIRES(zk->lock);
/* A segment's node has changed; zk->lock not held. */
void zk_segment_event(struct zk *zk, const char *path);
/* The connection is gone: sees to it that it can be had again. */
void zk_watches_lost(struct zk *zk) TEI_REQUIRES(zk->lock);
/* The keeper's: sets watches that are gone, tells what was missed. */
void zk_watches_rearm(struct zk *zk);
void zk_watches_init(struct zk *zk);
void zk_watches_free(struct zk *zk);

#endif /* TEI_META_META_ZOOKEEPER_INT_H */
