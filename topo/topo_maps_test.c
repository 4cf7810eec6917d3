/* SPDX-License-Identifier: BSD-2-Clause */
#include "topo/topo_test.h"

#include <sys/mman.h>

#define MAPS_PAGE	65536	/* a multiple of any page */

static char *maps_pages(size_t n)
{
	char *p = mmap(NULL, n * MAPS_PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CU_ASSERT_FATAL(p != MAP_FAILED);
	return p;
}

static void test_what_cannot_be_written_is_found(void)
{
	struct tei_topo_maps *maps = NULL;
	uint64_t base = 0, end = 0;
	char *p = maps_pages(5);

	mprotect(p + MAPS_PAGE, MAPS_PAGE, PROT_READ);
	mprotect(p + 2 * MAPS_PAGE, MAPS_PAGE, PROT_NONE);
	CU_ASSERT_EQUAL_FATAL(tei_topo_maps_read(UINT64_MAX, &maps), 0);
	CU_ASSERT(tei_topo_maps_writable(maps, p, MAPS_PAGE, &base, &end));
	CU_ASSERT(tei_topo_maps_writable(maps, p + 3 * MAPS_PAGE,
					 2 * MAPS_PAGE, &base, &end));
	CU_ASSERT_EQUAL(base | end, 0);
	CU_ASSERT_FALSE(tei_topo_maps_writable(maps, p, MAPS_PAGE + 1, &base,
					       &end));
	CU_ASSERT_EQUAL(base, (uintptr_t)p + MAPS_PAGE);
	CU_ASSERT_EQUAL(end, (uintptr_t)p + 3 * MAPS_PAGE);
	CU_ASSERT_FALSE(tei_topo_maps_writable(maps, p + 3 * MAPS_PAGE - 1,
					       2, &base, &end));
	CU_ASSERT_FALSE(tei_topo_maps_writable(maps, p, 5 * MAPS_PAGE, &base,
					       &end));
	tei_topo_maps_free(maps);
	munmap(p, 5 * MAPS_PAGE);
}

/* Every other page: as many mappings, more text than one read has. */
static void test_thousands_of_mappings_are_told_apart(void)
{
	struct tei_topo_maps *maps = NULL;
	char *p = maps_pages(4000);
	uint64_t base, end;
	size_t i, wrong = 0;

	for (i = 0; i < 4000; i += 2)
		mprotect(p + i * MAPS_PAGE, MAPS_PAGE, PROT_READ);
	CU_ASSERT_EQUAL_FATAL(tei_topo_maps_read((uintptr_t)p +
						 4000 * MAPS_PAGE, &maps), 0);
	for (i = 0; i < 4000; i++)
		wrong += tei_topo_maps_writable(maps, p + i * MAPS_PAGE,
						MAPS_PAGE, &base, &end) !=
			 (i % 2 == 1);
	CU_ASSERT_EQUAL(wrong, 0);
	tei_topo_maps_free(maps);
	munmap(p, (size_t)4000 * MAPS_PAGE);
}

const struct tei_test_case maps_cases[] = {
	{ "what_cannot_be_written_is_found",
	  test_what_cannot_be_written_is_found },
	{ "thousands_of_mappings_are_told_apart",
	  test_thousands_of_mappings_are_told_apart },
	{ NULL, NULL },
};
