/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_options.h"

static const char *const option_modes[] = { "initiator", "target",   "loopback",
					    "raw",	 "demo",     "self",
					    "memcpy",	 "idle",     "segments",
					    "register",	 "prepared", "create",
					    NULL };

static const char *const option_operations[] = { "read", "write", NULL };

static const char *const option_protocols[] = {
	"auto", "tcp", "rdma", "shm", "local", "nvmeof", NULL
};

static const char *const option_pages[] = {
	"any", "small", "transparent", "huge", NULL
};

static const char *const option_file_syncs[] = {
	"data", "dsync", "none", NULL
};

static const char *const option_file_ios[] = {
	"auto", "uring", "threads", NULL
};

#define FIELD(f) offsetof(struct bench_opts, f)

static const struct ft_option option_table[] = {
	{ "mode", FT_CHOICE, FIELD(mode), 0, 0, option_modes, "MODE",
	  "initiator, target, loopback (both, as two processes),\n"
	  "raw (both, a plain libfabric loop), demo, self (this\n"
	  "process's own memory), memcpy (without an engine), idle,\n"
	  "segments, register, prepared, create; initiator" },
	{ "metadata_server", FT_TEXT, FIELD(metadata_server), 0, 0, NULL,
	  "TEXT", "P2PHANDSHAKE or zookeeper://host:port; P2PHANDSHAKE" },
	{ "local_server_name", FT_TEXT, FIELD(local_server_name), 0, 0, NULL,
	  "NAME",
	  "this process's segment; the host name, in loopback\n"
	  "127.0.0.1" },
	{ "segment_id", FT_TEXT, FIELD(segment_id), 0, 0, NULL, "NAME",
	  "the target's segment, printed in its first line" },
	{ "operation", FT_CHOICE, FIELD(operation), 0, 0, option_operations,
	  "OP", "read or write; read" },
	{ "protocol", FT_WORD, FIELD(protocol), 0, 0, option_protocols, "NAME",
	  "auto, tcp, rdma, shm, local, or nvmeof for a file\n"
	  "segment; auto, in raw and prepared tcp" },
	{ "device_name", FT_TEXT, FIELD(device_name), 0, 0, NULL, "LIST",
	  "interfaces, RDMA devices or addresses, with commas; all" },
	{ "provider", FT_TEXT, FIELD(provider), 0, 0, NULL, "NAME",
	  "libfabric provider to use" },
	{ "location", FT_TEXT, FIELD(location), 0, 0, NULL, "PLACE",
	  "location of the initiator's memory:\n"
	  "cpu:N (NUMA node), cuda:N (GPU), * (anywhere) or\n"
	  "segments:PAGE:N0,N1,... (equal parts on these nodes); *" },
	{ "target_location", FT_TEXT, FIELD(target_location), 0, 0, NULL,
	  "PLACE", "location of the target's memory, on its host; *" },
	{ "gpu", FT_TEXT, FIELD(gpu), 0, 0, NULL, "N",
	  "the same as --location=cuda:N; host memory" },
	{ "target_gpu", FT_TEXT, FIELD(target_gpu), 0, 0, NULL, "N",
	  "the same as --target_location=cuda:N; host memory" },
	{ "pages", FT_CHOICE, FIELD(pages), 0, 0, option_pages, "KIND",
	  "pages of host memory at both sides: small, transparent\n"
	  "(huge if the kernel has them), huge (of the kernel's\n"
	  "pool) or any; any" },
	{ "alloc", FT_FLAG, FIELD(alloc), 0, 0, NULL, "",
	  "host memory from te_alloc at both sides, with small\n"
	  "pages for --pages=small; processes of one host map it" },
	{ "progress_cpus", FT_TEXT, FIELD(progress_cpus), 0, 0, NULL, "LIST",
	  "CPUs of the progress threads at both sides, such as\n"
	  "0-3,8, or near (on the nodes of their NICs); all" },
	{ "file_sync", FT_WORD, FIELD(file_sync), 0, 0, option_file_syncs,
	  "WHEN",
	  "nvmeof: when a write is completed: data, dsync or\n"
	  "none; data" },
	{ "file_depth", FT_COUNT, FIELD(file_depth), 1, 1024, NULL, "N",
	  "nvmeof: reads and writes in progress at one time; 64" },
	{ "file_io", FT_WORD, FIELD(file_io), 0, 0, option_file_ios, "HOW",
	  "nvmeof: uring, threads or auto; auto" },
	{ "nic_priority_matrix", FT_TEXT, FIELD(nic_priority_matrix), 0, 0,
	  NULL, "JSON", "priority matrix as JSON, or a file that contains it" },
	{ "block_size", FT_SIZE, FIELD(block_size), 1, UINT64_C(1) << 40, NULL,
	  "SIZE",
	  "bytes per request; 64K, in idle and segments 64,\n"
	  "in register 4K" },
	{ "batch_size", FT_COUNT, FIELD(batch_size), 1, 65536, NULL, "N",
	  "requests per batch; 128, in register 10000 buffers,\n"
	  "in prepared 128 pieces" },
	{ "threads", FT_COUNT, FIELD(threads), 1, 1024, NULL, "N",
	  "threads of the initiator; 1" },
	{ "beside", FT_SIZE, FIELD(beside), 1, UINT64_C(1) << 30, NULL, "SIZE",
	  "the last of several threads submits single requests of\n"
	  "this size, and only their latency is measured; off" },
	{ "pause", FT_SECONDS, FIELD(pause), 0, 3600, NULL, "SECONDS",
	  "with --beside: time between two small requests; 0" },
	{ "duration", FT_SECONDS, FIELD(duration), 0, 0, NULL, "SECONDS",
	  "length of the run, such as 0.5 or 500ms; 10, in\n"
	  "segments 0.5" },
	{ "buffer_size", FT_SIZE, FIELD(buffer_size), 1, UINT64_C(1) << 46,
	  NULL, "SIZE",
	  "bytes registered at each side; 1G, in idle and\n"
	  "segments 1M, in prepared twice the pieces" },
	{ "own_size", FT_SIZE, FIELD(own_size), 1, UINT64_C(1) << 46, NULL,
	  "SIZE",
	  "part of --buffer_size that the initiator uses at its\n"
	  "side, as a program with few buffers does; all" },
	{ "verify", FT_FLAG, FIELD(verify), 0, 0, NULL, "",
	  "compare every byte, outside the measured time" },
	{ "wait", FT_FLAG, FIELD(wait), 0, 0, NULL, "",
	  "sleep until a batch has ended, instead of polling" },
	{ "seed", FT_COUNT, FIELD(seed), 0, UINT64_MAX, NULL, "N",
	  "seed of the patterns, the same at both sides; 1" },
	{ "warmup", FT_COUNT, FIELD(warmup), 0, 1000000, NULL, "N",
	  "batches per thread before the measurement; 1" },
	{ "max_errors", FT_COUNT, FIELD(max_errors), 1, UINT64_MAX, NULL, "N",
	  "errors of one thread that stop the run; 1" },
	{ "window", FT_COUNT, FIELD(window), 0, 65536, NULL, "N",
	  "raw: keep N operations posted and measure the latency\n"
	  "of each; 0: post a batch, wait for all of it; 0" },
	{ "bidirectional", FT_FLAG, FIELD(bidirectional), 0, 0, NULL, "",
	  "raw: the target does the same to the initiator, as\n"
	  "fi_rma_bw does" },
	{ "plain_calls", FT_FLAG, FIELD(plain_calls), 0, 0, NULL, "",
	  "raw: fi_write with the endpoint's default flags, as\n"
	  "fi_rma_bw -U does; providers may then complete earlier" },
	{ "wait_fd", FT_FLAG, FIELD(wait_fd), 0, 0, NULL, "",
	  "raw: the completion queues have a descriptor to sleep\n"
	  "on, as those of the engine" },
	{ "segments", FT_COUNT, FIELD(segments), 1, 100000, NULL, "N",
	  "segments: number of segments to open; 1000" },
	{ "engines", FT_COUNT, FIELD(engines), 1, BENCH_ENGINES, NULL, NULL,
	  NULL },
	{ "json", FT_FLAG, FIELD(json), 0, 0, NULL, "",
	  "print one JSON object as the last line" },
	{ "child", FT_FLAG, FIELD(child), 0, 0, NULL, NULL, NULL },
	{ "version", FT_FLAG, FIELD(version), 0, 0, NULL, "",
	  "versions of moonrail and libfabric" },
};

