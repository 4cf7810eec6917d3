/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/te_meta_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/clock.h"
#include "util/secret.h"

#define TABLE_BUCKETS	    65536
#define TABLE_LEASE_BUCKETS 4096
#define TABLE_REMOVED_MAX   65536 /* largest number of removed keys that are
				   * remembered */
/* Memory that a key occupies in addition to its texts, as an estimate,
 * bytes. */
#define TABLE_KEY_COST 160

struct table_lease {
	struct tei_list bucket;
	struct tei_list keys; /* the keys of the lease, linked by
			       * table_key.group; not empty */
	uint64_t expires_ns;
	bool pinned; /* true while a commit uses the lease, so that it is not
		      * freed */
	char name[TABLE_LEASE_MAX + 1];
};

struct table {
	uint64_t seed;		   /* random start value of the hash function */
	uint64_t max_keys, memory; /* limits: number of keys, and bytes of all
				    * keys and values */
	uint64_t keys, bytes;
	int64_t version;	   /* version of the last change */
	int64_t forgotten; /* removals with this version or an earlier one may
			    * have been forgotten */
	struct tei_list order, removed;
	size_t removed_count;
	struct tei_list buckets[TABLE_BUCKETS];
	struct tei_list leases[TABLE_LEASE_BUCKETS];
};

static uint64_t table_hash(const struct table *t, const char *key)
{
	uint64_t h = t->seed;

	for (; *key; key++)
		h = (h ^ (unsigned char)*key) * UINT64_C(0x100000001b3);
	return h ^ h >> 32;
}

struct table *table_new(uint64_t max_keys, uint64_t memory)
{
	struct table *t = calloc(1, sizeof(*t));
	struct timespec now;
	size_t i;

	if (!t)
		return NULL;
	clock_gettime(CLOCK_REALTIME, &now);
	/* Microseconds since 1970: a server process that is started later
	 * begins with a higher version, and a double can represent the number
	 * exactly. */
	t->version = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
	t->forgotten = t->version;
	t->max_keys = max_keys;
	t->memory = memory;
	if (!tei_random(&t->seed, sizeof(t->seed)))
		t->seed = (uint64_t)t->version;
	tei_list_init(&t->order);
	tei_list_init(&t->removed);
	for (i = 0; i < TABLE_BUCKETS; i++)
		tei_list_init(&t->buckets[i]);
	for (i = 0; i < TABLE_LEASE_BUCKETS; i++)
		tei_list_init(&t->leases[i]);
	return t;
}

static void table_key_free(struct table_key *k)
{
	free(k->text);
	free(k);
}

void table_free(struct table *t)
{
	struct table_key *k, *tmp;
	struct table_lease *l, *next;
	size_t i;

	if (!t)
		return;
	tei_list_foreach_safe (k, tmp, &t->order, struct table_key, order)
		table_key_free(k);
	for (i = 0; i < TABLE_LEASE_BUCKETS; i++)
		tei_list_foreach_safe (l, next, &t->leases[i],
				       struct table_lease, bucket)
			free(l);
	free(t);
}

/* Returns the entry of a key, or NULL. The entry may be that of a removed
 * key. */
static struct table_key *table_find(const struct table *t, const char *key)
{
	const struct tei_list *b =
		&t->buckets[table_hash(t, key) % TABLE_BUCKETS];
	struct table_key *k;

	tei_list_foreach (k, b, struct table_key, bucket)
		if (!strcmp(k->key, key))
			return k;
	return NULL;
}

const struct table_key *table_get(const struct table *t, const char *key)
{
	const struct table_key *k = table_find(t, key);

	return k && k->text ? k : NULL;
}

/* --- leases -------------------------------------------------------------- */

static struct table_lease *table_lease_find(struct table *t, const char *name)
{
	struct tei_list *b =
		&t->leases[table_hash(t, name) % TABLE_LEASE_BUCKETS];
	struct table_lease *l;

	tei_list_foreach (l, b, struct table_lease, bucket)
		if (!strcmp(l->name, name))
			return l;
	return NULL;
}

