/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/sim/sim.h"

static uint64_t pattern_word(uint64_t seed, size_t i)
{
	uint64_t x = (seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	return x ^ x >> 29;
}

void sim_pattern_fill(void *p, size_t len, uint64_t seed)
{
	char *at = p;
	size_t i;
	uint64_t w;

	for (i = 0; i < len / 8; i++) {
		w = pattern_word(seed, i);
		memcpy(at + i * 8, &w, 8);
	}
	if (len % 8) {
		w = pattern_word(seed, i);
		memcpy(at + i * 8, &w, len % 8);
	}
}

size_t sim_pattern_differs(const void *p, size_t len, uint64_t seed)
{
	const char *at = p;
	char want[8];
	uint64_t w, have;
	size_t i, j;

	for (i = 0; i < len; i += 8) {
		w = pattern_word(seed, i / 8);
		if (len - i >= 8) {
			memcpy(&have, at + i, 8);
			if (have == w)
				continue;
		}
		memcpy(want, &w, 8);
		for (j = 0; j < 8 && i + j < len; j++)
			if (at[i + j] != want[j])
				return i + j;
	}
	return len;
}

void sim_tomb_set(struct sim_tomb *tomb, char *at, size_t len)
{
	static uint64_t seed = UINT64_C(1) << 40;

	tomb->at = at;
	tomb->len = len;
	tomb->seed = seed += UINT64_C(1) << 20;
	sim_pattern_fill(at - SIM_GUARD, len + 2 * SIM_GUARD, tomb->seed);
}

void sim_tomb_verify(const struct sim_tomb *tomb, const char *what)
{
	size_t all = tomb->len + 2 * SIM_GUARD, at;

	if (tomb->len == 0)
		return;
	at = sim_pattern_differs(tomb->at - SIM_GUARD, all, tomb->seed);
	if (at != all)
		sim_found("%s: byte %zd of %zu has changed after the end of the transfer",
			  what, (ssize_t)at - SIM_GUARD, tomb->len);
}

bool sim_tomb_intact(const struct sim_tomb *tomb)
{
	size_t all = tomb->len + 2 * SIM_GUARD;

	return sim_pattern_differs(tomb->at - SIM_GUARD, all, tomb->seed) ==
	       all;
}

void sim_tomb_verify_guards(const struct sim_tomb *tomb, const char *what)
{
	size_t all = SIM_GUARD + tomb->len;
	size_t tail = all / 8 * 8;	/* offset of the word that contains the
					 * first guard byte after the range; a
					 * pattern can be computed only from the
					 * beginning of a word */
	char want[SIM_GUARD + 8];

	if (sim_pattern_differs(tomb->at - SIM_GUARD, SIM_GUARD, tomb->seed) !=
	    SIM_GUARD)
		sim_found("%s: bytes before the range of the transfer have changed",
			  what);
	sim_pattern_fill(want, all - tail + SIM_GUARD, tomb->seed + tail / 8);
	if (memcmp(want + (all - tail), tomb->at + tomb->len, SIM_GUARD))
		sim_found("%s: bytes after the range of the transfer have changed",
			  what);
}

static void (*check_on_found)(void);

void sim_on_found(void (*fn)(void))
{
	check_on_found = fn;
}

void sim_found(const char *format, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "found: seed %llu, event %llu, %.9f s: ",
		(unsigned long long)sim_seed(),
		(unsigned long long)sim_events(),
		(double)(sim_now() - SIM_START_NS) / 1e9);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	if (check_on_found)
		check_on_found();
	_exit(SIM_EXIT_FOUND);
}
