/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_RANGE_H
#define TEI_UTIL_RANGE_H

/*
 * Binary search in tables of address ranges. A table is a sorted array of
 * disjoint ranges, whose elements are structs with the end of the range in a
 * uint64_t. No allocation, no lock.
 */

#include <stddef.h>
#include <stdint.h>

/* Returns the index of the first of n ranges that ends above addr, or n. size:
 * bytes per element. end: offset of the range's end in an element. table may be
 * NULL if n is 0. */
static inline uint32_t tei_range_index(const void *table, uint32_t n,
				       size_t size, size_t end, uint64_t addr)
{
	const char *p = table;
	uint32_t low = 0, high = n, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (*(const uint64_t *)(const void *)(p + mid * size + end) <=
		    addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

#endif /* TEI_UTIL_RANGE_H */
