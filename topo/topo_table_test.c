/* SPDX-License-Identifier: BSD-2-Clause */
#include "topo/topo_test.h"

#include <string.h>

#include "util/err.h"

static void test_every_nic_is_preferred_without_a_matrix(void)
{
	struct tei_topo *topo = topo_test_letters(3);

	CU_ASSERT_EQUAL(tei_topo_nic_count(topo), 3);
	CU_ASSERT_EQUAL(tei_topo_location_count(topo), 0);
	CU_ASSERT_PTR_NULL(tei_topo_location(topo, 0));
	CU_ASSERT_PTR_NULL(tei_topo_nic(topo, 3));
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 2)->numa_node, -1);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "*"), "a b c|");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:7"), "a b c|");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, NULL), "a b c|");
	tei_topo_free(topo);
	tei_topo_free(NULL);
}

static void test_disabled_nic_keeps_its_index(void)
{
	const struct tei_topo_nic_desc nics[] = {
		{ .name = "a" }, { .name = "b", .off = true }, { .name = "c" },
	};
	uint8_t ranks[4];
	struct tei_topo *topo;

	CU_ASSERT_EQUAL_FATAL(tei_topo_create(nics, 3, &topo, NULL), 0);
	CU_ASSERT_EQUAL(tei_topo_find_nic(topo, "c"), 2);
	CU_ASSERT(tei_topo_nic(topo, 1)->off);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "a c|");
	tei_topo_ranks(topo, "cpu:0", ranks, 4);
	CU_ASSERT_EQUAL(ranks[0], TEI_TOPO_PREFERRED);
	CU_ASSERT_EQUAL(ranks[1], TEI_TOPO_OFF);
	CU_ASSERT_EQUAL(ranks[2], TEI_TOPO_PREFERRED);
	CU_ASSERT_EQUAL(ranks[3], TEI_TOPO_OFF);
	tei_topo_free(topo);
}

static void test_ranks_follow_the_matrix(void)
{
	struct tei_topo *topo, *base = topo_test_letters(4);
	uint8_t ranks[4];

	CU_ASSERT_EQUAL_FATAL(
		tei_topo_parse("{\"cpu:0\":[[\"b\"],[\"a\",\"c\"]],"
			       "\"cpu:1\":[[],[\"d\",\"a\"]]}",
			       base, 0, &topo, NULL), 0);
	tei_topo_ranks(topo, "cpu:0", ranks, 4);
	CU_ASSERT_EQUAL(ranks[0], TEI_TOPO_ACCESSIBLE);
	CU_ASSERT_EQUAL(ranks[1], TEI_TOPO_PREFERRED);
	CU_ASSERT_EQUAL(ranks[2], TEI_TOPO_ACCESSIBLE);
	CU_ASSERT_EQUAL(ranks[3], TEI_TOPO_OFF);
	/* ranks may have fewer elements than there are NICs */
	ranks[1] = 77;
	tei_topo_ranks(topo, "*", ranks, 1);
	CU_ASSERT_EQUAL(ranks[0], TEI_TOPO_PREFERRED);
	CU_ASSERT_EQUAL(ranks[1], 77);
	tei_topo_free(topo);
	tei_topo_free(base);
}

static void test_far_nics_without_a_near_one_are_preferred(void)
{
	struct tei_topo *topo;

	CU_ASSERT_EQUAL_FATAL(
		tei_topo_parse("{\"cpu:1\":[[],[\"d\",\"a\"]]}", NULL, 0,
			       &topo, NULL), 0);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:1"), "d a|");
	tei_topo_free(topo);
}

static void test_lookup_reports_whether_the_nic_is_known(void)
{
	const uint32_t *near, *other;
	size_t n_near, n_other;
	struct tei_topo *topo;

	CU_ASSERT_EQUAL_FATAL(tei_topo_parse("{\"cpu:0\":[[\"a\"],[]]}", NULL,
					     0, &topo, NULL), 0);
	CU_ASSERT(tei_topo_lookup(topo, "cpu:0", &near, &n_near, &other,
				  &n_other));
	CU_ASSERT(!tei_topo_lookup(topo, "cpu:1", &near, &n_near, &other,
				   &n_other));
	CU_ASSERT_EQUAL(n_near, 1);
	CU_ASSERT_EQUAL(n_other, 0);
	tei_topo_free(topo);
}

static void test_bad_nic_lists_are_refused(void)
{
	static const struct tei_topo_nic_desc many[TEI_TOPO_MAX_NICS + 1];
	char longer[TEI_TOPO_NAME + 1];
	struct tei_topo_nic_desc nics[2] = { { .name = "a" }, { .name = "a" } };
	struct tei_topo *topo = NULL;
	struct tei_err err;

	CU_ASSERT_EQUAL(tei_topo_create(nics, 2, &topo, &err),
			TEI_ERR_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "twice"));
	nics[1].name = "";
	CU_ASSERT_EQUAL(tei_topo_create(nics, 2, &topo, &err),
			TEI_ERR_INVALID);
	nics[1].name = NULL;
	CU_ASSERT_EQUAL(tei_topo_create(nics, 2, &topo, NULL),
			TEI_ERR_INVALID);
	nics[1].name = "b\n";
	CU_ASSERT_EQUAL(tei_topo_create(nics, 2, &topo, &err),
			TEI_ERR_INVALID);
	memset(longer, 'x', sizeof(longer));
	longer[TEI_TOPO_NAME] = '\0';
	nics[1].name = longer;
	CU_ASSERT_EQUAL(tei_topo_create(nics, 2, &topo, &err),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_topo_create(many, TEI_TOPO_MAX_NICS + 1, &topo,
					&err), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_topo_create(NULL, 1, &topo, &err),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_topo_create(nics, 1, NULL, &err), TEI_ERR_INVALID);
	CU_ASSERT_PTR_NULL(topo);
	longer[TEI_TOPO_NAME - 1] = '\0';
	CU_ASSERT_EQUAL(tei_topo_create(nics, 2, &topo, &err), 0);
	CU_ASSERT_EQUAL(tei_topo_find_nic(topo, longer), 1);
	CU_ASSERT_EQUAL(tei_topo_find_nic(topo, NULL), -1);
	tei_topo_free(topo);
}

static void test_table_without_nics_is_valid(void)
{
	struct tei_topo *topo;

	CU_ASSERT_EQUAL_FATAL(tei_topo_create(NULL, 0, &topo, NULL), 0);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "|");
	tei_topo_free(topo);
}

const struct tei_test_case table_cases[] = {
	{ "every_nic_is_preferred_without_a_matrix",
	  test_every_nic_is_preferred_without_a_matrix },
	{ "disabled_nic_keeps_its_index", test_disabled_nic_keeps_its_index },
	{ "ranks_follow_the_matrix", test_ranks_follow_the_matrix },
	{ "far_nics_without_a_near_one_are_preferred",
	  test_far_nics_without_a_near_one_are_preferred },
	{ "lookup_reports_whether_the_nic_is_known",
	  test_lookup_reports_whether_the_nic_is_known },
	{ "bad_nic_lists_are_refused", test_bad_nic_lists_are_refused },
	{ "table_without_nics_is_valid", test_table_without_nics_is_valid },
	{ NULL, NULL },
};
