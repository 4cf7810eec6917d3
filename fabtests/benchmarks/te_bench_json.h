/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_BENCH_JSON_H
#define TEI_FABTESTS_BENCHMARKS_TE_BENCH_JSON_H

/* Functions that write the output of te_bench --json with cJSON. If memory
 * cannot be allocated, members are missing in the output. The functions have no
 * lock. */

#include <cjson/cJSON.h>
#include <stdint.h>

/* Adds an integer with all of its 64 bits. A number of cJSON is a double, which
 * has 53. */
void bench_json_u64(cJSON *object, const char *key, uint64_t value);

/* Adds a number with six significant digits. Adds 0 if `value` is not
 * finite. */
void bench_json_num(cJSON *object, const char *key, double value);

/* Appends an empty object to an array. Returns the object, or NULL if memory
 * cannot be allocated. */
cJSON *bench_json_append(cJSON *array);

/* Prints the object as one line on stdout and frees it. */
void bench_json_print(cJSON *object);

#endif /* TEI_FABTESTS_BENCHMARKS_TE_BENCH_JSON_H */
