/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_TEST_H
#define TEI_FABTESTS_SIM_SIM_TEST_H

/* The suites of the simulator's unit tests. */

#include "util/tei_test.h"

extern const struct tei_test_case sim_core_cases[];
extern const struct tei_test_case sim_engine_cases[];
extern const struct tei_test_case sim_fabric_cases[];
extern const struct tei_test_case sim_fence_cases[];
extern const struct tei_test_case sim_health_cases[];
extern const struct tei_test_case sim_overtake_cases[];
extern const struct tei_test_case sim_plane_cases[];

#endif /* TEI_FABTESTS_SIM_SIM_TEST_H */
