/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=initiator, loopback and self. The buffers of both sides are divided
 * into equal parts, one for each thread. A thread transfers the blocks of its
 * part one after the other, and then starts again with the first one. A block
 * has the same offset at both sides.
 *
 * --verify with writes: the blocks of each batch are filled with a pattern,
 * which depends on the offset and on the number of the batch. They are written,
 * read back into a second buffer and compared.
 *
 * --verify with reads: the local blocks are overwritten. Then the remote blocks
 * are read and compared with the pattern with which the target has filled its
 * buffer.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_pattern.h"

/* The data that all threads share. It does not change while they run. */
struct initiator {
	const struct bench_opts *opts;
	transfer_engine_t engine;
	struct bench_memory memory;
	struct bench_memory back;	/* buffer for the blocks that --verify
					 * reads back; empty if it is not
					 * needed */
	struct bench_memory own;	/* the target's memory in --mode=self;
					 * empty in other modes */
	struct bench_remote remote;
	size_t n_before;
	/* rail counters at the end of the warm-up */
	struct te_rail_stats before[BENCH_RAILS];
};

/* The part of the buffers that belongs to one thread, and its current batch. */
struct initiator_part {
	struct initiator *all;
	struct transfer_request *requests;	/* requests of the present
						 * batch; array of batch_size
						 * elements */
	uint64_t *offsets;		/* offset of each request within the
					 * buffer */
	uint64_t size, count;		/* bytes per request; requests per
					 * batch */
	uint64_t begin;			/* offset of the part in the buffers */
	uint64_t blocks;		/* number of blocks in the part */
	uint64_t own;			/* number of blocks of local memory;
					 * equal to `blocks`, or lower with
					 * --own_size, where several remote
					 * blocks use one local block */
	uint64_t next;			/* index of the next block */
	uint64_t sequence;		/* number of batches begun so far;
					 * selects the pattern of a write */
};

static void initiator_begin(struct bench_run *run)
{
	struct initiator *all = run->arg;

	all->n_before = bench_rails_get(all->engine, all->before, BENCH_RAILS);
}

static int initiator_prepare(struct bench_worker *worker)
{
	struct initiator *all = worker->run->arg;
	const struct bench_opts *opts = all->opts;
	uint64_t size = opts->buffer_size / opts->threads;
	struct initiator_part *part = calloc(1, sizeof(*part));

	if (!part)
		return -1;
	part->all = all;
	part->begin = worker->index * size;
	part->blocks = size / opts->block_size;
	part->own = opts->own_size / opts->threads / opts->block_size;
	if (!part->own || part->own > part->blocks)
		part->own = part->blocks;
	part->size = opts->block_size;
	part->count = opts->batch_size;
	if (opts->beside && worker->index == opts->threads - 1) {
		part->size = opts->beside;
		part->count = 1;
	}
	part->requests = calloc(opts->batch_size, sizeof(*part->requests));
	part->offsets = calloc(opts->batch_size, sizeof(*part->offsets));
	worker->ctx = part;
	if (part->requests && part->offsets)
		return 0;
	free(part->requests);
	free(part->offsets);
	free(part);
	return -1;
}

static void initiator_finish(struct bench_worker *worker)
{
	struct initiator_part *part = worker->ctx;

	free(part->requests);
	free(part->offsets);
	free(part);
}

static void part_cut(struct initiator_part *part)
{
	const struct initiator *all = part->all;
	uint64_t size = part->size;

	for (uint64_t i = 0; i < part->count; i++) {
		uint64_t at = part->begin + part->next * size;
		uint64_t own = part->begin + part->next % part->own * size;

		part->offsets[i] = at;
		part->requests[i] = (struct transfer_request){
			.opcode = all->opts->operation,
			.source = all->memory.addr + own,
			.target_id = all->remote.id,
			.target_offset = all->remote.addr + at,
			.length = size,
		};
		if (++part->next == part->blocks)
			part->next = 0;
	}
	part->sequence++;
}

/* Fills the local blocks before a transfer: for a write with the pattern of the
 * batch; for a read with a constant byte, so that the pattern can come only
 * from the target. */
static void part_prepare_blocks(struct initiator_part *part)
{
	const struct bench_opts *opts = part->all->opts;

	for (uint64_t i = 0; i < opts->batch_size; i++) {
		if (opts->operation == BENCH_WRITE)
			ft_pattern_fill(part->requests[i].source,
					part->offsets[i], opts->block_size,
					opts->seed, part->sequence);
		else
			memset(part->requests[i].source, 0xa5,
			       opts->block_size);
	}
}

static size_t part_read_back(struct initiator_part *part)
{
	uint64_t ns;

	for (uint64_t i = 0; i < part->all->opts->batch_size; i++) {
		part->requests[i].opcode = OPCODE_READ;
		part->requests[i].source = part->all->back.addr +
					   part->offsets[i];
	}
	return bench_transfer(part->all->engine, part->requests,
			      part->all->opts->batch_size, NULL, &ns);
}

