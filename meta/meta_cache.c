/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_int.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/text.h"
#include "util/thread.h"
#include "util/world.h"

/*
 * The cache finds segments by name (in a hash table) and by id (in an array of
 * slots). One lock guards both, and is never held during a fetch.
 *
 * Fetches are numbered per segment. Each call that needs a fetch waits until a
 * fetch with a certain number has completed: an open without "fresh" waits for
 * the fetch in progress, an open with "fresh" for the next one. If no fetch is
 * in progress, the calling thread runs it. A segment stays in the cache while
 * it has references (one per open) or pins (one per call that uses it).
 *
 * The slot of each open segment contains the data of the cache's user, who
 * supplies two callbacks: attach brings the data of a segment up to date,
 * detach frees the data. Each call that may have changed a descriptor calls
 * attach afterwards. For one segment, attach runs in one thread at a time and
 * always receives the newest descriptor. The last close removes the data from
 * the slot and calls detach. If attach is running at this time, the thread that
 * runs it calls detach after attach has returned.
 *
 * An id is generation << TEI_META_SLOT_BITS | index of the slot. Freed slots
 * wait in a queue. A slot is used again, with the next generation, only if at
 * least CACHE_REUSE_AFTER slots are waiting or all slots have been used.
 */

#define CACHE_REUSE_AFTER	1024
#define CACHE_GENERATIONS	(1u << (31 - TEI_META_SLOT_BITS))
#define CACHE_SYNC_THREADS	8
#define CACHE_CHUNK		1024u /* number of slots that are allocated
				       * together */
#define CACHE_CHUNKS		(TEI_META_SLOTS / CACHE_CHUNK)

/* A segment of the cache. The cache's lock guards it, except name, which does
 * not change. */
struct cache_segment {
	struct tei_list link; /* element of the list of its hash
			       * bucket */
	char *name;
	int32_t id;			/* id of the segment, or 0 if it has
					 * none yet */
	uint32_t refs;			/* number of references, one for each
					 * open */
	uint32_t pins;			/* number of calls that use the
					 * segment */
	struct tei_meta_desc *desc;	/* descriptor, or NULL if it was not
					 * fetched yet */
	bool forgotten;			/* tei_meta_cache_forget was called: the
					 * next open must fetch the descriptor
					 * again */
	bool self;			/* the segment is the one of this
					 * process */
	bool fetching;
	bool attaching;
	uint64_t started, done;		/* numbers of the fetch that started
					 * last and of the one that completed
					 * last, from 1 */
	int result;			/* result of the fetch whose number is
					 * done */
	struct tei_err err;		/* error of the fetch whose number is
					 * done */
};

struct cache_slot {
	struct cache_segment *segment; /* the open segment, or NULL if the slot
					* is free */
	/*
	 * data of the cache's user, or NULL; atomic, because it is read without
	 * the lock
	 */
	void *data;
	uint32_t generation;
	uint32_t next_free;
};

struct tei_meta_cache {
	/* the following two members do not change after creation */
	struct tei_meta_store *store;
	uint32_t max_open;
	const struct tei_meta_cache_ops *ops; /* callbacks of the cache's user,
					       * or NULL */
	void *arg;
	/* row 2 of docs/LOCKING.md: guards the members below, the slots and the
	 * segments */
	struct tei_mutex lock;
	pthread_cond_t fetched;
	struct tei_meta_desc *local;
	struct tei_list *buckets;
	uint32_t bucket_count;		/* number of hash buckets, a power of
					 * two */
	uint32_t segment_count;		/* number of segments in the hash
					 * table */
	uint32_t open_count;		/* number of segments that have an id */
	/* arrays of CACHE_CHUNK slots each; each pointer is atomic and set
	 * once; slot 0 belongs to the segment of this process */
	struct cache_slot *chunks[CACHE_CHUNKS];
	uint32_t slot_used;		/* index of the first slot that was
					 * never used */
	/* queue of free slots: indices of the first and the last one (0: none),
	 * and their number */
	uint32_t free_first, free_last, free_count;
};

static const char *cache_plain(const char *name)
{
	return name && *name == '/' ? name + 1 : name;
}

