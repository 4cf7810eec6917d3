/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_TEST_H
#define TEI_FABTESTS_COMMON_FT_TEST_H

#include <stdbool.h>

/* Checks for functional tests. Each check prints one line, "ok - name" or "not
 * ok - name", on stdout; main ends with `return ft_result()`. Any thread may
 * call these functions. */

enum { FT_PASS = 0, FT_FAIL = 1, FT_SKIPPED = 77 };

/* Prints the result of one check. Returns cond, so that a test can stop after a
 * failure. */
bool ft_ok(bool cond, const char *name, ...)
	__attribute__((format(printf, 2, 3)));

/* Prints a line "# …" that explains a failure. */
void ft_diag(const char *text, ...) __attribute__((format(printf, 1, 2)));

/* Prints "SKIP: reason" and returns FT_SKIPPED. To skip a whole test: `return
 * ft_skip("…")`. */
int ft_skip(const char *reason, ...) __attribute__((format(printf, 1, 2)));

/* Returns FT_FAIL if a check failed or none was made, and FT_PASS otherwise. */
int ft_result(void);

/* Resets the counters in a forked child, so that the parent's checks do not
 * count for the child. */
void ft_forked(void);

/* Calls fn(arg) every millisecond until it returns true. Returns false if ms
 * milliseconds have passed. */
typedef bool (*ft_cond_fn)(void *arg);
bool ft_wait_until(ft_cond_fn fn, void *arg, unsigned int ms);

/* Returns the factor by which tests extend their time limits, 1 to 8: FT_LOAD
 * from the environment, or the load average of the last minute per CPU. The
 * factor never decreases. */
unsigned int ft_load(void);

#endif /* TEI_FABTESTS_COMMON_FT_TEST_H */
