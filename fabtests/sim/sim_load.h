/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_LOAD_H
#define TEI_FABTESTS_SIM_SIM_LOAD_H

/*
 * The workload of data planes, and its checks. Each process has a few workers. A
 * worker does one operation at a time, to a random host: a write, a read, an
 * atomic or a notification. In addition, a fiber of the process unregisters its
 * memory from time to time and registers it again.
 *
 * The checks:
 * - When a transfer ends as COMPLETED, all its bytes are in place (law 1).
 * - After the end of a transfer no byte changes, neither in local memory nor in
 *   the target's memory (law 2). Bytes in the target's memory may change after
 *   a transfer has ended as UNFENCED.
 * - No byte next to the range of a transfer changes.
 * - Each task ends once, and within SIM_LOAD_LIMIT seconds (law 3).
 * - A task ends as COMPLETED if there was no fault for some time before.
 * - An atomic that ends as COMPLETED was executed exactly once. An atomic that
 *   ends with another result was not executed, unless the result is marked as
 *   unknown: then it was executed at most once (law 13). The same holds for
 *   notifications, which also arrive in order.
 * - After memory is unregistered, no peer reads or writes it.
 */

#include "fabtests/sim/sim_workload.h"
#include "prov/rail/tei_rail_base.h"

struct tei_err;
struct tei_rail_task;

extern const struct sim_workload sim_load_workload;

/* Handles the end of a task (tei_rail_ops.task_done). */
void sim_load_done(struct tei_rail_task *task, enum tei_rail_end end,
		   const struct tei_err *err);

#endif /* TEI_FABTESTS_SIM_SIM_LOAD_H */
