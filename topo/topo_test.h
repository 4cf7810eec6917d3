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

/* Returns the path of a file in topo/testdata. The result is valid until the
 * next call. */
const char *topo_test_data(const char *file);

/* Returns the NICs that tei_topo_lookup reports for a location as text: first
 * the preferred NICs, then "|", then the accessible ones, as in "a b|c". The
 * result is valid until the next call. */
const char *topo_test_row(const struct tei_topo *topo, const char *location);

/* Creates a topology with count NICs, named a, b, c and so on, whose distances
 * are unknown. The caller frees it. */
struct tei_topo *topo_test_letters(unsigned int count);

#endif /* TEI_TOPO_TOPO_TEST_H */
