/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_record.h"
#include "meta/meta_zookeeper_acl.h"
#include "meta/meta_zookeeper_call.h"
#include "meta/meta_zookeeper_int.h"
#include "meta/meta_zookeeper_record.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_store.h"
#include "util/err.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"
#include "util/text.h"

/*
 * Segments that this process reads. Reading a segment sets a watch on its node,
 * which fires once. The table zk->watches has an entry for each segment that
 * was found. The entry records whether a watch is set ("armed"), in which epoch
 * it was set, and the number of the node's last change. The entry stays in the
 * table after its watch has fired. If the next read finds no node, it sets a
 * watch that fires when the node exists again. A segment whose node has never
 * existed has no entry and is not watched.
 *
 * When the user of the store reads the changed node, the watch is set again. If
 * the node contains a descriptor head, the read may still fail, because the
 * control channel does not answer. No event would then report this. Therefore
 * the keeper notifies the user again of a change that could not be read.
 *
 * After a reconnection, the library sets all its watches again in one request.
 * If this request is longer than the server's jute.maxbuffer (1 MB), the server
 * closes the connection, and the library would try this forever. Therefore, if
 * there are many watches when the connection is lost, zk_watches_lost makes the
 * library forget them. The keeper sets them again one by one, as it does after
 * the loss of a session. In both cases a new epoch starts.
 */

/* --- the table ----------------------------------------------------------- */

static struct tei_list *zk_bucket(struct zk *zk, const char *path)
{
	return &zk->watches[tei_text_hash(path) % ZK_WATCH_BUCKETS];
}

static struct zk_watch *zk_watch_find(struct zk *zk, const char *path)
	TEI_REQUIRES(zk->lock)
{
	struct zk_watch *w;

	tei_list_foreach(w, zk_bucket(zk, path), struct zk_watch, link)
		if (!strcmp(w->path, path))
			return w;
	return NULL;
}

static void zk_watch_free(struct zk_watch *w)
{
	tei_list_del(&w->link);
	free(w->path);
	free(w->name);
	free(w);
}

static void zk_watch_set(struct zk *zk, struct zk_watch *w, bool armed)
	TEI_REQUIRES(zk->lock)
{
	if (w->armed && !armed) {
		zk->watch_idle++;
		zk->watch_bytes -= strlen(w->path);
	} else if (!w->armed && armed) {
		zk->watch_idle--;
		zk->watch_bytes += strlen(w->path);
	}
	w->armed = armed;
}

/* Removes the entries that are not in use and whose watch has fired. Such an
 * entry belongs to a segment that was closed or was not read since. */
static void zk_watch_prune(struct zk *zk) TEI_REQUIRES(zk->lock)
{
	struct zk_watch *w, *tmp;
	int i;

	for (i = 0; i < ZK_WATCH_BUCKETS; i++)
		tei_list_foreach_safe(w, tmp, &zk->watches[i],
				      struct zk_watch, link)
			if (!w->armed && !w->readers && !w->notify_ns) {
				zk_watch_free(w);
				zk->watch_idle--;
			}
}

static struct zk_watch *zk_watch_add(struct zk *zk, const char *path,
				     const char *name) TEI_REQUIRES(zk->lock)
{
	struct zk_watch *w;

	if (zk->watch_idle > ZK_WATCH_IDLE)
		zk_watch_prune(zk);
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	tei_list_init(&w->link);
	w->path = strdup(path);
	w->name = strdup(name);
	if (!w->path || !w->name) {
		zk_watch_free(w);
		return NULL;
	}
	zk->watch_idle++;
	tei_list_add_tail(zk_bucket(zk, path), &w->link);
	return w;
}

void zk_watches_init(struct zk *zk)
{
	int i;

	for (i = 0; i < ZK_WATCH_BUCKETS; i++)
		tei_list_init(&zk->watches[i]);
}

void zk_watches_free(struct zk *zk) TEI_NO_TSA
{
	struct zk_watch *w, *tmp;
	int i;

	for (i = 0; i < ZK_WATCH_BUCKETS; i++)
		tei_list_foreach_safe(w, tmp, &zk->watches[i],
				      struct zk_watch, link)
			zk_watch_free(w);
}

/* --- events -------------------------------------------------------------- */

void zk_watch(struct tei_meta_store *store, tei_meta_changed_fn fn,
	      tei_meta_wanted_fn wanted, void *arg)
{
	struct zk *zk = store->backend_state;

	(void)wanted; /* not needed: a segment that is no longer used is not
		       * fetched, so its watch is not set again after it has
		       * fired */
	tei_mutex_lock(&zk->lock);
	zk->fn = fn;
	zk->fn_arg = arg;
	while (zk->fn_calls)
		tei_mutex_wait(&zk->cond, &zk->lock, TEI_NS_PER_SEC);
	tei_mutex_unlock(&zk->lock);
}