static void part_mismatch(const struct initiator_part *part, uint64_t block,
			  uint64_t at, uint64_t sequence)
{
	const uint8_t *bytes = part->requests[block].source;
	uint64_t offset = part->offsets[block] + at;

	fprintf(stderr, "te_bench: wrong byte at buffer offset %" PRIu64
		" (block %" PRIu64 " of the batch, byte %" PRIu64 "): 0x%02x, "
		"expected 0x%02x\n", offset, block, at, bytes[at],
		ft_pattern_byte(offset, part->all->opts->seed, sequence));
	if (part->all->opts->operation == BENCH_READ)
		fputs("te_bench: a target that was written to before has to "
		      "be restarted for --operation=read --verify\n",
		      stderr);
}

static void part_compare(struct bench_worker *worker)
{
	struct initiator_part *part = worker->ctx;
	const struct bench_opts *opts = part->all->opts;
	uint64_t size = opts->block_size;
	uint64_t sequence = opts->operation == BENCH_WRITE ? part->sequence : 0;

	for (uint64_t i = 0; i < opts->batch_size; i++) {
		size_t good = ft_pattern_check(part->requests[i].source,
					       part->offsets[i], size,
					       opts->seed, sequence);

		if (good == size) {
			worker->verified += size;
			continue;
		}
		part_mismatch(part, i, good, sequence);
		if (!bench_error(worker))
			return;
	}
}

static int part_verify(struct bench_worker *worker)
{
	struct initiator_part *part = worker->ctx;

	if (part->all->opts->operation == BENCH_WRITE &&
	    part_read_back(part))
		return bench_error(worker) ? 0 : -1;
	part_compare(worker);
	return 0;
}

static void part_count(struct bench_worker *worker, uint64_t done, uint64_t ns)
{
	const struct initiator_part *part = worker->ctx;
	const struct bench_opts *opts = worker->run->opts;
	uint64_t bytes = atomic_load_explicit(&worker->bytes,
					      memory_order_relaxed);

	bytes += done * part->size;
	atomic_store_explicit(&worker->bytes, bytes, memory_order_relaxed);
	worker->operations += done;
	worker->busy_ns += ns;
	if (!opts->beside || part->size == opts->beside)
		ft_hist_add(&worker->latency, ns);
}

/* If this thread sends the small requests, sleeps for --pause. If the run ends
 * before that, sleeps only until its end and returns true. */
static bool part_pause(const struct bench_worker *worker)
{
	const struct initiator_part *part = worker->ctx;
	const struct bench_opts *opts = part->all->opts;
	uint64_t ns = (uint64_t)(opts->pause * 1e9), now = ft_now_ns();
	uint64_t end = worker->run->deadline_ns;
	struct timespec time;
	bool over;

	if (!ns || part->size != opts->beside || !end)
		return false;
	over = now + ns >= end;
	if (over)
		ns = now < end ? end - now : 0;
	time.tv_sec = (time_t)(ns / 1000000000);
	time.tv_nsec = (long)(ns % 1000000000);
	nanosleep(&time, NULL);
	return over;
}

static int initiator_step(struct bench_worker *worker)
{
	struct initiator_part *part = worker->ctx;
	const struct bench_opts *opts = part->all->opts;
	size_t failed;
	uint64_t ns = 0;
	int ret = 0;

	if (part_pause(worker)) {
		worker->now_ns = ft_now_ns();
		return 0;
	}
	part_cut(part);
	if (opts->verify)
		part_prepare_blocks(part);
	failed = bench_transfer(part->all->engine, part->requests, part->count,
				NULL, &ns);
	part_count(worker, part->count - failed, ns);
	for (size_t i = 0; i < failed && !ret; i++)
		ret = bench_error(worker) ? 0 : -1;
	if (!failed && opts->verify)
		ret = part_verify(worker);
	worker->now_ns = ft_now_ns();
	return ret;
}

/* Sets result->transport to the transport of the rail that carried the most
 * bytes, or to --protocol if no rail carried any. */
static void initiator_transport(const struct bench_opts *opts,
				struct bench_result *result)
{
	const struct te_rail_stats *most = NULL;

	for (size_t i = 0; i < result->n_rails; i++) {
		const struct te_rail_stats *rail = &result->rails[i];

		if (rail->tx_bytes + rail->rx_bytes &&
		    (!most || rail->tx_bytes + rail->rx_bytes >
			      most->tx_bytes + most->rx_bytes))
			most = rail;
	}
	snprintf(result->transport, sizeof(result->transport), "%s",
		 most ? most->transport : opts->protocol);
}

