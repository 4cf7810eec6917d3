/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SCALE_H
#define TEI_FABTESTS_SIM_SCALE_H

/*
 * Counts the memory that host 0 of a simulation allocates. For this purpose,
 * the program is linked with --wrap for the functions of malloc. Memory that
 * the simulator and the simulated network allocate does not count.
 */

#include <stdint.h>

/* Returns the number of bytes that host 0 has allocated and not freed,
 * including the overhead of the allocator. */
uint64_t scale_memory(void);

#endif /* TEI_FABTESTS_SIM_SCALE_H */