static struct table_lease *table_lease_new(struct table *t, const char *name)
{
	struct table_lease *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	snprintf(l->name, sizeof(l->name), "%s", name);
	tei_list_init(&l->keys);
	tei_list_add_tail(&t->leases[table_hash(t, name) % TABLE_LEASE_BUCKETS],
			  &l->bucket);
	return l;
}

/* Frees a lease that has no keys, unless a commit uses it. */
static void table_lease_drop(struct table_lease *l)
{
	if (l->pinned || !tei_list_empty(&l->keys))
		return;
	tei_list_del(&l->bucket);
	free(l);
}

/* Removes a key from the list in which its member "group" is: the keys of its
 * lease, or the removed keys. */
static void table_ungroup(struct table *t, struct table_key *k)
{
	struct table_lease *l = k->lease;

	if (!l && !tei_list_empty(&k->group))
		t->removed_count--;
	tei_list_del(&k->group);
	k->lease = NULL;
	if (l)
		table_lease_drop(l);
}

/* --- changes ------------------------------------------------------------- */

/* Gives the key a new version, which is the highest one. */
static void table_touch(struct table *t, struct table_key *k)
{
	tei_list_del(&k->order);
	tei_list_add_tail(&t->order, &k->order);
	k->version = ++t->version;
}

/* Frees the entries of the oldest removed keys if there are more than
 * TABLE_REMOVED_MAX. */
static void table_trim(struct table *t)
{
	struct table_key *k;

	while (t->removed_count > TABLE_REMOVED_MAX) {
		k = tei_list_first(&t->removed, struct table_key, group);
		t->forgotten = k->version;
		table_ungroup(t, k);
		tei_list_del(&k->order);
		tei_list_del(&k->bucket);
		table_key_free(k);
	}
}

static void table_remove(struct table *t, struct table_key *k)
{
	if (!k->text)
		return;
	table_ungroup(t, k);
	t->keys--;
	t->bytes -= k->len + strlen(k->key) + TABLE_KEY_COST;
	free(k->text);
	k->text = NULL;
	k->len = 0;
	tei_list_add_tail(&t->removed, &k->group);
	t->removed_count++;
	table_touch(t, k);
}

static void table_put(struct table *t, struct table_change *c,
		      struct table_lease *lease)
{
	struct table_key *k = c->at;

	if (k->text) {
		t->bytes -= k->len;
	} else {
		t->keys++;
		t->bytes += strlen(k->key) + TABLE_KEY_COST;
	}
	t->bytes += c->len;
	if (k->lease != lease || !k->text) {
		table_ungroup(t, k);
		k->lease = lease;
		if (lease)
			tei_list_add_tail(&lease->keys, &k->group);
	}
	free(k->text);
	k->text = c->text;
	k->len = c->len;
	c->text = NULL;
	table_touch(t, k);
	c->version = k->version;
}

static struct table_key *table_key_new(struct table *t, const char *key)
{
	size_t len = strlen(key);
	struct table_key *k = calloc(1, sizeof(*k) + len + 1);

	if (!k)
		return NULL;
	memcpy(k->key, key, len);
	tei_list_init(&k->order);
	tei_list_init(&k->group);
	tei_list_add_tail(&t->buckets[table_hash(t, key) % TABLE_BUCKETS],
			  &k->bucket);
	return k;
}

static enum table_result table_check(const struct table *t,
				     const struct table_change *changes,
				     size_t count)
{
	uint64_t keys = t->keys, bytes = t->bytes;
	const struct table_key *k;
	size_t i;

	for (i = 0; i < count; i++) {
		k = table_get(t, changes[i].key);
		if (changes[i].expected != TABLE_ANY &&
		    changes[i].expected != (k ? k->version : TABLE_ABSENT))
			return TABLE_CONFLICT;
		if (changes[i].what != TABLE_PUT)
			continue;
		bytes += changes[i].len;
		if (k)
			bytes -= k->len;
		else
			bytes += strlen(changes[i].key) + TABLE_KEY_COST;
		keys += !k;
	}
	/* a commit that needs no further memory is accepted even if a limit is
	 * exceeded already */
	return (keys > t->keys && keys > t->max_keys) ||
			       (bytes > t->bytes && bytes > t->memory)
		       ? TABLE_FULL
		       : TABLE_DONE;
}

