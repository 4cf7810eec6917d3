/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=segments: measures what open segments cost. This process has two
 * engines. One opens a single segment; the other one opens 1, 100, 1 000, …
 * segments and writes to each once. Then both engines write to the same
 * segment, one engine after the other, for --duration each. The engines
 * alternate several times, so that other load on the machine affects both
 * alike. The targets are engines too, SEGMENTS_EACH of them in one process.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/benchmarks/te_bench_json.h"
#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_num.h"

enum {
	SEGMENTS_EACH = 50,
	SEGMENTS_ROUNDS = 7,
	SEGMENTS_STEPS = 8,
};

/* The results for one number of open segments. */
struct segments_step {
	uint64_t count;
	double open_kib;		/* memory per open segment, KiB */
	double used_kib;		/* additional memory per segment after
					 * the first write to it, KiB */
	double open_ms;			/* time to open one segment, ms */
};

static struct segments {
	const struct bench_opts *opts;
	uint64_t n_children;
	struct ft_proc *children;
	char (*names)[BENCH_NAME_MAX];	/* segment names of all targets;
					 * opts->segments elements */
	struct bench_memory memory;	/* local memory, registered with both
					 * engines */
	transfer_engine_t one;
	transfer_engine_t many;
	struct bench_remote first;	/* segment that `one` has opened */
	struct bench_remote *remotes;	/* segments that `many` has opened */
	size_t n_steps;
	struct segments_step steps[SEGMENTS_STEPS];
	struct ft_hist hist_one;
	struct ft_hist hist_many;
	struct ft_hist hist_around;	/* latencies of `many` when it writes to
					 * all segments in turn */
	double ratios[SEGMENTS_ROUNDS];	/* per round: median latency of `many`
					 * divided by that of `one` */
} segments;

/* Raises the limit of open files, because a thousand connections need as many
 * file descriptors. Children inherit it. */
static void segments_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* --- targets ------------------------------------------------------------- */

static int segments_start_child(uint64_t index)
{
	struct bench_opts mine = *segments.opts;
	uint64_t first = index * SEGMENTS_EACH;
	uint64_t left = mine.segments - first;
	struct ft_proc *child = &segments.children[index];

	mine.engines = left < SEGMENTS_EACH ? left : SEGMENTS_EACH;
	if (bench_child_start(child, &mine, "target", segments.names[first],
			      BENCH_NAME_MAX))
		return -1;
	segments.n_children++;
	for (uint64_t i = 1; i < mine.engines; i++)
		if (ft_proc_line(child, segments.names[first + i],
				 BENCH_NAME_MAX, BENCH_START_MS)) {
			fprintf(stderr, "te_bench: target %" PRIu64
				" did not start\n", first + i);
			return -1;
		}
	return 0;
}

static int segments_start(void)
{
	uint64_t count = segments.opts->segments;
	uint64_t children = (count + SEGMENTS_EACH - 1) / SEGMENTS_EACH;

	segments.children = calloc(children, sizeof(*segments.children));
	segments.names = calloc(count, sizeof(*segments.names));
	segments.remotes = calloc(count, sizeof(*segments.remotes));
	if (!segments.children || !segments.names || !segments.remotes)
		return -1;
	for (uint64_t i = 0; i < children; i++)
		if (segments_start_child(i))
			return -1;
	return 0;
}

static int segments_stop(void)
{
	int ret = 0;

	for (uint64_t i = 0; i < segments.n_children; i++)
		ft_proc_close_stdin(&segments.children[i]);
	for (uint64_t i = 0; i < segments.n_children; i++)
		ret |= bench_child_stop(&segments.children[i],
					segments.opts->segments);
	free(segments.children);
	free(segments.names);
	free(segments.remotes);
	return ret;
}

/* --- measurements -------------------------------------------------------- */

static int segments_write(transfer_engine_t engine,
			  const struct bench_remote *remote,
			  struct ft_hist *hist)
{
	struct transfer_request request = {
		.opcode = segments.opts->operation,
		.source = segments.memory.addr,
		.target_id = remote->id,
		.target_offset = remote->addr,
		.length = segments.opts->block_size,
	};
	uint64_t ns;

