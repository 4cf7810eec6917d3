/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_SIEVE_H
#define TEI_UTIL_SIEVE_H

/*
 * Order of eviction for a full cache: SIEVE (Zhang, Yang, Yue, Vigfusson,
 * Rashmi: "SIEVE is Simpler than LRU", NSDI 2024). Entries stay in the order of
 * insertion. A hit sets a bit and moves nothing. To make room, a hand walks
 * from the oldest entry towards the newest, clears the bits that are set, and
 * stops at the first entry whose bit is clear. That entry is evicted. The next
 * eviction starts at the position where the hand stopped.
 *
 * This module only keeps the order, in nodes embedded in the owner's objects.
 * The owner implements the look-up, the limit and the closing of evicted
 * objects.
 *
 * Cost: insert, visit and remove are O(1). An eviction is O(1) per entry that
 * the hand passes. It passes entries whose bit a visit had set, and busy
 * entries; it makes at most two rounds.
 *
 * No allocation, no lock: the owner states which lock guards the sieve and its
 * entries. All calls need that lock.
 */

#include <stdbool.h>
#include <stddef.h>

#include "util/list.h"

/* Embedded in a cached object, which must not move or be freed while it is in a
 * sieve. A structure filled with zeros is in no sieve. Members are public for
 * inlining only. */
struct tei_sieve_entry {
	struct tei_list link;		/* in tei_sieve.order; the next entry is
					 * older */
	bool visited;			/* hit since the hand last passed */
	bool in;			/* the entry is in a sieve */
};

/* Members are public for inlining and embedding only. */
struct tei_sieve {
	struct tei_list order;		/* newest first */
	struct tei_sieve_entry *hand;	/* next candidate; if NULL, the oldest
					 * entry is the next candidate */
	size_t count;
};

/*
 * Returns true if the entry must not be evicted now. Called with the lock of
 * the sieve held, at most twice per entry and eviction. Must not change the
 * sieve.
 */
typedef bool (*tei_sieve_busy_fn)(const struct tei_sieve_entry *entry,
				  void *arg);

void tei_sieve_init(struct tei_sieve *sieve);

/* Adds an entry, which is in no sieve, as the newest one with a clear bit. */
void tei_sieve_insert(struct tei_sieve *sieve, struct tei_sieve_entry *entry);

/* Records a hit. */
static inline void tei_sieve_visit(struct tei_sieve_entry *entry)
{
	entry->visited = true;
}

static inline bool tei_sieve_holds(const struct tei_sieve_entry *entry)
{
	return entry->in;
}

/* Removes the entry if it is in the sieve. */
void tei_sieve_remove(struct tei_sieve *sieve, struct tei_sieve_entry *entry);

/*
 * Removes and returns the entry to evict. Busy entries are skipped and keep
 * their bit and their place. Returns NULL and changes nothing if all entries
 * are busy or there is none. busy may be NULL: no entry is busy.
 */
struct tei_sieve_entry *tei_sieve_evict(struct tei_sieve *sieve,
					tei_sieve_busy_fn busy, void *arg);

#endif /* TEI_UTIL_SIEVE_H */
