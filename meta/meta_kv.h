/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_KV_H
#define TEI_META_META_KV_H

/*
 * Metadata stores that are servers of keys and values: a driver per product,
 * and one core that implements the back end (struct meta_store_ops) on top of
 * it.
 *
 * Keys, the same as Mooncake's (docs/PROTOCOL.md):
 *
 *	mooncake/[cluster/]ram/<segment>	descriptor, or its head
 *	mooncake/[cluster/]rpc_meta/<segment>	control channel and incarnation
 *	mooncake/[cluster/]nvmeof/<name>	persistent segment record
 *
 * Ownership of a name. The process whose record is under rpc_meta owns the
 * name. A process writes both keys in one commit that depends on the version of
 * rpc_meta, so of two processes that want the same name one fails, and a
 * process that lost a name cannot write over its new owner. A name whose owner
 * does not answer on its control channel is taken over.
 *
 * Liveness. Both keys belong to a lease that the keeper renews. They disappear
 * when the process has ended and the lease has expired. Where the server has no
 * leases, a successor takes the name over.
 *
 * Changes. The core remembers the segments that this process has fetched. While
 * the server reports changed keys, the watcher thread marks their segments, and
 * the keeper reads these; otherwise the keeper reads each remembered key every
 * MOONRAIL_STORE_POLL_MS. Before it reads a key, it asks whether the process
 * still uses the segment, and forgets the segment if not.
 *
 * Threads. Calls of the store run on the caller's thread, until its deadline.
 * The keeper renews the lease, publishes lost names again, reads keys whose
 * check is due and calls the function of tei_meta_store_watch. The watcher only
 * waits for the server's reports. Drivers are called without locks, by several
 * threads at once.
 *
 * The writer's token. kv->writing is held by the one thread that writes keys,
 * so that callers and the keeper do not interfere. A caller that does not get
 * the token in time leaves its text with the name, and the keeper publishes it.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta_store_int.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

#define META_KV_KEY_MAX		(TEI_META_NAME_MAX + 512)
/* Length of the longest descriptor that is stored as a whole, bytes. Of a
 * longer one, only the head is stored. */
#define META_KV_INLINE_MAX	65536
#define META_KV_WHERE		TEI_META_ENDPOINT_MAX
#define META_KV_WHO		136	/* size of a text that identifies an
					 * owner */
#define META_KV_PING_NS	 TEI_NS_PER_SEC /* limit of a query to an owner */
#define META_KV_RETRY_NS TEI_NS_PER_SEC /* pause after a failure */
/* Time between a reported change of an own key and the check of that key. */
#define META_KV_CHECK_NS (250 * TEI_NS_PER_MS)
/* Delay before a notification is repeated for the first time. The delay doubles
 * with each repetition. */
#define META_KV_NOTIFY_NS	(250 * TEI_NS_PER_MS)
#define META_KV_NOTIFY_MAX_NS	(30 * TEI_NS_PER_SEC)
/* While more segments than this are remembered, those whose key was missing are
 * forgotten. */
#define META_KV_FETCHED_MAX 65536
/* Number of segments that the keeper handles before it returns to its other
 * duties. */
#define META_KV_JOBS 64
/* Limit of the wait for the writer's token when a name is withdrawn. */
#define META_KV_CLOSE_NS	(2 * TEI_NS_PER_SEC)
#define META_KV_WAIT_MAX_NS	(3600 * TEI_NS_PER_SEC)
#define META_KV_BUCKETS		1024

/* What a server can do; open sets the bits. */
#define META_KV_LEASE	1u	/* leased keys disappear with their process */
#define META_KV_WATCH	2u	/* the server may report changed keys */
#define META_KV_LIST	4u	/* keys can be listed by prefix */

/* A special version. The versions of a driver are 0 or higher. */
#define META_KV_ANY	(-2)	/* in a commit: whatever the version is */

struct meta_kv;

/* A value that was read. text: terminated, owned by the caller; NULL if there
 * is no such key, and version is META_ABSENT then. */
struct meta_kv_value {
	char *text;
	size_t len;
	int64_t version;
};

/* One key of a commit. */
struct meta_kv_change {
	const char *key;
	int64_t expected;	/* META_KV_ANY, META_ABSENT, or a version */
	enum meta_kv_what {
		META_KV_CHECK,	/* only compares the version */
		META_KV_PUT,
		META_KV_REMOVE,	/* no error if there is no such key */
	} what;
	const char *text; /* value of a PUT; need not be terminated */
	size_t len;
	bool leased;		/* the PUT belongs to the lease */
	int64_t version;	/* out: version of the key after a PUT */
};

/*
 * A driver. Functions block until deadline_ns at most and return 0 or a code
 * with err filled by meta_kv_fail; TEI_ERR_SOCKET means that no server
 * answered. list, renew and watch are called only with the bit in kv->caps.
 */
