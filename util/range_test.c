/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "util/err.h"
#include "util/range.h"
#include "util/util_test.h"

#define RANGE_SPACE 256 /* number of addresses in the model */
#define RANGE_MANY  1000

/* A range that is embedded in a larger struct, as in the structs of the table's
 * users. */
struct range_item {
	uint32_t before; /* makes sure that "range" is not the first member */
	struct tei_range range;
};

static bool range_no_memory; /* if true, malloc fails */

void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);

void *__wrap_malloc(size_t len)
{
	return range_no_memory ? NULL : __real_malloc(len);
}

static struct range_item *range_item(struct tei_range *r)
{
	return r ? tei_container_of(r, struct range_item, range) : NULL;
}

/* --- the model: the item of each address --------------------------------- */

struct range_model {
	struct tei_range_table table;
	struct range_item *owner[RANGE_SPACE];
	uint32_t n;
};

static struct range_item *model_overlap(const struct range_model *m,
					uint64_t base, uint64_t end)
{
	for (; base < end; base++)
		if (m->owner[base])
			return m->owner[base];
	return NULL;
}

static struct range_item *model_find(const struct range_model *m, uint64_t addr,
				     uint64_t len)
{
	uint64_t i;

	for (i = 1; i < len; i++)
		if (addr + i >= RANGE_SPACE ||
		    m->owner[addr + i] != m->owner[addr])
			return NULL;
	return m->owner[addr];
}

static void model_set(struct range_model *m, const struct range_item *item,
		      struct range_item *owner)
{
	uint64_t i;

	for (i = item->range.base; i < item->range.end; i++)
		m->owner[i] = owner;
}

static void model_insert(struct range_model *m, uint64_t base, uint64_t len)
{
	bool taken = model_overlap(m, base, base + len);
	struct range_item *item = malloc(sizeof(*item));
	int ret;

	item->range.base = base;
	item->range.end = base + len;
	ret = tei_range_insert(&m->table, &item->range);
	CU_ASSERT_EQUAL(ret, taken ? TEI_ERR_OVERLAP : 0);
	if (ret) {
		free(item);
		return;
	}
	model_set(m, item, item);
	m->n++;
}

static void model_remove(struct range_model *m, struct range_item *item)
{
	tei_range_remove(&m->table, &item->range);
	model_set(m, item, NULL);
	m->n--;
	free(item);
}

/* Returns true if the table contains exactly the ranges of the model, in
 * ascending order. */
static bool model_same(const struct range_model *m)
{
	const struct range_item *item;
	uint64_t last = 0;
	uint32_t i;

	tei_range_foreach (item, i, &m->table, struct range_item, range) {
		if (item->range.base < last ||
		    m->owner[item->range.base] != item)
			return false;
		last = item->range.end;
	}
	return i == m->n;
}

static void model_query(const struct range_model *m, uint64_t base,
			uint64_t len)
{
	uint64_t end = base + len < RANGE_SPACE ? base + len : RANGE_SPACE;
	struct range_item *starts = m->owner[base];

	if (starts && starts->range.base != base)
		starts = NULL;
	CU_ASSERT(range_item(tei_range_overlap(&m->table, base, end)) ==
		  model_overlap(m, base, end));
	CU_ASSERT(range_item(tei_range_find(&m->table, base, len)) ==
		  model_find(m, base, len));
	CU_ASSERT(range_item(tei_range_find(&m->table, base, 0)) ==
		  m->owner[base]);
	CU_ASSERT(range_item(tei_range_start(&m->table, base)) == starts);
}

/* Adds and removes random ranges in a table and in a model, and compares the
 * two. */
static void test_fuzzed_table_is_the_model(void)
{
	struct range_model m = { .n = 0 };
	uint64_t base, len;
	struct tei_fuzz f;

	for (tei_fuzz_begin(&f, "range"); tei_fuzz_next(&f, 20000);) {
		base = tei_fuzz_random(&f) % RANGE_SPACE;
		len = 1 +
		      tei_fuzz_random(&f) % (tei_fuzz_random(&f) % 8 ? 4 : 64);
		if (base + len > RANGE_SPACE)
			len = RANGE_SPACE - base;
		/* makes the table grow at first, and later shrink */
		if (m.owner[base] &&
		    tei_fuzz_random(&f) % 4096 < f.rounds % 4096)
			model_remove(&m, m.owner[base]);
		else
			model_insert(&m, base, len);
		model_query(&m, tei_fuzz_random(&f) % RANGE_SPACE, len);
		CU_ASSERT(model_same(&m));
	}
	while (m.table.n)
		model_remove(&m, range_item(m.table.at[0]));
	tei_range_fini(&m.table);
}

/* --- single cases -------------------------------------------------------- */

static struct range_item range_items[RANGE_MANY];

/* Adds the range of item number i. The ranges of the items i - 1 and i + 1 are
 * adjacent to it. */
static int range_add(struct tei_range_table *t, uint32_t i)
{
	range_items[i].range.base = (i + 1) * UINT64_C(16);
	range_items[i].range.end = (i + 2) * UINT64_C(16);
	return tei_range_insert(t, &range_items[i].range);
}

