/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=create: measures how long it takes to create and to destroy an engine,
 * and how much memory the engine occupies. Every engine is created in a child
 * process of its own, so that each measurement includes what a program pays for
 * its first engine, such as the initialisation of libfabric.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/benchmarks/te_bench_json.h"
#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_num.h"

enum { CREATE_MAX = 1000 };

/* Figures of one engine. A child process sends this struct to its parent
 * through a pipe. */
struct create_figures {
	double create_ms;
	double cpu_ms;		/* processor time of the creation */
	double destroy_ms;
	double private_kib;	/* resident private memory that the creation
				 * has added to the process */
};

struct create {
	const struct bench_opts *opts;
	size_t n;		/* number of measured engines */
	double create_ms[CREATE_MAX], cpu_ms[CREATE_MAX];
	double destroy_ms[CREATE_MAX], private_kib[CREATE_MAX];
};

/* Creates one engine, measures it, destroys it, and writes the figures to
 * fd. */
static int create_child(const struct bench_opts *opts, int fd)
{
	double before = bench_private_kib(), cpu = ft_cpu_seconds();
	uint64_t from = ft_now_ns();
	struct create_figures f;
	transfer_engine_t engine = bench_engine_open(opts);

	if (!engine)
		return BENCH_FAILED;
	f.create_ms = (double)(ft_now_ns() - from) / 1e6;
	f.cpu_ms = (ft_cpu_seconds() - cpu) * 1e3;
	f.private_kib = bench_private_kib() - before;
	from = ft_now_ns();
	destroyTransferEngine(engine);
	f.destroy_ms = (double)(ft_now_ns() - from) / 1e6;
	return write(fd, &f, sizeof(f)) == sizeof(f) ? BENCH_OK : BENCH_FAILED;
}

/* Runs create_child in a child process. Returns 0 if it has sent its figures,
 * otherwise -1; the child has then printed the reason. */
static int create_once(const struct bench_opts *opts, struct create_figures *f)
{
	int pipe_fd[2], status = 0;
	ssize_t got;
	pid_t pid;

	if (pipe(pipe_fd)) {
		perror("te_bench: pipe");
		return -1;
	}
	fflush(NULL);
	pid = fork();
	if (!pid)
		_exit(create_child(opts, pipe_fd[1]));
	close(pipe_fd[1]);
	got = pid > 0 ? read(pipe_fd[0], f, sizeof(*f)) : -1;
	close(pipe_fd[0]);
	if (pid < 0) {
		perror("te_bench: fork");
		return -1;
	}
	waitpid(pid, &status, 0);
	return got == sizeof(*f) && !status ? 0 : -1;
}

static int create_measure(struct create *c)
{
	uint64_t from = ft_now_ns();
	struct create_figures f;

	do {
		if (create_once(c->opts, &f))
			return -1;
		c->create_ms[c->n] = f.create_ms;
		c->cpu_ms[c->n] = f.cpu_ms;
		c->destroy_ms[c->n] = f.destroy_ms;
		c->private_kib[c->n++] = f.private_kib;
	} while (!bench_interrupted && c->n < CREATE_MAX &&
		 (double)(ft_now_ns() - from) / 1e9 < c->opts->duration);
	return 0;
}

static void create_report(struct create *c)
{
	double create = ft_median(c->create_ms, c->n);
	double cpu = ft_median(c->cpu_ms, c->n);
	double destroy = ft_median(c->destroy_ms, c->n);
	double private = ft_median(c->private_kib, c->n);
	cJSON *json;

	printf("medians of %zu engines: created in %.1f ms (%.1f ms of "
	       "processor time), destroyed in %.1f ms, %.1f MiB of private memory\n",
	       c->n, create, cpu, destroy, private / 1024);
	if (!c->opts->json)
		return;
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "mode", "create");
	cJSON_AddStringToObject(json, "transport", c->opts->protocol);
	bench_json_u64(json, "engines", c->n);
	bench_json_num(json, "create_ms", create);
	bench_json_num(json, "create_cpu_ms", cpu);
	bench_json_num(json, "destroy_ms", destroy);
	bench_json_num(json, "private_kib", private);
	bench_json_print(json);
}

int bench_create(const struct bench_opts *opts)
{
	static struct create c;	/* too large for a stack */

	c.opts = opts;
	if (create_measure(&c))
		return BENCH_FAILED;
	create_report(&c);
	return BENCH_OK;
}
