/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=prepared: compares two ways to move --batch_size scattered pieces of
 * --block_size: submitTransfer with one request for each piece, and
 * te_submit_prepared with one task for all pieces. Each round measures both
 * calls, in an order that alternates from round to round, so that other load on
 * the machine affects both. The program prints the median of the ratios of all
 * rounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/benchmarks/te_bench_json.h"
#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_num.h"

enum { PREPARED_ROUNDS_MIN = 9, PREPARED_ROUNDS_MAX = 20000 };

static struct prepared {
	const struct bench_opts *opts;
	transfer_engine_t engine;
	struct bench_memory memory;
	struct bench_remote remote;
	struct te_piece *pieces;
	struct transfer_request *requests;
	te_prepared_t list;
	size_t n;      /* number of pieces */
	/* number of measured rounds, which is the number of valid elements in
	 * each of the arrays below */
	size_t rounds;
	double *plain_us, *list_us; /* times of each round: submitTransfer,
				     * te_submit_prepared */
	double *ratio;		    /* plain_us / list_us of each round */
} prepared;

/* Returns the smallest number that is at least 7 and has no common divisor with
 * n. */
static size_t prepared_step(size_t n)
{
	size_t step, a, b, rest;

	for (step = 7;; step++) {
		for (a = step, b = n; b; a = b, b = rest)
			rest = a % b;
		if (a == 1)
			return step;
	}
}

/* Cuts the memory into pieces that are not adjacent. The remote pieces are in
 * another order than the local ones. */
static void prepared_cut(void)
{
	const struct bench_opts *opts = prepared.opts;
	uint64_t size = opts->block_size;
	size_t step = prepared_step(prepared.n), i;

	for (i = 0; i < prepared.n; i++) {
		prepared.pieces[i] = (struct te_piece){
			.local = prepared.memory.addr + 2 * i * size,
			.remote = prepared.remote.addr +
				  2 * (i * step % prepared.n) * size,
			.length = size,
		};
		prepared.requests[i] = (struct transfer_request){
			.opcode = opts->operation,
			.source = prepared.pieces[i].local,
			.target_id = prepared.remote.id,
			.target_offset = prepared.pieces[i].remote,
			.length = size,
		};
	}
}

/* Moves all pieces once: with te_submit_prepared if `list` is true, otherwise
 * with submitTransfer. Sets *us to the time from the submission to the last
 * completion. Returns 0 or -1. */
static int prepared_move(bool list, double *us)
{
	batch_id_t batch = allocateBatchID(prepared.engine, prepared.n);
	struct transfer_status status = { .status = STATUS_INVALID };
	uint64_t from = ft_now_ns();
	int ret;

	ret = list ? te_submit_prepared(prepared.engine, batch, prepared.list,
					NULL, 0, 0, 0, NULL)
		   : submitTransfer(prepared.engine, batch, prepared.requests,
				    prepared.n);
	if (ret)
		bench_engine_error(list ? "te_submit_prepared"
					: "submitTransfer");
	else if (te_wait_batch(prepared.engine, batch, -1, &status))
		bench_engine_error("te_wait_batch");
	*us = (double)(ft_now_ns() - from) / 1e3;
	freeBatchID(prepared.engine, batch);
	if (!ret && status.status != STATUS_COMPLETED)
		fprintf(stderr, "te_bench: a batch ended with status %d\n",
			status.status);
	return status.status == STATUS_COMPLETED ? 0 : -1;
}

static int prepared_round(size_t i)
{
	bool list = i % 2;

	if (prepared_move(list, list ? &prepared.list_us[i]
				     : &prepared.plain_us[i]) ||
	    prepared_move(!list,
			  list ? &prepared.plain_us[i] : &prepared.list_us[i]))
		return -1;
	prepared.ratio[i] = prepared.plain_us[i] / prepared.list_us[i];
	return 0;
}

static int prepared_measure(void)
{
	uint64_t end;
	size_t i;

	/* these rounds connect the processes and warm up caches and rate
	 * estimates; the measured rounds overwrite their results */
	for (i = 0; i < PREPARED_ROUNDS_MIN; i++)
		if (prepared_round(i))
			return -1;
	end = ft_now_ns() + (uint64_t)(prepared.opts->duration * 1e9);
	for (i = 0; i < PREPARED_ROUNDS_MAX && !bench_interrupted &&
		    (i < PREPARED_ROUNDS_MIN || ft_now_ns() < end);
	     i++)
		if (prepared_round(i))
			return -1;
	prepared.rounds = i;
	return i < PREPARED_ROUNDS_MIN ? -1 : 0;
}

