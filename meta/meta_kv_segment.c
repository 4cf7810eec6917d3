/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_kv.h"
#include "meta/meta_record.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_store.h"
#include "util/err.h"
#include "util/settings.h"
#include "util/text.h"

/*
 * The segments that this process reads from a key-value store. A segment that
 * was found is remembered with the version of its key. The keeper reads the key
 * again when the server has reported a change; if the server cannot report
 * changes, the keeper reads it at intervals. If the version is another one, the
 * keeper calls the function of tei_meta_store_watch. A segment whose key has
 * never existed is not remembered.
 */

/* --- the table ----------------------------------------------------------- */

static struct tei_list *kv_bucket(struct meta_kv *kv, const char *key)
{
	return &kv->fetched[tei_text_hash(key) % META_KV_BUCKETS];
}

struct kv_segment *kv_segment_find(struct meta_kv *kv, const char *key)
{
	struct kv_segment *s;

	tei_list_foreach(s, kv_bucket(kv, key), struct kv_segment, link)
		if (!strcmp(s->key, key))
			return s;
	return NULL;
}

static void kv_segment_free(struct kv_segment *s)
{
	free(s->name);
	free(s->key);
	free(s);
}

void kv_segments_free(struct meta_kv *kv) TEI_NO_TSA
{
	struct kv_segment *s, *tmp;
	int i;

	for (i = 0; i < META_KV_BUCKETS; i++) {
		tei_list_foreach_safe(s, tmp, &kv->fetched[i],
				      struct kv_segment, link)
			kv_segment_free(s);
		tei_list_init(&kv->fetched[i]);
	}
	kv->fetched_count = 0;
}

/* Forgets one segment of the bucket whose key did not exist at the last read,
 * if there is such a segment. */
static void kv_segment_make_room(struct meta_kv *kv, struct tei_list *bucket)
	TEI_REQUIRES(kv->lock)
{
	struct kv_segment *s, *tmp;

	tei_list_foreach_safe(s, tmp, bucket, struct kv_segment, link) {
		if (s->version != META_ABSENT || s->readers)
			continue;
		tei_list_del(&s->link);
		kv_segment_free(s);
		kv->fetched_count--;
		return;
	}
}

static struct kv_segment *kv_segment_add(struct meta_kv *kv, const char *key,
					 const char *name)
	TEI_REQUIRES(kv->lock)
{
	struct tei_list *bucket = kv_bucket(kv, key);
	struct kv_segment *s;

	if (kv->fetched_count >= META_KV_FETCHED_MAX)
		kv_segment_make_room(kv, bucket);
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->name = strdup(name);
	s->key = strdup(key);
	if (!s->name || !s->key) {
		kv_segment_free(s);
		return NULL;
	}
	s->version = META_ABSENT;
	tei_list_add_tail(bucket, &s->link);
	kv->fetched_count++;
	return s;
}

static uint64_t kv_poll_at(const struct meta_kv *kv) TEI_REQUIRES(kv->lock)
{
	return kv->watched ? 0
			   : tei_now_ns() + kv->settings->store.poll_ms *
						    TEI_NS_PER_MS;
}

/*
 * Called before the key of a segment is read. Adds the segment to the table, so
 * that a change during the read is noticed. Returns the number of changes of
 * the key that the server has reported so far, for kv_read_end.
 */
static uint32_t kv_read_begin(struct meta_kv *kv, const char *key,
			      const char *name)
{
	struct kv_segment *s;
	uint32_t events = 0;

	tei_mutex_lock(&kv->lock);
	s = kv_segment_find(kv, key);
	if (!s)
		s = kv_segment_add(kv, key, name);
	if (s) {
		s->readers++;
		s->fetches++;
		events = s->events;
	}
	tei_mutex_unlock(&kv->lock);
	return events;
}

/*
 * Called after the key of a segment was read. "read" is true if the read has
 * succeeded; "version" is then the version of the key. "events" is the result
 * of kv_read_begin. Returns true if the key existed at the previous read. If
 * the key has never existed, forgets the segment.
 */
static bool kv_read_end(struct meta_kv *kv, const char *key, bool read,
			int64_t version, uint32_t events)
{
	struct kv_segment *s;
	bool was;

	tei_mutex_lock(&kv->lock);
	s = kv_segment_find(kv, key);
	was = s && s->version != META_ABSENT;
	if (s) {
		s->readers--;
		if (read) {
			s->version = version;
			s->notify_ns = 0;
			s->poll_ns = s->events != events ? tei_now_ns()
							 : kv_poll_at(kv);
		}
		s->known = s->known || s->version != META_ABSENT;
		if (!s->known && !s->readers) {
			tei_list_del(&s->link);
			kv_segment_free(s);
			kv->fetched_count--;
		}
		kv_wake(kv);
	}
	tei_mutex_unlock(&kv->lock);
	return was;
}

/* --- calls of the store -------------------------------------------------- */