struct meta_kv_ops {
	const char *product;	/* for texts: "etcd" */
	/* Parses conn, sets kv->state, kv->where and kv->caps, and asks the
	 * server once. After a failure it has freed everything. */
	int (*open)(struct meta_kv *kv, const char *conn, uint64_t deadline_ns,
		    struct tei_err *err);
	void (*close)(struct meta_kv *kv);
	int (*get)(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
		   struct meta_kv_value *out, struct tei_err *err);
	/* Returns META_CONFLICT, and has changed nothing, if a version is not
	 * the expected one. */
	int (*commit)(struct meta_kv *kv, struct meta_kv_change *changes,
		      size_t count, uint64_t deadline_ns, struct tei_err *err);
	/* Adds to names the rest of each key that starts with prefix. */
	int (*list)(struct meta_kv *kv, const char *prefix,
		    uint64_t deadline_ns, struct meta_names *names,
		    struct tei_err *err);
	/* Renews the lease of these keys. Sets *lost to true if one of the
	 * keys may be gone. */
	int (*renew)(struct meta_kv *kv, const char *const *keys, size_t count,
		     uint64_t deadline_ns, bool *lost, struct tei_err *err);
	/*
	 * Watcher thread: subscribes, calls meta_kv_watching, then calls
	 * meta_kv_changed for each report. Returns after a failure, if the
	 * server reports no changes, and within a second after meta_kv_stopping
	 * is true. The core calls it again after a pause.
	 */
	void (*watch)(struct meta_kv *kv);
	/*
	 * Makes the calls in progress return soon, because the store is being
	 * closed. These calls are all on the core's threads. NULL: the
	 * functions check meta_kv_stopping themselves, or never take long.
	 */
	void (*interrupt)(struct meta_kv *kv);
};

/* A name that this process publishes. In kv->names. */
struct kv_name {
	struct tei_list link;
	char *name, *ram, *rpc;		/* constant; ram, rpc: keys */
	/* guarded by the writer's token: */
	char *text;			/* intended value of ram */
	size_t len;
	char *rpc_text;			/* intended value of rpc */
	bool announced;			/* was registered at least once */
	int64_t version;		/* of rpc, while registered */
	/* guarded by kv->lock: */
	bool registered;
	bool dirty;			/* the keeper must publish it */
	char *pending;			/* newer value for text, of a caller
					 * that did not get the token; NULL:
					 * none */
	size_t pending_len;
	bool withdrawn;			/* the keeper must remove it */
	uint64_t check_ns;		/* time of the next check; 0: not due */
	bool lost;			/* another process owns the name */
	bool loss_unreported; /* no call has returned that error yet */
	char lost_to[META_KV_WHO];
};

/* A segment that this process has fetched. In kv->fetched, kv->lock. */
struct kv_segment {
	struct tei_list link;
	char *name, *key;
	int64_t version;		/* when last read */
	uint64_t poll_ns;		/* time of the next read; 0: not due */
	uint32_t events;		/* reports of changes, to notice one
					 * during a read */
	uint32_t readers;		/* fetches in progress */
	uint32_t fetches;		/* fetches that have begun */
	bool known;			/* a read has found the key */
	uint64_t notify_ns;		/* time of a repeated notification */
	uint32_t tries;			/* notifications that had no result */
};

struct meta_kv {
	/* constant after open */
	struct tei_meta_store *store;
	const struct meta_kv_ops *ops;
	const struct tei_settings *settings;
	void *state;			/* private to ops */
	uint32_t caps;
	char where[META_KV_WHERE];	/* the server, for texts */
	pthread_t keeper, watcher;
	bool keeping, watching;		/* the threads exist */
	struct tei_log_repeat repeat;	/* of failures */
	/* row 2 of docs/LOCKING.md; not held while the driver is called */
	struct tei_mutex lock;
	pthread_cond_t cond;		/* of lock: work for the keeper */
	bool stop;
	bool writing;			/* the writer's token is taken */
	bool down;			/* no server answered the last call */
	bool watched;			/* the server reports changes now */
	bool again;			/* set with each broadcast of cond: the
					 * keeper must look for work before it
					 * sleeps */
	bool notifying;			/* the keeper is calling fn or wanted */
	uint64_t renew_ns;		/* time of the next renewal */
	uint64_t retry_ns;		/* earliest next write by the keeper */
	int bucket;			/* keeper only: where kv_segments_run
					 * continues */
	struct tei_list names;		/* struct kv_name */
	struct tei_list fetched[META_KV_BUCKETS];	/* struct kv_segment */
	size_t fetched_count;
	tei_meta_changed_fn fn;
	tei_meta_wanted_fn wanted;
	void *arg;
};

/* --- for drivers --------------------------------------------------------- */

