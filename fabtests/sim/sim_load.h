/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_LOAD_H
#define TEI_FABTESTS_SIM_SIM_LOAD_H

/*
 * The workload and its checks. Each process has a few workers, each of which does
 * one operation at a time: a write, a read, an atomic or a notification, to a
 * random host. A fiber of the process unregisters its memory at times and
 * registers it again.
 *
 * What is checked:
 * - COMPLETED: all bytes are in place at that moment (law 1).
 * - After the end of a transfer no byte changes, neither in the target's memory
 *   (unless the transfer ended UNFENCED) nor in local memory (law 2).
 * - No byte next to the range of a transfer changes.
 * - Each task ends once, and within SIM_LOAD_LIMIT seconds (law 3).
 * - A task ends as COMPLETED if nothing was disturbed for a while.
 * - An atomic is executed once if it is COMPLETED, not at all if it ended with
 *   another result that is not marked unknown, and at most once in any case
 *   (law 13). The same holds for notifications, which also stay in order.
 * - After memory is unregistered, no peer reads or writes it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/tei_rail_base.h"

struct sim_conf;
struct sim_proc;
struct sim_work_ops;
struct tei_err;
struct tei_rail_task;

/* Longest time in which a task must end, s. */
#define SIM_LOAD_LIMIT	90

/* What has happened so far. */
struct sim_load_stats {
	uint64_t ops;			/* operations that have ended */
	uint64_t ends[4];		/* tasks by enum tei_rail_end */
	uint64_t bytes;			/* of completed transfers */
	uint64_t atomics, notes;	/* completed */
	uint64_t revoked;		/* times that memory was unregistered */
	uint64_t slowest_ns;		/* longest time of a task */
};

extern const struct sim_work_ops sim_load_ops;

/* Sets conf->chunk to the bytes that the slots need. Before
 * sim_cluster_begin. */
void sim_load_size(struct sim_conf *conf);
/* Allocates slots. After sim_cluster_begin. */
void sim_load_begin(void);
/* Verifies all slots that no transfer may write to any more. */
void sim_load_verify(void);
void sim_load_end(void);
const struct sim_load_stats *sim_load_stats(void);

/* Receives the end of a task (tei_rail_ops.task_done). */
void sim_load_done(struct tei_rail_task *task, enum tei_rail_end end,
		   const struct tei_err *err);

#endif /* TEI_FABTESTS_SIM_SIM_LOAD_H */