/* Calls the function of tei_meta_store_watch. Releases the lock during the
 * call. */
static void zk_notify(struct zk *zk, const char *name, uint32_t tries)
	TEI_REQUIRES(zk->lock)
{
	tei_meta_changed_fn fn = zk->fn;
	void *arg = zk->fn_arg;

	if (!fn)
		return;
	zk->fn_calls++;
	tei_mutex_unlock(&zk->lock);
	fn(arg, name, tries);
	tei_mutex_lock(&zk->lock);
	zk->fn_calls--;
	pthread_cond_broadcast(&zk->cond);
}

void zk_segment_event(struct zk *zk, const char *path)
{
	struct zk_watch *w;
	char *name = NULL;

	tei_mutex_lock(&zk->lock);
	w = zk_watch_find(zk, path);
	if (w) {
		zk_watch_set(zk, w, false);
		w->tries = 0;
		w->notify_ns = 0;
		name = strdup(w->name);
	}
	if (name)
		zk_notify(zk, name, 0);
	tei_mutex_unlock(&zk->lock);
	free(name);
}

/* --- changes that could not be read -------------------------------------- */

static void zk_notify_at(struct zk *zk, struct zk_watch *w, uint64_t at_ns)
	TEI_REQUIRES(zk->lock)
{
	w->notify_ns = at_ns;
	if (!zk->notify_ns || at_ns < zk->notify_ns)
		zk->notify_ns = at_ns;
}

static uint64_t zk_notify_pause(uint32_t tries)
{
	uint64_t ns = ZK_NOTIFY_NS << (tries < 16 ? tries : 16);

	return tei_jitter(ns < ZK_NOTIFY_MAX_NS ? ns : ZK_NOTIFY_MAX_NS);
}

void zk_notify_again(struct tei_meta_store *store, const char *name)
{
	struct zk *zk = store->backend_state;
	char *path = zk_path_ram(zk, name);
	struct zk_watch *w;

	if (!path)
		return;
	tei_mutex_lock(&zk->lock);
	w = zk_watch_find(zk, path);
	if (!w) /* the entry was removed from the table meanwhile */
		w = zk_watch_add(zk, path, name);
	/* if the node does not exist and a watch is set, no notification is
	 * needed: the watch fires when the node exists again */
	if (w && (!w->armed || w->mzxid)) {
		zk_notify_at(zk, w, tei_now_ns() + zk_notify_pause(w->tries++));
		pthread_cond_broadcast(&zk->cond);
	}
	tei_mutex_unlock(&zk->lock);
	free(path);
}

void zk_notify_again_now(struct zk *zk)
{
	struct zk_watch *w;
	int i;

	if (!zk->notify_ns)
		return;
	for (i = 0; i < ZK_WATCH_BUCKETS; i++)
		tei_list_foreach(w, &zk->watches[i], struct zk_watch, link)
			if (w->notify_ns)
				zk_notify_at(zk, w, 1);
}

/*
 * Returns an entry of the bucket for which a notification is due, and clears
 * its notify_ns. Returns NULL if there is none. Updates zk->notify_ns for the
 * entries that it passes.
 */
static struct zk_watch *zk_notify_next(struct zk *zk, int bucket, uint64_t now)
	TEI_REQUIRES(zk->lock)
{
	struct zk_watch *w;

	tei_list_foreach(w, &zk->watches[bucket], struct zk_watch, link) {
		if (w->notify_ns && w->notify_ns <= now) {
			w->notify_ns = 0;
			return w;
		}
		if (w->notify_ns)
			zk_notify_at(zk, w, w->notify_ns);
	}
	return NULL;
}

void zk_notify_due(struct zk *zk)
{
	uint64_t now = tei_now_ns();
	struct zk_watch *w;
	char *name;
	int i;

	tei_mutex_lock(&zk->lock);
	if (zk->notify_ns && zk->notify_ns <= now && zk->connected) {
		zk->notify_ns = 0;
		for (i = 0; i < ZK_WATCH_BUCKETS; i++)
			while ((w = zk_notify_next(zk, i, now))) {
				name = strdup(w->name);
				if (name)
					zk_notify(zk, name, w->tries);
				else
					zk_notify_at(zk, w, now + ZK_RETRY_NS);
				free(name);
			}
	}
	tei_mutex_unlock(&zk->lock);
}

/* --- after the loss of a session or connection --------------------------- */

void zk_watches_lost(struct zk *zk)
{
	struct zk_watch *w;
	int i;

	if (zk->watch_bytes <= ZK_WATCH_BYTES)
		return;
	for (i = 0; i < ZK_WATCH_BUCKETS; i++)
		tei_list_foreach(w, &zk->watches[i], struct zk_watch, link)
			if (w->armed)
				zk_unwatch(zk, w->path);
	zk->epoch++;
	zk->rearm = true;
}

