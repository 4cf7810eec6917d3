/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PATTERN_H
#define TEI_FABTESTS_COMMON_FT_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/*
 * Every byte is a function of (seed, sequence, offset): what was torn,
 * misplaced or left over from an earlier round differs from what is expected.
 * offset is that of buf[0] in the region as a whole, of any alignment, so that
 * a region may be filled and checked in pieces of any size.
 */
void ft_pattern_fill(void *buf, uint64_t offset, size_t len, uint64_t seed,
		     uint64_t sequence);

/* Index of the first wrong byte, or len if there is none. */
size_t ft_pattern_check(const void *buf, uint64_t offset, size_t len,
			uint64_t seed, uint64_t sequence);

/* The byte at one offset. */
uint8_t ft_pattern_byte(uint64_t offset, uint64_t seed, uint64_t sequence);

/* A pseudo-random number from a state that the caller seeds. */
uint64_t ft_random(uint64_t *state);

#endif /* TEI_FABTESTS_COMMON_FT_PATTERN_H */
