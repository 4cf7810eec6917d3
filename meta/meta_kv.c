/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_kv.h"
#include "meta/meta_record.h"
#include "meta/tei_meta_name.h"
#include "util/err.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/thread.h"

/*
 * The parts of the key-value back ends that do not belong to published names or
 * remembered segments: opening and closing, the keeper and watcher threads, and
 * the calls for control channels and persistent segment records. meta_kv.h
 * describes the design.
 */

/* --- for drivers --------------------------------------------------------- */

int meta_kv_fail(struct meta_kv *kv, int code, struct tei_err *err,
		 const char *hint, const char *fmt, ...)
{
	char text[TEI_ERR_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return tei_err_fail_repeated(&kv->repeat, err, code, "meta", hint,
				     "%s %s: %s", kv->ops->product, kv->where,
				     text);
}

bool meta_kv_stopping(struct meta_kv *kv)
{
	bool stop;

	tei_mutex_lock(&kv->lock);
	stop = kv->stop;
	tei_mutex_unlock(&kv->lock);
	return stop;
}

void kv_wake(struct meta_kv *kv)
{
	kv->again = true;
	pthread_cond_broadcast(&kv->cond);
}

void meta_kv_changed(struct meta_kv *kv, const char *key)
{
	struct kv_segment *s;

	tei_mutex_lock(&kv->lock);
	kv_names_changed(kv, key);
	s = kv_segment_find(kv, key);
	if (s) {
		s->events++;
		s->poll_ns = tei_now_ns();
	}
	kv_wake(kv);
	tei_mutex_unlock(&kv->lock);
}

/*
 * Records whether the server reports all changes from now on. When the reports
 * begin or end, schedules a check of all names and a read of all remembered
 * segments, because changes may have been missed.
 */
static void kv_set_watched(struct meta_kv *kv, bool watched)
	TEI_REQUIRES(kv->lock)
{
	if (!watched && !kv->watched)
		return;
	kv->watched = watched;
	kv_names_check_all(kv);
	kv_segments_check_all(kv);
	kv_wake(kv);
}

void meta_kv_watching(struct meta_kv *kv)
{
	tei_mutex_lock(&kv->lock);
	kv_set_watched(kv, true);
	tei_mutex_unlock(&kv->lock);
}

/* --- calls of the driver ------------------------------------------------- */

/* Returns an error if the store is being closed, and 0 otherwise. Called before
 * each call of the driver, so that no further call begins then. */
static int kv_closing(struct meta_kv *kv, struct tei_err *err)
{
	if (!meta_kv_stopping(kv))
		return 0;
	return tei_err_note(err, TEI_ERR_SOCKET, "meta", NULL,
			    "%s %s: the store is being closed",
			    kv->ops->product, kv->where);
}

static void kv_called(struct meta_kv *kv, int rc)
{
	tei_mutex_lock(&kv->lock);
	kv->down = rc == TEI_ERR_SOCKET;
	tei_mutex_unlock(&kv->lock);
}

int kv_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
	   struct meta_kv_value *out, struct tei_err *err)
{
	int rc;

	memset(out, 0, sizeof(*out));
	out->version = META_ABSENT;
	rc = kv_closing(kv, err);
	if (rc)
		return rc;
	rc = kv->ops->get(kv, key, deadline_ns, out, err);
	kv_called(kv, rc);
	return rc;
}

int kv_commit(struct meta_kv *kv, struct meta_kv_change *changes, size_t count,
	      uint64_t deadline_ns, struct tei_err *err)
{
	int rc = kv_closing(kv, err);

	if (rc)
		return rc;
	rc = kv->ops->commit(kv, changes, count, deadline_ns, err);
	kv_called(kv, rc);
	return rc;
}

/* --- threads ------------------------------------------------------------- */

uint64_t kv_deadline(const struct meta_kv *kv)
{
	return tei_now_ns() +
	       kv->settings->control.connect_timeout_s * TEI_NS_PER_SEC;
}

/* Adds copies of the keys of all registered names to keys. Returns false if
 * memory is short. */
static bool kv_leased_keys(struct meta_kv *kv, struct meta_names *keys)
{
	struct kv_name *n;
	bool fine = true;

	tei_mutex_lock(&kv->lock);
	tei_list_foreach(n, &kv->names, struct kv_name, link)
		if (n->registered)
			fine = fine && meta_names_add(keys, n->rpc) &&
			       meta_names_add(keys, n->ram);
	tei_mutex_unlock(&kv->lock);
	return fine;
}

/*
 * Renews the lease once. Sets the time of the next renewal: a third of the
 * lease time from now, or half a second from now after a failure. If keys of
 * the lease may no longer exist, schedules a check of all names.
 */
