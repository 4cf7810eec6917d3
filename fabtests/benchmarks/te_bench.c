/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>

#include "fabtests/benchmarks/te_bench.h"

volatile sig_atomic_t bench_interrupted;

static void main_on_signal(int number)
{
	(void)number;
	bench_interrupted = 1;
}

/* Installs the signal handlers. A child ignores SIGINT of the terminal, because
 * its parent handles it. */
static void main_signals(const struct bench_opts *opts)
{
	struct sigaction act = {
		.sa_handler = main_on_signal,
		.sa_flags = (int)SA_RESETHAND,
	};

	if (opts->child)
		signal(SIGINT, SIG_IGN);
	else
		sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int main_mode(const struct bench_opts *opts)
{
	const char *why = bench_gpu_load(opts);

	if (why) {
		fprintf(stderr, "te_bench: skipped: %s\n", why);
		return BENCH_SKIPPED;
	}
	switch (opts->mode) {
	case BENCH_INITIATOR:
		return bench_initiator(opts);
	case BENCH_TARGET:
		return bench_target(opts);
	case BENCH_LOOPBACK:
		return bench_loopback(opts);
	case BENCH_RAW:
		return opts->child ? bench_raw_target(opts) : bench_raw(opts);
	case BENCH_DEMO:
		return bench_demo(opts);
	case BENCH_SELF:
		return bench_self(opts);
	case BENCH_MEMCPY:
		return bench_copy(opts);
	case BENCH_IDLE:
		return bench_idle(opts);
	case BENCH_SEGMENTS:
		return bench_segments(opts);
	case BENCH_REGISTER:
		return bench_registering(opts);
	case BENCH_PREPARED:
		return bench_prepared(opts);
	case BENCH_CREATE:
		return bench_create(opts);
	}
	return BENCH_USAGE;
}

int main(int argc, char **argv)
{
	struct bench_opts opts;
	int ret;

	ret = bench_parse(argc, argv, &opts);
	if (ret)
		return ret;
	if (opts.help) {
		bench_help();
		return BENCH_OK;
	}
	if (opts.version) {
		printf("te_bench %s, libfabric %s\n", te_version(),
		       te_fabric_version());
		return BENCH_OK;
	}
	main_signals(&opts);
	return main_mode(&opts);
}
