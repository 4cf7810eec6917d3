/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_BENCH_JSON_H
#define TEI_FABTESTS_BENCHMARKS_TE_BENCH_JSON_H

/* The results of te_bench --json, as cJSON objects. If memory is short, members
 * are missing. One thread. */

#include <cjson/cJSON.h>
#include <stdint.h>

/* Adds all 64 bits of a number; cJSON's own numbers have 53. */
void bench_json_u64(cJSON *object, const char *key, uint64_t value);

/* Adds a number with six digits, and 0 for one that is not finite. */
void bench_json_num(cJSON *object, const char *key, double value);

/* Appends an object to an array and returns it, or NULL. */
cJSON *bench_json_append(cJSON *array);

/* Prints the object as one line on stdout and frees it. */
void bench_json_print(cJSON *object);

#endif /* TEI_FABTESTS_BENCHMARKS_TE_BENCH_JSON_H */
