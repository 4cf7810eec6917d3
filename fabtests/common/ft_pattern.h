/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PATTERN_H
#define TEI_FABTESTS_COMMON_FT_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/*
 * Fills a buffer with a pattern in which each byte is a function of (seed,
 * sequence, offset), so that torn, misplaced or old bytes are detected. offset
 * is the position of buf[0] in the whole region and need not be aligned. A
 * region may therefore be filled and checked in parts of any size.
 */
void ft_pattern_fill(void *buf, uint64_t offset, size_t len, uint64_t seed,
		     uint64_t sequence);

/* Returns the index of the first byte in buf that differs from the pattern, or
 * len if there is none. */
size_t ft_pattern_check(const void *buf, uint64_t offset, size_t len,
			uint64_t seed, uint64_t sequence);

/* Returns the byte of the pattern at `offset`. */
uint8_t ft_pattern_byte(uint64_t offset, uint64_t seed, uint64_t sequence);

/* Returns a pseudo-random number and advances the state, which the caller
 * seeds. */
uint64_t ft_random(uint64_t *state);

#endif /* TEI_FABTESTS_COMMON_FT_PATTERN_H */
