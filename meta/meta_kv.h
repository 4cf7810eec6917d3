/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_KV_H
#define TEI_META_META_KV_H

/*
 * Metadata stores that are servers of keys and values. Each product has a
 * driver. One core implements the back end (struct meta_store_ops) on top of
 * the drivers.
 *
 * The keys are the same as those of Mooncake (docs/PROTOCOL.md):
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
 * the server reports changed keys, the watcher thread schedules reads of the
 * reported keys, which the keeper makes. Otherwise the keeper reads each
 * remembered key every MOONRAIL_STORE_POLL_MS. Before the keeper reads a key,
 * it checks that the process still uses the segment. If the process does not,
 * the keeper forgets the segment.
 *
 * Threads. A call of the store runs on the caller's thread and ends by the
 * deadline. The keeper renews the lease, publishes lost names again, reads keys
 * whose check is due and calls the function of tei_meta_store_watch. The
 * watcher only waits for the server's reports. Drivers are called without
 * locks, by several threads at once.
 *
 * The writer's token. Only the thread that has the token (kv->writing) writes
 * keys, so that callers and the keeper do not interfere. A caller that does not
 * get the token in time stores its text in the entry of the name, and the
 * keeper publishes the text.
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
/* Length of the longest descriptor that is stored as a whole, bytes. For a
 * longer descriptor, only its head is stored. */
#define META_KV_INLINE_MAX	65536
#define META_KV_WHERE		TEI_META_ENDPOINT_MAX
/* size of a text that describes an owner, bytes */
#define META_KV_WHO	 136
#define META_KV_PING_NS	 TEI_NS_PER_SEC /* time limit of a PING to the owner of
					 * a name */
#define META_KV_RETRY_NS TEI_NS_PER_SEC /* pause of the keeper and the watcher
					 * after a failure */
/* delay of the check of a key of this process after the report that the key has
 * changed */
#define META_KV_CHECK_NS (250 * TEI_NS_PER_MS)
/* Delay before a notification is repeated for the first time. The delay doubles
 * with each repetition, up to META_KV_NOTIFY_MAX_NS. */
#define META_KV_NOTIFY_NS	(250 * TEI_NS_PER_MS)
#define META_KV_NOTIFY_MAX_NS	(30 * TEI_NS_PER_SEC)
/* number of remembered segments above which the core forgets segments whose key
 * was missing */
#define META_KV_FETCHED_MAX 65536
/* greatest number of segments that the keeper handles before it returns to its
 * other duties */
#define META_KV_JOBS 64
/* longest wait for the writer's token when a name is withdrawn */
#define META_KV_CLOSE_NS	(2 * TEI_NS_PER_SEC)
#define META_KV_WAIT_MAX_NS	(3600 * TEI_NS_PER_SEC)
#define META_KV_BUCKETS		1024

/* Properties of a server. The function open of a driver sets these bits in
 * kv->caps. */
#define META_KV_LEASE	1u	/* leased keys disappear when their process has
				 * ended */
#define META_KV_WATCH	2u	/* the server may be able to report changed
				 * keys */
#define META_KV_LIST	4u	/* keys can be listed by prefix */

/* Value of meta_kv_change.expected if the version of the key does not matter.
 * The versions of all drivers are 0 or higher. */
#define META_KV_ANY (-2) /* differs from META_ABSENT and from all versions */

struct meta_kv;

/* The value of a key, as it was read. text is terminated, and the caller frees
 * it. If the key does not exist, text is NULL and version is META_ABSENT. */
struct meta_kv_value {
	char *text;
	size_t len;
	int64_t version;
};

/* The change of one key in a commit. */
struct meta_kv_change {
	const char *key;
	int64_t expected;	/* version that the key must have, META_ABSENT
				 * or META_KV_ANY */
	enum meta_kv_what {
		META_KV_CHECK, /* only compares the version of the key */
		META_KV_PUT,
		META_KV_REMOVE, /* removes the key, which need not exist */
	} what;
	const char *text; /* the new value, for META_KV_PUT; need not be
			   * terminated */
	size_t len;
	bool leased;	 /* for META_KV_PUT: the key is to belong to the
			  * lease */
	int64_t version; /* set by the commit: version of the key after
			  * META_KV_PUT */
};

/*
 * A driver. The functions block until deadline_ns at most. They return 0, or an
 * error code after meta_kv_fail has filled err. TEI_ERR_SOCKET means that no
 * server has answered. The core calls list, renew and watch only if kv->caps
 * contains META_KV_LIST, META_KV_LEASE or META_KV_WATCH.
 */