/* --- names --------------------------------------------------------------- */

static struct cache_segment *cache_named(struct tei_meta_cache *c,
					 const char *name)
	TEI_REQUIRES(c->lock)
{
	struct tei_list *b = &c->buckets[tei_text_hash(name) &
					 (c->bucket_count - 1)];
	struct cache_segment *s;

	tei_list_foreach(s, b, struct cache_segment, link)
		if (!strcmp(s->name, name))
			return s;
	return NULL;
}

static struct tei_list *cache_buckets_new(uint32_t count)
{
	struct tei_list *b = malloc(count * sizeof(*b));
	uint32_t i;

	for (i = 0; b && i < count; i++)
		tei_list_init(&b[i]);
	return b;
}

/* Doubles the number of hash buckets. If memory is short, the number stays, and
 * the lists of the buckets become longer. */
static void cache_rehash(struct tei_meta_cache *c) TEI_REQUIRES(c->lock)
{
	uint32_t count = 2 * c->bucket_count, i;
	struct tei_list *b = cache_buckets_new(count);
	struct cache_segment *s, *tmp;

	if (!b)
		return;
	for (i = 0; i < c->bucket_count; i++) {
		tei_list_foreach_safe(s, tmp, &c->buckets[i],
				      struct cache_segment, link) {
			tei_list_del(&s->link);
			tei_list_add_tail(&b[tei_text_hash(s->name) &
					     (count - 1)], &s->link);
		}
	}
	free(c->buckets);
	c->buckets = b;
	c->bucket_count = count;
}

static struct cache_segment *cache_add(struct tei_meta_cache *c,
				       const char *name) TEI_REQUIRES(c->lock)
{
	struct cache_segment *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->name = strdup(name);
	if (!s->name) {
		free(s);
		return NULL;
	}
	if (c->segment_count >= 2 * c->bucket_count)
		cache_rehash(c);
	tei_list_add_head(&c->buckets[tei_text_hash(name) &
				      (c->bucket_count - 1)], &s->link);
	c->segment_count++;
	return s;
}

static void cache_segment_free(struct cache_segment *s)
{
	tei_meta_desc_unref(s->desc);
	free(s->name);
	free(s);
}

/* --- ids ----------------------------------------------------------------- */

/* Returns the slot with the index "at". Its chunk must exist. */
static struct cache_slot *cache_slot(const struct tei_meta_cache *c,
				     uint32_t at)
{
	return &c->chunks[at / CACHE_CHUNK][at % CACHE_CHUNK];
}

/*
 * Allocates the chunk that contains the slot "at", if it does not exist yet.
 * Returns false if memory is short. Chunks are never moved, because
 * tei_meta_cache_data reads slots without the lock.
 */
static bool cache_slots_grow(struct tei_meta_cache *c, uint32_t at)
	TEI_REQUIRES(c->lock)
{
	struct cache_slot **chunk = &c->chunks[at / CACHE_CHUNK];

	if (!*chunk)
		__atomic_store_n(chunk, calloc(CACHE_CHUNK, sizeof(**chunk)),
				 __ATOMIC_RELEASE);
	return *chunk;
}

/*
 * Takes a free slot. Returns its index, or 0 if memory is short or all slots
 * are in use.
 */
static uint32_t cache_slot_take(struct tei_meta_cache *c)
	TEI_REQUIRES(c->lock)
{
	bool fresh = c->slot_used < TEI_META_SLOTS;
	uint32_t at = c->free_first;
	struct cache_slot *slot;

	if (at && (!fresh || c->free_count >= CACHE_REUSE_AFTER)) {
		slot = cache_slot(c, at);
		c->free_first = slot->next_free;
		c->free_count--;
		slot->generation = (slot->generation + 1) % CACHE_GENERATIONS;
		return at;
	}
	if (!fresh || !cache_slots_grow(c, c->slot_used))
		return 0;
	return c->slot_used++;
}

static void cache_slot_give(struct tei_meta_cache *c, uint32_t at)
	TEI_REQUIRES(c->lock)
{
	cache_slot(c, at)->segment = NULL;
	cache_slot(c, at)->next_free = 0;
	if (c->free_first)
		cache_slot(c, c->free_last)->next_free = at;
	else
		c->free_first = at;
	c->free_last = at;
	c->free_count++;
}

