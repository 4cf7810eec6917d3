/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_TEI_TEST_H
#define TEI_UTIL_TEI_TEST_H

/*
 * Runs CUnit suites and prints one line per test case, in the form that "make
 * check" counts:
 *
 *	ok - suite/case
 *	not ok - suite/case: file:line: condition
 *	skip - suite/case: reason
 *
 * Used only by test programs, in one thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include <CUnit/CUnit.h>

/* A table of test cases, and a table of suites, ends with an entry whose name
 * is NULL. */
struct tei_test_case {
	const char *name;		/* what the case shows:
					 * subject_condition_result */
	void (*fn)(void);
};

struct tei_test_suite {
	const char *name;		/* name of the tested source file
					 * without its extension: "settings" */
	const struct tei_test_case *cases;
};

/*
 * Runs every case of every suite, or only those whose "suite/case" contains the
 * program's first argument. Returns main's exit code: 0, 1, or 77 when every
 * case was skipped.
 */
int tei_test_run(int argc, char **argv, const struct tei_test_suite *suites);

/*
 * Marks the running case as skipped. The case returns right after this call.
 * The text is copied. If a check of the same case fails, the case counts as
 * failed and not as skipped.
 */
void tei_test_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Makes pthread_create fail with EAGAIN after it has created n further threads.
 * UINT_MAX, the initial value, means no limit. */
void tei_test_threads(unsigned int n);

/*
 * Generates random input: for (tei_fuzz_begin(&f, "what"); tei_fuzz_next(&f,
 * 1000);) … runs 1000 rounds. If TEI_FUZZ_SECONDS is set, the loop runs for
 * that time instead. The start value of the random numbers is printed;
 * TEI_FUZZ_SEED repeats a run with it. One thread only.
 */
struct tei_fuzz {
	uint64_t state;
	uint64_t rounds;		/* number of rounds that have begun */
	uint64_t until_ns;		/* end of the run; 0 if the number of
					 * rounds limits the run */
};

void tei_fuzz_begin(struct tei_fuzz *f, const char *what);
bool tei_fuzz_next(struct tei_fuzz *f, uint64_t rounds);
uint64_t tei_fuzz_random(struct tei_fuzz *f);
/* Changes one to eight random bytes of the input, most of them behind the first
 * `head` bytes. */
void tei_fuzz_bytes(struct tei_fuzz *f, void *bytes, size_t len, size_t head);

#endif /* TEI_UTIL_TEI_TEST_H */