/* Frees the entries that table_prepare has created for a commit that is not
 * executed. */
static void table_unprepare(const struct table_change *changes, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (changes[i].created) {
			tei_list_del(&changes[i].at->bucket);
			free(changes[i].at);
		}
}

/* Finds or creates the entries of all keys that a commit writes. Returns false
 * if memory is short. */
static bool table_prepare(struct table *t, struct table_change *changes,
			  size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		changes[i].created = false;
		changes[i].at = table_find(t, changes[i].key);
		if (changes[i].at || changes[i].what != TABLE_PUT)
			continue;
		changes[i].at = table_key_new(t, changes[i].key);
		if (!changes[i].at) {
			table_unprepare(changes, i);
			return false;
		}
		changes[i].created = true;
	}
	return true;
}

enum table_result table_commit(struct table *t, struct table_change *changes,
			       size_t count, const char *lease, uint64_t ttl_ns)
{
	enum table_result r = table_check(t, changes, count);
	struct table_lease *l = NULL;
	size_t i;

	if (r)
		return r;
	if (!table_prepare(t, changes, count))
		return TABLE_FULL;
	if (lease) {
		l = table_lease_find(t, lease);
		if (!l)
			l = table_lease_new(t, lease);
		if (!l) {
			table_unprepare(changes, count);
			return TABLE_FULL;
		}
		l->expires_ns = tei_now_ns() + ttl_ns;
		l->pinned = true;
	}
	for (i = 0; i < count; i++) {
		if (changes[i].what == TABLE_PUT)
			table_put(t, &changes[i], changes[i].leased ? l : NULL);
		else if (changes[i].what == TABLE_REMOVE && changes[i].at)
			table_remove(t, changes[i].at);
	}
	if (l) {
		l->pinned = false;
		table_lease_drop(l);
	}
	table_trim(t);
	return TABLE_DONE;
}

bool table_renew(struct table *t, const char *lease, uint64_t ttl_ns)
{
	struct table_lease *l = table_lease_find(t, lease);

	if (l)
		l->expires_ns = tei_now_ns() + ttl_ns;
	return l != NULL;
}

/* Removes all keys of a lease. The lease is freed with its last key. */
static void table_lease_end(struct table *t, struct table_lease *l)
{
	bool last = false;
	struct table_key *k;

	while (!last) {
		k = tei_list_first(&l->keys, struct table_key, group);
		last = k->group.next == &l->keys;
		table_remove(t, k);
	}
}

void table_expire(struct table *t)
{
	struct table_lease *l, *next;
	uint64_t now = tei_now_ns();
	size_t i;

	for (i = 0; i < TABLE_LEASE_BUCKETS; i++)
		tei_list_foreach_safe (l, next, &t->leases[i],
				       struct table_lease, bucket)
			if (l->expires_ns <= now)
				table_lease_end(t, l);
	table_trim(t);
}

void table_extend(struct table *t, uint64_t ns)
{
	struct table_lease *l;
	size_t i;

	for (i = 0; i < TABLE_LEASE_BUCKETS; i++)
		tei_list_foreach (l, &t->leases[i], struct table_lease, bucket)
			l->expires_ns += ns;
}

/* --- reading ------------------------------------------------------------- */

int64_t table_version(const struct table *t)
{
	return t->version;
}

bool table_forgot(const struct table *t, int64_t since)
{
	return since < t->forgotten || since > t->version;
}

const struct table_key *table_first(const struct table *t, int64_t since)
{
	struct tei_list *at = t->order.prev, *first = NULL;

	if (!since && !tei_list_empty(&t->order))
		return tei_list_first(&t->order, struct table_key, order);
	while (at != &t->order &&
	       tei_container_of(at, struct table_key, order)->version > since) {
		first = at;
		at = at->prev;
	}
	return first ? tei_container_of(first, struct table_key, order) : NULL;
}

const struct table_key *table_next(const struct table *t,
				   const struct table_key *key)
{
	return key->order.next == &t->order
		       ? NULL
		       : tei_container_of(key->order.next, struct table_key,
					  order);
}

uint64_t table_bytes(const struct table *t)
{
	return t->bytes;
}