static struct cache_segment *cache_by_id(struct tei_meta_cache *c, int32_t id)
	TEI_REQUIRES(c->lock)
{
	uint32_t at = tei_meta_slot(id);
	struct cache_slot *slot;

	if (id <= 0 || !at || at >= c->slot_used)
		return NULL;
	slot = cache_slot(c, at);
	if (slot->generation != (uint32_t)id >> TEI_META_SLOT_BITS)
		return NULL;
	return slot->segment;
}

static bool cache_id_make(struct tei_meta_cache *c, struct cache_segment *s)
	TEI_REQUIRES(c->lock)
{
	uint32_t at;

	if (c->open_count >= c->max_open)
		return false;
	at = cache_slot_take(c);
	if (!at)
		return false;
	cache_slot(c, at)->segment = s;
	c->open_count++;
	s->id = (int32_t)(cache_slot(c, at)->generation << TEI_META_SLOT_BITS |
			  at);
	return true;
}

/* Removes the data of the cache's user from a slot and returns the data. */
static void *cache_take_data(struct cache_slot *slot)
{
	void *data = slot->data;

	__atomic_store_n(&slot->data, NULL, __ATOMIC_RELEASE);
	return data;
}

/* Calls detach, unless data is NULL. Releases the lock during the call. */
static void cache_detach(struct tei_meta_cache *c, void *data)
	TEI_REQUIRES(c->lock)
{
	if (!data)
		return;
	tei_mutex_unlock(&c->lock);
	c->ops->detach(c->arg, data);
	tei_mutex_lock(&c->lock);
}

/*
 * If the segment has no references, frees its id and slot, and calls detach. If
 * it has no pins either, frees the segment. May release the lock at the end,
 * during detach.
 */
static void cache_settle(struct tei_meta_cache *c, struct cache_segment *s)
	TEI_REQUIRES(c->lock)
{
	void *data = NULL;

	if (!s->refs && s->id) {
		data = cache_take_data(cache_slot(c, tei_meta_slot(s->id)));
		if (s->attaching)
			data = NULL; /* the thread that runs attach will call
				      * detach */
		cache_slot_give(c, tei_meta_slot(s->id));
		s->id = 0;
		c->open_count--;
	}
	if (!s->refs && !s->pins) {
		tei_list_del(&s->link);
		c->segment_count--;
		cache_segment_free(s);
	}
	cache_detach(c, data);
}

/* --- fetching ------------------------------------------------------------ */

static bool cache_is_local(const struct tei_meta_cache *c,
			   const struct tei_meta_desc *desc)
	TEI_REQUIRES(c->lock)
{
	return c->local && desc->incarnation &&
	       desc->incarnation == c->local->incarnation &&
	       !strcmp(desc->name, c->local->name);
}

/* Makes desc the descriptor of s. Returns the old descriptor, whose reference
 * the caller then owns. */
static struct tei_meta_desc *cache_replace(struct cache_segment *s,
					   struct tei_meta_desc *desc)
{
	struct tei_meta_desc *old = s->desc;

	s->desc = tei_meta_desc_ref(desc);
	return old;
}

/*
 * Runs one fetch. Releases the lock meanwhile. The caller has pinned s. If
 * tei_meta_cache_forget is called during the fetch, the next open fetches the
 * descriptor again. If tei_meta_cache_put sets a newer descriptor during the
 * fetch, that descriptor stays.
 */
