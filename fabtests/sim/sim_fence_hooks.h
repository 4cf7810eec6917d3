/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_FENCE_HOOKS_H
#define TEI_FABTESTS_SIM_SIM_FENCE_HOOKS_H

/* Records the fence events of all simulated hosts. */

#include <stdint.h>
#include <stdio.h>

/* Starts to record. Each event is checked by sim_fence_accept; an event that the
 * model of the fence forbids ends the process through sim_found. If `file` is
 * not NULL, one line per event is written to it. */
void sim_fence_hooks_begin(FILE *file);
void sim_fence_hooks_end(void);

#endif /* TEI_FABTESTS_SIM_SIM_FENCE_HOOKS_H */
