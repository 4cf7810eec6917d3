/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_num.h"

enum option_kind {
	KIND_TEXT,
	KIND_CHOICE,	/* index into choices, an int */
	KIND_WORD,	/* one of choices, kept as text */
	KIND_SIZE,
	KIND_COUNT,
	KIND_SECONDS,
	KIND_FLAG,
};

struct option_row {
	const char *name;
	enum option_kind kind;
	size_t field;			/* offset in struct bench_opts */
	uint64_t min, max;		/* sizes and counts */
	const char *const *choices;
	const char *arg;		/* as --help shows it; NULL: hidden */
	const char *help;
};

static const char *const option_modes[] = {
	"initiator", "target", "loopback", "raw", "demo", "self", "memcpy",
	"idle", "segments", "register", NULL
};

static const char *const option_operations[] = { "read", "write", NULL };

static const char *const option_protocols[] = {
	"auto", "tcp", "rdma", "shm", "local", "nvmeof", NULL
};

#define FIELD(f) offsetof(struct bench_opts, f)

static const struct option_row option_table[] = {
	{ "mode", KIND_CHOICE, FIELD(mode), 0, 0, option_modes, "MODE",
	  "initiator, target, loopback (both, as two processes),\n"
	  "raw (both, a plain libfabric loop), demo, self (this\n"
	  "process's own memory), memcpy (without an engine), idle,\n"
	  "segments, register; initiator" },
	{ "metadata_server", KIND_TEXT, FIELD(metadata_server), 0, 0, NULL,
	  "TEXT", "P2PHANDSHAKE or zookeeper://host:port; P2PHANDSHAKE" },
	{ "local_server_name", KIND_TEXT, FIELD(local_server_name), 0, 0, NULL,
	  "NAME", "this process's segment; the host name, in loopback\n"
	  "127.0.0.1" },
	{ "segment_id", KIND_TEXT, FIELD(segment_id), 0, 0, NULL, "NAME",
	  "the target's segment, as its first line says" },
	{ "operation", KIND_CHOICE, FIELD(operation), 0, 0, option_operations,
	  "OP", "read or write; read" },
	{ "protocol", KIND_WORD, FIELD(protocol), 0, 0, option_protocols,
	  "NAME", "auto, tcp, rdma, shm, local, or nvmeof for a file\n"
	  "segment; auto, in raw tcp" },
	{ "device_name", KIND_TEXT, FIELD(device_name), 0, 0, NULL, "LIST",
	  "interfaces, RDMA devices or addresses, comma between; all" },
	{ "provider", KIND_TEXT, FIELD(provider), 0, 0, NULL, "NAME",
	  "pins the libfabric provider" },
	{ "gpu", KIND_TEXT, FIELD(gpu), 0, 0, NULL, "N",
	  "the initiator's memory is on that GPU; host memory" },
	{ "nic_priority_matrix", KIND_TEXT, FIELD(nic_priority_matrix), 0, 0,
	  NULL, "JSON", "priority matrix as JSON, or a file that holds it" },
	{ "block_size", KIND_SIZE, FIELD(block_size), 1, UINT64_C(1) << 40,
	  NULL, "SIZE", "bytes per request; 64K, in idle and segments 64,\n"
	  "in register 4K" },
	{ "batch_size", KIND_COUNT, FIELD(batch_size), 1, 65536, NULL, "N",
	  "requests per batch; 128, in register 10000 buffers" },
	{ "threads", KIND_COUNT, FIELD(threads), 1, 1024, NULL, "N",
	  "threads of the initiator; 1" },
	{ "beside", KIND_SIZE, FIELD(beside), 1, UINT64_C(1) << 30, NULL, "SIZE",
	  "the last of several threads has single requests of that\n"
	  "many bytes, and the latency is theirs; off" },
	{ "duration", KIND_SECONDS, FIELD(duration), 0, 0, NULL, "SECONDS",
	  "also 0.5 or 500ms; 10, in segments 0.5" },
	{ "buffer_size", KIND_SIZE, FIELD(buffer_size), 1, UINT64_C(1) << 46,
	  NULL, "SIZE", "bytes registered at each side; 1G, in idle and\n"
	  "segments 1M" },
	{ "verify", KIND_FLAG, FIELD(verify), 0, 0, NULL, "",
	  "compare every byte; its time is not counted" },
	{ "wait", KIND_FLAG, FIELD(wait), 0, 0, NULL, "",
	  "sleep until a batch has ended, instead of asking" },
	{ "seed", KIND_COUNT, FIELD(seed), 0, UINT64_MAX, NULL, "N",
	  "of the patterns, the same at both sides; 1" },
	{ "warmup", KIND_COUNT, FIELD(warmup), 0, 1000000, NULL, "N",
	  "batches per thread before the measurement; 1" },
	{ "max_errors", KIND_COUNT, FIELD(max_errors), 1, UINT64_MAX, NULL,
	  "N", "stop at that many per thread; 1" },
	{ "window", KIND_COUNT, FIELD(window), 0, 65536, NULL, "N",
	  "raw: keep N operations posted, latency is each one's;\n"
	  "0: post a batch, wait for all of it; 0" },
	{ "bidirectional", KIND_FLAG, FIELD(bidirectional), 0, 0, NULL, "",
	  "raw: the target does the same to the initiator, as\n"
	  "fi_rma_bw does" },
	{ "plain_calls", KIND_FLAG, FIELD(plain_calls), 0, 0, NULL, "",
	  "raw: fi_write with the endpoint's default flags, as\n"
	  "fi_rma_bw -U does; providers may then complete earlier" },
	{ "segments", KIND_COUNT, FIELD(segments), 1, 100000, NULL, "N",
	  "segments: open that many; 1000" },
	{ "engines", KIND_COUNT, FIELD(engines), 1, BENCH_ENGINES, NULL, NULL,
	  NULL },
	{ "json", KIND_FLAG, FIELD(json), 0, 0, NULL, "",
	  "one JSON object as the last line" },
	{ "child", KIND_FLAG, FIELD(child), 0, 0, NULL, NULL, NULL },
	{ "help", KIND_FLAG, FIELD(help), 0, 0, NULL, "", "this text" },
	{ "version", KIND_FLAG, FIELD(version), 0, 0, NULL, "",
	  "versions of moonrail and libfabric" },
};