static void test_empty_range_is_refused(void)
{
	struct tei_range r = { 5, 5 }, wraps = { UINT64_MAX, 0 };
	struct tei_range_table t = { .n = 0 };

	CU_ASSERT_EQUAL(tei_range_insert(&t, &r), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_range_insert(&t, &wraps), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(t.n, 0);
	CU_ASSERT_PTR_NULL(tei_range_find(&t, 5, 0));
	tei_range_fini(&t);
}

static void test_last_addresses_are_found(void)
{
	struct tei_range r = { UINT64_MAX - 8, UINT64_MAX };
	struct tei_range_table t = { .n = 0 };

	CU_ASSERT_EQUAL(tei_range_insert(&t, &r), 0);
	CU_ASSERT(tei_range_find(&t, UINT64_MAX - 8, 8) == &r);
	CU_ASSERT_PTR_NULL(tei_range_find(&t, UINT64_MAX - 8, 9));
	CU_ASSERT_PTR_NULL(tei_range_find(&t, UINT64_MAX - 8, UINT64_MAX));
	CU_ASSERT_PTR_NULL(tei_range_find(&t, UINT64_MAX, 1));
	tei_range_fini(&t);
}

/* Tests that a table does not allocate a larger array if ranges are removed at
 * one end and added at the other, as with a ring of buffers. */
static void test_table_with_moving_ranges_does_not_grow(void)
{
	struct tei_range_table t = { .n = 0 };
	struct tei_range **mem;
	uint32_t i;

	for (i = 0; i < 8; i++)
		CU_ASSERT_EQUAL(range_add(&t, i), 0);
	mem = t.mem;
	for (; i < RANGE_MANY; i++) {
		tei_range_remove(&t, &range_items[i - 8].range);
		CU_ASSERT_EQUAL(range_add(&t, i), 0);
	}
	CU_ASSERT_EQUAL(t.n, 8);
	CU_ASSERT(t.mem == mem);
	tei_range_fini(&t);
}

/* Tests that a failed allocation leaves the table unchanged. */
static void test_insert_without_memory_fails(void)
{
	struct tei_range_table t = { .n = 0 };
	uint32_t i;

	range_no_memory = true;
	CU_ASSERT_EQUAL(range_add(&t, 0), TEI_ERR_MEMORY);
	CU_ASSERT(!tei_range_reserve(&t, 1));
	CU_ASSERT_EQUAL(t.n, 0);
	range_no_memory = false;
	for (i = 0; i < 8; i++)
		CU_ASSERT_EQUAL(range_add(&t, i), 0);
	range_no_memory = true;
	while (t.n < t.cap)
		CU_ASSERT_EQUAL_FATAL(range_add(&t, i++), 0);
	CU_ASSERT_EQUAL(range_add(&t, i), TEI_ERR_MEMORY);
	range_no_memory = false;
	CU_ASSERT_EQUAL(t.n, i);
	CU_ASSERT(tei_range_find(&t, 16 * UINT64_C(8), 16) ==
		  &range_items[7].range);
	CU_ASSERT_EQUAL(range_add(&t, i), 0);
	tei_range_fini(&t);
}

/* Removes all items except every eighth one, and adds the removed items again:
 * in descending order if "descending" is true, otherwise in ascending order. */
static void range_return(struct tei_range_table *t, bool descending)
{
	uint32_t i, k, away = 0;

	for (i = 0; i < RANGE_MANY; i++) {
		if (i % 8) {
			tei_range_remove(t, &range_items[i].range);
			away++;
		}
	}
	CU_ASSERT(tei_range_reserve(t, away));
	range_no_memory = true;
	for (i = 0; i < RANGE_MANY; i++) {
		k = descending ? RANGE_MANY - 1 - i : i;
		if (k % 8)
			CU_ASSERT_EQUAL(range_add(t, k), 0);
	}
	range_no_memory = false;
	CU_ASSERT_EQUAL(t->n, RANGE_MANY);
}

static void test_reserved_insert_needs_no_memory(void)
{
	struct tei_range_table t = { .n = 0 };
	uint32_t i;

	for (i = 0; i < RANGE_MANY; i++)
		CU_ASSERT_EQUAL(range_add(&t, i), 0);
	range_return(&t, false);
	range_return(&t, true);
	for (i = 0; i < RANGE_MANY; i++)
		CU_ASSERT(t.at[i] == &range_items[i].range);
	tei_range_fini(&t);
	CU_ASSERT_EQUAL(t.n, 0);
}

const struct tei_test_case range_cases[] = {
	{ "empty_range_is_refused", test_empty_range_is_refused },
	{ "last_addresses_are_found", test_last_addresses_are_found },
	{ "table_with_moving_ranges_does_not_grow",
	  test_table_with_moving_ranges_does_not_grow },
	{ "insert_without_memory_fails", test_insert_without_memory_fails },
	{ "reserved_insert_needs_no_memory",
	  test_reserved_insert_needs_no_memory },
	{ "fuzzed_table_is_the_model", test_fuzzed_table_is_the_model },
	{ NULL, NULL },
};
