/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/util_test.h"

#include <string.h>
#include <sys/mman.h>

#include "util/atomic.h"
#include "util/err.h"

static uint64_t atomic_at(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static void test_atomics_of_64_bits_add_swap_and_compare(void)
{
	uint64_t v = 40, old = 7;

	CU_ASSERT_EQUAL(tei_atomic_run(TEI_ATOMIC_ADD, 8, atomic_at(&v), 2, 0,
				       &old), 0);
	CU_ASSERT(old == 40 && v == 42);
	CU_ASSERT_EQUAL(tei_atomic_run(TEI_ATOMIC_SWAP, 8, atomic_at(&v),
				       UINT64_MAX, 0, &old), 0);
	CU_ASSERT(old == 42 && v == UINT64_MAX);
	CU_ASSERT_EQUAL(tei_atomic_run(TEI_ATOMIC_ADD, 8, atomic_at(&v), 3, 0,
				       &old), 0);
	CU_ASSERT(old == UINT64_MAX && v == 2);
	CU_ASSERT_EQUAL(tei_atomic_run(TEI_ATOMIC_CAS, 8, atomic_at(&v), 9, 1,
				       &old), 0);
	CU_ASSERT(old == 2 && v == 2);
	CU_ASSERT_EQUAL(tei_atomic_run(TEI_ATOMIC_CAS, 8, atomic_at(&v), 9, 2,
				       &old), 0);
	CU_ASSERT(old == 2 && v == 9);
}

/* Tests that a 32-bit operation does not change the words before and behind its
 * target. */
static void test_atomics_of_32_bits_leave_the_neighbour(void)
{
	uint32_t v[3] = { 1, UINT32_MAX, 3 };
	uint64_t old = 0, at = atomic_at(&v[1]);

	CU_ASSERT_EQUAL(tei_atomic_run(TEI_ATOMIC_ADD, 4, at, 2, 0, &old), 0);
	CU_ASSERT(old == UINT32_MAX && v[1] == 1);
	CU_ASSERT_EQUAL(tei_atomic_run(TEI_ATOMIC_CAS, 4, at, 77, 1, &old), 0);
	CU_ASSERT(old == 1 && v[1] == 77);
	CU_ASSERT_EQUAL(tei_atomic_run(TEI_ATOMIC_SWAP, 4, at, 5, 0, &old), 0);
	CU_ASSERT(old == 77 && v[1] == 5);
	CU_ASSERT(v[0] == 1 && v[2] == 3);
}

static void test_bad_atomics_are_refused(void)
{
	uint64_t v[2] = { 5, 6 }, old = 1, at = atomic_at(v);
	const struct {
		unsigned int op, width;
		uint64_t addr;
	} bad[] = {
		{ 0, 8, at }, { 4, 8, at }, { 255, 8, at },
		{ TEI_ATOMIC_ADD, 0, at }, { TEI_ATOMIC_ADD, 1, at },
		{ TEI_ATOMIC_ADD, 2, at }, { TEI_ATOMIC_ADD, 16, at },
		{ TEI_ATOMIC_ADD, 8, at + 4 }, { TEI_ATOMIC_ADD, 8, at + 1 },
		{ TEI_ATOMIC_CAS, 4, at + 2 },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(tei_atomic_run(bad[i].op, bad[i].width,
					       bad[i].addr, 1, 5, &old),
				TEI_ERR_INVALID);
	CU_ASSERT(old == 1 && v[0] == 5 && v[1] == 6);
}

static bool atomic_kernel_tells(void *page)
{
	return !madvise(page, 4096, 23 /* MADV_POPULATE_WRITE */);
}

static void test_a_bad_page_is_a_code_and_no_fault(void)
{
	char *p = mmap(NULL, 12288, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t old = 1;

	CU_ASSERT_PTR_NOT_EQUAL_FATAL(p, MAP_FAILED);
	if (!atomic_kernel_tells(p)) {
		munmap(p, 12288);
		tei_test_skip("kernel without MADV_POPULATE_WRITE");
		return;
	}
	mprotect(p, 4096, PROT_READ);
	mprotect(p + 4096, 4096, PROT_NONE);
	munmap(p + 8192, 4096);
	for (int i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(tei_atomic_run(TEI_ATOMIC_ADD, 8,
					       atomic_at(p + i * 4096 + 8), 1,
					       0, &old),
				TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(old, 1);
	munmap(p, 8192);
}

const struct tei_test_case atomic_cases[] = {
	{ "atomics_of_64_bits_add_swap_and_compare",
	  test_atomics_of_64_bits_add_swap_and_compare },
	{ "atomics_of_32_bits_leave_the_neighbour",
	  test_atomics_of_32_bits_leave_the_neighbour },
	{ "bad_atomics_are_refused", test_bad_atomics_are_refused },
	{ "a_bad_page_is_a_code_and_no_fault",
	  test_a_bad_page_is_a_code_and_no_fault },
	{ NULL, NULL },
};
