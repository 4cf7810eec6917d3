/* SPDX-License-Identifier: BSD-2-Clause */
#include "topo/topo_test.h"

#include <errno.h>
#include <numaif.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "topo/topo_int.h"
#include "util/err.h"

/* --- sampling on a simulated machine ------------------------------------- */

static struct {
	unsigned long n;
	void *pages[TOPO_PARTS_SAMPLE];
	int rc;
	int (*node)(uintptr_t page);
} fake;

static int fake_query(unsigned long n, void **pages, int *status)
{
	unsigned long i;

	CU_ASSERT_FATAL(n <= TOPO_PARTS_SAMPLE);
	fake.n = n;
	memcpy(fake.pages, pages, n * sizeof(*pages));
	for (i = 0; i < n; i++)
		status[i] = fake.node((uintptr_t)pages[i] / 4096);
	return fake.rc;
}

static int fake_locate(uintptr_t addr, size_t len, int (*node)(uintptr_t))
{
	fake.node = node;
	return topo_locate_node((void *)addr, len, 4096, fake_query);
}

static int node_three(uintptr_t page)
{
	(void)page;
	return 3;
}

static int node_absent(uintptr_t page)
{
	return page % 2 ? -ENOENT : -EFAULT;
}

static int node_half(uintptr_t page)
{
	return page % 2 ? 1 : 0;
}

static int node_mostly_one(uintptr_t page)
{
	return page % 4 == 0 ? 0 : page % 4 == 1 ? -ENOENT : 1;
}

static void test_samples_first_and_last_page(void)
{
	CU_ASSERT_EQUAL(fake_locate(0x10fff, 1, node_three), 3);
	CU_ASSERT_EQUAL(fake.n, 1);
	CU_ASSERT_PTR_EQUAL(fake.pages[0], (void *)0x10000);
	CU_ASSERT_EQUAL(fake_locate(0x10fff, 2, node_three), 3);
	CU_ASSERT_EQUAL(fake.n, 2);
	CU_ASSERT_PTR_EQUAL(fake.pages[1], (void *)0x11000);
	fake_locate(0x10000, 16 * 4096, node_three);
	CU_ASSERT_EQUAL(fake.n, 16);
	CU_ASSERT_PTR_EQUAL(fake.pages[7], (void *)0x17000);
	fake_locate(0x10000, 1000 * 4096, node_three);
	CU_ASSERT_EQUAL(fake.n, 16);
	CU_ASSERT_PTR_EQUAL(fake.pages[0], (void *)0x10000);
	CU_ASSERT_PTR_EQUAL(fake.pages[15], (void *)(0x10000 + 999 * 4096UL));
	/* the range is the whole address space */
	fake_locate(0, SIZE_MAX, node_three);
	CU_ASSERT_PTR_EQUAL(fake.pages[0], NULL);
	CU_ASSERT_PTR_EQUAL(fake.pages[15], (void *)(UINTPTR_MAX - 4095));
	CU_ASSERT(fake.pages[7] < fake.pages[8]);
}

static void test_majority_of_present_pages_decides(void)
{
	CU_ASSERT_EQUAL(fake_locate(0x10000, 8 * 4096, node_mostly_one), 1);
	CU_ASSERT_EQUAL(fake_locate(0x10000, 8 * 4096, node_half), -1);
	CU_ASSERT_EQUAL(fake_locate(0x10000, 9 * 4096, node_half), 0);
	CU_ASSERT_EQUAL(fake_locate(0x10000, 8 * 4096, node_absent), -1);
	fake.rc = -1;
	CU_ASSERT_EQUAL(fake_locate(0x10000, 8 * 4096, node_three), -2);
	fake.rc = 0;
}

static int node_halves(uintptr_t page)
{
	return page >= 0x10 + 500;
}

/* Simulates eight equal parts on the nodes 3 and 4. The fifth part has no
 * present page. */
static int node_eighths(uintptr_t page)
{
	static const int nodes[] = { 3, 4, 4, 3, -ENOENT, 3, 3, 4 };

	return nodes[(page - 0x10) / 125];
}

static int node_ragged(uintptr_t page)
{
	return page >= 0x10 + 333;
}

static int node_wide(uintptr_t page)
{
	return 1000 + (int)((page - 0x10) / 63);
}

static bool fake_parts(size_t pages, int (*node)(uintptr_t), char *text)
{
	fake.node = node;
	strcpy(text, "?");
	return topo_locate_parts((void *)0x10000, pages * 4096, 4096,
				 fake_query, text);
}

