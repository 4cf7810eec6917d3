/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_WORKLOAD_H
#define TEI_FABTESTS_SIM_SIM_WORKLOAD_H

/* The interface between `simulate` and a workload. The workload decides what the
 * processes of the simulated hosts do. */

#include <stdint.h>

struct sim_conf;
struct sim_work_ops;

/* time within which an operation must end, s */
#define SIM_LOAD_LIMIT	90

/* Counts since the start of the simulation. */
struct sim_load_stats {
	uint64_t ops;			/* operations that have ended */
	uint64_t ends[4];		/* numbers of ended operations, indexed
					 * by enum tei_rail_end */
	uint64_t bytes;			/* bytes of completed transfers */
	uint64_t atomics, notes;	/* numbers of completed atomics and of
					 * completed notifications or
					 * messages */
	uint64_t revoked;		/* number of unregistrations */
	uint64_t slowest_ns;		/* longest duration of an operation,
					 * ns */
};

/* A workload. */
struct sim_workload {
	const char *name;		/* value of the option --world */
	const struct sim_work_ops *ops;
	/* Sets conf->chunk to the number of bytes that the slots of the
	 * workload need. Called before sim_cluster_begin. */
	void (*size)(struct sim_conf *conf);
	/* Allocates the slots. Called after sim_cluster_begin. */
	void (*begin)(void);
	/* Verifies all tombstones and counters. Called when no transfer is in
	 * progress. */
	void (*verify)(void);
	/* Frees the slots. Called after sim_end, before sim_cluster_end. */
	void (*end)(void);
	const struct sim_load_stats *(*stats)(void);
};

#endif /* TEI_FABTESTS_SIM_SIM_WORKLOAD_H */
