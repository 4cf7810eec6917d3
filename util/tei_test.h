/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_TEI_TEST_H
#define TEI_UTIL_TEI_TEST_H

/*
 * Runs CUnit suites and prints one line per case, the way the runner of
 * "make check" counts them:
 *
 *	ok - suite/case
 *	not ok - suite/case: file:line: condition
 *	skip - suite/case: reason
 *
 * For test programs only; one thread.
 */

#include <CUnit/CUnit.h>

/* Both tables end with an entry whose name is NULL. */
struct tei_test_case {
	const char *name;		/* says the behaviour: "refuses_zero" */
	void (*fn)(void);
};

struct tei_test_suite {
	const char *name;		/* the source file's: "settings" */
	const struct tei_test_case *cases;
};

/*
 * Runs every case of every suite, or only those whose "suite/case" holds the
 * program's first argument. Returns main's exit code: 0, 1, or 77 when every
 * case was skipped.
 */
int tei_test_run(int argc, char **argv, const struct tei_test_suite *suites);

/*
 * Marks the running case as skipped; the case returns after it. The text is
 * copied. A failed check of the same case outweighs it.
 */
void tei_test_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif /* TEI_UTIL_TEI_TEST_H */