/* A copy of the data of an entry whose watch is to be set again. A copy is
 * needed because the lock is not held during the calls that set watches. */
struct zk_rearm {
	char *path;
	int64_t mzxid;
};

static bool zk_watch_gone(const struct zk *zk, const struct zk_watch *w)
	TEI_REQUIRES(zk->lock)
{
	return w->armed && w->epoch != zk->epoch;
}

static size_t zk_rearm_list(struct zk *zk, int bucket, struct zk_rearm **out)
	TEI_REQUIRES(zk->lock)
{
	struct zk_rearm *list;
	struct zk_watch *w;
	size_t n = 0;

	tei_list_foreach(w, &zk->watches[bucket], struct zk_watch, link)
		n += zk_watch_gone(zk, w);
	list = n ? calloc(n, sizeof(*list)) : NULL;
	n = 0;
	if (list)
		tei_list_foreach(w, &zk->watches[bucket], struct zk_watch,
				 link)
			if (zk_watch_gone(zk, w) &&
			    (list[n].path = strdup(w->path)))
				list[n++].mzxid = w->mzxid;
	*out = list;
	return n;
}

/* Sets one watch again. If the node has changed since it was last read, handles
 * this like an event. Returns false if the connection is lost again. */
static bool zk_rearm_one(struct zk *zk, const struct zk_rearm *r)
{
	uint64_t deadline =
		tei_now_ns() +
		zk->settings->control.connect_timeout_s * TEI_NS_PER_SEC;
	struct Stat stat = { 0 };
	int rc;

	rc = zk_exists(zk, r->path, ZK_WATCH_SEGMENT, deadline, &stat);
	if (rc != ZOK && rc != ZNONODE)
		return !zk_transient(rc);
	if ((rc == ZOK ? stat.mzxid : 0) != r->mzxid)
		zk_segment_event(zk, r->path);
	return true;
}

static bool zk_rearm_bucket(struct zk *zk, int bucket)
{
	struct zk_rearm *list = NULL;
	bool fine = true;
	size_t n, i;

	tei_mutex_lock(&zk->lock);
	n = zk_rearm_list(zk, bucket, &list);
	tei_mutex_unlock(&zk->lock);
	for (i = 0; i < n; i++) {
		fine = fine && zk_rearm_one(zk, &list[i]);
		free(list[i].path);
	}
	free(list);
	return fine;
}

/* Returns true if the keeper must do other work before it sets watches: if the
 * session has ended or a name must be published. */
static bool zk_rearm_waits(struct zk *zk)
{
	bool waits;

	tei_mutex_lock(&zk->lock);
	waits = zk->expired || zk_entries_dirty(zk);
	tei_mutex_unlock(&zk->lock);
	return waits;
}

void zk_watches_rearm(struct zk *zk)
{
	bool fine = true, waits = false;
	int b;

	for (b = 0; b < ZK_WATCH_BUCKETS && fine && !waits; b++) {
		fine = zk_rearm_bucket(zk, b);
		waits = zk_rearm_waits(zk);
	}
	if (fine && !waits)
		return;
	tei_mutex_lock(&zk->lock);
	zk->rearm = true;
	tei_mutex_unlock(&zk->lock);
	if (!fine)
		zk_retry_later(zk);
}

/* --- reading ------------------------------------------------------------- */

/*
 * Called before the node of a segment is read. Makes sure that the table
 * contains its entry, and marks the entry as in use. Returns true if the entry
 * existed before. Sets *was to true if the node existed when it was last read.
 */
static bool zk_watch_begin(struct zk *zk, const char *path, const char *name,
			   bool *was)
{
	struct zk_watch *w;
	bool known;

	tei_mutex_lock(&zk->lock);
	w = zk_watch_find(zk, path);
	known = w != NULL;
	*was = w && w->mzxid;
	if (!w)
		w = zk_watch_add(zk, path, name);
	if (w)
		w->readers++;
	tei_mutex_unlock(&zk->lock);
	return known;
}

static void zk_watch_end(struct zk *zk, const char *path, bool keep)
{
	struct zk_watch *w;

	tei_mutex_lock(&zk->lock);
	w = zk_watch_find(zk, path);
	if (w && w->readers && !--w->readers && !w->armed && !keep) {
		zk->watch_idle--;
		zk_watch_free(w);
	}
	tei_mutex_unlock(&zk->lock);
}

void zk_segment_watched(struct zk *zk, const char *path, int64_t mzxid)
{
	struct zk_watch *w = zk_watch_find(zk, path);

	if (!w)
		return;
	zk_watch_set(zk, w, true);
	w->epoch = zk->epoch;
	w->mzxid = mzxid;
}

/*
 * Reads the node and sets a watch on it. If the node does not exist and the
 * segment had an entry in the table, sets a watch that fires when the node
 * exists again. Sets *was to true if the node existed when it was last read.
 */
