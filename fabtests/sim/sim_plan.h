/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_PLAN_H
#define TEI_FABTESTS_SIM_SIM_PLAN_H

/*
 * The plan of faults of a simulation. Each fault has a random stream of its
 * own, so a fault can be left out without changing the others.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* maximum number of faults in a plan */
#define SIM_PLAN_MAX	4096

/* Makes a plan of `n` faults between from_ns and until_ns, and adds their
 * events. If `left_out` is not NULL, it is indexed by the number of a fault,
 * and faults whose entry is true do not happen. */
void sim_plan_begin(uint32_t n, uint64_t from_ns, uint64_t until_ns,
		    const bool *left_out);
/* Resumes all stopped hosts. Called at the end of the workload; the other
 * faults end by themselves. */
void sim_plan_heal(void);
/* Writes one line for each fault that is not left out. */
void sim_plan_print(FILE *out);
void sim_plan_end(void);

#endif /* TEI_FABTESTS_SIM_SIM_PLAN_H */