static void cache_fetch(struct tei_meta_cache *c, struct cache_segment *s,
			uint64_t deadline_ns) TEI_REQUIRES(c->lock)
{
	struct tei_meta_desc *before = s->desc, *desc = NULL, *old = NULL;
	uint64_t number = ++s->started;
	bool forgotten = s->forgotten, differs;
	struct tei_err err;
	int rc;

	if (before)
		tei_meta_desc_ref(before);
	s->fetching = true;
	s->forgotten = false;
	tei_mutex_unlock(&c->lock);
	rc = tei_meta_store_fetch(c->store, s->name, deadline_ns, &desc, &err);
	differs = desc && !(before && tei_meta_desc_equal(before, desc));
	tei_mutex_lock(&c->lock);
	if (rc) {
		s->err = err;
		s->forgotten = s->forgotten || forgotten;
	} else {
		s->self = cache_is_local(c, desc);
	}
	if (desc && s->desc && tei_meta_desc_older(desc, s->desc))
		differs = false;
	else if (differs || (desc && tei_meta_desc_older(s->desc, desc)))
		old = cache_replace(s, desc);
	s->fetching = false;
	s->done = number;
	s->result = rc;
	tei_cond_broadcast(&c->fetched);
	tei_mutex_unlock(&c->lock);
	tei_meta_desc_unref(old);
	tei_meta_desc_unref(before);
	tei_meta_desc_unref(desc);
	tei_mutex_lock(&c->lock);
}

/* Waits until a fetch or an attach has completed, or until the deadline. May
 * return early. Returns false if the deadline has passed. */
static bool cache_wait(struct tei_meta_cache *c, uint64_t deadline_ns)
	TEI_REQUIRES(c->lock)
{
	tei_mutex_wait(&c->fetched, &c->lock, tei_ns_left(deadline_ns));
	return tei_now_ns() < deadline_ns;
}

/*
 * Waits until the fetch whose number is "need", or a later one, has completed;
 * runs a fetch itself if none is in progress. Returns the result of the last
 * completed fetch. Does not log an error of that fetch, because the thread that
 * has run it has logged it.
 */
static int cache_await(struct tei_meta_cache *c, struct cache_segment *s,
		       uint64_t need, uint64_t deadline_ns, struct tei_err *err)
	TEI_REQUIRES(c->lock)
{
	while (s->done < need) {
		if (!s->fetching) {
			cache_fetch(c, s, deadline_ns);
		} else if (!cache_wait(c, deadline_ns) && s->done < need) {
			return tei_err_fail(err, TEI_ERR_SOCKET, "meta", NULL,
					    "segment '%.64s': the descriptor was not fetched in time",
					    s->name);
		}
	}
	if (s->result) {
		tei_err_set_last(&s->err);
		if (err)
			*err = s->err;
	}
	return s->result;
}

static void cache_unpin(struct tei_meta_cache *c, struct cache_segment *s)
	TEI_REQUIRES(c->lock)
{
	s->pins--;
	cache_settle(c, s);
}

/* --- the user's data ------------------------------------------------------ */

/*
 * Brings the data of the cache's user up to date with the descriptor of an open
 * segment, which the caller has pinned. Does nothing and returns 0 if the
 * segment has no id. Releases the lock meanwhile.
 */
static int cache_attach(struct tei_meta_cache *c, struct cache_segment *s,
			bool again, struct tei_err *err) TEI_REQUIRES(c->lock)
{
	struct tei_meta_desc *desc;
	struct cache_slot *slot;
	int32_t id;
	void *data;
	int rc;

	while (s->attaching)
		tei_mutex_wait(&c->fetched, &c->lock, TEI_NS_PER_SEC);
	id = s->id;
	if (!c->ops || !id || !s->desc)
		return 0;
	slot = cache_slot(c, tei_meta_slot(id));
	data = slot->data;
	desc = tei_meta_desc_ref(s->desc);
	s->attaching = true;
	tei_mutex_unlock(&c->lock);
	rc = c->ops->attach(c->arg, id, desc, again, &data, err);
	tei_meta_desc_unref(desc);
	tei_mutex_lock(&c->lock);
	s->attaching = false;
	tei_cond_broadcast(&c->fetched);
	if (s->id == id)
		__atomic_store_n(&slot->data, data, __ATOMIC_RELEASE);
	else
		cache_detach(c, data);
	return rc;
}

void *tei_meta_cache_data(struct tei_meta_cache *c, int32_t id)
{
	uint32_t at = tei_meta_slot(id);
	struct cache_slot *chunk;

	chunk = __atomic_load_n(&c->chunks[at / CACHE_CHUNK], __ATOMIC_ACQUIRE);
	if (id <= 0 || !chunk)
		return NULL;
	return __atomic_load_n(&chunk[at % CACHE_CHUNK].data, __ATOMIC_ACQUIRE);
}

