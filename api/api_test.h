/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_TEST_H
#define TEI_API_TEST_H

#include "util/tei_test.h"

extern const struct tei_test_case alloc_cases[];
extern const struct tei_test_case create_cases[];
extern const struct tei_test_case files_cases[];
extern const struct tei_test_case flush_cases[];
extern const struct tei_test_case ipc_cases[];
extern const struct tei_test_case local_cases[];
extern const struct tei_test_case memory_cases[];
extern const struct tei_test_case pages_cases[];
extern const struct tei_test_case provider_cases[];
extern const struct tei_test_case segment_cases[];
extern const struct tei_test_case settings_cases[];
extern const struct tei_test_case shutdown_cases[];
extern const struct tei_test_case status_cases[];
extern const struct tei_test_case transport_cases[];

/* Runs the second process of the tests in engine_ipc_test.c, which owns GPU memory
 * and communicates through the socket fd. Returns the exit code. */
int engine_ipc_test_owner(int fd);

#endif /* TEI_API_TEST_H */