static const struct ft_options option_all = {
	.program = "te_bench",
	.usage = "[--mode=MODE] [--OPTION=VALUE ...]",
	.about = "Measures transfers between two processes. A semicolon precedes\n"
		 "the default of an option. Sizes take K, M, G (powers of\n"
		 "1024).",
	.rows = option_table,
	.n = sizeof(option_table) / sizeof(*option_table),
	.width = 28,
	.notes = "Example, on one host and on two:\n"
		 "  te_bench --mode=loopback --protocol=tcp --operation=write \\\n"
		 "           --block_size=1M --batch_size=16 --verify --json\n"
		 "\n"
		 "  target$     te_bench --mode=target --protocol=tcp\n"
		 "  10.0.0.2:15023\n"
		 "  initiator$  te_bench --mode=initiator --protocol=tcp \\\n"
		 "                       --segment_id=10.0.0.2:15023\n"
		 "\n"
		 "Exit status: 0 success; 1 a failed set-up, transfer or comparison;\n"
		 "2 wrong options.",
};

const char *bench_mode_name(int mode)
{
	return option_modes[mode];
}

const char *bench_operation_name(int operation)
{
	return option_operations[operation];
}

const char *bench_pages_name(int pages)
{
	return option_pages[pages];
}

void bench_help(void)
{
	ft_options_help(&option_all);
}

