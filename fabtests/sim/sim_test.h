/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_TEST_H
#define TEI_FABTESTS_SIM_SIM_TEST_H

/* The suites of the simulator's unit tests, and a function that they share. */

#include "util/tei_test.h"

extern const struct tei_test_case sim_core_cases[];
extern const struct tei_test_case sim_engine_cases[];
extern const struct tei_test_case sim_fabric_cases[];
extern const struct tei_test_case sim_fence_cases[];
extern const struct tei_test_case sim_health_cases[];
extern const struct tei_test_case sim_overtake_cases[];
extern const struct tei_test_case sim_plane_cases[];

/* Returns the number of threads of this process. */
unsigned int sim_test_threads(void);

#endif /* TEI_FABTESTS_SIM_SIM_TEST_H */
