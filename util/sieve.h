/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_SIEVE_H
#define TEI_UTIL_SIEVE_H

/*
 * Which entry of a full cache has to go: SIEVE (Zhang, Yang, Yue, Vigfusson,
 * Rashmi: "SIEVE is Simpler than LRU", NSDI 2024). Entries stay in the order in
 * which they came. A hit sets a bit and moves nothing. To find room a hand goes
 * from the oldest towards the newest, clears the bits that are set, and stops
 * at the first entry whose bit is not; there it goes on the next time.
 *
 * Only the order is kept here, in nodes embedded in the owner's objects: how an
 * entry is found, how many there may be and what leaving means are the owner's.
 *
 * Cost: insert, visit and remove are O(1). An eviction is O(1) per entry that
 * the hand passes; it clears a bit that a visit had set, or skips a busy
 * entry. At most it goes round twice.
 *
 * No allocation, no lock: the owner says which lock guards the sieve and its
 * entries, all calls included.
 */

#include <stdbool.h>
#include <stddef.h>

#include "util/list.h"

/* Embedded in a cached object, which must not move or be freed while it is in
 * a sieve. Zeroed: in none. Open for inlining only. */
struct tei_sieve_entry {
	struct tei_list link;		/* tei_sieve.order; towards older */
	bool visited;
	bool in;			/* in a sieve */
};

/* Open for inlining and for embedding only. */
struct tei_sieve {
	struct tei_list order;		/* newest first */
	struct tei_sieve_entry *hand;	/* looked at next; NULL: the oldest */
	size_t count;
};

/*
 * True for an entry that may not be evicted now. Called with whatever guards
 * the sieve held, at most twice per entry and eviction; changes nothing of it.
 */
typedef bool (*tei_sieve_busy_fn)(const struct tei_sieve_entry *entry,
				  void *arg);

void tei_sieve_init(struct tei_sieve *sieve);

/* Adds an entry that is in no sieve, as the newest and not visited. */
void tei_sieve_insert(struct tei_sieve *sieve, struct tei_sieve_entry *entry);

/* A hit. */
static inline void tei_sieve_visit(struct tei_sieve_entry *entry)
{
	entry->visited = true;
}

static inline bool tei_sieve_holds(const struct tei_sieve_entry *entry)
{
	return entry->in;
}

/* Takes it out, if it is in, for reasons of the owner's. */
void tei_sieve_remove(struct tei_sieve *sieve, struct tei_sieve_entry *entry);

/*
 * Takes out the one that has to go. Busy entries are passed over as if they
 * were not there: they keep their bit and their place. NULL, with nothing
 * changed, where all are busy or there is none. busy may be NULL: none is.
 */
struct tei_sieve_entry *tei_sieve_evict(struct tei_sieve *sieve,
					tei_sieve_busy_fn busy, void *arg);

#endif /* TEI_UTIL_SIEVE_H */
