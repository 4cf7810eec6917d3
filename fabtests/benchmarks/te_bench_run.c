/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the threads. Each thread calls prepare, warms up, waits until all
 * threads have done so, then calls step until the deadline, at least once. A
 * thread whose preparation or warm-up fails sets `stop`. It also waits at the
 * barrier, which opens only when all threads have reached it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_progress.h"

bool bench_error(struct bench_worker *worker)
{
	worker->errors++;
	if (worker->errors < worker->run->opts->max_errors)
		return true;
	atomic_store(&worker->run->stop, true);
	return false;
}

static bool run_over(const struct bench_run *run)
{
	return bench_interrupted ||
	       atomic_load_explicit(&run->stop, memory_order_relaxed);
}

static void run_zero(struct bench_worker *worker)
{
	atomic_store(&worker->bytes, 0);
	worker->operations = 0;
	worker->verified = 0;
	worker->busy_ns = 0;
	memset(&worker->latency, 0, sizeof(worker->latency));
}

static int run_warm(struct bench_worker *worker)
{
	for (uint64_t i = 0; i < worker->run->opts->warmup; i++)
		if (run_over(worker->run) || worker->run->ops->step(worker))
			return -1;
	run_zero(worker);
	return 0;
}

static void *run_thread(void *arg)
{
	struct bench_worker *worker = arg;
	struct bench_run *run = worker->run;
	bool prepared = !run->ops->prepare(worker);

	if (!prepared || run_warm(worker))
		atomic_store(&run->stop, true);
	pthread_barrier_wait(&run->start);	/* opens when all threads are
						 * ready */
	pthread_barrier_wait(&run->start);	/* opens when the deadline is
						 * set */
	worker->now_ns = ft_now_ns();
	/* At least one step: on a busy machine the deadline may pass before the
	 * thread runs again, and a run without a step has no result. */
	do {
		if (run_over(run) || run->ops->step(worker))
			break;
	} while (worker->now_ns < run->deadline_ns);
	if (prepared)
		run->ops->finish(worker);
	return NULL;
}

/* Draws the progress bar until the deadline. The threads check the deadline
 * themselves. */
static void run_watch(struct bench_run *run, uint64_t begin_ns)
{
	struct timespec pause = { .tv_nsec = 100000000 };
	struct ft_progress bar;
	uint64_t now, bytes;
	char what[96];

	ft_progress_start(&bar, false);
	while (bar.tty && !run_over(run) &&
	       (now = ft_now_ns()) < run->deadline_ns) {
		bytes = 0;
		for (uint64_t i = 0; i < run->opts->threads; i++)
			bytes += atomic_load_explicit(&run->workers[i].bytes,
						      memory_order_relaxed);
		snprintf(what, sizeof(what), "%.1f s  %.3f GB/s",
			 (double)(now - begin_ns) / 1e9,
			 (double)bytes / (double)(now - begin_ns + 1));
		ft_progress_show(&bar, (double)(now - begin_ns) / 1e9 /
				       run->opts->duration, what);
		nanosleep(&pause, NULL);
	}
	ft_progress_end(&bar);
}

/* Adds up the counters of all threads. With --verify, computes the rate from
 * the time inside transfers, because the elapsed time includes the
 * comparisons. */
static void run_sum(const struct bench_run *run, uint64_t begin_ns,
		    struct bench_result *result)
{
	double busy_rate = 0;
	uint64_t end_ns = begin_ns;

	for (uint64_t i = 0; i < run->opts->threads; i++) {
		struct bench_worker *worker = &run->workers[i];
		uint64_t bytes = atomic_load(&worker->bytes);

		result->bytes += bytes;
		result->operations += worker->operations;
		result->errors += worker->errors;
		result->verified += worker->verified;
		ft_hist_merge(&result->latency, &worker->latency);
		if (worker->busy_ns)
			busy_rate += (double)bytes * 1e9 /
				     (double)worker->busy_ns;
		if (worker->now_ns > end_ns)
			end_ns = worker->now_ns;
	}
	result->seconds = (double)(end_ns - begin_ns) / 1e9;
	if (run->opts->verify)
		result->rate = busy_rate;
	else if (result->seconds > 0)
		result->rate = (double)result->bytes / result->seconds;
}

static int run_threads_start(struct bench_run *run)
{
	for (uint64_t i = 0; i < run->opts->threads; i++) {
		struct bench_worker *worker = &run->workers[i];

		worker->index = (unsigned int)i;
		worker->run = run;
		if (!pthread_create(&worker->thread, NULL, run_thread, worker))
			continue;
		/* the threads that have started wait at the barrier and cannot
		 * be joined, so only the end of the process stops them */
		fprintf(stderr, "te_bench: cannot start thread %llu\n",
			(unsigned long long)i);
		exit(BENCH_FAILED);
	}
	return 0;
}

static void run_measure(struct bench_run *run, struct bench_result *result)
{
	double cpu, target_cpu = -1;
	uint64_t begin_ns;

	pthread_barrier_wait(&run->start);
	if (run->ops->begin)
		run->ops->begin(run);
	if (run->child)
		target_cpu = bench_child_cpu(run->child);
	cpu = ft_cpu_seconds();
	begin_ns = ft_now_ns();
	run->deadline_ns = begin_ns + (uint64_t)(run->opts->duration * 1e9);
	pthread_barrier_wait(&run->start);
	run_watch(run, begin_ns);
	for (uint64_t i = 0; i < run->opts->threads; i++)
		pthread_join(run->workers[i].thread, NULL);
	result->cpu_seconds = ft_cpu_seconds() - cpu;
	result->target_cpu_seconds = -1;
	if (target_cpu >= 0)
		result->target_cpu_seconds = bench_child_cpu(run->child) -
					     target_cpu;
	run_sum(run, begin_ns, result);
}

int bench_run(struct bench_run *run, struct bench_result *result)
{
	unsigned int threads = (unsigned int)run->opts->threads;
	int ret = -1;

	run->workers = calloc(threads, sizeof(*run->workers));
	if (!run->workers)
		return -1;
	atomic_store(&run->stop, false);
	if (pthread_barrier_init(&run->start, NULL, threads + 1))
		goto err_free_workers;
	ret = run_threads_start(run);
	if (!ret)
		run_measure(run, result);
	pthread_barrier_destroy(&run->start);
err_free_workers:
	free(run->workers);
	return ret;
}
