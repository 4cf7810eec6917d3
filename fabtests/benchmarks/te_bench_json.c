/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "fabtests/benchmarks/te_bench_json.h"

void bench_json_u64(cJSON *object, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	cJSON_AddRawToObject(object, key, text);
}

void bench_json_num(cJSON *object, const char *key, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.6g", isfinite(value) ? value : 0.0);
	cJSON_AddRawToObject(object, key, text);
}

cJSON *bench_json_append(cJSON *array)
{
	cJSON *object = cJSON_CreateObject();

	if (cJSON_AddItemToArray(array, object))
		return object;
	cJSON_Delete(object);
	return NULL;
}

void bench_json_print(cJSON *object)
{
	char *text = cJSON_PrintUnformatted(object);

	puts(text ? text : "{}");
	cJSON_free(text);
	cJSON_Delete(object);
}