struct meta_kv_ops {
	const char *product; /* name of the product for log lines and error
			      * texts, such as "etcd" */
	/*
	 * Parses the connection string conn, sets kv->state, kv->where and
	 * kv->caps, and sends one request to the server. If it fails, it frees
	 * what it has allocated.
	 */
	int (*open)(struct meta_kv *kv, const char *conn, uint64_t deadline_ns,
		    struct tei_err *err);
	void (*close)(struct meta_kv *kv);
	int (*get)(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
		   struct meta_kv_value *out, struct tei_err *err);
	/* Makes either all changes or none. If a key does not have the expected
	 * version, makes none and returns META_CONFLICT. */
	int (*commit)(struct meta_kv *kv, struct meta_kv_change *changes,
		      size_t count, uint64_t deadline_ns, struct tei_err *err);
	/* Lists all keys that start with prefix. Adds the part of each key that
	 * follows the prefix to names. */
	int (*list)(struct meta_kv *kv, const char *prefix,
		    uint64_t deadline_ns, struct meta_names *names,
		    struct tei_err *err);
	/* Renews the lease to which the keys belong. Sets *lost to true if one
	 * of the keys may no longer exist. */
	int (*renew)(struct meta_kv *kv, const char *const *keys, size_t count,
		     uint64_t deadline_ns, bool *lost, struct tei_err *err);
	/*
	 * Subscribes to the server's reports, calls meta_kv_watching, and then
	 * calls meta_kv_changed for each key that a report names. Runs on the
	 * watcher thread. Returns after a failure, if the server cannot report
	 * changes, or within a second after meta_kv_stopping has become true.
	 * The core calls watch again after a pause.
	 */
	void (*watch)(struct meta_kv *kv);
	/*
	 * Makes all calls of the driver that are in progress return soon,
	 * because the store is being closed. At this time, only the keeper and
	 * the watcher make calls. If this member is NULL, the driver's
	 * functions check meta_kv_stopping themselves or never take long.
	 */
	void (*interrupt)(struct meta_kv *kv);
};

/* A name that this process publishes; element of kv->names. */
struct kv_name {
	struct tei_list link;
	char *name, *ram, *rpc; /* name of the segment, and its keys ram/ and
				 * rpc_meta/; do not change */
	/* guarded by the writer's token */
	char *text; /* value that the key ram is to have */
	size_t len;
	char *rpc_text;	 /* value that the key rpc is to have */
	bool announced;	 /* the name was registered at least
			  * once */
	int64_t version; /* version of the key rpc; valid while registered is
			  * true */
	/* guarded by kv->lock: */
	bool registered;
	bool dirty; /* the keeper must write the keys */
	/* newer value for the key ram, left by a caller that did not get the
	 * writer's token; NULL: there is none */
	char *pending;
	size_t pending_len;
	bool withdrawn;			/* the keeper must remove the keys */
	uint64_t check_ns;		/* time at which the keeper checks the
					 * keys; 0: no check is due */
	bool lost;			/* another process has taken the name
					 * over */
	bool loss_unreported; /* no call has returned the error about the loss
			       * yet */
	char lost_to[META_KV_WHO];
};

/* A segment that this process has fetched; element of kv->fetched. Guarded by
 * kv->lock. */
struct kv_segment {
	struct tei_list link;
	char *name, *key;
	int64_t version;  /* version of the key when it was last read, or
			   * META_ABSENT */
	uint64_t poll_ns; /* time at which the keeper reads the
			   * key; 0: no read is due */
	/* number of reports that the key has changed; if the number grows
	 * during a read, the read may have returned the old value */
	uint32_t events;
	uint32_t readers;		/* number of fetches in progress */
	uint32_t fetches;		/* number of fetches that have begun */
	bool known;			/* the key existed at a previous read */
	uint64_t notify_ns;		/* time of the next call of kv->fn for a
					 * change that could not be read; 0: no
					 * call is due */
	uint32_t tries;			/* number of calls of kv->fn for a
					 * change that was not read yet */
};