static int kv_fetch_missing(const struct meta_kv *kv, const char *name,
			    bool was, struct tei_err *err)
{
	if (was)
		return tei_err_note(err, TEI_ERR_METADATA, "meta", NULL,
				    "segment '%.48s' is no longer in %s %s",
				    name, kv->ops->product, kv->where);
	return tei_err_fail(
		err, TEI_ERR_METADATA, "meta",
		tei_meta_persistent_name(name)
			? "create it with te_meta register"
			: "is that process running, with the same MC_METADATA_CLUSTER_ID?",
		"segment '%.48s' is not in %s %s", name, kv->ops->product,
		kv->where);
}

/*
 * Converts the value of a key to the text of the descriptor. If the value is a
 * descriptor head, fetches the text from the control channel; otherwise the
 * value is the text. Frees v->text or passes it to the caller.
 */
static int kv_fetch_value(struct meta_kv *kv, const char *name,
			  struct meta_kv_value *v, uint64_t deadline_ns,
			  char **json, size_t *len, bool *again,
			  struct tei_err *err)
{
	char at[TEI_META_ENDPOINT_MAX];
	uint64_t inc;

	*again = false;
	if (meta_head_decode(v->text, v->len, &inc, at) && *at) {
		free(v->text);
		return meta_head_fetch(kv->store, at, name, inc, deadline_ns,
				       json, len, again, err);
	}
	if (kv->store->secret && !tei_meta_persistent_name(name)) {
		free(v->text);
		return tei_err_fail(err, TEI_ERR_REJECTED, "meta",
				    "give all processes the same MOONRAIL_SECRET_FILE",
				    "segment '%.64s' was published without the shared secret",
				    name);
	}
	*json = v->text;		/* the caller frees the text */
	*len = v->len;
	return 0;
}

int meta_kv_fetch(struct tei_meta_store *store, const char *name,
		  uint64_t deadline_ns, char **json, size_t *len,
		  struct tei_err *err)
{
	struct meta_kv *kv = store->backend_state;
	char key[META_KV_KEY_MAX];
	struct meta_kv_value v;
	bool again = true, was;
	uint32_t events;
	int rc = 0;

	if (tei_meta_segment_key(kv->settings->store.cluster_id, name, key,
				 sizeof(key)))
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "segment '%.64s': the name is not valid "
				    "for a key of the metadata store",
				    name);
	while (!rc && again) {
		events = kv_read_begin(kv, key, name);
		rc = kv_get(kv, key, deadline_ns, &v, err);
		was = kv_read_end(kv, key, !rc, v.version, events);
		if (rc)
			return rc;
		rc = v.text ? kv_fetch_value(kv, name, &v, deadline_ns, json,
					     len, &again, err)
			    : kv_fetch_missing(kv, name, was, err);
	}
	return rc;
}

void meta_kv_watch(struct tei_meta_store *store, tei_meta_changed_fn fn,
		   tei_meta_wanted_fn wanted, void *arg)
{
	struct meta_kv *kv = store->backend_state;

	tei_mutex_lock(&kv->lock);
	kv->fn = fn;
	kv->wanted = wanted;
	kv->arg = arg;
	while (kv->notifying)
		tei_mutex_wait(&kv->cond, &kv->lock, TEI_NS_PER_SEC);
	tei_mutex_unlock(&kv->lock);
}

void meta_kv_notify_again(struct tei_meta_store *store, const char *name)
{
	struct meta_kv *kv = store->backend_state;
	char key[META_KV_KEY_MAX];
	struct kv_segment *s;
	uint64_t pause;

	if (tei_meta_segment_key(kv->settings->store.cluster_id, name, key,
				 sizeof(key)))
		return;
	tei_mutex_lock(&kv->lock);
	s = kv_segment_find(kv, key);
	if (s && s->version != META_ABSENT) {
		pause = META_KV_NOTIFY_NS << (s->tries < 7 ? s->tries : 7);
		if (pause > META_KV_NOTIFY_MAX_NS)
			pause = META_KV_NOTIFY_MAX_NS;
		s->notify_ns = tei_now_ns() + pause;
		kv_wake(kv);
	}
	tei_mutex_unlock(&kv->lock);
}

/* --- work of the keeper -------------------------------------------------- */

void kv_segments_check_all(struct meta_kv *kv)
{
	struct kv_segment *s;
	int i;

	for (i = 0; i < META_KV_BUCKETS; i++)
		tei_list_foreach(s, &kv->fetched[i], struct kv_segment, link)
			s->poll_ns = 1;
}

/* work of the keeper for one segment, which kv_job_take fills */
struct kv_job {
	char *key, *name; /* copies, which the job owns */
	bool notify;	  /* true: the keeper must call kv->fn; false: the
			   * keeper must read the key */
	int64_t version;
	uint32_t tries;
	uint32_t fetches;
};

/*
 * Fills *job for the next segment for which work is due, and returns true. If
 * no work is due, returns false and sets *next to the time at which work will
 * be due, or to UINT64_MAX.
 */
