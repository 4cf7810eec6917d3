/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIMULATE_H
#define TEI_FABTESTS_SIM_SIMULATE_H

/* Declarations that the parts of the program simulate share. */

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/sim/sim_plan.h"

struct sim_workload;

/* The options of the command line. */
struct simulate_options {
	const struct sim_workload *world; /* workload of the processes */
	uint64_t seed;
	uint64_t seconds;		/* duration of the workload, s of
					 * virtual time */
	uint32_t hosts, rails, workers;
	uint32_t threads;		/* number of progress threads per data
					 * plane */
	uint32_t connections;		/* number of connections of a rail pair
					 * for bulk data */
	uint32_t rate;			/* operations per host and minute of
					 * virtual time */
	uint32_t faults;		/* faults per minute of virtual time */
	uint32_t errors;		/* completed reads and writes, per
					 * million, whose completions become
					 * errors */
	uint32_t places;		/* value of MC_MAX_EP_PER_CTX in each
					 * process; 0: the seed chooses it */
	uint32_t ports;			/* sim_net_conf.ports; 0: the seed
					 * chooses it */
	int verbs;			/* 1: NICs behave like verbs devices; 0:
					 * like tcp; -1: the seed decides */
	uint64_t break_at;		/* number of the event before which
					 * SIGTRAP is raised; 0 means none */
	const char *trace;		/* file of the trace, or NULL */
	const char *svg;		/* file of the picture (SVG), or NULL */
	const char *fences;		/* file of the fence events, or NULL */
	bool here;			/* run in this process, not in a child
					 * process */
	bool list;			/* print the plan of faults */
	bool left_out[SIM_PLAN_MAX];	/* indexed by the number of a fault;
					 * true if it does not happen */
};

/* Runs one simulation in this process and prints its result. If a check fails,
 * the process ends with status SIM_EXIT_FOUND. */
void simulate_run(const struct simulate_options *o);

/* Returns the number of faults in the plan. */
uint32_t simulate_faults(const struct simulate_options *o);

/* Runs the simulation in a child process. If `quiet` is true, the child writes
 * no output. Returns 0 if the simulation has passed. Returns another value if a
 * check has failed or the child has crashed. */
int simulate_fork(const struct simulate_options *o, bool quiet);

/* Searches for a small plan of faults with which the simulation still fails.
 * Prints the plan and the command that repeats the simulation. `program` is the
 * name of the program in that command. */
void simulate_shrink(struct simulate_options *o, const char *program);

/* simulate_timeline_begin opens the files of the trace and of the picture, if
 * the options request them. simulate_timeline_end completes and closes them. */
void simulate_timeline_begin(const struct simulate_options *o);
void simulate_timeline_end(void);

#endif /* TEI_FABTESTS_SIM_SIMULATE_H */