static void test_several_nodes_are_distinguished_by_parts(void)
{
	char text[TEI_TOPO_NAME];

	CU_ASSERT(fake_parts(1000, node_halves, text));
	CU_ASSERT_STRING_EQUAL(text, "segments:4096:0,1");
	CU_ASSERT(fake_parts(1000, node_eighths, text));
	CU_ASSERT_STRING_EQUAL(text, "segments:4096:3,4,4,3,3,3,3,4");
	CU_ASSERT(fake_parts(1000, node_ragged, text));
	CU_ASSERT_STRING_EQUAL(text,
			       "segments:4096:0,0,0,0,0,1,1,1,1,1,1,1,1,1,1,1");
	/* all sampled pages must lie within the region */
	CU_ASSERT_EQUAL(fake.n, TOPO_PARTS_SAMPLE);
	CU_ASSERT((uintptr_t)fake.pages[0] >= 0x10000);
	CU_ASSERT((uintptr_t)fake.pages[63] < 0x10000 + 1000 * 4096UL);
}

static void test_range_without_distinct_parts_is_left_whole(void)
{
	char text[TEI_TOPO_NAME];

	CU_ASSERT(!fake_parts(1000, node_three, text));
	CU_ASSERT(!fake_parts(1000, node_half, text));
	CU_ASSERT(!fake_parts(1024, node_half, text));
	CU_ASSERT(!fake_parts(1000, node_absent, text));
	CU_ASSERT(!fake_parts(1008, node_wide, text));
	CU_ASSERT(!fake_parts(63, node_halves, text));
	fake.rc = -1;
	CU_ASSERT(!fake_parts(1000, node_halves, text));
	fake.rc = 0;
	CU_ASSERT_STRING_EQUAL(text, "?");
}

/* --- this machine -------------------------------------------------------- */

/* Returns the node of a present page, or -1 if the kernel does not report
 * it. */
static int node_of(void *page)
{
	int status = -1;

	return move_pages(0, 1, &page, NULL, &status, 0) ? -1 : status;
}

static void test_touched_memory_is_located(void)
{
	size_t len = 64 * (size_t)sysconf(_SC_PAGESIZE);
	char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char location[TEI_TOPO_NAME] = "?";
	int node = -2;

	CU_ASSERT_FATAL(mem != MAP_FAILED);
	memset(mem, 1, len);
	CU_ASSERT_EQUAL(tei_topo_locate(mem, len, location), 0);
	if (node_of(mem) < 0)
		tei_test_skip("move_pages is not permitted");
	else
		CU_ASSERT_EQUAL(sscanf(location, "cpu:%d", &node), 1);
	munmap(mem, len);
}

static void test_untouched_memory_stays_untouched(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len = 64 * page, i;
	char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char location[TEI_TOPO_NAME] = "?";
	unsigned char in[64];
	int probe = 0;

	CU_ASSERT_FATAL(mem != MAP_FAILED);
	CU_ASSERT_EQUAL(tei_topo_locate(mem, len, location), 0);
	CU_ASSERT_EQUAL_FATAL(mincore(mem, len, in), 0);
	for (i = 0; i < 64; i++)
		CU_ASSERT(!(in[i] & 1));
	if (node_of((void *)((uintptr_t)&probe / page * page)) < 0)
		tei_test_skip("move_pages is not permitted");
	else
		CU_ASSERT_STRING_EQUAL(location, "*");
	munmap(mem, len);
	/* locating a range that is not mapped is not an error */
	CU_ASSERT_EQUAL(tei_topo_locate(mem, len, location), 0);
	CU_ASSERT_EQUAL(tei_topo_locate(NULL, 1, location), 0);
	CU_ASSERT_EQUAL(tei_topo_locate(NULL, SIZE_MAX, location), 0);
}

static void test_empty_and_wrapping_ranges_are_refused(void)
{
	char location[TEI_TOPO_NAME] = "?";

	CU_ASSERT_EQUAL(tei_topo_locate(location, 0, location),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_topo_locate((void *)4096, SIZE_MAX, location),
			TEI_ERR_INVALID);
	CU_ASSERT_STRING_EQUAL(location, "?");
}

/* --- location strings ---------------------------------------------------- */