/* --- report -------------------------------------------------------------- */

static void prepared_line(const char *what, const double *us)
{
	printf("%-20s %10.1f us (%.1f to %.1f)\n", what,
	       us[prepared.rounds / 2], us[0], us[prepared.rounds - 1]);
}

static void prepared_json(void)
{
	size_t mid = prepared.rounds / 2;
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "mode", "prepared");
	cJSON_AddStringToObject(json, "operation",
				bench_operation_name(prepared.opts->operation));
	bench_json_u64(json, "pieces", prepared.n);
	bench_json_u64(json, "block_size", prepared.opts->block_size);
	bench_json_u64(json, "rounds", prepared.rounds);
	bench_json_num(json, "submit_us", prepared.plain_us[mid]);
	bench_json_num(json, "prepared_us", prepared.list_us[mid]);
	bench_json_num(json, "ratio", prepared.ratio[mid]);
	bench_json_print(json);
}

static void prepared_report(void)
{
	ft_sort(prepared.plain_us, prepared.rounds);
	ft_sort(prepared.list_us, prepared.rounds);
	ft_sort(prepared.ratio, prepared.rounds);
	printf("%zu pieces of %llu bytes, %s, medians of %zu rounds\n",
	       prepared.n, (unsigned long long)prepared.opts->block_size,
	       bench_operation_name(prepared.opts->operation), prepared.rounds);
	prepared_line("submitTransfer", prepared.plain_us);
	prepared_line("te_submit_prepared", prepared.list_us);
	printf("%-20s %10.3f (%.3f to %.3f)\n", "ratio",
	       prepared.ratio[prepared.rounds / 2], prepared.ratio[0],
	       prepared.ratio[prepared.rounds - 1]);
	if (prepared.opts->json)
		prepared_json();
}

/* --- start and end ------------------------------------------------------- */

static int prepared_arrays(void)
{
	prepared.pieces = calloc(prepared.n, sizeof(*prepared.pieces));
	prepared.requests = calloc(prepared.n, sizeof(*prepared.requests));
	prepared.plain_us = calloc(PREPARED_ROUNDS_MAX, sizeof(double));
	prepared.list_us = calloc(PREPARED_ROUNDS_MAX, sizeof(double));
	prepared.ratio = calloc(PREPARED_ROUNDS_MAX, sizeof(double));
	if (prepared.pieces && prepared.requests && prepared.plain_us &&
	    prepared.list_us && prepared.ratio)
		return 0;
	fprintf(stderr, "te_bench: out of memory for %zu pieces\n", prepared.n);
	return -1;
}

static void prepared_free(void)
{
	free(prepared.pieces);
	free(prepared.requests);
	free(prepared.plain_us);
	free(prepared.list_us);
	free(prepared.ratio);
}

/* Opens the segment `name`, prepares the list of pieces and measures. */
static int prepared_connect(const char *name)
{
	int ret;

	if (bench_remote_open(prepared.engine, name, &prepared.remote))
		return -1;
	prepared_cut();
	ret = te_prepare(prepared.engine, prepared.remote.id,
			 (uint32_t)prepared.opts->operation, prepared.pieces,
			 prepared.n, 0, &prepared.list);
	if (ret)
		bench_engine_error("te_prepare");
	else
		ret = prepared_measure();
	closeSegment(prepared.engine, prepared.remote.id);
	return ret ? -1 : 0;
}

static int prepared_run(const char *name)
{
	int ret = -1;

	prepared.engine = bench_engine_open(prepared.opts);
	if (!prepared.engine)
		return -1;
	if (!bench_register_own(prepared.engine, &prepared.memory,
				prepared.opts)) {
		ret = prepared_connect(name);
		if (bench_unregister_own(prepared.engine, &prepared.memory,
					 prepared.opts))
			ret = -1;
	}
	destroyTransferEngine(prepared.engine);
	return ret;
}

int bench_prepared(const struct bench_opts *opts)
{
	static struct ft_proc child; /* too large for a stack */
	char name[BENCH_NAME_MAX];
	int ret = -1;

	prepared.opts = opts;
	prepared.n = opts->batch_size;
	if (!prepared_arrays() &&
	    !bench_child_start(&child, opts, "target", name, sizeof(name))) {
		ret = prepared_run(name);
		if (bench_child_stop(&child, 1))
			ret = -1;
	}
	if (!ret)
		prepared_report();
	prepared_free();
	return ret ? BENCH_FAILED : BENCH_OK;
}
