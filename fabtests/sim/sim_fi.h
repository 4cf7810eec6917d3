/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_FI_H
#define TEI_FABTESTS_SIM_SIM_FI_H

/*
 * The workload of libfabric programs, and its checks. Each process has one
 * endpoint of the provider moonrail, and a few workers that use it. A worker
 * does one operation at a time, to a random host: a message, a tagged message, a
 * write, a read or an atomic.
 *
 * The checks:
 * - Each message is received at most once, with the right bytes, and by the
 *   process to which it was sent. Messages are matched with receives in the
 *   order in which they were sent.
 * - If a send with FI_DELIVERY_COMPLETE has completed, its message is received.
 *   A message whose send completed without this flag may be lost, but then the
 *   sender gets an error for another message to the same process, or
 *   FI_ETIMEDOUT for any operation with that process.
 * - When a write or a read completes, all its bytes are in place. After its end
 *   no byte changes, unless it ended with FI_ETIMEDOUT. No byte next to its
 *   range changes.
 * - An atomic is executed exactly once if it completes, and otherwise at most
 *   once.
 * - Each operation ends once, and within SIM_LOAD_LIMIT seconds. An operation
 *   completes if there was no fault for some time before.
 */

#include "fabtests/sim/sim_workload.h"

extern const struct sim_workload sim_fi_workload;

#endif /* TEI_FABTESTS_SIM_SIM_FI_H */
