/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_SIEVE_H
#define TEI_UTIL_SIEVE_H

/*
 * Order of eviction for a full cache: SIEVE (Zhang, Yang, Yue, Vigfusson,
 * Rashmi: "SIEVE is Simpler than LRU", NSDI 2024). The entries stay in the
 * order of their insertion. A hit sets a bit in the entry and does not move it.
 * An eviction moves a pointer, the hand, from the oldest entry towards the
 * newest. The hand clears the bits that are set, and the first entry whose bit
 * is clear is evicted. The next eviction starts at the position where the hand
 * stopped.
 *
 * This module only keeps the order, in nodes embedded in the owner's objects.
 * The owner implements the look-up, the limit and the closing of evicted
 * objects.
 *
 * Cost: insert, visit and remove are O(1). The cost of an eviction is
 * proportional to the number of entries that the hand passes. These are busy
 * entries and entries whose bit was set. The hand passes each entry at most
 * twice.
 *
 * The functions allocate nothing and take no lock. The owner states which lock
 * guards the sieve and its entries, and holds it in all calls.
 */

#include <stdbool.h>
#include <stddef.h>

#include "util/list.h"

/* An entry, embedded in a cached object, which must not move or be freed while
 * the entry is in a sieve. An entry filled with zeros is in no sieve. The
 * members are public only so that functions can be inlined. */
struct tei_sieve_entry {
	struct tei_list link;		/* links the entries of a sieve
					 * (tei_sieve.order); the next entry in
					 * the list is older */
	bool visited;			/* true if there was a hit since the
					 * hand last passed the entry */
	bool in;			/* true if the entry is in a sieve */
};

/* A sieve. The members are public only so that it can be embedded and functions
 * can be inlined. */
struct tei_sieve {
	struct tei_list order;		/* list of all entries, newest first */
	struct tei_sieve_entry *hand;	/* the entry that the next eviction
					 * examines first; NULL means the oldest
					 * entry */
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

/* Adds an entry, which must not be in a sieve yet. It becomes the newest entry,
 * and its bit is clear. */
void tei_sieve_insert(struct tei_sieve *sieve, struct tei_sieve_entry *entry);

/* Records a hit: the entry was used. */
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

/* Removes and returns the entry to evict. Skips busy entries, whose bits and
 * positions do not change. If all entries are busy or there is none, returns
 * NULL and changes nothing. If "busy" is NULL, no entry counts as busy. */
struct tei_sieve_entry *tei_sieve_evict(struct tei_sieve *sieve,
					tei_sieve_busy_fn busy, void *arg);

#endif /* TEI_UTIL_SIEVE_H */
