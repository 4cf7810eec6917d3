/* SPDX-License-Identifier: BSD-2-Clause */
#include "topo/topo_test.h"

#include <string.h>

static struct tei_topo *text_topo(void)
{
	const struct tei_topo_nic_desc nics[] = {
		{ .name = "mlx5_bond_0", .speed = 200000000000,
		  .pci = { true, 0, 0x17, 0, 1 } },
		{ .name = "eth0", .speed = 100000000, .off = true },
		{ .name = "lo" },
	};
	struct tei_topo *topo, *base;

	CU_ASSERT_EQUAL_FATAL(tei_topo_create(nics, 3, &base, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(
		tei_topo_parse("{\"cuda:0\":[[\"mlx5_bond_0\"],[\"lo\"]],"
			       "\"cpu:1\":[[],[\"lo\",\"mlx5_bond_0\"]]}",
			       base, 0, &topo, NULL), 0);
	tei_topo_free(base);
	return topo;
}

static const char text_expected[] =
"NIC  NAME         STATE  NUMA  PCI              SPEED\n"
"  0  mlx5_bond_0  on     -     0000:17:00.1     200 Gbit/s\n"
"  1  eth0         off    -     -                100 Mbit/s\n"
"  2  lo           on     -     -                -\n"
"\n"
"cpu:1     near: -  other: lo mlx5_bond_0\n"
"cuda:0    near: mlx5_bond_0  other: lo\n"
"*         near: mlx5_bond_0 lo\n";

static void test_text_shows_nics_and_matrix(void)
{
	struct tei_topo *topo = text_topo();
	char buf[2048];
	size_t len = tei_topo_text(topo, buf, sizeof(buf));

	CU_ASSERT_STRING_EQUAL(buf, text_expected);
	CU_ASSERT_EQUAL(len, strlen(text_expected));
	tei_topo_free(topo);
}

static void test_text_is_cut_at_every_length(void)
{
	struct tei_topo *topo = text_topo();
	char buf[sizeof(text_expected) + 8];
	size_t len;

	CU_ASSERT_EQUAL(tei_topo_text(topo, NULL, 0), strlen(text_expected));
	for (len = 1; len <= sizeof(text_expected); len++) {
		memset(buf, 'X', sizeof(buf));
		CU_ASSERT_EQUAL(tei_topo_text(topo, buf, len),
				strlen(text_expected));
		CU_ASSERT_EQUAL(strlen(buf), len - 1);
		CU_ASSERT(!memcmp(buf, text_expected, len - 1));
		CU_ASSERT_EQUAL(buf[len], 'X');
	}
	tei_topo_free(topo);
}

static void test_filter_is_a_whitelist(void)
{
	static const struct {
		const char *list, *name;
		bool passes;
	} rows[] = {
		{ NULL, "a", true }, { "", "a", true }, { " , ,", "a", true },
		{ "a", "a", true }, { "a", "b", false }, { "b,a", "a", true },
		{ " b , a ", "a", true }, { "ab", "a", false },
		{ "a", "ab", false }, { ",a", "a", true },
		{ "a\n", "a", true }, { "a b", "a", false },
		{ "mlx5_1", "mlx5_10", false }, { "mlx5_10", "mlx5_1", false },
		{ "x,", "", false },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		CU_ASSERT_EQUAL(tei_topo_filter(rows[i].list, rows[i].name),
				rows[i].passes);
}

const struct tei_test_case text_cases[] = {
	{ "text_shows_nics_and_matrix", test_text_shows_nics_and_matrix },
	{ "text_is_cut_at_every_length", test_text_is_cut_at_every_length },
	{ "filter_is_a_whitelist", test_filter_is_a_whitelist },
	{ NULL, NULL },
};