static int options_refuse(const char *why)
{
	fprintf(stderr, "te_bench: %s\n", why);
	return BENCH_USAGE;
}

static int options_place_bad(const char *name, const char *value)
{
	fprintf(stderr, "te_bench: --%s=%s: must be cpu:N, cuda:N, * or "
		"segments:PAGE:N0,N1,... with a power of two as PAGE\n", name,
		value);
	return BENCH_USAGE;
}

/* Converts the number in --gpu or --target_gpu to the location cuda:N. Returns
 * 0, or BENCH_USAGE after a message on stderr. */
static int options_gpu(const char *name, const char *gpu, char text[32],
		       const char **location)
{
	if (!gpu)
		return 0;
	if (*location) {
		fprintf(stderr, "te_bench: --%s is short for a location: give "
			"one of them\n", name);
		return BENCH_USAGE;
	}
	snprintf(text, 32, "cuda:%.24s", gpu);
	if (!bench_location_gpu(text)) {
		fprintf(stderr, "te_bench: --%s=%s: must be a GPU's number\n",
			name, gpu);
		return BENCH_USAGE;
	}
	*location = text;
	return 0;
}

static int options_places(struct bench_opts *opts)
{
	static char own[32], target[32];
	int ret;

	if (!bench_location_valid(opts->location))
		return options_place_bad("location", opts->location);
	if (!bench_location_valid(opts->target_location))
		return options_place_bad("target_location",
					 opts->target_location);
	ret = options_gpu("gpu", opts->gpu, own, &opts->location);
	return ret ? ret : options_gpu("target_gpu", opts->target_gpu, target,
				       &opts->target_location);
}

/* Bit sets of modes: those that accept --location (OWN), --location=cuda:N
 * (GPU), --target_location (TARGET), and --target_location=cuda:N
 * (TARGET_GPU), and --alloc (ALLOC). */