	if (bench_transfer(engine, &request, 1, NULL, &ns))
		return -1;
	if (hist)
		ft_hist_add(hist, ns);
	return 0;
}

/* Writes to `count` segments in turn for --duration. Returns 0 or -1. */
static int segments_loop(transfer_engine_t engine,
			 const struct bench_remote *remotes, uint64_t count,
			 struct ft_hist *hist)
{
	uint64_t until_ns = ft_now_ns() +
			    (uint64_t)(segments.opts->duration * 1e9);

	for (uint64_t i = 0; ft_now_ns() < until_ns; i = (i + 1) % count)
		if (bench_interrupted ||
		    segments_write(engine, &remotes[i], hist))
			return -1;
	return 0;
}

/* Opens the segments from index `from` up to `count` - 1, then writes to each
 * once. Records the time and the memory as a new step. */
static int segments_grow(uint64_t from, uint64_t count)
{
	struct segments_step *step = &segments.steps[segments.n_steps++];
	double before = bench_private_kib(), opened;
	uint64_t begin_ns = ft_now_ns();

	step->count = count;
	for (uint64_t i = from; i < count; i++)
		if (bench_interrupted ||
		    bench_remote_open(segments.many, segments.names[i],
				      &segments.remotes[i]))
			return -1;
	step->open_ms = (double)(ft_now_ns() - begin_ns) / 1e6 /
			(double)(count - from);
	opened = bench_private_kib();
	for (uint64_t i = from; i < count; i++)
		if (bench_interrupted ||
		    segments_write(segments.many, &segments.remotes[i], NULL))
			return -1;
	step->open_kib = (opened - before) / (double)(count - from);
	step->used_kib = (bench_private_kib() - opened) / (double)(count - from);
	return 0;
}

static int segments_grow_all(void)
{
	static const uint64_t counts[] = { 1, 100, 1000, 10000, 100000 };
	uint64_t most = segments.opts->segments, at = 0;

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		uint64_t count = counts[i] < most ? counts[i] : most;

		if (at < count && segments_grow(at, count))
			return -1;
		at = count;
	}
	return 0;
}

/* Measures each of the two engines once. The first engine of a round is the
 * second one of the next round. */
static int segments_round(int round)
{
	static struct ft_hist hist[2];		/* too large for a stack */
	int ret = 0;

	memset(hist, 0, sizeof(hist));
	for (int i = 0; i < 2 && !ret; i++) {
		if ((round + i) % 2)
			ret = segments_loop(segments.one, &segments.first, 1,
					    &hist[0]);
		else
			ret = segments_loop(segments.many, segments.remotes, 1,
					    &hist[1]);
	}
	if (ret)
		return -1;
	segments.ratios[round] = (double)ft_hist_quantile(&hist[1], .5) /
				 (double)ft_hist_quantile(&hist[0], .5);
	ft_hist_merge(&segments.hist_one, &hist[0]);
	ft_hist_merge(&segments.hist_many, &hist[1]);
	return 0;
}

static int segments_measure(void)
{
	if (bench_remote_open(segments.one, segments.names[0],
			      &segments.first) ||
	    segments_write(segments.one, &segments.first, NULL) ||
	    segments_grow_all())
		return -1;
	for (int i = 0; i < SEGMENTS_ROUNDS; i++)
		if (segments_round(i))
			return -1;
	return segments_loop(segments.many, segments.remotes,
			     segments.opts->segments, &segments.hist_around);
}

/* --- report -------------------------------------------------------------- */

static double segments_us(const struct ft_hist *hist)
{
	return (double)ft_hist_quantile(hist, .5) / 1e3;
}

