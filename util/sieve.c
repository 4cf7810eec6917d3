/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/sieve.h"

#include <assert.h>

#define sieve_entry(l) tei_container_of(l, struct tei_sieve_entry, link)

void tei_sieve_init(struct tei_sieve *sv)
{
	tei_list_init(&sv->order);
	sv->hand = NULL;
	sv->count = 0;
}

void tei_sieve_insert(struct tei_sieve *sv, struct tei_sieve_entry *e)
{
	assert(!e->in);
	e->visited = false;
	e->in = true;
	tei_list_add_head(&sv->order, &e->link);
	sv->count++;
}

/* Returns the next newer entry. After the newest entry returns NULL, so that
 * the hand starts again at the oldest one. */
static struct tei_sieve_entry *sieve_newer(struct tei_sieve *sv,
					   struct tei_sieve_entry *e)
{
	return e->link.prev == &sv->order ? NULL : sieve_entry(e->link.prev);
}

void tei_sieve_remove(struct tei_sieve *sv, struct tei_sieve_entry *e)
{
	if (!e->in)
		return;
	if (sv->hand == e)
		sv->hand = sieve_newer(sv, e);
	tei_list_del(&e->link);
	e->in = false;
	sv->count--;
}

struct tei_sieve_entry *tei_sieve_evict(struct tei_sieve *sv,
					tei_sieve_busy_fn busy, void *arg)
{
	struct tei_sieve_entry *e = sv->hand, *start = sv->hand;
	size_t steps;

	/* two rounds suffice: the first round clears the bits of all entries
	 * that are not busy */
	for (steps = 2 * sv->count; steps; steps--) {
		if (!e)
			e = sieve_entry(sv->order.prev);
		if (!busy || !busy(e, arg)) {
			if (!e->visited)
				break;
			e->visited = false;
		}
		e = sieve_newer(sv, e);
	}
	if (!steps) {
		sv->hand = start;
		return NULL;
	}
	sv->hand = e;
	tei_sieve_remove(sv, e);
	return e;
}
