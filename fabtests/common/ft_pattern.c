/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_pattern.h"

#include <string.h>

/* The 8-byte word of the pattern at offset 8 * i is base + i * STEP. The base
 * is a hash of seed and sequence, so the pattern costs one addition per word.
 * Two sequences have equal words only if their random bases differ by a small
 * multiple of STEP. */
#define STEP UINT64_C(0x9e3779b97f4a7c15)

enum { UNROLL = 8 };

static uint64_t pattern_mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t pattern_word(uint64_t offset, uint64_t seed, uint64_t sequence)
{
	return pattern_mix(pattern_mix(seed + STEP) ^ sequence) +
	       offset / 8 * STEP;
}

uint64_t ft_random(uint64_t *state)
{
	return pattern_mix(*state += STEP);
}

uint8_t ft_pattern_byte(uint64_t offset, uint64_t seed, uint64_t sequence)
{
	return (uint8_t)(pattern_word(offset, seed, sequence) >>
			 offset % 8 * 8);
}

static void pattern_fill_bytes(uint8_t *buf, uint64_t offset, size_t len,
			       uint64_t seed, uint64_t sequence)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = ft_pattern_byte(offset + i, seed, sequence);
}

static size_t pattern_check_bytes(const uint8_t *buf, uint64_t offset,
				  size_t len, uint64_t seed, uint64_t sequence)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != ft_pattern_byte(offset + i, seed, sequence))
			return i;
	return len;
}

/* Returns the number of bytes before the first 8-byte boundary, at most len. */
static size_t pattern_head(uint64_t offset, size_t len)
{
	size_t head = (size_t)(-offset % 8);

	return head < len ? head : len;
}

/* Fills as many blocks of UNROLL words as fit. Returns the number of bytes
 * filled. */
static size_t pattern_fill_words(uint8_t *buf, size_t len, uint64_t word)
{
	uint64_t words[UNROLL];
	size_t at;

	for (at = 0; at + sizeof(words) <= len; at += sizeof(words)) {
		for (int i = 0; i < UNROLL; i++)
			words[i] = word + (uint64_t)i * STEP;
		memcpy(buf + at, words, sizeof(words));
		word += UNROLL * STEP;
	}
	return at;
}

/* Checks blocks of UNROLL words. Returns the number of bytes before the first
 * wrong or incomplete block. */
static size_t pattern_check_words(const uint8_t *buf, size_t len, uint64_t word)
{
	uint64_t words[UNROLL];
	size_t at;

	for (at = 0; at + sizeof(words) <= len; at += sizeof(words)) {
		uint64_t wrong = 0;

		memcpy(words, buf + at, sizeof(words));
		for (int i = 0; i < UNROLL; i++)
			wrong |= words[i] ^ (word + (uint64_t)i * STEP);
		if (wrong)
			break;
		word += UNROLL * STEP;
	}
	return at;
}

void ft_pattern_fill(void *buf, uint64_t offset, size_t len, uint64_t seed,
		     uint64_t sequence)
{
	size_t done = pattern_head(offset, len);

	pattern_fill_bytes(buf, offset, done, seed, sequence);
	done += pattern_fill_words((uint8_t *)buf + done, len - done,
				   pattern_word(offset + done, seed, sequence));
	pattern_fill_bytes((uint8_t *)buf + done, offset + done, len - done,
			   seed, sequence);
}

size_t ft_pattern_check(const void *buf, uint64_t offset, size_t len,
			uint64_t seed, uint64_t sequence)
{
	const uint8_t *bytes = buf;
	size_t done = pattern_head(offset, len);
	size_t good = pattern_check_bytes(bytes, offset, done, seed, sequence);

	if (good < done)
		return good;
	done += pattern_check_words(bytes + done, len - done,
				    pattern_word(offset + done, seed, sequence));
	return done + pattern_check_bytes(bytes + done, offset + done,
					  len - done, seed, sequence);
}