enum {
	PLACES_OWN = 1 << BENCH_INITIATOR | 1 << BENCH_LOOPBACK |
		     1 << BENCH_RAW | 1 << BENCH_SELF | 1 << BENCH_MEMCPY |
		     1 << BENCH_REGISTER | 1 << BENCH_PREPARED,
	PLACES_GPU =
		1 << BENCH_INITIATOR | 1 << BENCH_LOOPBACK | 1 << BENCH_SELF,
	PLACES_TARGET = 1 << BENCH_TARGET | 1 << BENCH_LOOPBACK |
			1 << BENCH_RAW | 1 << BENCH_SELF | 1 << BENCH_MEMCPY |
			1 << BENCH_PREPARED,
	PLACES_TARGET_GPU = 1 << BENCH_TARGET | 1 << BENCH_LOOPBACK,
	PLACES_ALLOC = 1 << BENCH_INITIATOR | PLACES_TARGET_GPU,
};

static int options_check_places(const struct bench_opts *opts)
{
	int mode = 1 << opts->mode;

	if (bench_location_gpu(opts->location) &&
	    (!(mode & PLACES_GPU) || opts->verify))
		return options_refuse("--gpu, or --location=cuda:N, goes with "
				      "--mode=initiator, loopback and self, "
				      "and without --verify");
	if (bench_location_gpu(opts->target_location) &&
	    !(mode & PLACES_TARGET_GPU))
		return options_refuse("--target_gpu, or --target_location="
				      "cuda:N, goes with --mode=target and "
				      "loopback");
	if (opts->location && !(mode & PLACES_OWN))
		return options_refuse("--location goes with --mode=initiator, "
				      "loopback, raw, self, memcpy, register "
				      "and prepared");
	if (opts->target_location && !opts->child && !(mode & PLACES_TARGET))
		return options_refuse("--target_location goes with "
				      "--mode=target, loopback, raw, self, "
				      "memcpy and prepared");
	if (opts->mode == BENCH_REGISTER && bench_location_parts(opts->location))
		return options_refuse("--mode=register needs a --location on "
				      "one node");
	if (opts->pages != BENCH_PAGES_ANY && !opts->child &&
	    !(mode & (PLACES_OWN | PLACES_TARGET)))
		return options_refuse("--pages goes with the modes that "
				      "--location and --target_location go "
				      "with");
	if (opts->alloc && !(mode & PLACES_ALLOC))
		return options_refuse("--alloc goes with --mode=initiator, "
				      "target and loopback");
	return 0;
}

static int options_check_files(const struct bench_opts *opts)
{
	if ((opts->file_sync || opts->file_io || opts->file_depth) &&
	    strcmp(opts->protocol, "nvmeof"))
		return options_refuse("--file_sync, --file_depth and "
				      "--file_io go with --protocol=nvmeof");
	if (opts->verify && opts->operation == BENCH_READ &&
	    !strcmp(opts->protocol, "nvmeof"))
		return options_refuse("--protocol=nvmeof --verify goes with "
				      "--operation=write: a file holds no "
				      "pattern before that");
	return 0;
}

static int options_check_prepared(const struct bench_opts *opts)
{
	if (opts->mode != BENCH_PREPARED)
		return 0;
	if (opts->threads > 1 || opts->verify || opts->wait || opts->own_size)
		return options_refuse("--mode=prepared has one thread, and "
				      "neither --verify, --wait nor "
				      "--own_size");
	if (opts->buffer_size / 2 / opts->batch_size < opts->block_size)
		return options_refuse("--mode=prepared needs a --buffer_size "
				      "of at least twice --block_size times "
				      "--batch_size");
	return 0;
}

/* Refuses options that cannot be combined. Returns 0, or BENCH_USAGE after a
 * message on stderr. */
