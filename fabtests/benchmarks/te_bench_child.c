/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the target as a child process of the initiator. The first line that the
 * child prints is its segment name, in --mode=raw its address and key. The
 * child answers a line "cpu" on its stdin with its CPU time in seconds, and
 * ends when its stdin ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_clock.h"

enum { CHILD_ARGS = 32, CHILD_ARG_MAX = 512, CHILD_CPU_MS = 5000 };

struct child_argv {
	char *args[CHILD_ARGS];
	int count;
};

static int child_arg(struct child_argv *argv, const char *name,
		     const char *value)
{
	char *arg;

	if (!value)
		return 0;
	if (asprintf(&arg, "--%s=%s", name, value) < 0)
		return -1;
	argv->args[argv->count++] = arg;
	return 0;
}

static int child_number(struct child_argv *argv, const char *name,
			uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return child_arg(argv, name, text);
}

static void child_free(struct child_argv *argv)
{
	while (argv->count > 1)
		free(argv->args[--argv->count]);
}

/* Returns the segment name for the target. In a store other than P2PHANDSHAKE,
 * the two processes need different names. */
static const char *child_name(const struct bench_opts *opts, char *buf,
			      size_t len)
{
	if (!strcmp(opts->metadata_server, "P2PHANDSHAKE"))
		return opts->local_server_name;
	snprintf(buf, len, "%s-target", opts->local_server_name ?
		 opts->local_server_name : "te_bench");
	return buf;
}

static int child_fill(struct child_argv *argv, const struct bench_opts *opts,
		      const char *mode)
{
	char name[256];
	int bad = 0;

	argv->args[argv->count++] = "/proc/self/exe";
	bad |= child_arg(argv, "child", "true");
	bad |= child_arg(argv, "mode", mode);
	bad |= child_arg(argv, "metadata_server", opts->metadata_server);
	bad |= child_arg(argv, "local_server_name",
			 child_name(opts, name, sizeof(name)));
	bad |= child_arg(argv, "protocol", opts->protocol);
	bad |= child_arg(argv, "device_name", opts->device_name);
	bad |= child_arg(argv, "provider", opts->provider);
	bad |= child_arg(argv, "nic_priority_matrix",
			 opts->nic_priority_matrix);
	bad |= child_arg(argv, "operation",
			 bench_operation_name(opts->operation));
	bad |= child_arg(argv, "target_location", opts->target_location);
	bad |= child_arg(argv, "pages", bench_pages_name(opts->pages));
	bad |= child_arg(argv, "progress_cpus", opts->progress_cpus);
	bad |= child_number(argv, "buffer_size", opts->buffer_size);
	bad |= child_number(argv, "block_size", opts->block_size);
	bad |= child_number(argv, "batch_size", opts->batch_size);
	bad |= child_number(argv, "window", opts->window);
	bad |= child_number(argv, "seed", opts->seed);
	bad |= child_number(argv, "engines", opts->engines);
	bad |= child_arg(argv, "bidirectional",
			 opts->bidirectional ? "true" : NULL);
	bad |= child_arg(argv, "plain_calls",
			 opts->plain_calls ? "true" : NULL);
	bad |= child_arg(argv, "wait_fd", opts->wait_fd ? "true" : NULL);
	bad |= child_arg(argv, "alloc", opts->alloc ? "true" : NULL);
	return bad;
}

int bench_child_start(struct ft_proc *child, const struct bench_opts *opts,
		      const char *mode, char *name, size_t len)
{
	struct child_argv argv = { .count = 0 };
	int ret = child_fill(&argv, opts, mode);

	if (!ret)
		ret = ft_proc_start(child, argv.args);
	child_free(&argv);
	if (ret)
		return -1;
	if (!ft_proc_line(child, name, len, BENCH_START_MS))
		return 0;
	fprintf(stderr, "te_bench: the target did not start\n");
	ft_proc_kill(child);
	return -1;
}

double bench_child_cpu(struct ft_proc *child)
{
	char line[64];
	double value;

	if (ft_proc_send(child, "cpu\n") ||
	    ft_proc_line(child, line, sizeof(line), CHILD_CPU_MS) ||
	    sscanf(line, "cpu %lf", &value) != 1)
		return -1;
	return value;
}

int bench_child_stop(struct ft_proc *child, uint64_t engines)
{
	int code = ft_proc_stop(child, BENCH_STOP_MS +
			(unsigned int)engines * BENCH_STOP_EACH_MS);

	if (code)
		fprintf(stderr, "te_bench: the target ended with status %d\n",
			code);
	return code ? -1 : 0;
}

int bench_serve_line(char *line, size_t len)
{
	while (fgets(line, (int)len, stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, "cpu"))
			return 1;
		printf("cpu %.6f\n", ft_cpu_seconds());
		fflush(stdout);
	}
	return 0;
}
