/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/benchmarks/te_bench_json.h"
#include "fabtests/common/ft_num.h"

static double report_us(const struct bench_result *result, double part)
{
	return (double)ft_hist_quantile(&result->latency, part) / 1e3;
}

static double report_ops(const struct bench_opts *opts,
			 const struct bench_result *result)
{
	return result->rate / (double)opts->block_size;
}

/* Returns the bytes that a rail has moved in the direction of --operation. The
 * bytes that --verify reads back after a write are not among them. */
static uint64_t report_rail_bytes(const struct bench_opts *opts,
				  const struct te_rail_stats *rail)
{
	return opts->operation == BENCH_READ ? rail->rx_bytes : rail->tx_bytes;
}

static void report_rails(const struct bench_opts *opts,
			 const struct bench_result *result)
{
	char size[32];

	for (size_t i = 0; i < result->n_rails; i++) {
		const struct te_rail_stats *rail = &result->rails[i];

		printf("  %-12s %-20s %-16s %12s  %llu error%s\n",
		       i ? "" : "rails", rail->name, rail->provider,
		       ft_size_text(report_rail_bytes(opts, rail), size,
				    sizeof(size)),
		       (unsigned long long)rail->errors,
		       rail->errors == 1 ? "" : "s");
	}
}

/* Prints the locations and the kind of pages, if an option has chosen one of
 * them. */
static void report_memory(const struct bench_opts *opts)
{
	if (opts->location || opts->target_location || opts->pages)
		printf("  %-12s %s, the target's %s, pages: %s\n", "memory",
		       opts->location ? opts->location : "*",
		       opts->target_location ? opts->target_location : "*",
		       bench_pages_name(opts->pages));
}

void bench_report_protocol(const struct bench_opts *opts)
{
	bool tcp = !strcmp(opts->protocol, "tcp");

	if (opts->default_protocol && opts->mode != BENCH_MEMCPY)
		printf("  %-12s %s, the default of --mode=%s; %s\n", "protocol",
		       opts->protocol, bench_mode_name(opts->mode),
		       tcp ? "of --mode=loopback it is auto" :
			     "of --mode=raw it is tcp");
}

static void report_text(const struct bench_opts *opts,
			const struct bench_result *result)
{
	char block[32], moved[32];

	printf("%s %s %s: %s x %llu, %llu thread%s, %s in %.2f s\n",
	       bench_mode_name(opts->mode), result->transport,
	       bench_operation_name(opts->operation),
	       ft_size_text(opts->block_size, block, sizeof(block)),
	       (unsigned long long)(opts->window ? opts->window :
						   opts->batch_size),
	       (unsigned long long)opts->threads, opts->threads > 1 ? "s" : "",
	       ft_size_text(result->bytes, moved, sizeof(moved)),
	       result->seconds);
	bench_report_protocol(opts);
	report_memory(opts);
	printf("  %-12s %.4f GB/s, %.0f operations/s\n", "throughput",
	       result->rate / 1e9, report_ops(opts, result));
	printf("  %-12s p50 %.1f  p90 %.1f  p99 %.1f  max %.1f us per %s\n",
	       "latency", report_us(result, .5), report_us(result, .9),
	       report_us(result, .99), (double)result->latency.max / 1e3,
	       opts->window || opts->batch_size == 1 ? "operation" : "batch");
	printf("  %-12s %.2f s", "cpu", result->cpu_seconds);
	if (result->target_cpu_seconds >= 0)
		printf(", target %.2f s", result->target_cpu_seconds);
	putchar('\n');
	report_rails(opts, result);
	if (opts->verify)
		printf("  %-12s %s\n", "verified",
		       ft_size_text(result->verified, moved, sizeof(moved)));
	printf("  %-12s %llu\n", "errors", (unsigned long long)result->errors);
}

static void report_json_rails(cJSON *json, const struct bench_opts *opts,
			      const struct bench_result *result)
{
	cJSON *rails = cJSON_AddArrayToObject(json, "rails");

	for (size_t i = 0; i < result->n_rails; i++) {
		const struct te_rail_stats *rail = &result->rails[i];
		cJSON *o = bench_json_append(rails);

		cJSON_AddStringToObject(o, "name", rail->name);
		cJSON_AddStringToObject(o, "provider", rail->provider);
		bench_json_u64(o, "bytes", report_rail_bytes(opts, rail));
		bench_json_u64(o, "errors", rail->errors);
	}
}

static void report_json_latency(cJSON *json, const struct bench_result *result)
{
	cJSON *o = cJSON_AddObjectToObject(json, "latency_us");

	bench_json_num(o, "p50", report_us(result, .5));
	bench_json_num(o, "p90", report_us(result, .9));
	bench_json_num(o, "p99", report_us(result, .99));
	bench_json_num(o, "max", (double)result->latency.max / 1e3);
}

static void report_json(const struct bench_opts *opts,
			const struct bench_result *result)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "mode", bench_mode_name(opts->mode));
	cJSON_AddStringToObject(json, "operation",
				bench_operation_name(opts->operation));
	cJSON_AddStringToObject(json, "transport", result->transport);
	bench_json_u64(json, "block_size", opts->block_size);
	bench_json_u64(json, "batch_size", opts->batch_size);
	bench_json_u64(json, "window", opts->window);
	bench_json_u64(json, "threads", opts->threads);
	bench_json_u64(json, "buffer_size", opts->buffer_size);
	cJSON_AddStringToObject(json, "location",
				opts->location ? opts->location : "*");
	cJSON_AddStringToObject(json, "target_location",
				opts->target_location ? opts->target_location
						      : "*");
	cJSON_AddStringToObject(json, "pages", bench_pages_name(opts->pages));
	bench_json_num(json, "seconds", result->seconds);
	bench_json_u64(json, "bytes", result->bytes);
	bench_json_u64(json, "operations", result->operations);
	bench_json_num(json, "gb_per_s", result->rate / 1e9);
	bench_json_num(json, "ops_per_s", report_ops(opts, result));
	report_json_latency(json, result);
	bench_json_u64(json, "errors", result->errors);
	bench_json_u64(json, "verified_bytes", result->verified);
	bench_json_num(json, "cpu_seconds", result->cpu_seconds);
	if (result->target_cpu_seconds >= 0)
		bench_json_num(json, "target_cpu_seconds",
			       result->target_cpu_seconds);
	report_json_rails(json, opts, result);
	bench_json_print(json);
}

int bench_report(const struct bench_opts *opts,
		 const struct bench_result *result)
{
	report_text(opts, result);
	if (opts->json)
		report_json(opts, result);
	if (fflush(stdout))
		return BENCH_FAILED;
	return result->errors || !result->operations ? BENCH_FAILED : BENCH_OK;
}
