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

/* largest number of faults in a plan */
#define SIM_PLAN_MAX	4096

/* Makes a plan of n faults for the time between from_ns and until_ns, and adds
 * their events. left_out is indexed by the number of a fault; if it is not
 * NULL, the faults whose entry is true do not happen. */
void sim_plan_begin(uint32_t n, uint64_t from_ns, uint64_t until_ns,
		    const bool *left_out);
/* Ends all faults: all paths are open, all cables are plugged in, and no host
 * is stopped. */
void sim_plan_heal(void);
/* Writes one line for each fault that happens. */
void sim_plan_print(FILE *out);
void sim_plan_end(void);

#endif /* TEI_FABTESTS_SIM_SIM_PLAN_H */