struct meta_kv {
	/* the following members do not change after open */
	struct tei_meta_store *store;
	const struct meta_kv_ops *ops;
	const struct tei_settings *settings;
	void *state;			/* state of the driver, which only ops
					 * uses */
	uint32_t caps;
	char where[META_KV_WHERE]; /* address of the server, for log lines
				    * and error texts */
	pthread_t keeper, watcher;
	bool keeping, watching;	      /* the keeper thread and the watcher
				       * thread exist */
	struct tei_log_repeat repeat; /* limits the log lines about
				       * failures */
	/* row 2 of docs/LOCKING.md: guards the members below; not held while
	 * the driver is called */
	struct tei_mutex lock;
	pthread_cond_t cond; /* signalled when the keeper has work and when the
			      * writer's token is free */
	bool stop;
	bool writing;			/* true while a thread has the writer's
					 * token */
	bool down;			/* no server has answered the last
					 * call */
	bool watched;			/* the server reports all changes at
					 * present */
	/* set together with each signal of cond; makes the keeper check for
	 * work once more before it sleeps */
	bool again;
	bool notifying;			/* the keeper is calling fn or wanted */
	uint64_t renew_ns;		/* time of the next renewal of the
					 * lease */
	uint64_t retry_ns;		/* time before which the keeper does not
					 * write or check names */
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

/* Fills err with code, hint and the text "PRODUCT WHERE: ", which fmt and its
 * arguments continue. Returns code. */
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

/* Opens a store that uses the driver ops. Called by the function open of each
 * back end. */
int meta_kv_open(struct tei_meta_store *store, const struct meta_kv_ops *ops,
		 const char *conn, struct tei_err *err);

/* functions of struct meta_store_ops in meta_kv.c */
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

/* functions of struct meta_store_ops in meta_kv_name.c, for the names that this
 * process publishes */
int meta_kv_publish(struct tei_meta_store *store,
		    const struct tei_meta_desc *desc, const char *json,
		    size_t len, bool report_loss, uint64_t deadline_ns,
		    struct tei_err *err);
size_t meta_kv_inline_max(const struct tei_meta_store *store);
bool meta_kv_owns(struct tei_meta_store *store, const char *name);
int meta_kv_withdraw(struct tei_meta_store *store, const char *name,
		     uint64_t deadline_ns, struct tei_err *err);

/* functions of struct meta_store_ops in meta_kv_segment.c, for the segments
 * that this process reads */
int meta_kv_fetch(struct tei_meta_store *store, const char *name,
		  uint64_t deadline_ns, char **json, size_t *len,
		  struct tei_err *err);
void meta_kv_watch(struct tei_meta_store *store, tei_meta_changed_fn fn,
		   tei_meta_wanted_fn wanted, void *arg);
void meta_kv_notify_again(struct tei_meta_store *store, const char *name);

/* The members of struct meta_store_ops that are equal in all back ends with a
 * driver. */
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

/* Wakes the keeper and makes it check for work. */
void kv_wake(struct meta_kv *kv) TEI_REQUIRES(kv->lock);

/* kv_get and kv_commit call the driver, and record in kv->down whether a server
 * has answered. */
int kv_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
	   struct meta_kv_value *out, struct tei_err *err);
int kv_commit(struct meta_kv *kv, struct meta_kv_change *changes, size_t count,
	      uint64_t deadline_ns, struct tei_err *err);

/*
 * kv_names_run publishes the names of this process that must be published
 * again, and checks those whose check is due. kv_segments_run reads the
 * remembered segments whose read is due, and repeats notifications that are
 * due. Both return the time at which their next work is due. The keeper calls
 * them without a lock.
 */
uint64_t kv_names_run(struct meta_kv *kv);
uint64_t kv_segments_run(struct meta_kv *kv);

/* Schedules a check of each own name to which the key belongs. */
void kv_names_changed(struct meta_kv *kv, const char *key)
	TEI_REQUIRES(kv->lock);
/* kv_names_check_all schedules a check of all own names. kv_segments_check_all
 * schedules a read of all remembered segments. */
void kv_names_check_all(struct meta_kv *kv) TEI_REQUIRES(kv->lock);
void kv_segments_check_all(struct meta_kv *kv) TEI_REQUIRES(kv->lock);

/* Returns the remembered segment with the given key, or NULL if there is
 * none. */
struct kv_segment *kv_segment_find(struct meta_kv *kv, const char *key)
	TEI_REQUIRES(kv->lock);

void kv_names_free(struct meta_kv *kv);
void kv_segments_free(struct meta_kv *kv);

/* Returns the deadline of a driver call that the keeper makes now. */
uint64_t kv_deadline(const struct meta_kv *kv);

#endif /* TEI_META_META_KV_H */
