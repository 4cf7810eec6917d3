/* SPDX-License-Identifier: BSD-2-Clause */
/* Compares the miss ratios of SIEVE, FIFO, LRU and CLOCK for accesses with a
 * Zipf distribution. All policies see the same accesses. Prints a table and
 * checks nothing. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/sieve.h"

#define BENCH_KEYS	10000u
#define BENCH_ACCESSES	2000000u

struct bench_item {
	struct tei_sieve_entry entry;	/* used by SIEVE */
	struct tei_list link;		/* used by the other policies: entry of
					 * a list with the newest item first */
	bool in, visited;
};

struct bench {
	struct bench_item item[BENCH_KEYS];
	struct tei_sieve sieve;
	struct tei_list order;
	size_t count, cap;
};

/* A policy of a cache: the action on a hit, and the choice of the entry to
 * evict. */
struct bench_policy {
	const char *name;
	void (*hit)(struct bench *b, struct bench_item *i);
	struct bench_item *(*evict)(struct bench *b);
};

static struct bench_item *bench_oldest(struct bench *b)
{
	return tei_container_of(b->order.prev, struct bench_item, link);
}

static void bench_hit_none(struct bench *b, struct bench_item *i)
{
	(void)b;
	(void)i;
}

static void bench_hit_moves(struct bench *b, struct bench_item *i)
{
	tei_list_del(&i->link);
	tei_list_add_head(&b->order, &i->link);
}

static void bench_hit_marks(struct bench *b, struct bench_item *i)
{
	(void)b;
	i->visited = true;
}

static struct bench_item *bench_evict_clock(struct bench *b)
{
	struct bench_item *i = bench_oldest(b);

	for (; i->visited; i = bench_oldest(b)) {
		i->visited = false;
		bench_hit_moves(b, i);
	}
	return i;
}

static void bench_hit_sieve(struct bench *b, struct bench_item *i)
{
	(void)b;
	tei_sieve_visit(&i->entry);
}

static struct bench_item *bench_evict_sieve(struct bench *b)
{
	return tei_container_of(tei_sieve_evict(&b->sieve, NULL, NULL),
				struct bench_item, entry);
}

static const struct bench_policy bench_policies[] = {
	{ "SIEVE", bench_hit_sieve, bench_evict_sieve },
	{ "LRU", bench_hit_moves, bench_oldest },
	{ "CLOCK", bench_hit_marks, bench_evict_clock },
	{ "FIFO", bench_hit_none, bench_oldest },
};

static void bench_insert(struct bench *b, const struct bench_policy *p,
			 struct bench_item *i)
{
	struct bench_item *gone;

	if (b->count == b->cap) {
		gone = p->evict(b);
		tei_list_del(&gone->link);
		gone->in = false;
	} else {
		b->count++;
	}
	i->in = true;
	i->visited = false;
	tei_list_add_head(&b->order, &i->link);
	if (p->evict == bench_evict_sieve)
		tei_sieve_insert(&b->sieve, &i->entry);
}

static double bench_misses(struct bench *b, const struct bench_policy *p,
			   const uint16_t *trace, size_t cap)
{
	struct bench_item *i;
	size_t n, misses = 0;

	memset(b, 0, sizeof(*b));
	tei_sieve_init(&b->sieve);
	tei_list_init(&b->order);
	b->cap = cap;
	for (n = 0; n < BENCH_ACCESSES; n++) {
		i = &b->item[trace[n]];
		if (i->in) {
			p->hit(b, i);
			continue;
		}
		misses++;
		bench_insert(b, p, i);
	}
	return (double)misses / BENCH_ACCESSES;
}

/* Fills trace with random accesses: the n-th most popular key is accessed
 * n^-skew times as often as the most popular one. */
static void bench_trace(uint16_t *trace, double skew)
{
	static double cdf[BENCH_KEYS];
	uint64_t state = 0x9e3779b97f4a7c15;
	size_t n, low, high, mid;
	double sum = 0, u;

	for (n = 0; n < BENCH_KEYS; n++)
		cdf[n] = sum += pow((double)n + 1, -skew);
	for (n = 0; n < BENCH_ACCESSES; n++) {
		state ^= state >> 12;
		state ^= state << 25;
		state ^= state >> 27;
		u = (double)((state * UINT64_C(2685821657736338717)) >> 11) *
		    0x1p-53 * sum;
		for (low = 0, high = BENCH_KEYS - 1; low < high;) {
			mid = (low + high) / 2;
			if (cdf[mid] < u)
				low = mid + 1;
			else
				high = mid;
		}
		trace[n] = (uint16_t)low;
	}
}

int main(void)
{
	static const double skews[] = { 0.6, 0.8, 1.0, 1.2 };
	static const size_t caps[] = { 10, 100, 1000, 5000 };
	uint16_t *trace = malloc(BENCH_ACCESSES * sizeof(*trace));
	struct bench *b = malloc(sizeof(*b));
	size_t s, c, p;

	if (!trace || !b) {
		free(trace);
		free(b);
		return 1;
	}
	printf("miss ratios, %u accesses to %u keys\n", BENCH_ACCESSES,
	       BENCH_KEYS);
	printf("%5s %8s", "skew", "capacity");
	for (p = 0; p < sizeof(bench_policies) / sizeof(*bench_policies); p++)
		printf(" %8s", bench_policies[p].name);
	printf("\n");
	for (s = 0; s < sizeof(skews) / sizeof(*skews); s++) {
		bench_trace(trace, skews[s]);
		for (c = 0; c < sizeof(caps) / sizeof(*caps); c++) {
			printf("%5.1f %7.1f%%", skews[s],
			       100.0 * (double)caps[c] / BENCH_KEYS);
			for (p = 0; p < sizeof(bench_policies) /
						sizeof(*bench_policies); p++)
				printf(" %8.4f",
				       bench_misses(b, &bench_policies[p],
						    trace, caps[c]));
			printf("\n");
		}
	}
	free(trace);
	free(b);
	return 0;
}