static void segments_text(void)
{
	const double *ratios = segments.ratios;
	uint64_t most = segments.opts->segments;

	printf("%10s %16s %18s %12s\n", "segments", "KiB each, open",
	       "KiB each, in use", "ms to open");
	for (size_t i = 0; i < segments.n_steps; i++)
		printf("%10" PRIu64 " %16.1f %18.1f %12.2f\n",
		       segments.steps[i].count, segments.steps[i].open_kib,
		       segments.steps[i].open_kib + segments.steps[i].used_kib,
		       segments.steps[i].open_ms);
	printf("  one open     p50 %.2f us\n  %" PRIu64 " open, one used  p50 "
	       "%.2f us, ratio %.3f (%.3f to %.3f in %d rounds)\n"
	       "  %" PRIu64 " open, used in turn  p50 %.2f us\n",
	       segments_us(&segments.hist_one), most,
	       segments_us(&segments.hist_many), ratios[SEGMENTS_ROUNDS / 2],
	       ratios[0], ratios[SEGMENTS_ROUNDS - 1], SEGMENTS_ROUNDS, most,
	       segments_us(&segments.hist_around));
}

static void segments_json(void)
{
	cJSON *json = cJSON_CreateObject(), *memory, *o;

	cJSON_AddStringToObject(json, "mode", "segments");
	cJSON_AddStringToObject(json, "transport", segments.opts->protocol);
	bench_json_u64(json, "segments", segments.opts->segments);
	bench_json_num(json, "one_us", segments_us(&segments.hist_one));
	bench_json_num(json, "many_us", segments_us(&segments.hist_many));
	bench_json_num(json, "around_us", segments_us(&segments.hist_around));
	bench_json_num(json, "ratio", segments.ratios[SEGMENTS_ROUNDS / 2]);
	bench_json_num(json, "ratio_min", segments.ratios[0]);
	bench_json_num(json, "ratio_max", segments.ratios[SEGMENTS_ROUNDS - 1]);
	memory = cJSON_AddArrayToObject(json, "memory");
	for (size_t i = 0; i < segments.n_steps; i++) {
		o = bench_json_append(memory);
		bench_json_u64(o, "segments", segments.steps[i].count);
		bench_json_num(o, "open_kib", segments.steps[i].open_kib);
		bench_json_num(o, "used_kib",
			       segments.steps[i].open_kib +
				       segments.steps[i].used_kib);
		bench_json_num(o, "open_ms", segments.steps[i].open_ms);
	}
	bench_json_print(json);
}

static void segments_report(void)
{
	ft_sort(segments.ratios, SEGMENTS_ROUNDS);
	segments_text();
	if (segments.opts->json)
		segments_json();
}

/* --- engines ------------------------------------------------------------- */

static int segments_with_engines(void)
{
	int ret;

	if (registerLocalMemory(segments.one, segments.memory.addr,
				segments.memory.size, "*", 0) ||
	    registerLocalMemory(segments.many, segments.memory.addr,
				segments.memory.size, "*", 0)) {
		bench_engine_error("registerLocalMemory");
		return -1;
	}
	ret = segments_measure();
	if (unregisterLocalMemory(segments.many, segments.memory.addr) ||
	    unregisterLocalMemory(segments.one, segments.memory.addr)) {
		bench_engine_error("unregisterLocalMemory");
		ret = -1;
	}
	return ret;
}

static int segments_run(void)
{
	int ret = -1;

	if (bench_memory_get(&segments.memory, segments.opts->buffer_size, NULL,
			     BENCH_PAGES_ANY))
		return -1;
	segments.one = bench_engine_open(segments.opts);
	segments.many = bench_engine_open(segments.opts);
	if (segments.one && segments.many)
		ret = segments_with_engines();
	destroyTransferEngine(segments.many);
	destroyTransferEngine(segments.one);
	bench_memory_put(&segments.memory);
	return ret;
}

int bench_segments(const struct bench_opts *opts)
{
	int ret = -1;

	segments.opts = opts;
	segments_descriptors();
	if (!segments_start())
		ret = segments_run();
	if (segments_stop())
		ret = -1;
	if (!ret)
		segments_report();
	return ret ? BENCH_FAILED : BENCH_OK;
}
