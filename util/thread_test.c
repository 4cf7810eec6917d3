/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/util_test.h"

#include "util/err.h"
#include "util/thread.h"

static void test_lists_of_cpus_are_read(void)
{
	cpu_set_t cpus;

	CU_ASSERT_EQUAL(tei_cpus_parse("5", &cpus), 0);
	CU_ASSERT(CPU_COUNT(&cpus) == 1 && CPU_ISSET(5, &cpus));
	CU_ASSERT_EQUAL(tei_cpus_parse("0-3,8,6-6\n", &cpus), 0);
	CU_ASSERT(CPU_COUNT(&cpus) == 6 && CPU_ISSET(0, &cpus) &&
		  CPU_ISSET(3, &cpus) && CPU_ISSET(6, &cpus) &&
		  CPU_ISSET(8, &cpus));
	CU_ASSERT_EQUAL(tei_cpus_parse("1023", &cpus), 0);
}

static void test_text_that_is_no_list_of_cpus_is_refused(void)
{
	static const char *const bad[] = {
		"", " 1", "-1", "1-", "3-2", "1,", ",1", "1;2", "x", "1 ",
		"1024", "0-1024", "99999999999999999999", "1--2", "near",
	};
	cpu_set_t cpus;
	size_t i;

	CPU_ZERO(&cpus);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(tei_cpus_parse(bad[i], &cpus),
				TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(CPU_COUNT(&cpus), 0);
}

const struct tei_test_case thread_cases[] = {
	{ "lists_of_cpus_are_read", test_lists_of_cpus_are_read },
	{ "text_that_is_no_list_of_cpus_is_refused",
	  test_text_that_is_no_list_of_cpus_is_refused },
	{ NULL, NULL },
};
