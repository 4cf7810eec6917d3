/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_num.h"
#include "fabtests/functional/ft_zookeeper.h"

/*
 * Each process has BENCH_EACH engines with one segment each. So a segment costs
 * as much as in a cluster: a session, a control channel and a name
 * registration.
 */

#define BENCH_PROCESSES 10
#define BENCH_EACH 100
#define BENCH_ALL (BENCH_PROCESSES * BENCH_EACH)

static void bench_print(const char *what, double *ms, size_t n)
{
	ft_sort(ms, n);
	printf("%-40s median %8.2f ms   p99 %8.2f ms   max %8.2f ms\n", what,
	       ms[n / 2], ms[n * 99 / 100], ms[n - 1]);
}

static double bench_ms(uint64_t since)
{
	return (double)(ft_now_ns() - since) / 1e6;
}

/* Main function of a child process with the arguments "--bench-child CONN
 * FIRST". After it has read the line "go", it starts the engines and prints the
 * time that each took to start. When it reads the next line, it destroys the
 * engines. */
int zk_bench_child(int argc, char **argv)
{
	static transfer_engine_t engine[BENCH_EACH];
	static double ms[BENCH_EACH];
	char line[16], name[32];
	uint64_t start;
	int i;

	if (argc < 4 || !fgets(line, sizeof(line), stdin))
		return 1;
	for (i = 0; i < BENCH_EACH; i++) {
		snprintf(name, sizeof(name), "s%d", atoi(argv[3]) + i);
		start = ft_now_ns();
		engine[i] = createTransferEngine(argv[2], name, "127.0.0.1",
						 0, 0);
		ms[i] = bench_ms(start);
		if (!engine[i])
			return 1;
	}
	for (i = 0; i < BENCH_EACH; i++)
		printf("%f\n", ms[i]);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (i = 0; i < BENCH_EACH; i++)
		destroyTransferEngine(engine[i]);
	return 0;
}

static bool bench_start(struct zk_rig *rig, struct ft_proc *proc, int i)
{
	char first[16];
	char *argv[] = { (char *)"/proc/self/exe", (char *)"--bench-child",
			 rig->conn, first, NULL };

	snprintf(first, sizeof(first), "%d", i * BENCH_EACH);
	return !ft_proc_start(proc, argv);
}

static bool bench_read(struct ft_proc *proc, double *ms)
{
	char line[64];

	for (int i = 0; i < BENCH_EACH; i++) {
		if (ft_proc_line(proc, line, sizeof(line), 10 * FX_LONG_MS))
			return false;
		ms[i] = atof(line);
	}
	return true;
}

static bool bench_open(struct zk_rig *rig, const char *what)
{
	static double ms[BENCH_ALL];
	char name[32];
	uint64_t start;
	segment_id_t seg;

	for (int i = 0; i < BENCH_ALL; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		start = ft_now_ns();
		seg = openSegment(rig->engine, name);
		ms[i] = bench_ms(start);
		if (seg < 0)
			return false;
	}
	bench_print(what, ms, BENCH_ALL);
	return true;
}

static bool bench_run(struct zk_rig *rig, struct ft_proc *proc)
{
	static double ms[BENCH_ALL];
	uint64_t start = ft_now_ns();
	bool good = true;
	int i;

	for (i = 0; i < BENCH_PROCESSES; i++)
		good = good && !ft_proc_send(&proc[i], "go\n");
	for (i = 0; i < BENCH_PROCESSES; i++)
		good = good && bench_read(&proc[i], ms + i * BENCH_EACH);
	if (!good)
		return false;
	printf("%d segments registered by %d processes in %.0f ms\n",
	       BENCH_ALL, BENCH_PROCESSES, bench_ms(start));
	bench_print("one of them, session and engine included", ms,
		    BENCH_ALL);
	good = bench_open(rig, "opening one");
	start = ft_now_ns();
	for (i = 0; i < BENCH_PROCESSES; i++)
		good = !ft_proc_send(&proc[i], "end\n") && good;
	for (i = 0; i < BENCH_PROCESSES; i++)
		good = !ft_proc_wait(&proc[i], 10 * FX_LONG_MS) && good;
	printf("all withdrawn and closed in %.0f ms\n", bench_ms(start));
	return good;
}

int zk_bench(struct zk_rig *rig)
{
	static struct ft_proc proc[BENCH_PROCESSES];
	bool good = true;
	int i;

	for (i = 0; i < BENCH_PROCESSES; i++)
		good = bench_start(rig, &proc[i], i) && good;
	good = good && bench_run(rig, proc);
	for (i = 0; i < BENCH_PROCESSES; i++)
		ft_proc_kill(&proc[i]);
	return good ? 0 : 1;
}
