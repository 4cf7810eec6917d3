/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_ENGINE_H
#define TEI_FABTESTS_SIM_SIM_ENGINE_H

/*
 * The workload of engines, and its checks. Each process has one engine, which
 * it uses through the public API (transfer_engine_c.h and moonrail.h) only, and
 * a few workers. A worker does one operation at a time, to a random host: a
 * batch of writes and reads, an atomic or a notification. It opens the segment
 * of the host for each operation, by its name or by an exported descriptor. In
 * addition, a fiber of the process unregisters its memory from time to time and
 * registers it again, and another one fetches notifications.
 *
 * The checks:
 * - When a task is COMPLETED, all its bytes are in place and counted (law 1).
 * - A terminal status does not change, and afterwards no byte of the task
 *   changes, neither in local memory nor in the target's memory (law 2). Bytes
 *   in the target's memory may change after a task has ended as TIMEOUT.
 * - No byte next to the range of a task changes.
 * - Each batch ends within SIM_LOAD_LIMIT seconds (law 3), and its status is
 *   the worst one of its tasks (law 4).
 * - A batch with a task that has not ended cannot be freed, an ended one can,
 *   and its id is refused afterwards (law 5).
 * - A task is COMPLETED if there was no fault for some time before.
 * - An atomic that is COMPLETED was executed exactly once, and at most once
 *   otherwise (law 13). The same holds for notifications, which also arrive in
 *   order.
 * - After memory is unregistered, no peer reads or writes it.
 */

#include "fabtests/sim/sim_workload.h"

extern const struct sim_workload sim_engine_workload;

#endif /* TEI_FABTESTS_SIM_SIM_ENGINE_H */
