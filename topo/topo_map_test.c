/* SPDX-License-Identifier: BSD-2-Clause */
#include "topo/topo_test.h"

#include <errno.h>
#include <numaif.h>
#include <string.h>
#include <sys/mman.h>

#define MAP_TEST_SIZE	(1u << 20)
#define MAP_TEST_NODES	1024
#define MAP_TEST_WORD	(8 * sizeof(unsigned long))

/* Returns true if the memory is filled with zeros and can be written up to its
 * last byte. */
static bool map_usable(char *mem, size_t size)
{
	size_t i;

	if (!mem)
		return false;
	for (i = 0; i < size; i++)
		if (mem[i])
			return false;
	memset(mem, 0x5a, size);
	return mem[0] == 0x5a && mem[size - 1] == 0x5a;
}

/* Returns the node on which the kernel prefers to allocate the memory at mem,
 * or -1 if there is no such node. */
static int map_wanted(char *mem)
{
	unsigned long bits[MAP_TEST_NODES / MAP_TEST_WORD];
	int mode = -1;
	size_t i;

	memset(bits, 0, sizeof(bits));
	if (get_mempolicy(&mode, bits, MAP_TEST_NODES, mem, MPOL_F_ADDR) ||
	    mode != MPOL_PREFERRED)
		return -1;
	for (i = 0; i < MAP_TEST_NODES; i++)
		if (bits[i / MAP_TEST_WORD] >> i % MAP_TEST_WORD & 1)
			return (int)i;
	return -1;
}

static void test_map_is_memory_of_that_node(void)
{
	char *mem = tei_topo_map(0, MAP_TEST_SIZE);
	int mode;

	CU_ASSERT(map_usable(mem, MAP_TEST_SIZE));
	if (get_mempolicy(&mode, NULL, 0, NULL, 0))
		tei_test_skip("memory policies are not available: %s",
			      strerror(errno));
	else
		CU_ASSERT_EQUAL(map_wanted(mem), 0);
	CU_ASSERT_EQUAL(munmap(mem, MAP_TEST_SIZE), 0);
}

static void test_map_without_a_node_is_memory_anywhere(void)
{
	char *mem = tei_topo_map(-1, MAP_TEST_SIZE);

	CU_ASSERT_EQUAL(map_wanted(mem), -1);
	CU_ASSERT(map_usable(mem, MAP_TEST_SIZE));
	CU_ASSERT_EQUAL(munmap(mem, MAP_TEST_SIZE), 0);
}

static void test_map_of_a_node_that_is_not_there_is_memory_all_the_same(void)
{
	static const int nodes[] = { MAP_TEST_NODES - 2, MAP_TEST_NODES - 1,
				     MAP_TEST_NODES, 1 << 30 };
	char *mem;
	size_t i;

	for (i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		mem = tei_topo_map(nodes[i], MAP_TEST_SIZE);
		CU_ASSERT(map_usable(mem, MAP_TEST_SIZE));
		CU_ASSERT_EQUAL(munmap(mem, MAP_TEST_SIZE), 0);
	}
}

static void test_map_of_too_much_or_nothing_is_none(void)
{
	CU_ASSERT_PTR_NULL(tei_topo_map(0, 0));
	CU_ASSERT_PTR_NULL(tei_topo_map(0, SIZE_MAX / 2));
}

const struct tei_test_case map_cases[] = {
	{ "map_is_memory_of_that_node", test_map_is_memory_of_that_node },
	{ "map_without_a_node_is_memory_anywhere",
	  test_map_without_a_node_is_memory_anywhere },
	{ "map_of_a_node_that_is_not_there_is_memory_all_the_same",
	  test_map_of_a_node_that_is_not_there_is_memory_all_the_same },
	{ "map_of_too_much_or_nothing_is_none",
	  test_map_of_too_much_or_nothing_is_none },
	{ NULL, NULL },
};
