/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/sieve.h"
#include "util/util_test.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SIEVE_KEYS	2000u
#define SIEVE_ACCESSES	200000u

struct sieve_item {
	struct tei_sieve_entry entry;
	bool busy;
};

/* A sieve, and a plain array as its reference. The array holds the same
 * entries; its first element is the oldest one. */
struct sieve_pair {
	struct tei_sieve sieve;
	struct sieve_item item[SIEVE_KEYS];
	unsigned int cap;

	unsigned int key[SIEVE_KEYS];
	bool visited[SIEVE_KEYS];
	unsigned int count, hand;

	uint64_t random;
};

static uint64_t sieve_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

static bool sieve_busy(const struct tei_sieve_entry *e, void *arg)
{
	(void)arg;
	return tei_container_of(e, const struct sieve_item, entry)->busy;
}

static struct sieve_pair *sieve_pair(unsigned int cap, uint64_t seed)
{
	struct sieve_pair *p = calloc(1, sizeof(*p));

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	tei_sieve_init(&p->sieve);
	p->cap = cap;
	p->random = seed;
	return p;
}

/* --- the reference ------------------------------------------------------- */

static int plain_find(const struct sieve_pair *p, unsigned int key)
{
	unsigned int i;

	for (i = 0; i < p->count; i++)
		if (p->key[i] == key)
			return (int)i;
	return -1;
}

static void plain_remove(struct sieve_pair *p, unsigned int i)
{
	memmove(&p->key[i], &p->key[i + 1],
		(p->count - i - 1) * sizeof(p->key[0]));
	memmove(&p->visited[i], &p->visited[i + 1],
		(p->count - i - 1) * sizeof(p->visited[0]));
	p->count--;
	if (p->hand > i)
		p->hand--;
	if (p->hand == p->count)
		p->hand = 0;
}

/* Returns the key that the reference evicts, or -1 if all entries are busy. */
static int plain_evict(struct sieve_pair *p)
{
	unsigned int i, key, busy = 0;

	for (i = 0; i < p->count; i++)
		busy += p->item[p->key[i]].busy;
	if (busy == p->count)
		return -1;
	for (;;) {
		key = p->key[p->hand];
		if (!p->item[key].busy && !p->visited[p->hand])
			break;
		if (!p->item[key].busy)
			p->visited[p->hand] = false;
		p->hand = (p->hand + 1) % p->count;
	}
	plain_remove(p, p->hand);
	return (int)key;
}

static void plain_insert(struct sieve_pair *p, unsigned int key)
{
	p->key[p->count] = key;
	p->visited[p->count++] = false;
}

/* --- the sieve and the reference ----------------------------------------- */

/* Inserts a key in the sieve and in the reference, and evicts an entry first if
 * they are full. Returns false if they evict different entries. */
static bool pair_miss(struct sieve_pair *p, unsigned int key)
{
	struct tei_sieve_entry *e = NULL;
	int gone = -1;

	if (p->count == p->cap) {
		e = tei_sieve_evict(&p->sieve, sieve_busy, NULL);
		gone = plain_evict(p);
		if (!e)
			return gone < 0;
		if (gone < 0 || e != &p->item[gone].entry ||
		    tei_sieve_holds(e))
			return false;
	}
	tei_sieve_insert(&p->sieve, &p->item[key].entry);
	plain_insert(p, key);
	return p->sieve.count == p->count;
}

static bool pair_access(struct sieve_pair *p, unsigned int key)
{
	int i = plain_find(p, key);

	if ((i >= 0) != tei_sieve_holds(&p->item[key].entry))
		return false;
	if (i < 0)
		return pair_miss(p, key);
	tei_sieve_visit(&p->item[key].entry);
	p->visited[i] = true;
	return true;
}

/* At random, removes an entry, or makes it busy or no longer busy. */
static void pair_disturb(struct sieve_pair *p)
{
	unsigned int key = (unsigned int)(sieve_random(&p->random) %
					  SIEVE_KEYS);
	int i = plain_find(p, key);

	p->item[key].busy = sieve_random(&p->random) % 3 == 0;
	if (i < 0 || sieve_random(&p->random) % 4)
		return;
	tei_sieve_remove(&p->sieve, &p->item[key].entry);
	plain_remove(p, (unsigned int)i);
}

static unsigned int pair_uniform(struct sieve_pair *p, const double *cdf)
{
	(void)cdf;
	return (unsigned int)(sieve_random(&p->random) % SIEVE_KEYS);
}

