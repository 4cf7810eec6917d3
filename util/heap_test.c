/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/heap.h"
#include "util/util_test.h"

#define HEAP_NODES 1000

static struct tei_heap_node heap_nodes[HEAP_NODES];

/* Returns the i-th key of a sequence that is not sorted. The first 65537 keys
 * are different. */
static uint64_t heap_key(uint32_t i)
{
	return (uint64_t)(i + 1) * 48271 % 65537;
}

static void heap_fill(struct tei_heap *h)
{
	uint32_t i;

	for (i = 0; i < HEAP_NODES; i++) {
		heap_nodes[i].pos = 0;
		CU_ASSERT_FATAL(tei_heap_add(h, &heap_nodes[i], heap_key(i)));
	}
}

/* Removes all nodes of the heap, smallest key first. Returns false if their
 * keys were not in ascending order, or if there were not "expect" nodes. */
static bool heap_sorted(struct tei_heap *h, uint32_t expect)
{
	struct tei_heap_node *n;
	uint64_t last = 0;
	uint32_t count = 0;
	bool sorted = true;

	while ((n = tei_heap_first(h))) {
		sorted = sorted && n->key >= last;
		last = n->key;
		tei_heap_remove(h, n);
		sorted = sorted && !n->pos;
		count++;
	}
	return sorted && count == expect;
}

static void test_smallest_key_is_first(void)
{
	struct tei_heap h = { .nodes = NULL };

	CU_ASSERT_PTR_NULL(tei_heap_first(&h));
	heap_fill(&h);
	CU_ASSERT(heap_sorted(&h, HEAP_NODES));
	tei_heap_fini(&h);
}

static void test_any_node_may_leave(void)
{
	struct tei_heap h = { .nodes = NULL };
	uint32_t i, left = HEAP_NODES;

	heap_fill(&h);
	for (i = 0; i < HEAP_NODES; i += 3, left--)
		tei_heap_remove(&h, &heap_nodes[i]);
	CU_ASSERT(heap_sorted(&h, left));
	tei_heap_fini(&h);
}

static void test_second_removal_is_harmless(void)
{
	struct tei_heap h = { .nodes = NULL };

	heap_fill(&h);
	tei_heap_remove(&h, &heap_nodes[7]);
	tei_heap_remove(&h, &heap_nodes[7]);
	CU_ASSERT_EQUAL(heap_nodes[7].pos, 0);
	CU_ASSERT(heap_sorted(&h, HEAP_NODES - 1));
	tei_heap_fini(&h);
}

static void test_equal_keys_all_come_out(void)
{
	struct tei_heap h = { .nodes = NULL };
	uint32_t i;

	for (i = 0; i < HEAP_NODES; i++) {
		heap_nodes[i].pos = 0;
		CU_ASSERT(tei_heap_add(&h, &heap_nodes[i], i % 3));
	}
	CU_ASSERT(heap_sorted(&h, HEAP_NODES));
	tei_heap_fini(&h);
}

const struct tei_test_case heap_cases[] = {
	{ "smallest_key_is_first", test_smallest_key_is_first },
	{ "any_node_may_leave", test_any_node_may_leave },
	{ "second_removal_is_harmless", test_second_removal_is_harmless },
	{ "equal_keys_all_come_out", test_equal_keys_all_come_out },
	{ NULL, NULL },
};
