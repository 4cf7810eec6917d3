/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/list.h"

#include "util/util_test.h"

struct item {
	int value;
	struct tei_list link;
};

/* Returns the values of the list's items as the digits of a decimal number; the
 * first item is the first digit. */
static int list_digits(struct tei_list *l)
{
	struct item *it;
	int digits = 0;

	tei_list_foreach(it, l, struct item, link)
		digits = digits * 10 + it->value;
	return digits;
}

static void list_fill(struct tei_list *l, struct item *items, int from, int to)
{
	int i;

	tei_list_init(l);
	for (i = from; i <= to; i++) {
		items[i].value = i;
		tei_list_add_tail(l, &items[i].link);
	}
}

static void test_keeps_order(void)
{
	struct item items[4], head = { .value = 9 };
	struct tei_list l;

	tei_list_init(&l);
	CU_ASSERT(tei_list_empty(&l));
	list_fill(&l, items, 1, 3);
	CU_ASSERT_FALSE(tei_list_empty(&l));
	tei_list_add_head(&l, &head.link);
	CU_ASSERT_EQUAL(list_digits(&l), 9123);
	CU_ASSERT_PTR_EQUAL(tei_list_first(&l, struct item, link), &head);
}

static void test_second_del_is_harmless(void)
{
	struct item items[4];
	struct tei_list l;

	list_fill(&l, items, 1, 3);
	tei_list_del(&items[2].link);
	tei_list_del(&items[2].link);
	CU_ASSERT_EQUAL(list_digits(&l), 13);
	CU_ASSERT(tei_list_empty(&items[2].link));
}

static void test_safe_walk_may_unlink(void)
{
	struct item items[5], *it, *next;
	struct tei_list l;

	list_fill(&l, items, 1, 4);
	tei_list_foreach_safe(it, next, &l, struct item, link)
		if (it->value % 2)
			tei_list_del(&it->link);
	CU_ASSERT_EQUAL(list_digits(&l), 24);
	tei_list_foreach_safe(it, next, &l, struct item, link)
		tei_list_del(&it->link);
	CU_ASSERT(tei_list_empty(&l));
}

static void test_splice_moves_everything(void)
{
	struct item items[7];
	struct tei_list a, b;

	list_fill(&a, items, 1, 2);
	list_fill(&b, items, 4, 6);
	tei_list_splice_tail(&a, &b);
	CU_ASSERT_EQUAL(list_digits(&a), 12456);
	CU_ASSERT(tei_list_empty(&b));
	tei_list_splice_tail(&a, &b);
	CU_ASSERT_EQUAL(list_digits(&a), 12456);
	tei_list_splice_tail(&b, &a);
	CU_ASSERT_EQUAL(list_digits(&b), 12456);
	CU_ASSERT(tei_list_empty(&a));
}

const struct tei_test_case list_cases[] = {
	{ "keeps_order", test_keeps_order },
	{ "second_del_is_harmless", test_second_del_is_harmless },
	{ "safe_walk_may_unlink", test_safe_walk_may_unlink },
	{ "splice_moves_everything", test_splice_moves_everything },
	{ NULL, NULL },
};