static int zk_read_watched(struct zk *zk, const char *path, const char *name,
			   uint64_t deadline_ns, struct zk_reply *out,
			   bool *was, struct tei_err *err)
{
	bool known = zk_watch_begin(zk, path, name, was);
	int rc, back;

	do {
		rc = zk_get_ours(zk, path, name, ZK_WATCH_SEGMENT, deadline_ns,
				 out, err);
		back = rc;
		if ((rc == ZNONODE || rc == ZK_REPORTED) && known)
			back = zk_exists(zk, path, ZK_WATCH_SEGMENT,
					 deadline_ns, NULL);
	} while (rc == ZNONODE && back == ZOK && tei_now_ns() < deadline_ns);
	zk_watch_end(zk, path, known || rc == ZOK);
	return rc;
}

static int zk_fetch_fail(struct zk *zk, int rc, const char *name,
			 struct tei_err *err)
{
	if (rc == ZNONODE)
		return tei_err_fail(
			err, TEI_ERR_METADATA, "meta",
			tei_meta_persistent_name(name)
				? "te_meta register creates the segment"
				: "is that process running, in the same chroot "
				  "and cluster?",
			"segment '%.48s' is not in ZooKeeper %s%.32s", name,
			zk->where, zk->chroot);
	return zk_fail(zk, rc, "segment", name, err);
}

/*
 * Returns the error that the node does not exist any longer. Logs it at level
 * info only, because the caller usually reads the node because it was notified
 * of this.
 */
static int zk_fetch_gone(const struct zk *zk, const char *name,
			 struct tei_err *err)
{
	return tei_err_note(err, TEI_ERR_METADATA, "meta", NULL,
			    "segment '%.48s' is no longer in ZooKeeper %s%.32s",
			    name, zk->where, zk->chroot);
}

/*
 * Passes the text of a node that contains a whole descriptor to the caller.
 * Returns an error if there is a shared secret, because such a node is not
 * trusted then.
 */
static int zk_fetch_inline(const struct tei_meta_store *store,
			   const char *name, struct zk_reply *r, char **json,
			   size_t *len, struct tei_err *err)
{
	if (store->secret && !tei_meta_persistent_name(name)) {
		free(r->data);
		return tei_err_fail(err, TEI_ERR_REJECTED, "meta",
				    "give all processes the same MOONRAIL_SECRET_FILE",
				    "segment '%.64s' was published without the shared secret",
				    name);
	}
	*json = r->data; /* the caller owns the text from now
			  * on */
	*len = r->len;
	return 0;
}

int zk_fetch(struct tei_meta_store *store, const char *name,
	     uint64_t deadline_ns, char **json, size_t *len,
	     struct tei_err *err)
{
	struct zk *zk = store->backend_state;
	char at[TEI_META_ENDPOINT_MAX];
	char *path = zk_path_ram(zk, name);
	struct zk_reply r;
	bool again, was;
	uint64_t inc;
	int rc;

	if (!path)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "segment '%.64s': the name is not valid "
				    "for a key of the metadata store",
				    name);
	do {
		again = false;
		rc = zk_read_watched(zk, path, name, deadline_ns, &r, &was,
				     err);
		if (rc == ZNONODE && was) {
			rc = zk_fetch_gone(zk, name, err);
		} else if (rc != ZOK) {
			rc = zk_fetch_fail(zk, rc, name, err);
		} else if (!meta_head_decode(r.data, r.len, &inc, at) || !*at) {
			rc = zk_fetch_inline(store, name, &r, json, len, err);
		} else {
			free(r.data);
			rc = meta_head_fetch(store, at, name, inc, deadline_ns,
					     json, len, &again, err);
		}
	} while (again);
	free(path);
	return rc;
}

int zk_resolve(struct tei_meta_store *store, const char *server,
	       uint64_t deadline_ns, char endpoint[TEI_META_ENDPOINT_MAX],
	       struct tei_err *err)
{
	struct zk *zk = store->backend_state;
	char *path = server && *server ? zk_path_rpc(zk, server) : NULL;
	struct zk_reply r;
	uint64_t inc;
	bool fine;
	int rc;

	if (!path)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "server '%.64s': the name is not valid for "
				    "a key of the metadata store",
				    server ? server : "");
	rc = zk_get_ours(zk, path, server, ZK_WATCH_NONE, deadline_ns, &r,
			 err);
	free(path);
	if (rc != ZOK)
		return zk_fetch_fail(zk, rc, server, err);
	fine = meta_rpc_decode(r.data, r.len, endpoint, &inc);
	free(r.data);
	if (fine)
		return 0;
	return tei_err_fail(err, TEI_ERR_JSON, "meta", NULL,
			    "server '%.64s': its address in ZooKeeper cannot be read",
			    server);
}
