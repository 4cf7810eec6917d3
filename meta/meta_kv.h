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
 *	mooncake/[cluster/]rpc_meta/<segment>	address of the control channel,
 *						and incarnation
 *	mooncake/[cluster/]nvmeof/<name>	persistent segment record
 *
 * Ownership of a name. The process whose record is under rpc_meta owns the
 * name. A process writes both keys in one commit that depends on the version of
 * rpc_meta, so if two processes want the same name, one of them fails. A
 * process that has lost a name cannot overwrite the keys of the new owner. A
 * name whose owner does not answer on its control channel is taken over.
 *
 * Liveness. Both keys belong to a lease that the keeper renews. The keys
 * disappear when the process has ended and the lease has expired. If the server
 * has no leases, the keys stay until another process takes the name over.
 *
 * Changes. The core remembers the segments that this process has fetched. While
 * the server reports changed keys, the watcher thread marks their segments, and
 * the keeper reads these; otherwise the keeper reads each remembered key every
 * MOONRAIL_STORE_POLL_MS. Before the keeper reads a key, it checks that the
 * process still uses the segment. If the process does not, the keeper forgets
 * the segment.
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
/* Length of the longest descriptor that is stored as a whole, bytes. If a
 * descriptor is longer, only its head is stored. */
#define META_KV_INLINE_MAX	65536
#define META_KV_WHERE		TEI_META_ENDPOINT_MAX
/* size of a text that describes an owner, bytes */
#define META_KV_WHO	 136
#define META_KV_PING_NS	 TEI_NS_PER_SEC /* time limit of a query to an owner */
#define META_KV_RETRY_NS TEI_NS_PER_SEC /* pause after a failure */
/* Time between the report that an own key has changed and the check of that
 * key. */
#define META_KV_CHECK_NS (250 * TEI_NS_PER_MS)
/* Delay before a notification is repeated for the first time. The delay doubles
 * with each repetition. */
#define META_KV_NOTIFY_NS	(250 * TEI_NS_PER_MS)
#define META_KV_NOTIFY_MAX_NS	(30 * TEI_NS_PER_SEC)
/* If more segments than this are remembered, the keeper forgets segments whose
 * key was missing. */
#define META_KV_FETCHED_MAX 65536
/* Number of segments that the keeper handles before it returns to its other
 * duties. */
#define META_KV_JOBS 64
/* Limit of the wait for the writer's token when a name is withdrawn. */
#define META_KV_CLOSE_NS	(2 * TEI_NS_PER_SEC)
#define META_KV_WAIT_MAX_NS	(3600 * TEI_NS_PER_SEC)
#define META_KV_BUCKETS		1024

/* Properties of a server. The driver's open sets these bits in kv->caps. */
#define META_KV_LEASE	1u	/* leased keys disappear with their process */
#define META_KV_WATCH	2u	/* the server may report changed keys */
#define META_KV_LIST	4u	/* keys can be listed by prefix */

/* Special value of meta_kv_change.expected; the versions of a driver are 0 or
 * higher. */
#define META_KV_ANY (-2) /* the version of the key does not matter */

struct meta_kv;

/* A value that was read. text is terminated, and the caller frees it. If there
 * is no such key, text is NULL and version is META_ABSENT. */
struct meta_kv_value {
	char *text;
	size_t len;
	int64_t version;
};

/* The change of one key in a commit. */
struct meta_kv_change {
	const char *key;
	int64_t expected;	/* META_KV_ANY, META_ABSENT, or a version */
	enum meta_kv_what {
		META_KV_CHECK, /* compares the version and changes nothing */
		META_KV_PUT,
		META_KV_REMOVE, /* a missing key is not an error */
	} what;
	const char *text; /* value for META_KV_PUT; need not be terminated */
	size_t len;
	bool leased;	 /* META_KV_PUT: the key belongs to the lease */
	int64_t version; /* set by the commit: version of the key after
			  * META_KV_PUT */
};

/*
 * A driver. Functions block until deadline_ns at most and return 0 or a code
 * with err filled by meta_kv_fail; TEI_ERR_SOCKET means that no server
 * answered. list, renew and watch are called only with the bit in kv->caps.
 */
struct meta_kv_ops {
	const char *product; /* product name for log lines and error texts:
			      * "etcd" */
	/* Parses conn, sets kv->state, kv->where and kv->caps, and sends one
	 * request to the server. Frees everything before it returns an
	 * error. */
	int (*open)(struct meta_kv *kv, const char *conn, uint64_t deadline_ns,
		    struct tei_err *err);
	void (*close)(struct meta_kv *kv);
	int (*get)(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
		   struct meta_kv_value *out, struct tei_err *err);
	/* Makes the changes, all or none. Returns META_CONFLICT, without any
	 * change, if a key does not have the expected version. */
	int (*commit)(struct meta_kv *kv, struct meta_kv_change *changes,
		      size_t count, uint64_t deadline_ns, struct tei_err *err);
	/* Lists all keys that start with prefix. Adds to names the part of each
	 * key after the prefix. */
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
	 * closed. These calls all run on the core's threads. NULL: the driver's
	 * functions check meta_kv_stopping themselves, or never take long.
	 */
	void (*interrupt)(struct meta_kv *kv);
};

