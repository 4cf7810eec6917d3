/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOPO_TOPO_TEST_H
#define TEI_TOPO_TOPO_TEST_H

#include "topo/tei_topo.h"
#include "util/tei_test.h"

extern const struct tei_test_case discover_cases[];
extern const struct tei_test_case json_cases[];
extern const struct tei_test_case locate_cases[];
extern const struct tei_test_case map_cases[];
extern const struct tei_test_case maps_cases[];
extern const struct tei_test_case table_cases[];
extern const struct tei_test_case text_cases[];

/* Path of a file in topo/testdata; valid until the next call. */
const char *topo_test_data(const char *file);

/*
 * The row of a location as lookup gives it, "a b|c": preferred, accessible.
 * Valid until the next call.
 */
const char *topo_test_row(const struct tei_topo *topo, const char *location);

/* Topology of NICs a, b, c, … without any distance. The caller's. */
struct tei_topo *topo_test_letters(unsigned int count);

#endif /* TEI_TOPO_TOPO_TEST_H */
