/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=memcpy: copies with memcpy and without an engine. The result is the
 * baseline for the engine's copies inside a host. Threads, blocks and buffers
 * are the same as those of the other modes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_clock.h"

struct copy {
	struct bench_memory local;
	struct bench_memory remote;
};

/* The two ranges between which one thread copies. */
struct copy_part {
	uint8_t *to;
	const uint8_t *from;
	uint64_t blocks;
	uint64_t next;			/* index of the next block */
};

static int copy_prepare(struct bench_worker *worker)
{
	const struct bench_opts *opts = worker->run->opts;
	const struct copy *copy = worker->run->arg;
	uint64_t size = opts->buffer_size / opts->threads;
	uint64_t begin = worker->index * size;
	struct copy_part *part = calloc(1, sizeof(*part));

	if (!part)
		return -1;
	part->blocks = size / opts->block_size;
	if (opts->operation == BENCH_WRITE) {
		part->to = copy->remote.addr + begin;
		part->from = copy->local.addr + begin;
	} else {
		part->to = copy->local.addr + begin;
		part->from = copy->remote.addr + begin;
	}
	worker->ctx = part;
	return 0;
}

static void copy_finish(struct bench_worker *worker)
{
	free(worker->ctx);
}

static void copy_batch(struct copy_part *part, const struct bench_opts *opts)
{
	for (uint64_t i = 0; i < opts->batch_size; i++) {
		uint64_t at = part->next * opts->block_size;

		memcpy(part->to + at, part->from + at, opts->block_size);
		__asm__ volatile("" ::: "memory");
		if (++part->next == part->blocks)
			part->next = 0;
	}
}

static int copy_step(struct bench_worker *worker)
{
	const struct bench_opts *opts = worker->run->opts;
	uint64_t begin_ns = ft_now_ns(), bytes;

	copy_batch(worker->ctx, opts);
	worker->now_ns = ft_now_ns();
	worker->busy_ns += worker->now_ns - begin_ns;
	ft_hist_add(&worker->latency, worker->now_ns - begin_ns);
	bytes = atomic_load_explicit(&worker->bytes, memory_order_relaxed);
	bytes += opts->batch_size * opts->block_size;
	atomic_store_explicit(&worker->bytes, bytes, memory_order_relaxed);
	worker->operations += opts->batch_size;
	return 0;
}

static int copy_run(struct copy *copy, const struct bench_opts *opts)
{
	static const struct bench_ops ops = {
		NULL, copy_prepare, copy_step, copy_finish
	};
	static struct bench_result result;	/* too large for a stack */
	struct bench_run run = { .opts = opts, .ops = &ops, .arg = copy };

	if (bench_run(&run, &result))
		return BENCH_FAILED;
	snprintf(result.transport, sizeof(result.transport), "memcpy");
	return bench_report(opts, &result);
}

int bench_copy(const struct bench_opts *opts)
{
	struct copy copy;
	int ret;

	if (bench_memory_get(&copy.local, opts->buffer_size, opts->location,
			     opts->pages))
		return BENCH_FAILED;
	if (bench_memory_get(&copy.remote, opts->buffer_size,
			     opts->target_location, opts->pages)) {
		bench_memory_put(&copy.local);
		return BENCH_FAILED;
	}
	memset(copy.local.addr, 1, copy.local.size);
	memset(copy.remote.addr, 2, copy.remote.size);
	ret = copy_run(&copy, opts);
	bench_memory_put(&copy.remote);
	bench_memory_put(&copy.local);
	return ret;
}
