/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=demo: writes 2 GiB and reads them back, in eight rounds and in blocks
 * of mixed sizes. Each round writes 256 MiB with a pattern of its own, reads
 * them back and compares every byte.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_num.h"
#include "fabtests/common/ft_pattern.h"
#include "fabtests/common/ft_progress.h"

enum { DEMO_ROUNDS = 8, DEMO_BATCH = 16, DEMO_REGION = 256 << 20 };

/* The results of all writes or of all reads. */
struct demo_way {
	uint64_t bytes;
	uint64_t ns;			/* time spent in transfers, ns */
	uint64_t rail_bytes[BENCH_RAILS];
	struct ft_hist latency;		/* latency of single requests */
};

static struct demo {
	const struct bench_opts *opts;
	transfer_engine_t engine;
	struct bench_memory out;
	struct bench_memory back;
	struct bench_remote remote;
	struct demo_way ways[2];	/* results, indexed by OPCODE_READ and
					 * OPCODE_WRITE */
	uint64_t random;
	uint64_t verified;
	uint64_t errors;
	uint64_t begin_ns;
	struct ft_progress bar;
	size_t n_rails;
	struct te_rail_stats rails[BENCH_RAILS];
} demo;

/* Returns a random length of 4 KiB to 8 MiB, but at most `left`. Each range
 * between two powers of two is equally likely. */
static uint64_t demo_block(uint64_t left)
{
	uint64_t size = UINT64_C(4096) << ft_random(&demo.random) % 11;

	size += ft_random(&demo.random) % size;
	return size < left ? size : left;
}

static size_t demo_cut(int opcode, struct transfer_request *requests,
		       uint64_t *at)
{
	const struct bench_memory *memory = opcode == OPCODE_WRITE ?
					    &demo.out : &demo.back;
	size_t count = 0;

	while (count < DEMO_BATCH && *at < memory->size) {
		struct transfer_request *request = &requests[count++];

		request->opcode = opcode;
		request->source = memory->addr + *at;
		request->target_id = demo.remote.id;
		request->target_offset = demo.remote.addr + *at;
		request->length = demo_block(memory->size - *at);
		*at += request->length;
	}
	return count;
}

static void demo_show(void)
{
	uint64_t bytes = demo.ways[0].bytes + demo.ways[1].bytes;
	uint64_t ns = demo.ways[0].ns + demo.ways[1].ns;
	char what[96];

	snprintf(what, sizeof(what), "%.2f GB written, %.2f GB read, %.2f GB/s",
		 (double)demo.ways[OPCODE_WRITE].bytes / 1e9,
		 (double)demo.ways[OPCODE_READ].bytes / 1e9,
		 (double)bytes / (double)(ns ? ns : 1));
	ft_progress_show(&demo.bar,
			 (double)bytes / (2.0 * DEMO_ROUNDS * DEMO_REGION),
			 what);
}

/* Writes or reads the whole region once, depending on `opcode`. Returns 0 or
 * -1. */
static int demo_pass(int opcode)
{
	struct transfer_request requests[DEMO_BATCH];
	struct demo_way *way = &demo.ways[opcode];
	uint64_t at = 0;

	while (at < DEMO_REGION && !bench_interrupted) {
		uint64_t from = at, ns = 0;
		size_t count = demo_cut(opcode, requests, &at);
		size_t failed = bench_transfer(demo.engine, requests, count,
					       &way->latency, &ns);

		way->ns += ns;
		if (failed) {
			demo.errors += failed;
			return -1;
		}
		way->bytes += at - from;
		demo_show();
	}
	return bench_interrupted ? -1 : 0;
}

static int demo_compare(uint64_t round)
{
	size_t good = ft_pattern_check(demo.back.addr, 0, demo.back.size,
				       demo.opts->seed, round);

	demo.verified += good;
	if (good == demo.back.size)
		return 0;
	demo.errors++;
	fprintf(stderr, "te_bench: round %" PRIu64 ": wrong byte at %zu\n",
		round, good);
	return -1;
}

/* Copies the counters of the rails for the report. */
static void demo_rails(void)
{
	static struct te_rail_stats now[BENCH_RAILS];
	size_t count = bench_rails_get(demo.engine, now, BENCH_RAILS);

	memcpy(demo.rails, now, count * sizeof(*now));
	demo.n_rails = count;
	for (size_t i = 0; i < count; i++) {
		demo.ways[OPCODE_WRITE].rail_bytes[i] = now[i].tx_bytes;
		demo.ways[OPCODE_READ].rail_bytes[i] = now[i].rx_bytes;
	}
}