static void test_locations_of_every_kind_are_read(void)
{
	struct tei_topo_where w;

	CU_ASSERT_EQUAL(tei_topo_where_parse("*", &w, NULL), 0);
	CU_ASSERT_EQUAL(w.kind, TEI_TOPO_WHERE_ANY);
	CU_ASSERT_EQUAL(tei_topo_where_parse(NULL, &w, NULL), 0);
	CU_ASSERT_EQUAL(w.kind, TEI_TOPO_WHERE_ANY);
	CU_ASSERT_EQUAL(tei_topo_where_parse("cpu:12", &w, NULL), 0);
	CU_ASSERT_EQUAL(w.kind, TEI_TOPO_WHERE_CPU);
	CU_ASSERT_EQUAL(w.index, 12);
	CU_ASSERT_EQUAL(tei_topo_where_parse("cuda:0", &w, NULL), 0);
	CU_ASSERT_EQUAL(w.kind, TEI_TOPO_WHERE_CUDA);
	CU_ASSERT_EQUAL(tei_topo_where_parse("segments:4096:1,0,1", &w, NULL),
			0);
	CU_ASSERT_EQUAL(w.kind, TEI_TOPO_WHERE_PARTS);
	CU_ASSERT_EQUAL(w.page, 4096);
	CU_ASSERT_EQUAL(w.n_parts, 3);
	CU_ASSERT_EQUAL(w.nodes[0], 1);
	CU_ASSERT_EQUAL(w.nodes[1], 0);
	CU_ASSERT_EQUAL(w.nodes[2], 1);
}

static void test_bad_locations_are_refused(void)
{
	static const char *const bad[] = {
		"", " ", "cpu", "cpu:", "cpu:-1", "cpu:+1", "cpu: 1", "cpu:1 ",
		"cpu:01", "cpu:00", "cpu:65536", "cpu:99999999999999999999999",
		"cpu:0x1", "CPU:0", "gpu:0", "cuda:", "cuda:a", "**", "*0",
		"segments", "segments:", "segments:4096", "segments:4096:",
		"segments::0", "segments:0:0", "segments:4095:0",
		"segments:4096:0,", "segments:4096:,0", "segments:4096:0,,1",
		"segments:4096:0;1", "segments:4096:0,x", "segments:4096:65536",
		"segments:-4096:0", "segments:18446744073709551616:0",
		"segments:4096:0\n",
	};
	struct tei_topo_where w = { .index = 77 };
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(tei_topo_where_parse(bad[i], &w, &err),
				TEI_ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "location \""));
		CU_ASSERT_PTR_NULL(strchr(err.text, '\n'));
	}
	CU_ASSERT_EQUAL(w.index, 77);
	CU_ASSERT_EQUAL(tei_topo_where_parse("*", NULL, &err),
			TEI_ERR_INVALID);
}

static void test_parts_are_bounded(void)
{
	char text[4096] = "segments:65536:0";
	struct tei_topo_where w;
	unsigned int i;

	for (i = 1; i < TEI_TOPO_MAX_PARTS; i++)
		strcat(text, ",1");
	CU_ASSERT_EQUAL(tei_topo_where_parse(text, &w, NULL), 0);
	CU_ASSERT_EQUAL(w.n_parts, TEI_TOPO_MAX_PARTS);
	strcat(text, ",1");
	CU_ASSERT_EQUAL(tei_topo_where_parse(text, &w, NULL), TEI_ERR_INVALID);
}

static void part_is(const struct tei_topo_where *w, uint64_t length,
		    uint64_t offset, unsigned int part, const char *location,
		    uint64_t end)
{
	char got[TEI_TOPO_NAME];
	uint64_t got_end;

	CU_ASSERT_EQUAL(tei_topo_where_part(w, length, offset, got, &got_end),
			part);
	CU_ASSERT_STRING_EQUAL(got, location);
	CU_ASSERT_EQUAL(got_end, end);
}

static void test_parts_of_a_region_are_equal(void)
{
	struct tei_topo_where w;

	tei_topo_where_parse("segments:1:4,5,6", &w, NULL);
	part_is(&w, 10, 0, 0, "cpu:4", 3);
	part_is(&w, 10, 2, 0, "cpu:4", 3);
	part_is(&w, 10, 3, 1, "cpu:5", 6);
	part_is(&w, 10, 8, 2, "cpu:6", 10);
	part_is(&w, 10, 9, 2, "cpu:6", 10);
	part_is(&w, UINT64_MAX, UINT64_MAX - 1, 2, "cpu:6", UINT64_MAX);
	part_is(&w, 2, 1, 0, "*", 2);
	tei_topo_where_parse("cuda:3", &w, NULL);
	part_is(&w, 10, 5, 0, "cuda:3", 10);
	tei_topo_where_parse("*", &w, NULL);
	part_is(&w, 10, 5, 0, "*", 10);
}

