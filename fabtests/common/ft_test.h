/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_TEST_H
#define TEI_FABTESTS_COMMON_FT_TEST_H

#include <stdbool.h>

/*
 * Checks for functional tests. Each prints one line, "ok - name" or
 * "not ok - name", on stdout; main ends with `return ft_result()`. Any thread.
 */

enum { FT_PASS = 0, FT_FAIL = 1, FT_SKIPPED = 77 };

/* Returns cond, so that a test can stop where going on makes no sense. */
bool ft_ok(bool cond, const char *name, ...)
	__attribute__((format(printf, 2, 3)));

/* A line "# …" that explains a failure. */
void ft_diag(const char *text, ...) __attribute__((format(printf, 1, 2)));

/* Prints "SKIP: reason"; the test as a whole: `return ft_skip("…")`. */
int ft_skip(const char *reason, ...) __attribute__((format(printf, 1, 2)));

/* FT_FAIL if any check failed or none was made, else FT_PASS. */
int ft_result(void);

/* In a child of fork: what its parent checked is not its own. */
void ft_forked(void);

/*
 * Calls fn(arg) each millisecond until it is true. false once ms milliseconds
 * have passed.
 */
typedef bool (*ft_cond_fn)(void *arg);
bool ft_wait_until(ft_cond_fn fn, void *arg, unsigned int ms);

/*
 * How much longer than on a machine with nothing else to do things may take:
 * FT_LOAD, else the threads per CPU that wanted to run in the last minute, 1 to
 * 8. Never less than at an earlier call.
 */
unsigned int ft_load(void);

#endif /* TEI_FABTESTS_COMMON_FT_TEST_H */