/* A name that this process publishes; element of kv->names. */
struct kv_name {
	struct tei_list link;
	char *name, *ram, *rpc; /* do not change; ram and rpc are the
				 * keys of the name */
	/* guarded by the writer's token */
	char *text; /* text that ram is to have */
	size_t len;
	char *rpc_text;	 /* text that rpc is to have */
	bool announced;	 /* the name was registered at least
			  * once */
	int64_t version; /* version of rpc; valid while
			  * registered */
	/* guarded by kv->lock: */
	bool registered;
	bool dirty; /* the keeper must publish the text */
	/*
	 * newer text of a caller that did not get the writer's token; NULL:
	 * none
	 */
	char *pending;
	size_t pending_len;
	bool withdrawn;			/* the keeper must remove the keys */
	uint64_t check_ns;		/* time at which the keeper checks the
					 * keys; 0: no check is due */
	bool lost;			/* another process owns the name */
	bool loss_unreported; /* the loss was not returned by a call yet */
	char lost_to[META_KV_WHO];
};

/* A segment that this process has fetched; element of kv->fetched. Guarded by
 * kv->lock. */
struct kv_segment {
	struct tei_list link;
	char *name, *key;
	int64_t version;  /* version of the key when it was last
			   * read */
	uint64_t poll_ns; /* time at which the keeper reads the
			   * key; 0: no read is due */
	/*
	 * number of reports of changes; shows whether one arrived during a read
	 */
	uint32_t events;
	uint32_t readers;		/* fetches in progress */
	uint32_t fetches;		/* number of fetches that have begun */
	bool known;			/* the key existed at a previous read */
	uint64_t notify_ns;		/* time at which the change is notified
					 * again */
	uint32_t tries;			/* number of notifications after which
					 * the change was not read */
};

struct meta_kv {
	/* the following members do not change after open */
	struct tei_meta_store *store;
	const struct meta_kv_ops *ops;
	const struct tei_settings *settings;
	void *state;			/* private to ops */
	uint32_t caps;
	char where[META_KV_WHERE]; /* address of the server, for log lines
				    * and error texts */
	pthread_t keeper, watcher;
	bool keeping, watching;	      /* the keeper thread and the watcher
				       * thread exist */
	struct tei_log_repeat repeat; /* limits the log lines about
				       * failures */
	/* row 2 of docs/LOCKING.md; not held while the driver is called */
	struct tei_mutex lock;
	pthread_cond_t cond; /* used with lock; signalled when the
			      * keeper has work */
	bool stop;
	bool writing;			/* a thread has the writer's token */
	bool down;			/* the last call found no server that
					 * answers */
	bool watched;			/* the server reports changes now */
	/*
	 * set when cond is signalled; the keeper looks for work once more
	 * before it sleeps
	 */
	bool again;
	bool notifying;			/* the keeper is in a call of fn or
					 * wanted */
	uint64_t renew_ns;		/* time of the next renewal */
	uint64_t retry_ns;		/* earliest next write by the keeper */
	int bucket;			/* used by the keeper only: bucket at
					 * which kv_segments_run continues */
	struct tei_list names;		/* list of kv_name.link */
	struct tei_list fetched[META_KV_BUCKETS];	/* lists of
							 * kv_segment.link */
	size_t fetched_count;
	tei_meta_changed_fn fn;
	tei_meta_wanted_fn wanted;
	void *arg;
};

/* --- for drivers --------------------------------------------------------- */

/* Sets err to code and the text "PRODUCT WHERE: text". Returns code. */
int meta_kv_fail(struct meta_kv *kv, int code, struct tei_err *err,
		 const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Returns true if the store is being closed. */
bool meta_kv_stopping(struct meta_kv *kv);

/* Reports that key was written or removed. Called by the watcher thread. */
void meta_kv_changed(struct meta_kv *kv, const char *key);

/*
 * Records that the server reports all changes from now on. Earlier changes may
 * have been missed, so the keeper reads all own names and remembered segments.
 * Called by the watcher thread.
 */
void meta_kv_watching(struct meta_kv *kv);

/* --- the back end -------------------------------------------------------- */

/* Opens a store with the driver. The open function of a back end calls this
 * function. */
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

/* Wakes the keeper, so that it looks for work. */
void kv_wake(struct meta_kv *kv) TEI_REQUIRES(kv->lock);

/* kv_get and kv_commit call the driver, and record whether a server
 * answered. */
int kv_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
	   struct meta_kv_value *out, struct tei_err *err);
int kv_commit(struct meta_kv *kv, struct meta_kv_change *changes, size_t count,
	      uint64_t deadline_ns, struct tei_err *err);

/* kv_names_run and kv_segments_run do all work that is due. They return the
 * time at which the next work is due. Called by the keeper thread, without a
 * lock. */
uint64_t kv_names_run(struct meta_kv *kv);
uint64_t kv_segments_run(struct meta_kv *kv);

/* Schedules a check of the own names with that key. */
void kv_names_changed(struct meta_kv *kv, const char *key)
	TEI_REQUIRES(kv->lock);
/* kv_names_check_all schedules a check of all own names. kv_segments_check_all
 * schedules a read of all remembered segments. */
void kv_names_check_all(struct meta_kv *kv) TEI_REQUIRES(kv->lock);
void kv_segments_check_all(struct meta_kv *kv) TEI_REQUIRES(kv->lock);

/* Returns the remembered segment with that key or NULL. */
struct kv_segment *kv_segment_find(struct meta_kv *kv, const char *key)
	TEI_REQUIRES(kv->lock);

void kv_names_free(struct meta_kv *kv);
void kv_segments_free(struct meta_kv *kv);

/* Returns the deadline of a driver call that the keeper makes now. */
uint64_t kv_deadline(const struct meta_kv *kv);

#endif /* TEI_META_META_KV_H */