static int initiator_measure(struct initiator *all, struct ft_proc *child)
{
	static const struct bench_ops ops = {
		initiator_begin, initiator_prepare, initiator_step,
		initiator_finish
	};
	static struct bench_result result;	/* too large for a stack */
	struct bench_run run = {
		.opts = all->opts, .ops = &ops, .arg = all, .child = child,
	};

	if (bench_run(&run, &result))
		return BENCH_FAILED;
	result.n_rails = bench_rails_since(all->engine, result.rails,
					   BENCH_RAILS, all->before,
					   all->n_before);
	initiator_transport(all->opts, &result);
	return bench_report(all->opts, &result);
}

/* Opens the segment `name`, measures and closes the segment. In --mode=self,
 * `remote` is set already and no segment is opened. */
static int initiator_connect(struct initiator *all, const char *name,
			     struct ft_proc *child)
{
	int ret = BENCH_FAILED;

	if (all->own.addr)
		return initiator_measure(all, NULL);
	if (bench_remote_open(all->engine, name, &all->remote))
		return BENCH_FAILED;
	if (all->remote.size < all->opts->buffer_size)
		fprintf(stderr, "te_bench: the target's buffer has %" PRIu64
			" bytes: %s\n", all->remote.size,
			strcmp(all->opts->protocol, "nvmeof") ?
			"give both sides the same --buffer_size" :
			"give no larger --buffer_size than the files have");
	else
		ret = initiator_measure(all, child);
	closeSegment(all->engine, all->remote.id);
	return ret;
}

static int initiator_with_engine(struct initiator *all, const char *name,
				 struct ft_proc *child)
{
	bool back = all->opts->verify && all->opts->operation == BENCH_WRITE;
	int ret = BENCH_FAILED;

	if (bench_register_own(all->engine, &all->memory, all->opts))
		return BENCH_FAILED;
	if (back && bench_register(all->engine, &all->back,
				   all->opts->buffer_size, all->opts->location,
				   all->opts->pages, false))
		goto err_unregister;
	ret = initiator_connect(all, name, child);
	if (back && bench_unregister(all->engine, &all->back))
		ret = BENCH_FAILED;
err_unregister:
	if (bench_unregister_own(all->engine, &all->memory, all->opts))
		ret = BENCH_FAILED;
	return ret;
}

/* Prints the name of this process's segment, which te_info --watch
 * --segment=NAME needs. Prints it to stderr, because stdout contains only the
 * report. */
static void initiator_name(const struct initiator *all)
{
	char name[BENCH_NAME_MAX];

	if (!strcmp(all->opts->metadata_server, "P2PHANDSHAKE") &&
	    !getLocalIpAndPort(all->engine, name, sizeof(name)))
		fprintf(stderr, "te_bench: the own segment is %s\n", name);
	else if (all->opts->local_server_name)
		fprintf(stderr, "te_bench: the own segment is %s\n",
			all->opts->local_server_name);
	else if (!gethostname(name, sizeof(name)))
		fprintf(stderr, "te_bench: the own segment is %.*s\n",
			(int)sizeof(name) - 1, name);
}

static int initiator_run(const struct bench_opts *opts, const char *name,
			 struct ft_proc *child)
{
	static struct initiator all;	/* too large for a stack */
	int ret;

	all.opts = opts;
	all.engine = bench_engine_open(opts);
	if (!all.engine)
		return BENCH_FAILED;
	if (!child)
		initiator_name(&all);
	ret = initiator_with_engine(&all, name, child);
	destroyTransferEngine(all.engine);
	return ret;
}

int bench_initiator(const struct bench_opts *opts)
{
	return initiator_run(opts, opts->segment_id, NULL);
}

int bench_loopback(const struct bench_opts *opts)
{
	static struct ft_proc child;	/* too large for a stack */
	char name[BENCH_NAME_MAX];
	int ret;

	if (bench_child_start(&child, opts, "target", name, sizeof(name)))
		return BENCH_FAILED;
	ret = initiator_run(opts, name, &child);
	if (bench_child_stop(&child, 1))
		ret = BENCH_FAILED;
	return ret;
}

static int initiator_self(struct initiator *all)
{
	const struct bench_opts *opts = all->opts;
	int ret;

	if (bench_register(all->engine, &all->own, opts->buffer_size,
			   opts->target_location, opts->pages, true))
		return BENCH_FAILED;
	ft_pattern_fill(all->own.addr, 0, all->own.size, opts->seed, 0);
	all->remote.id = LOCAL_SEGMENT;
	all->remote.addr = (uint64_t)(uintptr_t)all->own.addr;
	all->remote.size = all->own.size;
	ret = initiator_with_engine(all, NULL, NULL);
	if (bench_unregister(all->engine, &all->own))
		ret = BENCH_FAILED;
	return ret;
}

int bench_self(const struct bench_opts *opts)
{
	static struct initiator all;	/* too large for a stack */
	int ret;

	all.opts = opts;
	all.engine = bench_engine_open(opts);
	if (!all.engine)
		return BENCH_FAILED;
	ret = initiator_self(&all);
	destroyTransferEngine(all.engine);
	return ret;
}