/* Fills err with code and "PRODUCT WHERE: text". Returns code. */
int meta_kv_fail(struct meta_kv *kv, int code, struct tei_err *err,
		 const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Returns true if the store is being closed. */
bool meta_kv_stopping(struct meta_kv *kv);

/* Reports that key was written or removed. Watcher thread. */
void meta_kv_changed(struct meta_kv *kv, const char *key);

/*
 * Records that the server reports all changes from now on. Earlier changes may
 * have been missed, so the keeper reads all own names and remembered segments.
 * Watcher thread.
 */
void meta_kv_watching(struct meta_kv *kv);

/* --- the back end -------------------------------------------------------- */

/* Opens a store with the driver; the open function of a back end calls it. */
int meta_kv_open(struct tei_meta_store *store, const struct meta_kv_ops *ops,
		 const char *conn, struct tei_err *err);

/* meta_kv.c */
void meta_kv_close(struct tei_meta_store *store);
int meta_kv_resolve(struct tei_meta_store *store, const char *server,
		    uint64_t deadline_ns, char endpoint[TEI_META_ENDPOINT_MAX],
		    struct tei_err *err);
int meta_kv_check(struct tei_meta_store *store, uint64_t deadline_ns,
		  struct tei_err *err);
int meta_kv_persistent_read(struct tei_meta_store *store, const char *name,
			    uint64_t deadline_ns, char **json, size_t *len,
			    int64_t *version, struct tei_err *err);
int meta_kv_persistent_write(struct tei_meta_store *store, const char *name,
			     const char *json, size_t len, int64_t version,
			     uint64_t deadline_ns, struct tei_err *err);
int meta_kv_list(struct tei_meta_store *store, const char *folder,
		 uint64_t deadline_ns, struct meta_names *names,
		 struct tei_err *err);

/* meta_kv_name.c: the names that this process publishes */
int meta_kv_publish(struct tei_meta_store *store,
		    const struct tei_meta_desc *desc, const char *json,
		    size_t len, bool report_loss, uint64_t deadline_ns,
		    struct tei_err *err);
size_t meta_kv_inline_max(const struct tei_meta_store *store);
bool meta_kv_owns(struct tei_meta_store *store, const char *name);
int meta_kv_withdraw(struct tei_meta_store *store, const char *name,
		     uint64_t deadline_ns, struct tei_err *err);

/* meta_kv_segment.c: the segments that this process reads */
int meta_kv_fetch(struct tei_meta_store *store, const char *name,
		  uint64_t deadline_ns, char **json, size_t *len,
		  struct tei_err *err);
void meta_kv_watch(struct tei_meta_store *store, tei_meta_changed_fn fn,
		   tei_meta_wanted_fn wanted, void *arg);
void meta_kv_notify_again(struct tei_meta_store *store, const char *name);

/* The members of struct meta_store_ops that all these back ends share. */
#define META_KV_STORE_OPS                              \
	.caps = TEI_META_KEEPS | TEI_META_REPORTS,     \
	.close = meta_kv_close,                        \
	.publish = meta_kv_publish,                    \
	.inline_max = meta_kv_inline_max,              \
	.owns = meta_kv_owns,                          \
	.withdraw = meta_kv_withdraw,                  \
	.fetch = meta_kv_fetch,                        \
	.resolve = meta_kv_resolve,                    \
	.watch = meta_kv_watch,                        \
	.notify_again = meta_kv_notify_again,          \
	.check = meta_kv_check,                        \
	.persistent_read = meta_kv_persistent_read,    \
	.persistent_write = meta_kv_persistent_write,  \
	.list = meta_kv_list

/* --- for the sources of the core ----------------------------------------- */

/* Wakes the keeper, which then looks for work. */
void kv_wake(struct meta_kv *kv) TEI_REQUIRES(kv->lock);

/* Call the driver and remember whether a server answered. */
int kv_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
	   struct meta_kv_value *out, struct tei_err *err);
int kv_commit(struct meta_kv *kv, struct meta_kv_change *changes, size_t count,
	      uint64_t deadline_ns, struct tei_err *err);

/* Do all work that is due. Return the time of the next work. Keeper thread,
 * without a lock. */
uint64_t kv_names_run(struct meta_kv *kv);
uint64_t kv_segments_run(struct meta_kv *kv);

/* Schedules a check of the own names with that key. */
void kv_names_changed(struct meta_kv *kv, const char *key)
	TEI_REQUIRES(kv->lock);
/* Schedule a check of all names, and a read of all segments. */
void kv_names_check_all(struct meta_kv *kv) TEI_REQUIRES(kv->lock);
void kv_segments_check_all(struct meta_kv *kv) TEI_REQUIRES(kv->lock);

/* Returns the remembered segment with that key or NULL. */
struct kv_segment *kv_segment_find(struct meta_kv *kv, const char *key)
	TEI_REQUIRES(kv->lock);

void kv_names_free(struct meta_kv *kv);
void kv_segments_free(struct meta_kv *kv);

/* Returns the time limit of a call of the keeper. */
uint64_t kv_deadline(const struct meta_kv *kv);

#endif /* TEI_META_META_KV_H */