static int options_check(const struct bench_opts *opts)
{
	uint64_t part = opts->buffer_size / opts->threads;
	bool raw = opts->mode == BENCH_RAW;

	if (opts->mode == BENCH_INITIATOR && !opts->segment_id)
		return options_refuse("--mode=initiator needs --segment_id, "
				      "the target's first line");
	if (opts->mode != BENCH_INITIATOR && opts->segment_id)
		return options_refuse("--segment_id goes with "
				      "--mode=initiator");
	if (opts->mode != BENCH_INITIATOR && !strcmp(opts->protocol, "nvmeof"))
		return options_refuse("--protocol=nvmeof goes with "
				      "--mode=initiator");
	if (!raw && (opts->window || opts->bidirectional ||
		     opts->plain_calls || opts->wait_fd))
		return options_refuse("--window, --bidirectional, "
				      "--plain_calls and --wait_fd go with "
				      "--mode=raw");
	if (opts->progress_cpus && (raw || opts->mode == BENCH_MEMCPY))
		return options_refuse("--progress_cpus needs a mode with an "
				      "engine");
	if (options_check_places(opts) || options_check_files(opts) ||
	    options_check_prepared(opts))
		return BENCH_USAGE;
	if (raw && opts->verify)
		return options_refuse("--mode=raw does not verify");
	if (opts->nic_priority_matrix && (raw || !strcmp(opts->protocol, "auto")))
		return options_refuse("--nic_priority_matrix needs a "
				      "--protocol other than auto, and an "
				      "engine");
	if (opts->beside && (raw || opts->verify || opts->threads < 2 ||
			     opts->beside >= opts->block_size))
		return options_refuse("--beside needs two threads, an engine, "
				      "no --verify and a larger "
				      "--block_size");
	if (opts->pause > 0 && !opts->beside)
		return options_refuse("--pause goes with --beside");
	if (opts->own_size && (raw || opts->verify ||
			       opts->own_size / opts->threads <
				       opts->block_size))
		return options_refuse("--own_size needs an engine, no "
				      "--verify, and at least --block_size "
				      "times --threads");
	if (opts->bidirectional && opts->threads > 1)
		return options_refuse("--bidirectional needs --threads=1");
	if (opts->mode == BENCH_MEMCPY && opts->verify)
		return options_refuse("--mode=memcpy does not verify");
	if (opts->mode == BENCH_TARGET || opts->mode == BENCH_DEMO)
		return 0;
	if (part < opts->block_size)
		return options_refuse("--buffer_size is below --block_size "
				      "times --threads");
	if (opts->verify && part / opts->block_size < opts->batch_size)
		return options_refuse("--verify needs a --buffer_size of at "
				      "least --block_size times --batch_size "
				      "times --threads");
	return 0;
}

/* Sets those options that were not given and whose default depends on the
 * mode. */
static void options_by_mode(struct bench_opts *opts)
{
	bool small = opts->mode == BENCH_IDLE || opts->mode == BENCH_SEGMENTS;
	bool buffers = opts->mode == BENCH_REGISTER;
	bool pieces = opts->mode == BENCH_PREPARED;

	if (!opts->batch_size)
		opts->batch_size = buffers ? 10000 : 128;
	opts->default_protocol = !opts->protocol;
	if (!opts->protocol)
		opts->protocol = opts->mode == BENCH_RAW || buffers || pieces
					 ? "tcp"
					 : "auto";
	if (!opts->block_size)
		opts->block_size = small ? 64 : buffers ? 4096 : 64 << 10;
	if (!opts->buffer_size)
		opts->buffer_size =
			small	 ? 1 << 20
			: pieces ? 2 * opts->batch_size * opts->block_size
				 : 1 << 30;
	if (opts->duration <= 0)
		opts->duration = opts->mode == BENCH_SEGMENTS ? 0.5 : 10;
}

int bench_parse(int argc, char **argv, struct bench_opts *opts)
{
	int first;

	memset(opts, 0, sizeof(*opts));
	opts->metadata_server = "P2PHANDSHAKE";
	opts->threads = 1;
	opts->seed = 1;
	opts->segments = 1000;
	opts->engines = 1;
	opts->warmup = 1;
	opts->max_errors = 1;
	first = ft_options_read(&option_all, argc, argv, opts);
	if (first < 0)
		return BENCH_USAGE;
	opts->help = !first;
	options_by_mode(opts);
	if (options_places(opts))
		return BENCH_USAGE;
	if (opts->help || opts->version)
		return 0;
	return options_check(opts);
}
