/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_UTIL_TEST_H
#define TEI_UTIL_UTIL_TEST_H

#include "util/tei_test.h"

extern const struct tei_test_case atomic_cases[];
extern const struct tei_test_case err_cases[];
extern const struct tei_test_case heap_cases[];
extern const struct tei_test_case list_cases[];
extern const struct tei_test_case lock_cases[];
extern const struct tei_test_case log_cases[];
extern const struct tei_test_case secret_cases[];
extern const struct tei_test_case settings_cases[];
extern const struct tei_test_case settings_names_cases[];
extern const struct tei_test_case sieve_cases[];
extern const struct tei_test_case text_cases[];
extern const struct tei_test_case thread_cases[];

/*
 * Runs fn(arg) with standard output and standard error in a file each; buf
 * gets what came out of fd 1 or 2, whichever is asked for, terminated.
 */
void util_test_capture(int fd, void (*fn)(void *), void *arg, char *buf,
		       size_t len);

/* Returns the first line of a captured log from its level on. */
const char *util_test_log_text(const char *out);

/* Highest level that is logged, -1 for none: what a child answers. */
int log_test_level(void);

#endif /* TEI_UTIL_UTIL_TEST_H */
