/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_TEST_H
#define TEI_FABTESTS_COMMON_FT_TEST_H

#include <stdbool.h>

/* Checks for functional tests. Each check prints one line, "ok - name" or "not
 * ok - name", on stdout; main ends with `return ft_result()`. Any thread may
 * call these functions. */

enum { FT_PASS = 0, FT_FAIL = 1, FT_SKIPPED = 77 };

/* Prints the result of one check, which has passed if `cond` is true. Returns
 * cond, so that a test can stop after a failure. */
bool ft_ok(bool cond, const char *name, ...)
	__attribute__((format(printf, 2, 3)));

/* Prints a line "# text", which explains a failure. */
void ft_diag(const char *text, ...) __attribute__((format(printf, 1, 2)));

/* Prints "SKIP: " and the reason. Returns FT_SKIPPED, so that a main can skip
 * the whole test with `return ft_skip("…")`. */
int ft_skip(const char *reason, ...) __attribute__((format(printf, 1, 2)));

/* Returns the exit code of a test: FT_FAIL if a check has failed or if there
 * was no check, and FT_PASS otherwise. */
int ft_result(void);

/* Resets the counters of passed and failed checks. A forked child calls this
 * function so that the checks of its parent do not count in ft_result. */
void ft_forked(void);

/* Calls fn(arg) every millisecond until it returns true, and then returns true.
 * Returns false after `ms` milliseconds. */
typedef bool (*ft_cond_fn)(void *arg);
bool ft_wait_until(ft_cond_fn fn, void *arg, unsigned int ms);

/* Returns the factor by which tests extend their time limits, 1 to 8. The
 * factor is the environment variable FT_LOAD if it is set, and otherwise the
 * load average of the last minute divided by the number of CPUs. It never
 * decreases during the run of a process. */
unsigned int ft_load(void);

#endif /* TEI_FABTESTS_COMMON_FT_TEST_H */