int tei_meta_cache_attach(struct tei_meta_cache *c, int32_t id,
			  struct tei_err *err)
{
	struct cache_segment *s;
	int rc = 0;

	tei_mutex_lock(&c->lock);
	s = cache_by_id(c, id);
	if (s) {
		s->pins++;
		rc = cache_attach(c, s, true, err);
		cache_unpin(c, s);
	}
	tei_mutex_unlock(&c->lock);
	return rc;
}

void tei_meta_cache_detach_all(struct tei_meta_cache *c)
{
	uint32_t i;

	if (!c)
		return;
	tei_mutex_lock(&c->lock);
	for (i = 1; i < c->slot_used; i++)
		cache_detach(c, cache_take_data(cache_slot(c, i)));
	tei_mutex_unlock(&c->lock);
}

size_t tei_meta_cache_ids(struct tei_meta_cache *c, uint32_t *from,
			  int32_t *ids, size_t n)
{
	size_t k = 0;
	uint32_t i;

	tei_mutex_lock(&c->lock);
	for (i = *from ? *from : 1; i < c->slot_used && k < n; i++)
		if (cache_slot(c, i)->segment)
			ids[k++] = cache_slot(c, i)->segment->id;
	*from = i;
	tei_mutex_unlock(&c->lock);
	return k;
}

/* --- public calls -------------------------------------------------------- */

int tei_meta_cache_create(struct tei_meta_store *store, uint32_t max_open,
			  const struct tei_meta_cache_ops *ops, void *arg,
			  struct tei_meta_cache **out, struct tei_err *err)
{
	struct tei_meta_cache *c = calloc(1, sizeof(*c));

	if (c)
		c->buckets = cache_buckets_new(64);
	if (!c || !c->buckets) {
		free(c);
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "out of memory for the segment cache");
	}
	c->bucket_count = 64;
	c->store = store;
	c->max_open = max_open ? max_open : TEI_META_SLOTS - 1;
	c->ops = ops;
	c->arg = arg;
	c->slot_used = 1;
	tei_mutex_init(&c->lock);
	tei_cond_init(&c->fetched);
	*out = c;
	return 0;
}

void tei_meta_cache_destroy(struct tei_meta_cache *c) TEI_NO_TSA
{
	struct cache_segment *s, *tmp;
	uint32_t i;

	if (!c)
		return;
	tei_meta_cache_detach_all(c);
	for (i = 0; i < c->bucket_count; i++)
		tei_list_foreach_safe(s, tmp, &c->buckets[i],
				      struct cache_segment, link)
			cache_segment_free(s);
	tei_meta_desc_unref(c->local);
	pthread_cond_destroy(&c->fetched);
	tei_mutex_fini(&c->lock);
	free(c->buckets);
	for (i = 0; i < CACHE_CHUNKS; i++)
		free(c->chunks[i]);
	free(c);
}

void tei_meta_cache_set_local(struct tei_meta_cache *c,
			      struct tei_meta_desc *desc)
{
	struct tei_meta_desc *old;

	if (desc)
		tei_meta_desc_ref(desc);
	tei_mutex_lock(&c->lock);
	old = c->local;
	c->local = desc;
	tei_mutex_unlock(&c->lock);
	tei_meta_desc_unref(old);
}

/* Returns the segment "name" with one more pin, or NULL if memory is short.
 * Creates the segment if it is not in the cache. */
static struct cache_segment *cache_pin(struct tei_meta_cache *c,
				       const char *name) TEI_REQUIRES(c->lock)
{
	struct cache_segment *s = cache_named(c, name);

	if (!s)
		s = cache_add(c, name);
	if (s)
		s->pins++;
	return s;
}

/* Adds a reference to s, which has a descriptor, and sets *id to the id of s.
 * Creates the id if s has none. */
