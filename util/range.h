/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_RANGE_H
#define TEI_UTIL_RANGE_H

/*
 * Tables of address ranges, sorted and disjoint, as arrays of any structure
 * that has the end of its range in a uint64_t. No allocation, no lock.
 */

#include <stddef.h>
#include <stdint.h>

/* Index of the first of n that ends above addr, or n. table: of elements of
 * that size, with the end at that offset; may be NULL where n is 0. */
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