enum { N_OPTIONS = sizeof(option_table) / sizeof(option_table[0]) };

const char *bench_mode_name(int mode)
{
	return option_modes[mode];
}

const char *bench_operation_name(int operation)
{
	return option_operations[operation];
}

static void option_help(const struct option_row *row)
{
	char head[64];
	const char *text = row->help, *end;

	snprintf(head, sizeof(head), "--%s%s%s", row->name,
		 *row->arg ? "=" : "", row->arg);
	for (; (end = strchr(text, '\n')); text = end + 1, head[0] = '\0')
		printf("  %-28s %.*s\n", head, (int)(end - text), text);
	printf("  %-28s %s\n", head, text);
}

void bench_help(void)
{
	puts("usage: te_bench [--mode=MODE] [--OPTION=VALUE ...]\n"
	     "\n"
	     "Measures transfers between two processes. The last word of an\n"
	     "option's text is its default. Sizes take K, M, G (powers of\n"
	     "1024).\n");
	for (int i = 0; i < N_OPTIONS; i++)
		if (option_table[i].arg)
			option_help(&option_table[i]);
	puts("\n"
	     "Example, on one host and on two:\n"
	     "  te_bench --mode=loopback --protocol=tcp --operation=write \\\n"
	     "           --block_size=1M --batch_size=16 --verify --json\n"
	     "\n"
	     "  target$     te_bench --mode=target --protocol=tcp\n"
	     "  10.0.0.2:15023\n"
	     "  initiator$  te_bench --mode=initiator --protocol=tcp \\\n"
	     "                       --segment_id=10.0.0.2:15023\n"
	     "\n"
	     "Exit status: 0; 1 for a failed set-up, transfer or comparison;\n"
	     "2 for wrong options.");
}

static int option_wrong(const struct option_row *row, const char *value,
			const char *why)
{
	fprintf(stderr, "te_bench: --%s=%s: %s\n", row->name, value, why);
	return BENCH_USAGE;
}

static int option_choice(const struct option_row *row, const char *value,
			 int *out)
{
	char why[128] = "must be one of";

	for (int i = 0; row->choices[i]; i++) {
		if (!strcmp(row->choices[i], value)) {
			*out = i;
			return 0;
		}
		strncat(why, " ", sizeof(why) - strlen(why) - 1);
		strncat(why, row->choices[i], sizeof(why) - strlen(why) - 1);
	}
	return option_wrong(row, value, why);
}

static int option_number(const struct option_row *row, const char *value,
			 uint64_t *out)
{
	char why[128];
	uint64_t number;
	int bad;

	if (row->kind == KIND_SIZE)
		bad = ft_parse_size(value, &number);
	else
		bad = ft_parse_uint(value, 0, UINT64_MAX, &number);
	if (!bad && number >= row->min && number <= row->max) {
		*out = number;
		return 0;
	}
	snprintf(why, sizeof(why), "must be a %s from %llu to %llu",
		 row->kind == KIND_SIZE ? "size like 4096, 64K or 1M" :
					  "number",
		 (unsigned long long)row->min, (unsigned long long)row->max);
	return option_wrong(row, value, why);
}

static int option_flag(const struct option_row *row, const char *value,
		       bool *out)
{
	if (!value || !strcmp(value, "true") || !strcmp(value, "1"))
		*out = true;
	else if (!strcmp(value, "false") || !strcmp(value, "0"))
		*out = false;
	else
		return option_wrong(row, value, "must be true or false");
	return 0;
}

