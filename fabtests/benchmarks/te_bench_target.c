/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=target: registers one buffer, prints the name of its segment as the
 * first line, and waits. The buffer is filled with the pattern of sequence 0,
 * which initiators compare when they read with --verify.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_pattern.h"

/* Prints the segment name of the engine. With P2PHANDSHAKE, the name contains a
 * port, so it is known only after the port was bound. */
static int target_name(transfer_engine_t engine, const struct bench_opts *opts)
{
	char name[BENCH_NAME_MAX];

	if (strcmp(opts->metadata_server, "P2PHANDSHAKE")) {
		if (opts->local_server_name)
			return puts(opts->local_server_name) < 0 ? -1 : 0;
		if (gethostname(name, sizeof(name)))
			return -1;
	} else if (getLocalIpAndPort(engine, name, sizeof(name))) {
		bench_engine_error("getLocalIpAndPort");
		return -1;
	}
	return puts(name) < 0 ? -1 : 0;
}

/* Waits until the target must end. A child of te_bench ends at the end of its
 * stdin. Any other target ends at a signal, which ppoll accepts because of the
 * signal mask `unblocked`. */
static void target_wait(const struct bench_opts *opts,
			const sigset_t *unblocked)
{
	char line[64];

	if (opts->child) {
		while (bench_serve_line(line, sizeof(line)))
			;
		return;
	}
	while (!bench_interrupted)
		ppoll(NULL, 0, NULL, unblocked);
}

/* Copies the pattern to memory of te_alloc at the address `to`, with a transfer
 * of the engine. Returns 0 or an error code. */
static int target_fill(transfer_engine_t engine,
		       const struct bench_memory *memory, uint64_t to)
{
	struct transfer_request rq = {
		.opcode = OPCODE_WRITE, .source = memory->addr,
		.target_id = LOCAL_SEGMENT, .target_offset = to,
		.length = memory->size,
	};
	uint64_t ns;
	int ret = registerLocalMemory(engine, memory->addr, memory->size, "*",
				      0);

	if (ret) {
		bench_engine_error("registerLocalMemory");
		return ret;
	}
	ret = bench_transfer(engine, &rq, 1, NULL, &ns) ? -1 : 0;
	if (unregisterLocalMemory(engine, memory->addr) && !ret) {
		bench_engine_error("unregisterLocalMemory");
		ret = -1;
	}
	return ret;
}

/* Registers the memory that peers access. With --alloc, or if --target_location
 * is a GPU, te_alloc provides new memory, which gets the content of `memory` and
 * is freed when the engine is destroyed. Otherwise `memory` itself is registered.
 * Returns 0 or an error code. */
static int target_register(transfer_engine_t engine,
			   const struct bench_opts *opts,
			   const struct bench_memory *memory)
{
	struct te_memory m;
	int ret;

	if (!bench_location_allocated(opts, opts->target_location)) {
		ret = registerLocalMemory(engine, memory->addr, memory->size,
					  opts->target_location, 1);
		if (ret)
			bench_engine_error("registerLocalMemory");
		return ret;
	}
	ret = te_alloc(engine, memory->size, opts->target_location,
		       bench_alloc_flags(opts, opts->target_location), &m,
		       sizeof(m));
	if (ret) {
		bench_engine_error("te_alloc");
		return ret;
	}
	return target_fill(engine, memory, m.addr);
}

/* Creates an engine, registers the buffer with it and prints the segment name.
 * Returns NULL if a step fails; then the engine is destroyed already. */
static transfer_engine_t target_open(const struct bench_opts *opts,
				     const struct bench_memory *memory)
{
	transfer_engine_t engine = bench_engine_open(opts);

	if (!engine)
		return NULL;
	if (!target_register(engine, opts, memory) &&
	    !target_name(engine, opts))
		return engine;
	destroyTransferEngine(engine);
	return NULL;
}

static int target_close(transfer_engine_t engine,
			const struct bench_opts *opts,
			const struct bench_memory *memory)
{
	int ret = bench_location_allocated(opts, opts->target_location) ? 0 :
		  unregisterLocalMemory(engine, memory->addr);

	if (ret)
		bench_engine_error("unregisterLocalMemory");
	destroyTransferEngine(engine);
	return ret;
}

static int target_serve(const struct bench_opts *opts,
			const struct bench_memory *memory,
			const sigset_t *unblocked)
{
	static transfer_engine_t engines[BENCH_ENGINES];
	int ret = BENCH_FAILED;
	uint64_t count = 0;

	while (count < opts->engines) {
		engines[count] = target_open(opts, memory);
		if (!engines[count])
			break;
		count++;
	}
	if (count == opts->engines && !fflush(stdout)) {
		target_wait(opts, unblocked);
		ret = BENCH_OK;
	}
	while (count)
		if (target_close(engines[--count], opts, memory))
			ret = BENCH_FAILED;
	return ret;
}

int bench_target(const struct bench_opts *opts)
{
	struct bench_memory memory;
	sigset_t ends, unblocked;
	int ret;

	/* Block the signals except in ppoll, so that no signal is missed
	 * between the check of bench_interrupted and the wait. Threads inherit
	 * the mask. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	if (!opts->child)
		sigprocmask(SIG_BLOCK, &ends, &unblocked);
	if (bench_memory_get(&memory, opts->buffer_size,
			     bench_location_gpu(opts->target_location) ?
				     NULL :
				     opts->target_location,
			     opts->pages))
		return BENCH_FAILED;
	ft_pattern_fill(memory.addr, 0, memory.size, opts->seed, 0);
	ret = target_serve(opts, &memory, &unblocked);
	bench_memory_put(&memory);
	return ret;
}
