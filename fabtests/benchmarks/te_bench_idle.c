/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=idle: measures the CPU time that two connected processes use while
 * they have nothing to transfer. One request connects them; then both are idle
 * for --duration.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/benchmarks/te_bench_json.h"
#include "fabtests/common/ft_clock.h"

/* time between the request and the measurement, ms: work that follows the
 * request ends in this time */
enum { IDLE_SETTLE_MS = 500 };

struct idle {
	const struct bench_opts *opts;
	transfer_engine_t engine;
	struct bench_memory memory;
	struct bench_remote remote;
	struct ft_proc *child;
	double seconds;
	double cpu_seconds;
	double target_cpu_seconds;
};

static void idle_sleep(double seconds)
{
	uint64_t until_ns = ft_now_ns() + (uint64_t)(seconds * 1e9);
	uint64_t now;

	while (!bench_interrupted && (now = ft_now_ns()) < until_ns) {
		struct timespec rest = {
			.tv_sec = (time_t)((until_ns - now) / FT_NS_PER_SEC),
			.tv_nsec = (long)((until_ns - now) % FT_NS_PER_SEC),
		};

		nanosleep(&rest, NULL);
	}
}

static int idle_connect(struct idle *idle)
{
	struct transfer_request request = {
		.opcode = idle->opts->operation,
		.source = idle->memory.addr,
		.target_id = idle->remote.id,
		.target_offset = idle->remote.addr,
		.length = idle->opts->block_size,
	};
	uint64_t ns;

	return bench_transfer(idle->engine, &request, 1, NULL, &ns) ? -1 : 0;
}

static int idle_measure(struct idle *idle)
{
	uint64_t begin_ns;
	double cpu, target;

	if (idle_connect(idle))
		return -1;
	idle_sleep(IDLE_SETTLE_MS / 1e3);
	target = bench_child_cpu(idle->child);
	cpu = ft_cpu_seconds();
	begin_ns = ft_now_ns();
	idle_sleep(idle->opts->duration);
	idle->seconds = (double)(ft_now_ns() - begin_ns) / 1e9;
	idle->cpu_seconds = ft_cpu_seconds() - cpu;
	idle->target_cpu_seconds = bench_child_cpu(idle->child) - target;
	return target < 0 || idle->target_cpu_seconds < 0 ? -1 : 0;
}

static void idle_report(const struct idle *idle)
{
	cJSON *json;
	double mine = 100 * idle->cpu_seconds / idle->seconds;
	double its = 100 * idle->target_cpu_seconds / idle->seconds;

	printf("idle for %.2f s: the target used %.3f %% of a core, the "
	       "initiator %.3f %%\n", idle->seconds, its, mine);
	if (!idle->opts->json)
		return;
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "mode", "idle");
	cJSON_AddStringToObject(json, "transport", idle->opts->protocol);
	bench_json_num(json, "seconds", idle->seconds);
	bench_json_num(json, "cpu_percent", mine);
	bench_json_num(json, "target_cpu_percent", its);
	bench_json_print(json);
}

static int idle_with_engine(struct idle *idle, const char *name)
{
	int ret = -1;

	if (bench_register(idle->engine, &idle->memory,
			   idle->opts->buffer_size, NULL, BENCH_PAGES_ANY,
			   false))
		return -1;
	if (!bench_remote_open(idle->engine, name, &idle->remote)) {
		ret = idle_measure(idle);
		closeSegment(idle->engine, idle->remote.id);
	}
	return bench_unregister(idle->engine, &idle->memory) ? -1 : ret;
}

int bench_idle(const struct bench_opts *opts)
{
	static struct ft_proc child;	/* too large for a stack */
	struct idle idle = { .opts = opts, .child = &child };
	char name[BENCH_NAME_MAX];
	int ret = -1;

	if (bench_child_start(&child, opts, "target", name, sizeof(name)))
		return BENCH_FAILED;
	idle.engine = bench_engine_open(opts);
	if (idle.engine) {
		ret = idle_with_engine(&idle, name);
		destroyTransferEngine(idle.engine);
	}
	if (bench_child_stop(&child, 1))
		ret = -1;
	if (!ret)
		idle_report(&idle);
	return ret ? BENCH_FAILED : BENCH_OK;
}
