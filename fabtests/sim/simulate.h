/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIMULATE_H
#define TEI_FABTESTS_SIM_SIMULATE_H

/* The parts of the program simulate. */

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/sim/sim_plan.h"

/* What the command line requests. */
struct simulate_options {
	uint64_t seed;
	uint64_t seconds;		/* simulated seconds of work */
	uint32_t hosts, rails, workers;
	uint32_t rate;			/* operations per host and simulated
					 * minute */
	uint32_t faults;		/* per simulated minute */
	int verbs;			/* 1: NICs like verbs, 0: like tcp, -1: as
					 * the seed says */
	uint64_t break_at;		/* event before which a debugger stops */
	const char *trace;		/* file for the trace, NULL: none */
	const char *svg;		/* file for the picture, NULL: none */
	bool here;			/* run in this process */
	bool list;			/* print the plan of faults */
	bool left_out[SIM_PLAN_MAX];	/* faults that do not happen */
};

/* Runs one simulation in this process and prints its result. If it finds a
 * fault, the process ends with status SIM_EXIT_FOUND. */
void simulate_run(const struct simulate_options *o);

/* Returns the number of faults of the plan. */
uint32_t simulate_faults(const struct simulate_options *o);

/* Runs the simulation in a child process. quiet: without output. Returns 0, or
 * not 0 if it found a fault or crashed. */
int simulate_fork(const struct simulate_options *o, bool quiet);

/* Searches for a small plan of faults with which the simulation still fails, and
 * prints it with the command that repeats it. program: its name. */
void simulate_shrink(struct simulate_options *o, const char *program);

/* Starts to write the trace and the picture, and ends it. */
void simulate_timeline_begin(const struct simulate_options *o);
void simulate_timeline_end(void);

#endif /* TEI_FABTESTS_SIM_SIMULATE_H */