static void kv_renew(struct meta_kv *kv)
{
	struct meta_names keys = { 0 };
	struct tei_err err;
	bool lost = false;
	int rc = TEI_ERR_MEMORY;

	if (kv_leased_keys(kv, &keys))
		rc = kv->ops->renew(kv, (const char *const *)keys.name,
				    keys.count, kv_deadline(kv), &lost, &err);
	meta_names_free(&keys);
	tei_mutex_lock(&kv->lock);
	kv->down = rc == TEI_ERR_SOCKET;
	if (lost)
		kv_names_check_all(kv);
	kv->renew_ns = tei_now_ns() +
		       (rc ? META_KV_RETRY_NS / 2 :
			     kv->settings->store.lease_ms * TEI_NS_PER_MS / 3);
	tei_mutex_unlock(&kv->lock);
}

static uint64_t kv_pause(uint64_t until_ns)
{
	uint64_t left = tei_ns_left(until_ns);

	return left < META_KV_WAIT_MAX_NS ? left : META_KV_WAIT_MAX_NS;
}

static void *kv_keeper_main(void *arg)
{
	struct meta_kv *kv = arg;
	uint64_t next, at, renew;

	tei_mutex_lock(&kv->lock);
	while (!kv->stop) {
		renew = kv->caps & META_KV_LEASE ? kv->renew_ns : UINT64_MAX;
		tei_mutex_unlock(&kv->lock);
		if (renew <= tei_now_ns())
			kv_renew(kv);
		next = kv_names_run(kv);
		at = kv_segments_run(kv);
		if (at < next)
			next = at;
		tei_mutex_lock(&kv->lock);
		if (kv->caps & META_KV_LEASE && kv->renew_ns < next)
			next = kv->renew_ns;
		if (!kv->stop && !kv->again && tei_ns_left(next))
			tei_mutex_wait(&kv->cond, &kv->lock, kv_pause(next));
		kv->again = false;
	}
	tei_mutex_unlock(&kv->lock);
	return NULL;
}

static void *kv_watcher_main(void *arg)
{
	struct meta_kv *kv = arg;
	uint64_t next;

	tei_mutex_lock(&kv->lock);
	while (!kv->stop) {
		tei_mutex_unlock(&kv->lock);
		kv->ops->watch(kv);
		tei_mutex_lock(&kv->lock);
		kv_set_watched(kv, false);
		next = tei_now_ns() + META_KV_RETRY_NS;
		while (!kv->stop && tei_ns_left(next))
			tei_mutex_wait(&kv->cond, &kv->lock, tei_ns_left(next));
	}
	tei_mutex_unlock(&kv->lock);
	return NULL;
}

/* --- open and close ------------------------------------------------------ */

static struct meta_kv *kv_new(struct tei_meta_store *store,
			      const struct meta_kv_ops *ops)
{
	struct meta_kv *kv = calloc(1, sizeof(*kv));
	int i;

	if (!kv)
		return NULL;
	kv->store = store;
	kv->ops = ops;
	kv->settings = store->settings;
	tei_mutex_init(&kv->lock);
	tei_cond_init(&kv->cond);
	tei_list_init(&kv->names);
	for (i = 0; i < META_KV_BUCKETS; i++)
		tei_list_init(&kv->fetched[i]);
	return kv;
}

static void kv_free(struct meta_kv *kv)
{
	kv_names_free(kv);
	kv_segments_free(kv);
	pthread_cond_destroy(&kv->cond);
	tei_mutex_fini(&kv->lock);
	free(kv);
}

static void kv_stop(struct meta_kv *kv)
{
	tei_mutex_lock(&kv->lock);
	kv->stop = true;
	pthread_cond_broadcast(&kv->cond);
	tei_mutex_unlock(&kv->lock);
	if (kv->ops->interrupt)
		kv->ops->interrupt(kv);
	if (kv->keeping)
		pthread_join(kv->keeper, NULL);
	if (kv->watching)
		pthread_join(kv->watcher, NULL);
}

static int kv_start(struct meta_kv *kv, struct tei_err *err)
{
	kv->keeping = !tei_thread_start(&kv->keeper, false, kv_keeper_main, kv);
	if (kv->caps & META_KV_WATCH)
		kv->watching = kv->keeping &&
			       !tei_thread_start(&kv->watcher, false,
						 kv_watcher_main, kv);
	if (kv->keeping && (kv->watching || !(kv->caps & META_KV_WATCH)))
		return 0;
	kv_stop(kv);
	kv->ops->close(kv);
	return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
			    "metadata store: its threads cannot be started");
}

int meta_kv_open(struct tei_meta_store *store, const struct meta_kv_ops *ops,
		 const char *conn, struct tei_err *err)
{
	struct meta_kv *kv = kv_new(store, ops);
	int rc;

	if (!kv)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for the metadata store");
	rc = ops->open(kv, conn, kv_deadline(kv), err);
	if (!rc)
		rc = kv_start(kv, err);
	if (rc)
		kv_free(kv);
	else
		store->backend_state = kv;
	return rc;
}

void meta_kv_close(struct tei_meta_store *store)
{
	struct meta_kv *kv = store->backend_state;

	kv_stop(kv);
	kv->ops->close(kv);
	kv_free(kv);
}

/* --- calls without state ------------------------------------------------- */

