/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/tei_test.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <CUnit/TestRun.h>

static struct {
	unsigned int passed, failed, skipped;
	char reason[256];		/* of the running case, "" if none */
} test_run;

void tei_test_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(test_run.reason, sizeof(test_run.reason), fmt, ap);
	va_end(ap);
}

static void test_print_failure(const char *suite, const char *name,
			       const struct CU_FailureRecord *f)
{
	printf("not ok - %s/%s: %s:%u: %s\n", suite, name,
	       f->strFileName ? f->strFileName : "?", f->uiLineNumber,
	       f->strCondition ? f->strCondition : "?");
	for (f = f->pNext; f; f = f->pNext)
		printf("# also: %s:%u: %s\n",
		       f->strFileName ? f->strFileName : "?", f->uiLineNumber,
		       f->strCondition ? f->strCondition : "?");
	test_run.failed++;
}

static void test_case_done(const CU_pTest test, const CU_pSuite suite,
			   const CU_pFailureRecord failure)
{
	if (failure) {
		test_print_failure(suite->pName, test->pName, failure);
	} else if (test_run.reason[0]) {
		printf("skip - %s/%s: %s\n", suite->pName, test->pName,
		       test_run.reason);
		test_run.skipped++;
	} else {
		printf("ok - %s/%s\n", suite->pName, test->pName);
		test_run.passed++;
	}
	test_run.reason[0] = '\0';
	fflush(stdout);
}

static int test_add_suite(const struct tei_test_suite *s, const char *wanted)
{
	const struct tei_test_case *c;
	CU_pSuite suite = NULL;
	char name[256];

	for (c = s->cases; c->name; c++) {
		snprintf(name, sizeof(name), "%s/%s", s->name, c->name);
		if (wanted && !strstr(name, wanted))
			continue;
		if (!suite)
			suite = CU_add_suite(s->name, NULL, NULL);
		if (!suite || !CU_add_test(suite, c->name, c->fn))
			return -1;
	}
	return 0;
}

static int test_register(const struct tei_test_suite *suites,
			 const char *wanted)
{
	if (CU_initialize_registry() != CUE_SUCCESS)
		return -1;
	for (; suites->name; suites++)
		if (test_add_suite(suites, wanted))
			return -1;
	return 0;
}

int tei_test_run(int argc, char **argv, const struct tei_test_suite *suites)
{
	if (test_register(suites, argc > 1 ? argv[1] : NULL)) {
		printf("not ok - CUnit: %s\n", CU_get_error_msg());
		return 1;
	}
	CU_set_test_complete_handler(test_case_done);
	if (CU_run_all_tests() != CUE_SUCCESS)
		printf("# CUnit: %s\n", CU_get_error_msg());
	CU_cleanup_registry();
	if (test_run.failed || test_run.passed + test_run.skipped == 0)
		return 1;
	return test_run.passed ? 0 : 77;
}
