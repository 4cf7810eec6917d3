/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/range.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"

/* Returns the number of unused entries of the array: those before the ranges if
 * `below` is true, otherwise those behind them. */
static uint32_t range_unused(const struct tei_range_table *t, bool below)
{
	uint32_t before = t->mem ? (uint32_t)(t->at - t->mem) : 0;

	return below ? before : t->cap - t->n - before;
}

/* Moves the pointers to the ranges to the middle of mem, an array of cap
 * entries. */
static void range_center(struct tei_range_table *t, struct tei_range **mem,
			 uint32_t cap)
{
	struct tei_range **at = mem + (cap - t->n) / 2;

	if (t->n)
		memmove(at, t->at, t->n * sizeof(*at));
	t->at = at;
}

/* Moves the ranges to a new array with at least `need` entries. Returns false
 * if memory is short. */
static bool range_grow(struct tei_range_table *t, uint32_t need)
{
	struct tei_range **mem;
	uint32_t cap;

	if (need > UINT32_MAX / 4)
		return false;
	cap = 2 * need + 32;
	mem = malloc(cap * sizeof(*mem));
	if (!mem)
		return false;
	range_center(t, mem, cap);
	free(t->mem);
	t->mem = mem;
	t->cap = cap;
	return true;
}

/* Makes unused entries at both ends of the array. Moves the ranges within the
 * array only if many additions can follow before they must be moved again;
 * otherwise allocates a larger array. */
static void range_spread(struct tei_range_table *t)
{
	if (t->cap - t->n >= t->n / 2 + 16)
		range_center(t, t->mem, t->cap);
	else
		range_grow(t, t->n + 1); /* if this fails, the caller uses an
					  * unused entry at the other end */
}

bool tei_range_reserve(struct tei_range_table *t, uint32_t more)
{
	return more <= t->cap - t->n || range_grow(t, t->n + more);
}

int tei_range_insert(struct tei_range_table *t, struct tei_range *r)
{
	uint32_t i = tei_range_index(t, r->base);
	bool below = i < t->n / 2;

	if (r->end <= r->base)
		return TEI_ERR_INVALID;
	if (tei_range_below(t, i, r->end))
		return TEI_ERR_OVERLAP;
	if (!range_unused(t, below))
		range_spread(t);
	if (t->n == t->cap)
		return TEI_ERR_MEMORY;
	if (!range_unused(t, below))
		below = !below;
	if (below)
		memmove(t->at - 1, t->at, i * sizeof(*t->at));
	else
		memmove(&t->at[i + 1], &t->at[i], (t->n - i) * sizeof(*t->at));
	t->at -= below;
	t->at[i] = r;
	t->n++;
	return 0;
}

void tei_range_remove(struct tei_range_table *t, const struct tei_range *r)
{
	uint32_t i = tei_range_index(t, r->base);

	assert(i < t->n && t->at[i] == r);
	t->n--;
	if (i < t->n / 2) {
		memmove(t->at + 1, t->at, i * sizeof(*t->at));
		t->at++;
	} else {
		memmove(&t->at[i], &t->at[i + 1], (t->n - i) * sizeof(*t->at));
	}
}

void tei_range_fini(struct tei_range_table *t)
{
	free(t->mem);
	memset(t, 0, sizeof(*t));
}
