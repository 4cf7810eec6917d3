/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Searches for a small plan of faults with which a simulation still fails, by
 * delta debugging. The search leaves out a group of faults and repeats the
 * simulation. If the simulation still fails, these faults stay left out. The
 * groups become smaller until each single fault was tried.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/sim/sim_workload.h"
#include "fabtests/sim/simulate.h"

/* maximum duration of a search, s of real time */
#define SHRINK_S	120

int simulate_fork(const struct simulate_options *o, bool quiet)
{
	int status, null;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		perror("simulate: fork");
		exit(2);
	}
	if (pid == 0) {
		if (quiet) {
			null = open("/dev/null", O_WRONLY);
			dup2(null, 1);
			dup2(null, 2);
		}
		simulate_run(o);
		exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	if (!quiet && WIFSIGNALED(status))
		fprintf(stderr, "simulate: seed %" PRIu64 ": signal %d (%s)\n",
			o->seed, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	return status;
}

/* Leaves out some more faults and repeats the simulation. The faults that still
 * happen are counted from 0; `n` of them are left out, beginning with number
 * `from`. If the simulation still fails, returns true. Otherwise restores
 * o->left_out and returns false. */
static bool shrink_try(struct simulate_options *o, uint32_t faults,
		       uint32_t from, uint32_t n)
{
	bool before[SIM_PLAN_MAX];
	uint32_t i, seen = 0;

	memcpy(before, o->left_out, sizeof(before));
	for (i = 0; i < faults; i++) {
		if (before[i])
			continue;
		if (seen >= from && seen < from + n)
			o->left_out[i] = true;
		seen++;
	}
	if (simulate_fork(o, true))
		return true;
	memcpy(o->left_out, before, sizeof(before));
	return false;
}

static uint32_t shrink_count(const struct simulate_options *o, uint32_t faults)
{
	uint32_t i, n = 0;

	for (i = 0; i < faults; i++)
		n += !o->left_out[i];
	return n;
}

static void shrink_print(const struct simulate_options *o, const char *program,
			 uint32_t faults)
{
	uint32_t i;
	const char *sep = "";

	printf("repeat: %s --here --world=%s --seed=%" PRIu64 " --sim=%" PRIu64 " --hosts=%u --rails=%u --workers=%u --rate=%u --faults=%u --errors=%u --places=%u --threads=%u --connections=%u --ports=%u --only=",
	       program, o->world->name, o->seed, o->seconds, o->hosts,
	       o->rails, o->workers, o->rate, o->faults, o->errors,
	       o->places, o->threads, o->connections, o->ports);
	for (i = 0; i < faults; i++) {
		if (o->left_out[i])
			continue;
		printf("%s%u", sep, i);
		sep = ",";
	}
	printf("%s\n", o->verbs < 0 ? "" : o->verbs ? " --nic=verbs" :
						      " --nic=tcp");
}

void simulate_shrink(struct simulate_options *o, const char *program)
{
	uint32_t faults = simulate_faults(o), n, part, from;
	time_t end = time(NULL) + SHRINK_S;

	printf("seed %" PRIu64 " failed; searching for a smaller plan of faults\n",
	       o->seed);
	n = shrink_count(o, faults);
	for (part = n; part >= 1 && n > 0; part = part > 1 ? (part + 1) / 2 : 0)
		for (from = 0; from < n && time(NULL) < end;) {
			if (shrink_try(o, faults, from, part))
				n = shrink_count(o, faults);
			else
				from += part;
		}
	printf("smallest plan of faults that was found:\n");
	o->list = true;
	simulate_fork(o, false);
	shrink_print(o, program, faults);
}