static void test_a_part_begins_with_a_page(void)
{
	const uint64_t huge = UINT64_C(2) << 20;
	struct tei_topo_where w;

	tei_topo_where_parse("segments:4096:4,5,6", &w, NULL);
	/* each part consists of whole pages, so the beginnings are not rounded
	 * up */
	part_is(&w, 6 * 4096, 8191, 0, "cpu:4", 8192);
	part_is(&w, 6 * 4096, 8192, 1, "cpu:5", 16384);
	/* the beginnings at 4097 and 8194 are rounded up to 8192 and 12288 */
	part_is(&w, 3 * 4097, 0, 0, "cpu:4", 8192);
	part_is(&w, 3 * 4097, 8191, 0, "cpu:4", 8192);
	part_is(&w, 3 * 4097, 8192, 1, "cpu:5", 12288);
	part_is(&w, 3 * 4097, 12288, 2, "cpu:6", 3 * 4097);
	/* the beginnings at 4095 and 8190 are rounded up to 4096 and 8192 */
	part_is(&w, 3 * 4095, 4095, 0, "cpu:4", 4096);
	part_is(&w, 3 * 4095, 4096, 1, "cpu:5", 8192);
	part_is(&w, 3 * 4095, 8192, 2, "cpu:6", 3 * 4095);
	/* a region that is shorter than a page has one part */
	part_is(&w, 10, 9, 0, "cpu:4", 10);
	/* For huge pages, the beginnings are rounded up to huge pages, as an
	 * application does that binds each part to its node: of five pages,
	 * three are on the first node. */
	tei_topo_where_parse("segments:2097152:0,1", &w, NULL);
	part_is(&w, 5 * huge, 0, 0, "cpu:0", 3 * huge);
	part_is(&w, 5 * huge, 3 * huge, 1, "cpu:1", 5 * huge);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 5 * huge, 3 * huge - 1), 0);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 5 * huge, 3 * huge), 1);
	part_is(&w, UINT64_MAX, UINT64_MAX - 1, 1, "cpu:1", UINT64_MAX);
	tei_topo_where_parse("segments:1099511627776:0,1", &w, NULL);
	part_is(&w, UINT64_MAX, 0, 0, "cpu:0", UINT64_C(1) << 63);
	part_is(&w, 5 * huge, 4 * huge, 0, "cpu:0", 5 * huge);
}

static void test_a_byte_has_its_parts_node(void)
{
	struct tei_topo_where w;

	tei_topo_where_parse("segments:1:4,5,6", &w, NULL);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 10, 0), 4);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 10, 2), 4);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 10, 3), 5);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 10, 5), 5);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 10, 6), 6);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 10, 9), 6);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 2, 1), -1);
	tei_topo_where_parse("cpu:3", &w, NULL);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 10, 9), 3);
	tei_topo_where_parse("cuda:3", &w, NULL);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 10, 9), -1);
	tei_topo_where_parse("*", &w, NULL);
	CU_ASSERT_EQUAL(tei_topo_where_node(&w, 10, 9), -1);
}

const struct tei_test_case locate_cases[] = {
	{ "samples_first_and_last_page", test_samples_first_and_last_page },
	{ "a_byte_has_its_parts_node", test_a_byte_has_its_parts_node },
	{ "a_part_begins_with_a_page", test_a_part_begins_with_a_page },
	{ "majority_of_present_pages_decides",
	  test_majority_of_present_pages_decides },
	{ "several_nodes_are_distinguished_by_parts",
	  test_several_nodes_are_distinguished_by_parts },
	{ "range_without_distinct_parts_is_left_whole",
	  test_range_without_distinct_parts_is_left_whole },
	{ "touched_memory_is_located", test_touched_memory_is_located },
	{ "untouched_memory_stays_untouched",
	  test_untouched_memory_stays_untouched },
	{ "empty_and_wrapping_ranges_are_refused",
	  test_empty_and_wrapping_ranges_are_refused },
	{ "locations_of_every_kind_are_read",
	  test_locations_of_every_kind_are_read },
	{ "bad_locations_are_refused", test_bad_locations_are_refused },
	{ "parts_are_bounded", test_parts_are_bounded },
	{ "parts_of_a_region_are_equal", test_parts_of_a_region_are_equal },
	{ NULL, NULL },
};
