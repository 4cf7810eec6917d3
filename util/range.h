/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_RANGE_H
#define TEI_UTIL_RANGE_H

/*
 * A table of disjoint address ranges. It is a sorted array of pointers to
 * ranges, which are embedded in the caller's structs. If ranges are added or
 * removed in ascending or descending order, no other entry is moved. The table
 * takes no lock; the owner states which lock guards the table and its ranges.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

/* The addresses from base to end - 1; base < end. Constant while in a table. */
struct tei_range {
	uint64_t base, end;
};

/* A table. A structure filled with zeros is an empty table. */
struct tei_range_table {
	struct tei_range **at; /* the used part of mem: n pointers to ranges,
				* sorted by address */
	uint32_t n;
	uint32_t cap;		/* number of allocated entries of mem */
	struct tei_range **mem; /* allocated array, of which "at" points to a
				 * part */
};

/*
 * Iterates over the table in ascending order. pos points to the struct of the
 * given type that embeds the range as member; i is its index, a uint32_t. The
 * table must not change meanwhile.
 */
#define tei_range_foreach(pos, i, table, type, member)                       \
	for ((i) = 0;                                                        \
	     (i) < (table)->n &&                                             \
	     ((pos) = tei_container_of((table)->at[i], type, member), true); \
	     (i)++)

/* Returns the index of the first range that ends above addr, or the number of
 * ranges if there is none. */
static inline uint32_t tei_range_index(const struct tei_range_table *t,
				       uint64_t addr)
{
	uint32_t low = 0, high = t->n, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (t->at[mid]->end <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Returns the range at index i if it begins below the address "end". Otherwise,
 * and if i is too large, returns NULL. */
static inline struct tei_range *tei_range_below(const struct tei_range_table *t,
						uint32_t i, uint64_t end)
{
	return i < t->n && t->at[i]->base < end ? t->at[i] : NULL;
}

/* Returns the first range that overlaps [base, end), or NULL. */
static inline struct tei_range *
tei_range_overlap(const struct tei_range_table *t, uint64_t base, uint64_t end)
{
	return tei_range_below(t, tei_range_index(t, base), end);
}

/* Returns the range that contains all len bytes at addr, or NULL. If len is 0,
 * returns the range that contains addr. */
static inline struct tei_range *tei_range_find(const struct tei_range_table *t,
					       uint64_t addr, uint64_t len)
{
	uint32_t i = tei_range_index(t, addr);

	return i < t->n && addr >= t->at[i]->base && len <= t->at[i]->end - addr
		       ? t->at[i]
		       : NULL;
}

/* Returns the range that begins at base, or NULL. */
static inline struct tei_range *tei_range_start(const struct tei_range_table *t,
						uint64_t base)
{
	uint32_t i = tei_range_index(t, base);

	return i < t->n && t->at[i]->base == base ? t->at[i] : NULL;
}

/* Allocates memory for `more` additional ranges. So many insertions can then
 * not fail with TEI_ERR_MEMORY. Returns false if memory is short. */
bool tei_range_reserve(struct tei_range_table *t, uint32_t more);

/* Adds a range, which must not be in a table yet. Returns 0, or:
 *
 *	TEI_ERR_INVALID	the range is empty
 *	TEI_ERR_OVERLAP	the range overlaps a range in the table
 *	TEI_ERR_MEMORY	memory is short
 */
int tei_range_insert(struct tei_range_table *t, struct tei_range *r);

/* Removes a range that is in the table. */
void tei_range_remove(struct tei_range_table *t, const struct tei_range *r);

/* Frees the table's array without accessing the ranges. The table is empty
 * afterwards. */
void tei_range_fini(struct tei_range_table *t);

#endif /* TEI_UTIL_RANGE_H */