static bool kv_job_take(struct meta_kv *kv, struct kv_job *job, uint64_t *next)
{
	uint64_t now = tei_now_ns(), at;
	struct kv_segment *s, *found = NULL;
	int i, b;

	*next = UINT64_MAX;
	tei_mutex_lock(&kv->lock);
	for (i = 0; i < META_KV_BUCKETS && !found && !kv->stop; i++) {
		b = (kv->bucket + i) % META_KV_BUCKETS;
		tei_list_foreach (s, &kv->fetched[b], struct kv_segment, link) {
			at = s->notify_ns ? s->notify_ns : UINT64_MAX;
			if (s->poll_ns && s->poll_ns < at)
				at = s->poll_ns;
			if (at <= now)
				found = s;
			else if (at < *next)
				*next = at;
		}
		if (found)
			kv->bucket = b;
	}
	if (found) {
		job->notify = found->notify_ns && found->notify_ns <= now;
		job->key = strdup(found->key);
		job->name = strdup(found->name);
		job->version = found->version;
		job->fetches = found->fetches;
		if (!job->key || !job->name) {
			found->poll_ns = now + META_KV_RETRY_NS;
		} else if (job->notify) {
			found->notify_ns = 0;
			job->tries = ++found->tries;
		} else {
			found->poll_ns = kv_poll_at(kv);
		}
	}
	tei_mutex_unlock(&kv->lock);
	return found != NULL;
}

/*
 * If this process does not use the segment of the job any longer, forgets it
 * and returns true. A segment that is being opened is not forgotten: kv->wanted
 * returns true for it already when its key is read, and a segment with reads in
 * progress is kept.
 */
static bool kv_job_unwanted(struct meta_kv *kv, const struct kv_job *job)
{
	tei_meta_wanted_fn wanted;
	struct kv_segment *s;
	bool unwanted;
	void *arg;

	tei_mutex_lock(&kv->lock);
	wanted = kv->wanted;
	arg = kv->arg;
	kv->notifying = wanted != NULL;
	tei_mutex_unlock(&kv->lock);
	unwanted = wanted && !wanted(arg, job->name);
	tei_mutex_lock(&kv->lock);
	kv->notifying = false;
	pthread_cond_broadcast(&kv->cond);
	s = unwanted ? kv_segment_find(kv, job->key) : NULL;
	unwanted = s && !s->readers && s->fetches == job->fetches;
	if (unwanted) {
		tei_list_del(&s->link);
		kv_segment_free(s);
		kv->fetched_count--;
	}
	tei_mutex_unlock(&kv->lock);
	return unwanted;
}

static void kv_job_notify(struct meta_kv *kv, const char *name, uint32_t tries)
{
	tei_meta_changed_fn fn;
	void *arg;

	tei_mutex_lock(&kv->lock);
	fn = kv->fn;
	arg = kv->arg;
	kv->notifying = fn != NULL;
	tei_mutex_unlock(&kv->lock);
	if (!fn)
		return;
	fn(arg, name, tries);
	tei_mutex_lock(&kv->lock);
	kv->notifying = false;
	pthread_cond_broadcast(&kv->cond);
	tei_mutex_unlock(&kv->lock);
}

/* Reads the key of the job's segment. If its version has changed, notifies the
 * user of the store. Returns false if no server has answered. */
static bool kv_job_poll(struct meta_kv *kv, const struct kv_job *job)
{
	struct meta_kv_value v;
	struct kv_segment *s;
	struct tei_err err;
	bool changed = false;
	int rc = kv_get(kv, job->key, kv_deadline(kv), &v, &err);

	tei_mutex_lock(&kv->lock);
	s = kv_segment_find(kv, job->key);
	if (s && rc) {
		s->poll_ns = tei_now_ns() + META_KV_RETRY_NS;
	} else if (s && s->version == job->version) {
		changed = v.version != s->version;
		s->version = v.version;
		if (changed)
			s->tries = 0;
	} else if (s) {
		/* a fetch has read the key meanwhile and may have read an older
		 * value, so the keeper reads the key again */
		s->poll_ns = tei_now_ns();
	}
	tei_mutex_unlock(&kv->lock);
	if (!rc)
		free(v.text);
	if (changed)
		kv_job_notify(kv, job->name, 0);
	return rc != TEI_ERR_SOCKET;
}

uint64_t kv_segments_run(struct meta_kv *kv)
{
	struct kv_job job;
	uint64_t next;
	bool fine = true;
	int n;

	for (n = 0; fine && n < META_KV_JOBS; n++) {
		if (!kv_job_take(kv, &job, &next))
			return next;
		if (job.key && job.name && job.notify)
			kv_job_notify(kv, job.name, job.tries);
		else if (job.key && job.name && !kv_job_unwanted(kv, &job))
			fine = kv_job_poll(kv, &job);
		free(job.key);
		free(job.name);
	}
	return fine ? 0 : tei_now_ns() + META_KV_RETRY_NS;
}
