/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "fabtests/sim/sim_int.h"

static struct {
	uint64_t hash;
	sim_trace_fn fn;
	void *arg;
} trace;

/* The last step of SplitMix64: if one bit of x changes, about half of the bits
 * of the result change. */
static uint64_t trace_mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t trace_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t trace_add(uint64_t hash, uint64_t x)
{
	return trace_mix(hash + UINT64_C(0x9e3779b97f4a7c15) + x);
}

void sim_trace_begin(void)
{
	memset(&trace, 0, sizeof(trace));
	trace.hash = trace_mix(sim_seed());
}

void sim_trace(uint32_t host, const char *kind, unsigned int n,
	       const uint64_t *numbers)
{
	uint64_t hash = trace_text(trace.hash, kind);
	unsigned int i;

	hash = trace_add(hash, sim_now());
	hash = trace_add(hash, (uint64_t)host << 32 | n);
	for (i = 0; i < n; i++)
		hash = trace_add(hash, numbers[i]);
	trace.hash = hash;
	if (trace.fn)
		trace.fn(trace.arg, sim_now(), host, kind, n, numbers);
}

uint64_t sim_trace_hash(void)
{
	return trace.hash;
}

void sim_trace_record(sim_trace_fn fn, void *arg)
{
	trace.fn = fn;
	trace.arg = arg;
}

/* --- random streams --- */

void sim_rng_init(struct sim_rng *rng, const char *subject, uint64_t number)
{
	rng->state = trace_add(trace_text(trace_mix(sim_seed() ^
						    UINT64_C(0xcbf29ce484222325)),
					  subject),
			       number);
}

uint64_t sim_rng_next(struct sim_rng *rng)
{
	rng->state += UINT64_C(0x9e3779b97f4a7c15);
	return trace_mix(rng->state);
}

uint64_t sim_rng_below(struct sim_rng *rng, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)sim_rng_next(rng) * n) >> 64);
}

uint64_t sim_rng_range(struct sim_rng *rng, uint64_t min, uint64_t max)
{
	return min + sim_rng_below(rng, max - min + 1);
}

bool sim_rng_chance(struct sim_rng *rng, uint32_t ppm)
{
	return sim_rng_below(rng, 1000000) < ppm;
}