static int cache_grant(struct tei_meta_cache *c, struct cache_segment *s,
		       int32_t *id, struct tei_err *err) TEI_REQUIRES(c->lock)
{
	if (s->self && !s->id) {
		*id = 0;
		return 0;
	}
	if (!s->id && !cache_id_make(c, s) && c->open_count < c->max_open)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "segment '%.64s': out of memory",
				    s->name);
	if (!s->id)
		return tei_err_fail(err, TEI_ERR_TOO_MANY, "meta",
				    "close segments that are no longer used",
				    "segment '%.64s': %u segments are open already",
				    s->name, c->open_count);
	s->refs++;
	*id = s->id;
	return 0;
}

/* Does what cache_grant does, and brings the data of the cache's user up to
 * date. */
static int cache_grant_attached(struct tei_meta_cache *c,
				struct cache_segment *s, int32_t *id,
				struct tei_err *err) TEI_REQUIRES(c->lock)
{
	int32_t got = 0;
	int rc = cache_grant(c, s, &got, err);

	if (!rc && got)
		rc = cache_attach(c, s, false, err);
	else if (rc)
		return rc;
	if (rc)
		s->refs--;
	else
		*id = got;
	return rc;
}

static int cache_open(struct tei_meta_cache *c, const char *name, bool fresh,
		      uint64_t deadline_ns, int32_t *id, struct tei_err *err)
	TEI_REQUIRES(c->lock)
{
	struct cache_segment *s;
	int rc = 0;

	if (c->local && !strcmp(c->local->name, name)) {
		*id = 0;
		return 0;
	}
	s = cache_pin(c, name);
	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for segment '%.64s'", name);
	if (fresh || !s->desc || s->forgotten)
		rc = cache_await(c, s, s->started + (fresh || !s->fetching),
				 deadline_ns, err);
	if (!rc)
		rc = cache_grant_attached(c, s, id, err);
	cache_unpin(c, s);
	return rc;
}

int tei_meta_cache_open(struct tei_meta_cache *c, const char *name, bool fresh,
			uint64_t deadline_ns, int32_t *id, struct tei_err *err)
{
	int rc;

	name = cache_plain(name);
	if (!name || !*name || strlen(name) >= TEI_META_NAME_MAX)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "the segment name is empty or too long");
	tei_mutex_lock(&c->lock);
	rc = cache_open(c, name, fresh, deadline_ns, id, err);
	tei_mutex_unlock(&c->lock);
	return rc;
}

/*
 * Checks a descriptor that the caller supplies for s. Returns 0 if the
 * descriptor is acceptable. An older descriptor of the same process is
 * acceptable, but tei_meta_cache_put does not use it.
 */
static int cache_put_check(const struct cache_segment *s,
			   const struct tei_meta_desc *desc, bool replace,
			   struct tei_err *err)
{
	if (!s->desc || replace || s->desc->incarnation == desc->incarnation ||
	    desc->serial > s->desc->serial)
		return 0;
	return tei_err_fail(err, TEI_ERR_CONTEXT, "meta",
			    "ask the process that has the segment now for its descriptor",
			    "segment '%.64s': this descriptor was published by an earlier process",
			    s->name);
}

static int cache_put(struct tei_meta_cache *c, struct tei_meta_desc *desc,
		     bool replace, int32_t *id, struct tei_meta_desc **old,
		     struct tei_err *err) TEI_REQUIRES(c->lock)
{
	struct cache_segment *s;
	int rc;

	s = cache_pin(c, cache_plain(desc->name));
	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for segment '%.64s'",
				    desc->name);
	rc = cache_put_check(s, desc, replace, err);
	if (!rc && !(s->desc && s->desc->incarnation == desc->incarnation &&
		     s->desc->serial >= desc->serial)) {
		*old = cache_replace(s, desc);
		s->forgotten = false;
		s->self = false;
	}
	if (!rc)
		rc = cache_grant_attached(c, s, id, err);
	cache_unpin(c, s);
	return rc;
}

