/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/tei_test.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/TestRun.h>

#include "util/clock.h"

static struct {
	unsigned int passed, failed, skipped;
	char reason[256];		/* reason why the running case is
					 * skipped, or "" */
} test_run;

void tei_test_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(test_run.reason, sizeof(test_run.reason), fmt, ap);
	va_end(ap);
}

/* --- a limit on threads --------------------------------------------------- */

static unsigned int test_threads = UINT_MAX;	/* number of threads that may
						 * still be created, atomic */

void tei_test_threads(unsigned int n)
{
	__atomic_store_n(&test_threads, n, __ATOMIC_RELAXED);
}

/* Replaces pthread_create of the C library in every test program, so that
 * tei_test_threads can make it fail. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
		   void *(*fn)(void *), void *arg)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
		    void *);
	unsigned int left = __atomic_load_n(&test_threads, __ATOMIC_RELAXED);
	void *symbol;

	if (!left)
		return EAGAIN;
	if (left != UINT_MAX)
		tei_test_threads(left - 1);
	symbol = dlsym(RTLD_NEXT, "pthread_create");
	memcpy(&next, &symbol, sizeof(next));
	return next(thread, attr, fn, arg);
}

/* --- results ------------------------------------------------------------- */

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
	/* With the default number of receive buffers (70 MB), opening a tcp
	 * endpoint of libfabric takes 50 ms, and even seconds with a
	 * sanitizer. */
	setenv("FI_OFI_RXM_MSG_RX_SIZE", "1024", 0);
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

void tei_fuzz_begin(struct tei_fuzz *f, const char *what)
{
	const char *seed = getenv("TEI_FUZZ_SEED");
	const char *seconds = getenv("TEI_FUZZ_SECONDS");

	memset(f, 0, sizeof(*f));
	f->state = seed ? strtoull(seed, NULL, 0) : tei_now_ns();
	if (!f->state)
		f->state = 1;
	printf("# %s: TEI_FUZZ_SEED=%llu\n", what,
	       (unsigned long long)f->state);
	fflush(stdout);
	if (seconds)
		f->until_ns = tei_now_ns() +
			      strtoull(seconds, NULL, 0) * TEI_NS_PER_SEC;
}

bool tei_fuzz_next(struct tei_fuzz *f, uint64_t rounds)
{
	bool more = f->until_ns ? tei_now_ns() < f->until_ns :
				  f->rounds < rounds;

	if (more)
		f->rounds++;
	else if (f->until_ns)
		printf("# %llu rounds\n", (unsigned long long)f->rounds);
	return more;
}

/* Returns the next pseudo-random number (xorshift). */
uint64_t tei_fuzz_random(struct tei_fuzz *f)
{
	f->state ^= f->state << 13;
	f->state ^= f->state >> 7;
	f->state ^= f->state << 17;
	return f->state;
}

void tei_fuzz_bytes(struct tei_fuzz *f, void *bytes, size_t len, size_t head)
{
	uint64_t n = 1 + tei_fuzz_random(f) % 8;
	uint8_t *p = bytes;
	size_t at;

	while (len && n--) {
		at = tei_fuzz_random(f) % len;
		if (at < head && head < len && tei_fuzz_random(f) % 4)
			at = head + tei_fuzz_random(f) % (len - head);
		p[at] = (uint8_t)tei_fuzz_random(f);
		if (!(tei_fuzz_random(f) % 4))
			p[at] = 0xff;
	}
}