static int demo_rounds(void)
{
	int ret = 0;

	for (uint64_t round = 1; round <= DEMO_ROUNDS && !ret; round++) {
		ft_pattern_fill(demo.out.addr, 0, demo.out.size,
				demo.opts->seed, round);
		ret = demo_pass(OPCODE_WRITE);
		if (!ret)
			ret = demo_pass(OPCODE_READ);
		if (!ret)
			ret = demo_compare(round);
	}
	ft_progress_end(&demo.bar);
	demo_rails();
	return ret;
}

static double demo_us(const struct ft_hist *hist, double part)
{
	return (double)ft_hist_quantile(hist, part) / 1e3;
}

static void demo_print_way(const char *name, const struct demo_way *way)
{
	char size[32];

	printf("%-12s %10s %10.3f %12.1f %12.1f\n", name,
	       ft_size_text(way->bytes, size, sizeof(size)),
	       way->ns ? (double)way->bytes / (double)way->ns : 0.0,
	       demo_us(&way->latency, .5), demo_us(&way->latency, .99));
}

static double demo_share(const struct demo_way *way, size_t rail)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < demo.n_rails; i++)
		sum += way->rail_bytes[i];
	return sum ? 100.0 * (double)way->rail_bytes[rail] / (double)sum : 0;
}

static void demo_print(int failed)
{
	char size[32];

	bench_report_protocol(demo.opts);
	printf("%-12s %10s %10s %12s %12s\n", "direction", "bytes", "GB/s",
	       "p50 us", "p99 us");
	demo_print_way("write", &demo.ways[OPCODE_WRITE]);
	demo_print_way("read", &demo.ways[OPCODE_READ]);
	printf("\n%-20s %-16s %10s %10s %10s\n", "rail", "provider", "written",
	       "read", "errors");
	for (size_t i = 0; i < demo.n_rails; i++)
		printf("%-20s %-16s %8.1f %% %8.1f %% %10" PRIu64 "\n",
		       demo.rails[i].name, demo.rails[i].provider,
		       demo_share(&demo.ways[OPCODE_WRITE], i),
		       demo_share(&demo.ways[OPCODE_READ], i),
		       demo.rails[i].errors);
	printf("\n%s: %s verified, %" PRIu64 " errors, %.1f s\n",
	       failed ? "FAILED" : "passed",
	       ft_size_text(demo.verified, size, sizeof(size)), demo.errors,
	       (double)(ft_now_ns() - demo.begin_ns) / 1e9);
}

static int demo_connect(const char *name)
{
	int ret;

	if (bench_remote_open(demo.engine, name, &demo.remote))
		return -1;
	ret = demo.remote.size < DEMO_REGION ? -1 : demo_rounds();
	closeSegment(demo.engine, demo.remote.id);
	demo_print(ret);
	return ret;
}

static int demo_initiate(const char *name)
{
	int ret = -1;

	demo.engine = bench_engine_open(demo.opts);
	if (!demo.engine)
		return -1;
	if (bench_register(demo.engine, &demo.out, DEMO_REGION, NULL,
			   BENCH_PAGES_ANY, false))
		goto err_destroy;
	if (bench_register(demo.engine, &demo.back, DEMO_REGION, NULL,
			   BENCH_PAGES_ANY, false))
		goto err_unregister;
	ret = demo_connect(name);
	ret |= bench_unregister(demo.engine, &demo.back);
err_unregister:
	ret |= bench_unregister(demo.engine, &demo.out);
err_destroy:
	destroyTransferEngine(demo.engine);
	return ret;
}

int bench_demo(const struct bench_opts *opts)
{
	struct bench_opts mine = *opts;
	static struct ft_proc child;	/* too large for a stack */
	char name[BENCH_NAME_MAX];
	int ret;

	mine.buffer_size = DEMO_REGION;
	demo.opts = &mine;
	demo.random = opts->seed;
	demo.begin_ns = ft_now_ns();
	ft_progress_start(&demo.bar, true);
	if (bench_child_start(&child, &mine, "target", name, sizeof(name)))
		return BENCH_FAILED;
	ret = demo_initiate(name);
	if (bench_child_stop(&child, 1))
		ret = -1;
	return ret ? BENCH_FAILED : BENCH_OK;
}