int tei_meta_cache_put(struct tei_meta_cache *c, struct tei_meta_desc *desc,
		       bool replace, int32_t *id, struct tei_err *err)
{
	struct tei_meta_desc *old = NULL;
	bool own, this_process;
	int rc = 0;

	tei_mutex_lock(&c->lock);
	own = c->local && !strcmp(c->local->name, cache_plain(desc->name));
	this_process = own && c->local->incarnation == desc->incarnation;
	if (!own)
		rc = cache_put(c, desc, replace, id, &old, err);
	else if (this_process)
		*id = 0;
	tei_mutex_unlock(&c->lock);
	tei_meta_desc_unref(old);
	if (own && !this_process)
		return tei_err_fail(
			err, TEI_ERR_CONTEXT, "meta", NULL,
			"segment '%.64s': this descriptor was published by an "
			"earlier process with the name of this process",
			desc->name);
	return rc;
}

int tei_meta_cache_close(struct tei_meta_cache *c, int32_t id, bool *last)
{
	struct cache_segment *s;
	bool gone = false;

	tei_mutex_lock(&c->lock);
	s = cache_by_id(c, id);
	if (s) {
		gone = !--s->refs;
		cache_settle(c, s);
	}
	tei_mutex_unlock(&c->lock);
	if (!s && id)
		return TEI_ERR_INVALID;
	if (last)
		*last = gone;
	return 0;
}

struct tei_meta_desc *tei_meta_cache_get(struct tei_meta_cache *c, int32_t id)
{
	struct tei_meta_desc *desc = NULL;
	struct cache_segment *s;

	tei_mutex_lock(&c->lock);
	s = cache_by_id(c, id);
	if (s)
		desc = s->desc;
	else if (!id)
		desc = c->local;
	if (desc)
		tei_meta_desc_ref(desc);
	tei_mutex_unlock(&c->lock);
	return desc;
}

bool tei_meta_cache_uses(struct tei_meta_cache *c, const char *name)
{
	bool uses;

	name = cache_plain(name);
	if (!name)
		return false;
	tei_mutex_lock(&c->lock);
	uses = cache_named(c, name) != NULL;
	tei_mutex_unlock(&c->lock);
	return uses;
}

int32_t tei_meta_cache_lookup(struct tei_meta_cache *c, const char *name)
{
	struct cache_segment *s;
	int32_t id = -1;

	name = cache_plain(name);
	if (!name)
		return -1;
	tei_mutex_lock(&c->lock);
	s = cache_named(c, name);
	if (s && s->id)
		id = s->id;
	else if (c->local && !strcmp(c->local->name, name))
		id = 0;
	tei_mutex_unlock(&c->lock);
	return id;
}

static int cache_refresh(struct tei_meta_cache *c, struct cache_segment *s,
			 uint64_t deadline_ns, bool *changed,
			 struct tei_err *err) TEI_REQUIRES(c->lock)
{
	struct tei_meta_desc *before = s->desc;
	struct tei_err none;
	int rc, attached;

	if (before)
		tei_meta_desc_ref(before);
	s->pins++;
	rc = cache_await(c, s, s->started + 1, deadline_ns, err);
	if (!rc && changed)
		*changed = !before || !tei_meta_desc_equal(s->desc, before);
	attached = cache_attach(c, s, false, rc || !err ? &none : err);
	rc = rc ? rc : attached;
	cache_unpin(c, s);
	tei_meta_desc_unref(before);
	return rc;
}

int tei_meta_cache_refresh(struct tei_meta_cache *c, int32_t id,
			   uint64_t deadline_ns, bool *changed,
			   struct tei_err *err)
{
	struct cache_segment *s;
	int rc = TEI_ERR_INVALID;

	tei_mutex_lock(&c->lock);
	s = cache_by_id(c, id);
	if (s)
		rc = cache_refresh(c, s, deadline_ns, changed, err);
	tei_mutex_unlock(&c->lock);
	if (!s)
		return tei_err_fail(err, rc, "meta", NULL,
				    "segment id %d is stale or unknown",
				    id);
	return rc;
}

int tei_meta_cache_refresh_name(struct tei_meta_cache *c, const char *name,
				uint64_t deadline_ns, int32_t *id,
				struct tei_err *err)
{
	struct cache_segment *s;
	int rc = 0;

