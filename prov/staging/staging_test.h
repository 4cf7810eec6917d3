/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_TEST_H
#define TEI_PROV_STAGING_TEST_H

#include "util/tei_test.h"

extern const struct tei_test_case copy_cases[];
extern const struct tei_test_case remote_cases[];

#endif /* TEI_PROV_STAGING_TEST_H */