int meta_kv_resolve(struct tei_meta_store *store, const char *server,
		    uint64_t deadline_ns, char endpoint[TEI_META_ENDPOINT_MAX],
		    struct tei_err *err)
{
	struct meta_kv *kv = store->backend_state;
	char key[META_KV_KEY_MAX];
	struct meta_kv_value v;
	uint64_t inc;
	bool fine;
	int rc;

	if (!server || !*server ||
	    tei_meta_rpc_key(kv->settings->store.cluster_id, server, key,
			     sizeof(key)))
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "server '%.64s': the name is not valid for "
				    "a key of the metadata store",
				    server ? server : "");
	rc = kv_get(kv, key, deadline_ns, &v, err);
	if (rc)
		return rc;
	if (!v.text)
		return tei_err_fail(err, TEI_ERR_METADATA, "meta",
				    "is that process running, with the same MC_METADATA_CLUSTER_ID?",
				    "server '%.48s' is not in %s %s", server,
				    kv->ops->product, kv->where);
	fine = meta_rpc_decode(v.text, v.len, endpoint, &inc);
	free(v.text);
	if (fine)
		return 0;
	return tei_err_fail(err, TEI_ERR_JSON, "meta", NULL,
			    "server '%.64s': its record in %s %s is invalid",
			    server, kv->ops->product, kv->where);
}

int meta_kv_check(struct tei_meta_store *store, uint64_t deadline_ns,
		  struct tei_err *err)
{
	struct meta_kv *kv = store->backend_state;
	struct meta_kv_value v;
	char key[META_KV_KEY_MAX];
	int rc = tei_meta_rpc_key(kv->settings->store.cluster_id, "?", key,
				  sizeof(key));

	if (rc)
		return tei_err_fail(err, rc, "meta", NULL,
				    "MC_METADATA_CLUSTER_ID is too long");
	rc = kv_get(kv, key, deadline_ns, &v, err);
	if (!rc)
		free(v.text);
	return rc;
}

/* --- persistent segment records ------------------------------------------ */

static int kv_persistent_key(struct meta_kv *kv, const char *name,
			     char key[META_KV_KEY_MAX], struct tei_err *err)
{
	if (!tei_meta_segment_key(kv->settings->store.cluster_id, name, key,
				  META_KV_KEY_MAX))
		return 0;
	return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
			    "segment '%.64s': the name is not valid for a key "
			    "of the metadata store",
			    name);
}

int meta_kv_persistent_read(struct tei_meta_store *store, const char *name,
			    uint64_t deadline_ns, char **json, size_t *len,
			    int64_t *version, struct tei_err *err)
{
	struct meta_kv *kv = store->backend_state;
	char key[META_KV_KEY_MAX];
	struct meta_kv_value v;
	int rc = kv_persistent_key(kv, name, key, err);

	if (!rc)
		rc = kv_get(kv, key, deadline_ns, &v, err);
	if (rc)
		return rc;
	*json = v.text;			/* the caller frees the text */
	*len = v.text ? v.len : 0;
	*version = v.text ? v.version : META_ABSENT;
	return 0;
}

int meta_kv_persistent_write(struct tei_meta_store *store, const char *name,
			     const char *json, size_t len, int64_t version,
			     uint64_t deadline_ns, struct tei_err *err)
{
	struct meta_kv *kv = store->backend_state;
	char key[META_KV_KEY_MAX];
	struct meta_kv_change c = {
		.key = key,
		.expected = version,
		.what = json ? META_KV_PUT : META_KV_REMOVE,
		.text = json,
		.len = len,
	};
	int rc = kv_persistent_key(kv, name, key, err);

	return rc ? rc : kv_commit(kv, &c, 1, deadline_ns, err);
}

static int kv_name_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the names and frees duplicates. */
static void kv_names_unique(struct meta_names *names)
{
	size_t i, n = 0;

	if (names->count)
		qsort(names->name, names->count, sizeof(*names->name),
		      kv_name_compare);
	for (i = 0; i < names->count; i++) {
		if (n && !strcmp(names->name[n - 1], names->name[i]))
			free(names->name[i]);
		else
			names->name[n++] = names->name[i];
	}
	names->count = n;
}

int meta_kv_list(struct tei_meta_store *store, const char *folder,
		 uint64_t deadline_ns, struct meta_names *names,
		 struct tei_err *err)
{
	struct meta_kv *kv = store->backend_state;
	char key[META_KV_KEY_MAX], any[32];
	int rc;

	if (!(kv->caps & META_KV_LIST))
		return meta_kv_fail(kv, TEI_ERR_UNSUPPORTED, err, NULL,
				    "this server cannot list keys");
	snprintf(any, sizeof(any), "%sx", folder);
	rc = kv_persistent_key(kv, any, key, err);
	if (rc)
		return rc;
	*(strrchr(key, '/') + 1) = 0;
	rc = kv->ops->list(kv, key, deadline_ns, names, err);
	kv_names_unique(names);
	return rc;
}