	*id = -1;
	name = cache_plain(name);
	tei_mutex_lock(&c->lock);
	s = name ? cache_named(c, name) : NULL;
	if (s) {
		s->pins++;
		rc = cache_await(c, s, s->started + 1, deadline_ns, err);
		if (!rc)
			rc = cache_attach(c, s, false, err);
		*id = s->id;
		cache_unpin(c, s);
	}
	tei_mutex_unlock(&c->lock);
	return rc;
}

/* --- refreshing all ------------------------------------------------------ */

/* The state of one call of tei_meta_cache_sync, which its threads share. */
struct cache_sync {
	struct tei_meta_cache *cache;	/* the cache; does not change */
	uint64_t timeout_ns;
	int32_t *ids;
	uint32_t count;
	uint32_t next;			/* atomic */
	struct tei_mutex lock;
	int rc;		    /* guarded by lock: code of the first
			     * error */
	struct tei_err err; /* guarded by lock: the first error */
};

static void *cache_sync_thread(void *arg)
{
	struct cache_sync *y = arg;
	struct cache_segment *s;
	struct tei_err err;
	uint32_t i;
	int rc;

	while ((i = __atomic_fetch_add(&y->next, 1, __ATOMIC_RELAXED)) <
	       y->count) {
		rc = 0;
		tei_mutex_lock(&y->cache->lock);
		s = cache_by_id(y->cache, y->ids[i]);
		if (s) /* s is NULL if the segment was closed meanwhile */
			rc = cache_refresh(y->cache, s, tei_now_ns() +
					   y->timeout_ns, NULL, &err);
		tei_mutex_unlock(&y->cache->lock);
		if (!rc)
			continue;
		tei_mutex_lock(&y->lock);
		if (!y->rc) {
			y->rc = rc;
			y->err = err;
		}
		tei_mutex_unlock(&y->lock);
	}
	return NULL;
}

static int cache_ids(struct tei_meta_cache *c, struct cache_sync *y)
{
	uint32_t i;

	tei_mutex_lock(&c->lock);
	y->ids = malloc((c->open_count + 1) * sizeof(*y->ids));
	for (i = 1; y->ids && i < c->slot_used; i++)
		if (cache_slot(c, i)->segment)
			y->ids[y->count++] = cache_slot(c, i)->segment->id;
	tei_mutex_unlock(&c->lock);
	return y->ids ? 0 : TEI_ERR_MEMORY;
}

/*
 * Runs the refreshes of a sync call in several threads and in the calling
 * thread. If no thread can be started, the calling thread does all the work.
 */
static void cache_sync_run(struct cache_sync *y)
{
	pthread_t threads[CACHE_SYNC_THREADS - 1];
	uint32_t n = 0;

	while (n < CACHE_SYNC_THREADS - 1 && n + 1 < y->count &&
	       !tei_thread_start(&threads[n], false, cache_sync_thread, y))
		n++;
	cache_sync_thread(y);
	while (n)
		tei_thread_join(threads[--n]);
}

int tei_meta_cache_sync(struct tei_meta_cache *c, uint64_t timeout_ns,
			struct tei_err *err)
{
	struct cache_sync y = { .cache = c, .timeout_ns = timeout_ns };

	if (cache_ids(c, &y))
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory to refresh the segments");
	tei_mutex_init(&y.lock);
	cache_sync_run(&y);
	tei_mutex_fini(&y.lock);
	free(y.ids);
	if (y.rc) {
		tei_err_set_last(&y.err);
		if (err)
			*err = y.err;
	}
	return y.rc;
}

int tei_meta_cache_forget(struct tei_meta_cache *c, const char *name)
{
	struct cache_segment *s;

	name = cache_plain(name);
	if (!name || !*name)
		return TEI_ERR_INVALID;
	tei_mutex_lock(&c->lock);
	s = cache_named(c, name);
	if (s)
		s->forgotten = true;
	tei_mutex_unlock(&c->lock);
	return 0;
}

uint32_t tei_meta_cache_count(struct tei_meta_cache *c)
{
	uint32_t n;

	tei_mutex_lock(&c->lock);
	n = c->open_count;
	tei_mutex_unlock(&c->lock);
	return n;
}