static unsigned int pair_zipf(struct sieve_pair *p, const double *cdf)
{
	double u = (double)(sieve_random(&p->random) >> 11) * 0x1p-53;
	unsigned int low = 0, high = SIEVE_KEYS - 1, mid;

	while (low < high) {
		mid = (low + high) / 2;
		if (cdf[mid] < u)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static const double *pair_cdf(double skew)
{
	static double cdf[SIEVE_KEYS];
	double sum = 0;
	unsigned int i;

	for (i = 0; i < SIEVE_KEYS; i++)
		cdf[i] = sum += pow(i + 1, -skew);
	for (i = 0; i < SIEVE_KEYS; i++)
		cdf[i] /= sum;
	return cdf;
}

static void pair_run(unsigned int cap, uint64_t seed, double skew, bool disturb)
{
	const double *cdf = pair_cdf(skew);
	struct sieve_pair *p = sieve_pair(cap, seed);
	bool equal = true;
	unsigned int i;

	for (i = 0; i < SIEVE_ACCESSES && equal; i++) {
		if (disturb && !(i % 5))
			pair_disturb(p);
		equal = pair_access(p, skew > 0 ? pair_zipf(p, cdf)
						: pair_uniform(p, cdf));
	}
	CU_ASSERT_EQUAL(i, SIEVE_ACCESSES);
	CU_ASSERT(equal);
	free(p);
}

static void test_random_trace_is_the_references(void)
{
	pair_run(1, 1, 0, false);
	pair_run(64, 2, 0, false);
	pair_run(SIEVE_KEYS / 2, 3, 0, false);
}

static void test_zipf_trace_is_the_references(void)
{
	pair_run(16, 4, 1.0, false);
	pair_run(64, 5, 0.8, false);
	pair_run(200, 6, 1.2, false);
}

static void test_busy_and_removed_ones_are_the_references(void)
{
	pair_run(2, 7, 1.0, true);
	pair_run(64, 8, 1.0, true);
	pair_run(200, 9, 0, true);
}

/* --- fixed sequences of insertions and evictions ------------------------- */

static struct sieve_item *sieve_gone(struct tei_sieve *sv)
{
	struct tei_sieve_entry *e = tei_sieve_evict(sv, sieve_busy, NULL);

	return e ? tei_container_of(e, struct sieve_item, entry) : NULL;
}

static void test_hand_goes_from_old_to_new_and_stays(void)
{
	struct sieve_item a[5] = { 0 };
	struct tei_sieve sv;
	int i;

	tei_sieve_init(&sv);
	for (i = 0; i < 4; i++)
		tei_sieve_insert(&sv, &a[i].entry);
	tei_sieve_visit(&a[0].entry);
	CU_ASSERT_PTR_EQUAL(sieve_gone(&sv), &a[1]);
	tei_sieve_insert(&sv, &a[4].entry);
	/* The hand has already passed entry 0, and it skips entry 2, which is
	 * visited now. So entry 3 is evicted first. */
	tei_sieve_visit(&a[2].entry);
	CU_ASSERT_PTR_EQUAL(sieve_gone(&sv), &a[3]);
	CU_ASSERT_PTR_EQUAL(sieve_gone(&sv), &a[4]);
	CU_ASSERT_PTR_EQUAL(sieve_gone(&sv), &a[0]);
	CU_ASSERT_PTR_EQUAL(sieve_gone(&sv), &a[2]);
	CU_ASSERT_PTR_NULL(sieve_gone(&sv));
	CU_ASSERT_EQUAL(sv.count, 0);
}

static void test_cache_of_busy_entries_evicts_nothing(void)
{
	struct sieve_item a[3] = { 0 };
	struct tei_sieve sv;
	int i;

	tei_sieve_init(&sv);
	for (i = 0; i < 3; i++) {
		tei_sieve_insert(&sv, &a[i].entry);
		a[i].busy = true;
	}
	tei_sieve_visit(&a[0].entry);
	CU_ASSERT_PTR_NULL(sieve_gone(&sv));
	CU_ASSERT_EQUAL(sv.count, 3);
	CU_ASSERT(a[0].entry.visited);
	a[0].busy = a[1].busy = false;
	CU_ASSERT_PTR_EQUAL(sieve_gone(&sv), &a[1]);
}

static void test_the_one_at_the_hand_may_be_removed(void)
{
	struct sieve_item a[3] = { 0 };
	struct tei_sieve sv;
	int i;

	tei_sieve_init(&sv);
	for (i = 0; i < 3; i++)
		tei_sieve_insert(&sv, &a[i].entry);
	CU_ASSERT_PTR_EQUAL(sieve_gone(&sv), &a[0]);
	tei_sieve_remove(&sv, &a[1].entry);
	tei_sieve_remove(&sv, &a[1].entry);
	CU_ASSERT_EQUAL(sv.count, 1);
	CU_ASSERT_PTR_EQUAL(sieve_gone(&sv), &a[2]);
}

const struct tei_test_case sieve_cases[] = {
	{ "random_trace_is_the_references",
	  test_random_trace_is_the_references },
	{ "zipf_trace_is_the_references", test_zipf_trace_is_the_references },
	{ "busy_and_removed_ones_are_the_references",
	  test_busy_and_removed_ones_are_the_references },
	{ "hand_goes_from_old_to_new_and_stays",
	  test_hand_goes_from_old_to_new_and_stays },
	{ "cache_of_busy_entries_evicts_nothing",
	  test_cache_of_busy_entries_evicts_nothing },
	{ "the_one_at_the_hand_may_be_removed",
	  test_the_one_at_the_hand_may_be_removed },
	{ NULL, NULL },
};
