/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_json.h"
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

/* Returns the bytes of a rail, without the bytes that --verify has read
 * back. */
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

/* Prints the locations and pages if an option chose them. */
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

static void report_json_rails(struct ft_json *json,
			      const struct bench_opts *opts,
			      const struct bench_result *result)
{
	ft_json_open(json, "rails", '[');
	for (size_t i = 0; i < result->n_rails; i++) {
		const struct te_rail_stats *rail = &result->rails[i];

		ft_json_open(json, NULL, '{');
		ft_json_str(json, "name", rail->name);
		ft_json_str(json, "provider", rail->provider);
		ft_json_u64(json, "bytes", report_rail_bytes(opts, rail));
		ft_json_u64(json, "errors", rail->errors);
		ft_json_close(json, '}');
	}
	ft_json_close(json, ']');
}

static void report_json_latency(struct ft_json *json,
				const struct bench_result *result)
{
	ft_json_open(json, "latency_us", '{');
	ft_json_num(json, "p50", report_us(result, .5));
	ft_json_num(json, "p90", report_us(result, .9));
	ft_json_num(json, "p99", report_us(result, .99));
	ft_json_num(json, "max", (double)result->latency.max / 1e3);
	ft_json_close(json, '}');
}

static void report_json(const struct bench_opts *opts,
			const struct bench_result *result)
{
	struct ft_json json = { .out = stdout };

	ft_json_open(&json, NULL, '{');
	ft_json_str(&json, "mode", bench_mode_name(opts->mode));
	ft_json_str(&json, "operation", bench_operation_name(opts->operation));
	ft_json_str(&json, "transport", result->transport);
	ft_json_u64(&json, "block_size", opts->block_size);
	ft_json_u64(&json, "batch_size", opts->batch_size);
	ft_json_u64(&json, "window", opts->window);
	ft_json_u64(&json, "threads", opts->threads);
	ft_json_u64(&json, "buffer_size", opts->buffer_size);
	ft_json_str(&json, "location", opts->location ? opts->location : "*");
	ft_json_str(&json, "target_location",
		    opts->target_location ? opts->target_location : "*");
	ft_json_str(&json, "pages", bench_pages_name(opts->pages));
	ft_json_num(&json, "seconds", result->seconds);
	ft_json_u64(&json, "bytes", result->bytes);
	ft_json_u64(&json, "operations", result->operations);
	ft_json_num(&json, "gb_per_s", result->rate / 1e9);
	ft_json_num(&json, "ops_per_s", report_ops(opts, result));
	report_json_latency(&json, result);
	ft_json_u64(&json, "errors", result->errors);
	ft_json_u64(&json, "verified_bytes", result->verified);
	ft_json_num(&json, "cpu_seconds", result->cpu_seconds);
	if (result->target_cpu_seconds >= 0)
		ft_json_num(&json, "target_cpu_seconds",
			    result->target_cpu_seconds);
	report_json_rails(&json, opts, result);
	ft_json_close(&json, '}');
	putchar('\n');
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
