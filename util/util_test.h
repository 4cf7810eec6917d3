/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_UTIL_TEST_H
#define TEI_UTIL_UTIL_TEST_H

#include "util/tei_test.h"

extern const struct tei_test_case atomic_cases[];
extern const struct tei_test_case channel_cases[];
extern const struct tei_test_case err_cases[];
extern const struct tei_test_case heap_cases[];
extern const struct tei_test_case list_cases[];
extern const struct tei_test_case lock_cases[];
extern const struct tei_test_case log_cases[];
extern const struct tei_test_case range_cases[];
extern const struct tei_test_case secret_cases[];
extern const struct tei_test_case settings_cases[];
extern const struct tei_test_case settings_names_cases[];
extern const struct tei_test_case sieve_cases[];
extern const struct tei_test_case text_cases[];
extern const struct tei_test_case thread_cases[];
extern const struct tei_test_case world_cases[];

/* Runs fn(arg) with standard output and standard error redirected to files.
 * Then copies what was written to the file descriptor fd (1 or 2) to buf, as a
 * terminated string. */
void util_test_capture(int fd, void (*fn)(void *), void *arg, char *buf,
		       size_t len);

/* Returns the first line of a captured log without its time and process id, so
 * that it begins with the level. */
const char *util_test_log_text(const char *out);

/* Returns the highest level that is logged, or -1 if none is. Must be called in
 * a child process, because the level is read once per process. */
int log_test_level(void);

#endif /* TEI_UTIL_UTIL_TEST_H */
