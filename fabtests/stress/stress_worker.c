/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include "fabtests/stress/stress.h"

struct worker_move {
	uint64_t id;		/* id of the move; 0 if the entry is unused */
	struct fx_job job;
};

static transfer_engine_t worker_engine;
static struct fx_buf worker_mem;
static struct worker_move worker_move[STRESS_MOVES];

static void worker_why(const struct te_error *err)
{
	printf(" %d %s %s %s: %s", err->code, *err->rail ? err->rail : "-",
	       *err->peer ? err->peer : "-",
	       *err->provider ? err->provider : "-", err->text);
}

static void worker_begin(const char *args)
{
	unsigned long long id, local, remote, len, block;
	struct worker_move *m = worker_move;
	struct fx_job job = { .engine = worker_engine };
	struct te_error err;
	int ret;

	if (sscanf(args, "%llu %d %d %llu %llu %llu %llu", &id, &job.seg,
		   &job.op, &local, &remote, &len, &block) != 7)
		exit(2);
	job.local = worker_mem.p + local;
	job.remote = remote;
	job.len = len;
	job.block = block;
	ret = fx_job_start(&job);
	if (ret) {
		flockfile(stdout);
		printf("done %llu !%d", id, ret);
		if (!te_last_error(&err, sizeof(err)))
			worker_why(&err);
		putchar('\n');
		funlockfile(stdout);
		return;
	}
	while (m->id)
		m++;
	m->id = id;
	m->job = job;
}

static void worker_cancel(uint64_t id)
{
	for (unsigned int i = 0; i < STRESS_MOVES; i++)
		if (worker_move[i].id == id)
			te_cancel_batch(worker_engine, worker_move[i].job.id);
}

/* Prints the error record of the first task that failed or timed out. */
static void worker_why_failed(const struct fx_job *job, const char *statuses)
{
	struct te_error err;
	size_t i;

	for (i = 0; statuses[i]; i++) {
		if (statuses[i] != '0' + STATUS_FAILED &&
		    statuses[i] != '0' + STATUS_TIMEOUT)
			continue;
		if (!te_task_error(worker_engine, job->id, i, &err,
				   sizeof(err)))
			worker_why(&err);
		return;
	}
}

static void worker_end(struct worker_move *m)
{
	char text[STRESS_TASKS + 1] = "";

	for (size_t i = 0; i < m->job.tasks && i < STRESS_TASKS; i++)
		text[i] = (char)('0' + fx_task_status(&m->job, i));
	flockfile(stdout);
	printf("done %llu %s", (unsigned long long)m->id, text);
	worker_why_failed(&m->job, text);
	putchar('\n');
	funlockfile(stdout);
	if (!fx_job_free(&m->job))
		exit(3);
	m->id = 0;
}

static bool worker_poll(void)
{
	bool any = false;

	for (unsigned int i = 0; i < STRESS_MOVES; i++) {
		if (!worker_move[i].id)
			continue;
		any = true;
		if (fx_job_poll(&worker_move[i].job))
			worker_end(&worker_move[i]);
	}
	return any;
}

/* A thread that opens a segment. Opening may block as long as a rail is
 * broken. */
struct worker_opening {
	pthread_t thread;
	bool started;
	char name[128];
};

static struct worker_opening worker_opening[STRESS_WORKERS];

static void *worker_open_main(void *arg)
{
	struct worker_opening *o = arg;

	printf("open %d %d\n", (int)(o - worker_opening),
	       openSegment(worker_engine, o->name));
	return NULL;
}

/* Starts a thread that opens the segment of worker `k`. The thread of the
 * previous command for this worker has answered already, because the test waits
 * for the answer before it sends the next command. */
static void worker_open(int k, const char *name)
{
	struct worker_opening *o = &worker_opening[k];

	if (o->started)
		pthread_join(o->thread, NULL);
	snprintf(o->name, sizeof(o->name), "%s", name);
	o->started = !pthread_create(&o->thread, NULL, worker_open_main, o);
	if (!o->started)
		exit(1);
}

static void worker_opened(void)
{
	for (int k = 0; k < STRESS_WORKERS; k++)
		if (worker_opening[k].started)
			pthread_join(worker_opening[k].thread, NULL);
}

static void worker_obey(char *line)
{
	char name[128];
	int k;

	if (!strncmp(line, "move ", 5))
		worker_begin(line + 5);
	else if (!strncmp(line, "cancel ", 7))
		worker_cancel(strtoull(line + 7, NULL, 10));
	else if (sscanf(line, "open %d %127s", &k, name) == 2 && k >= 0 &&
		 k < STRESS_WORKERS)
		worker_open(k, name);
	else
		exit(2);
}

static int worker_loop(void)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	static char buf[65536];
	size_t held = 0;
	char *end;
	ssize_t n;

	for (;;) {
		n = poll(&in, 1, worker_poll() ? 1 : 50);
		if (n <= 0)
			continue;
		n = read(STDIN_FILENO, buf + held, sizeof(buf) - held);
		if (!n)
			return 0;
		held += n > 0 ? (size_t)n : 0;
		while ((end = memchr(buf, '\n', held))) {
			*end++ = '\0';
			worker_obey(buf);
			held -= (size_t)(end - buf);
			memmove(buf, end, held);
		}
	}
}

/* Returns a bit set of the engine's rails: bit 0 for r0, bit 1 for r1. */
static unsigned int worker_rails(void)
{
	struct te_rail_stats rail[8];
	size_t n = sizeof(rail) / sizeof(rail[0]);
	unsigned int bits = 0;

	if (te_rail_stats(worker_engine, rail, sizeof(rail[0]), &n))
		exit(1);
	for (size_t i = 0; i < n && i < sizeof(rail) / sizeof(rail[0]); i++) {
		bits |= strcmp(rail[i].name, "r0") ? 0 : 1u;
		bits |= strcmp(rail[i].name, "r1") ? 0 : 2u;
	}
	return bits;
}

int stress_worker(int argc, char **argv)
{
	char name[128];
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc != 6)
		return 2;
	worker_mem = fx_buf_map(STRESS_MEM, atoi(argv[2]));
	if (*argv[5])
		fx_netns(argv[5]);
	worker_engine = fx_engine_at(argv[4], argv[3]);
	if (!worker_mem.p || !worker_engine ||
	    !fx_register(worker_engine, &worker_mem) ||
	    !fx_engine_name(worker_engine, name, sizeof(name)))
		return 1;
	printf("ready %s %llu %u\n", name, (unsigned long long)worker_mem.addr,
	       worker_rails());
	ret = worker_loop();
	worker_opened();
	destroyTransferEngine(worker_engine);
	if (!fx_buf_guards(&worker_mem))
		return 4;
	fx_buf_unmap(&worker_mem);
	return ret;
}