static int option_set(const struct option_row *row, const char *value,
		      struct bench_opts *opts)
{
	void *field = (char *)opts + row->field;
	int ret, index;

	switch (row->kind) {
	case KIND_TEXT:
		if (!*value)
			return option_wrong(row, value, "is empty");
		*(const char **)field = value;
		return 0;
	case KIND_CHOICE:
		return option_choice(row, value, field);
	case KIND_WORD:
		ret = option_choice(row, value, &index);
		if (!ret)
			*(const char **)field = row->choices[index];
		return ret;
	case KIND_SIZE:
	case KIND_COUNT:
		return option_number(row, value, field);
	case KIND_SECONDS:
		if (!ft_parse_seconds(value, field))
			return 0;
		return option_wrong(row, value, "must be seconds, above 0, "
				    "at most a week, like 10, 0.5 or 500ms");
	case KIND_FLAG:
		return option_flag(row, value, field);
	}
	return BENCH_USAGE;
}

/* The row that an argument's name means; "-" and "_" are the same. */
static const struct option_row *option_find(const char *name, size_t len)
{
	for (int i = 0; i < N_OPTIONS; i++) {
		const char *want = option_table[i].name;
		size_t at = 0;

		while (at < len && want[at] &&
		       (name[at] == want[at] ||
			(name[at] == '-' && want[at] == '_')))
			at++;
		if (at == len && !want[at])
			return &option_table[i];
	}
	return NULL;
}

static int options_read(int argc, char **argv, struct bench_opts *opts)
{
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + strspn(argv[i], "-");
		size_t dashes = (size_t)(name - argv[i]);
		size_t len = strcspn(name, "=");
		const struct option_row *row = option_find(name, len);
		const char *value = name[len] ? name + len + 1 : NULL;

		if (!dashes || dashes > 2 || !row) {
			fprintf(stderr, "te_bench: unknown argument %s; see "
				"te_bench --help\n", argv[i]);
			return BENCH_USAGE;
		}
		if (!value && row->kind != KIND_FLAG)
			value = argv[++i];
		if (!value && row->kind != KIND_FLAG) {
			fprintf(stderr, "te_bench: --%s needs a value\n",
				row->name);
			return BENCH_USAGE;
		}
		if (option_set(row, value, opts))
			return BENCH_USAGE;
	}
	return 0;
}

static int options_refuse(const char *why)
{
	fprintf(stderr, "te_bench: %s\n", why);
	return BENCH_USAGE;
}

/* What one option means for another. */
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
		     opts->plain_calls))
		return options_refuse("--window, --bidirectional and "
				      "--plain_calls go with --mode=raw");
	if (opts->gpu && ((opts->mode != BENCH_INITIATOR &&
			   opts->mode != BENCH_LOOPBACK &&
			   opts->mode != BENCH_SELF) || opts->verify))
		return options_refuse("--gpu goes with --mode=initiator, "
				      "loopback and self, and without "
				      "--verify");
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
	if (opts->bidirectional && opts->threads > 1)
		return options_refuse("--bidirectional goes with one thread");
	if (opts->mode == BENCH_MEMCPY && opts->verify)
		return options_refuse("--mode=memcpy does not verify");
	if (opts->mode == BENCH_TARGET || opts->mode == BENCH_DEMO)
		return 0;
	if (part < opts->block_size)
		return options_refuse("--buffer_size is below --block_size "
				      "times --threads");
	if (opts->verify && part / opts->block_size < opts->batch_size)
		return options_refuse("--verify needs a --buffer_size of "
				      "--block_size times --batch_size times "
				      "--threads");
	return 0;
}

/* Defaults that the mode decides. */
static void options_by_mode(struct bench_opts *opts)
{
	bool small = opts->mode == BENCH_IDLE || opts->mode == BENCH_SEGMENTS;
	bool buffers = opts->mode == BENCH_REGISTER;

	if (!opts->batch_size)
		opts->batch_size = buffers ? 10000 : 128;
	if (!opts->protocol)
		opts->protocol = opts->mode == BENCH_RAW || buffers ? "tcp" :
								      "auto";
	if (!opts->block_size)
		opts->block_size = small ? 64 : buffers ? 4096 : 64 << 10;
	if (!opts->buffer_size)
		opts->buffer_size = small ? 1 << 20 : 1 << 30;
	if (opts->duration <= 0)
		opts->duration = opts->mode == BENCH_SEGMENTS ? 0.5 : 10;
}

int bench_parse(int argc, char **argv, struct bench_opts *opts)
{
	memset(opts, 0, sizeof(*opts));
	opts->metadata_server = "P2PHANDSHAKE";
	opts->threads = 1;
	opts->seed = 1;
	opts->segments = 1000;
	opts->engines = 1;
	opts->warmup = 1;
	opts->max_errors = 1;
	if (options_read(argc, argv, opts))
		return BENCH_USAGE;
	options_by_mode(opts);
	if (opts->help || opts->version)
		return 0;
	return options_check(opts);
}
