/* SPDX-License-Identifier: BSD-2-Clause */
#include "topo/topo_test.h"

#include <sys/mman.h>

#include "topo/topo_int.h"

#define MAPS_PAGE	65536	/* size of a test page, bytes; a multiple of
				 * every page size */

static char *maps_pages(size_t n)
{
	char *p = mmap(NULL, n * MAPS_PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CU_ASSERT_FATAL(p != MAP_FAILED);
	return p;
}

/* Checks the access to five adjacent test pages: writable, read-only,
 * PROT_NONE, writable, and not mapped. */
static void maps_expect_five(const struct tei_topo_maps *maps, const char *p)
{
	uint64_t base = 0, end = 0;

	CU_ASSERT_EQUAL(tei_topo_maps_check(maps, p, MAPS_PAGE, &base, &end),
			TEI_TOPO_WRITABLE);
	CU_ASSERT_EQUAL(tei_topo_maps_check(maps, p + 3 * MAPS_PAGE, 1, &base,
					    &end), TEI_TOPO_WRITABLE);
	CU_ASSERT_EQUAL(base | end, 0);
	CU_ASSERT_EQUAL(tei_topo_maps_check(maps, p, MAPS_PAGE + 1, &base,
					    &end), TEI_TOPO_READ_ONLY);
	CU_ASSERT_EQUAL(base, (uintptr_t)p + MAPS_PAGE);
	CU_ASSERT_EQUAL(end, (uintptr_t)p + 2 * MAPS_PAGE);
	CU_ASSERT_EQUAL(tei_topo_maps_check(maps, p, 4 * MAPS_PAGE, &base,
					    &end), TEI_TOPO_CLOSED);
	CU_ASSERT_EQUAL(base, (uintptr_t)p + 2 * MAPS_PAGE);
	CU_ASSERT_EQUAL(end, (uintptr_t)p + 3 * MAPS_PAGE);
	CU_ASSERT_EQUAL(tei_topo_maps_check(maps, p, 4 * MAPS_PAGE + 1, &base,
					    &end), TEI_TOPO_UNMAPPED);
	CU_ASSERT_EQUAL(base, (uintptr_t)p + 4 * MAPS_PAGE);
}

static void maps_five(bool query)
{
	struct tei_topo_maps *maps = NULL;
	char *p = maps_pages(5);

	mprotect(p + MAPS_PAGE, MAPS_PAGE, PROT_READ);
	mprotect(p + 2 * MAPS_PAGE, MAPS_PAGE, PROT_NONE);
	munmap(p + 4 * MAPS_PAGE, MAPS_PAGE);
	CU_ASSERT_EQUAL_FATAL(topo_maps_read(UINT64_MAX, query, &maps), 0);
	maps_expect_five(maps, p);
	tei_topo_maps_free(maps);
	munmap(p, 4 * MAPS_PAGE);
}

static void test_first_part_with_the_least_access_is_found(void)
{
	maps_five(true);
}

static void test_first_part_is_found_in_the_list_of_an_older_kernel(void)
{
	maps_five(false);
}

/*
 * Tests addresses that no process can have mapped: in the kernel's half of the
 * address space, and below the lowest mapping.
 */
static void test_addresses_outside_the_process_are_unmapped(void)
{
	void *const addr[] = { (void *)UINTPTR_MAX,
			       (void *)(UINTPTR_MAX / 2 + 1), (void *)1 };
	struct tei_topo_maps *maps[3] = { NULL, NULL, NULL };
	uint64_t base, end;
	size_t i, k;

	CU_ASSERT_EQUAL_FATAL(topo_maps_read(UINT64_MAX, true, &maps[0]), 0);
	CU_ASSERT_EQUAL_FATAL(topo_maps_read(UINT64_MAX, false, &maps[1]), 0);
	for (i = 0; i < 3; i++)
		for (k = 0; k < 3; k++) {
			CU_ASSERT_EQUAL(tei_topo_maps_check(maps[i], addr[k], 1,
							    &base, &end),
					TEI_TOPO_UNMAPPED);
			CU_ASSERT_EQUAL(base, (uintptr_t)addr[k]);
		}
	tei_topo_maps_free(maps[0]);
	tei_topo_maps_free(maps[1]);
}

static void test_hole_is_found_without_proc(void)
{
	char *p = maps_pages(5);
	uint64_t base = 0, end = 0;

	mprotect(p + MAPS_PAGE, MAPS_PAGE, PROT_NONE);
	CU_ASSERT_EQUAL(tei_topo_maps_check(NULL, p + 1, 5 * MAPS_PAGE - 1,
					    &base, &end), TEI_TOPO_UNKNOWN);
	munmap(p + 3 * MAPS_PAGE, MAPS_PAGE);
	CU_ASSERT_EQUAL(tei_topo_maps_check(NULL, p + 1, 5 * MAPS_PAGE - 1,
					    &base, &end), TEI_TOPO_UNMAPPED);
	CU_ASSERT_EQUAL(base, (uintptr_t)p + 3 * MAPS_PAGE);
	CU_ASSERT_EQUAL(tei_topo_maps_check(NULL, p + 3 * MAPS_PAGE + 5, 1,
					    &base, &end), TEI_TOPO_UNMAPPED);
	CU_ASSERT_EQUAL(base, (uintptr_t)p + 3 * MAPS_PAGE + 5);
	munmap(p, 3 * MAPS_PAGE);
	munmap(p + 4 * MAPS_PAGE, MAPS_PAGE);
}

/* Tests a list of mappings that is longer than one read returns. Makes every
 * second page of a range read-only, so that each page is a mapping of its
 * own. */
static void maps_thousands(bool query)
{
	struct tei_topo_maps *maps = NULL;
	char *p = maps_pages(4000);
	uint64_t base, end;
	size_t i, wrong = 0;

	for (i = 0; i < 4000; i += 2)
		mprotect(p + i * MAPS_PAGE, MAPS_PAGE, PROT_READ);
	CU_ASSERT_EQUAL_FATAL(topo_maps_read((uintptr_t)p + 4000 * MAPS_PAGE,
					     query, &maps), 0);
	for (i = 0; i < 4000; i++)
		wrong += tei_topo_maps_check(maps, p + i * MAPS_PAGE,
					     MAPS_PAGE, &base, &end) !=
			 (i % 2 ? TEI_TOPO_WRITABLE : TEI_TOPO_READ_ONLY);
	CU_ASSERT_EQUAL(wrong, 0);
	tei_topo_maps_free(maps);
	munmap(p, (size_t)4000 * MAPS_PAGE);
}

static void test_thousands_of_mappings_are_distinguished(void)
{
	maps_thousands(true);
	maps_thousands(false);
}

const struct tei_test_case maps_cases[] = {
	{ "first_part_with_the_least_access_is_found",
	  test_first_part_with_the_least_access_is_found },
	{ "first_part_is_found_in_the_list_of_an_older_kernel",
	  test_first_part_is_found_in_the_list_of_an_older_kernel },
	{ "addresses_outside_the_process_are_unmapped",
	  test_addresses_outside_the_process_are_unmapped },
	{ "hole_is_found_without_proc", test_hole_is_found_without_proc },
	{ "thousands_of_mappings_are_distinguished",
	  test_thousands_of_mappings_are_distinguished },
	{ NULL, NULL },
};
