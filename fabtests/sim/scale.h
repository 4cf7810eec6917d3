/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SCALE_H
#define TEI_FABTESTS_SIM_SCALE_H

/*
 * Counts the memory that one host of a simulation allocates. The program is
 * linked with --wrap for the functions of malloc. Memory that the simulator and
 * the simulated network allocate does not count.
 */

#include <stdint.h>

/* Bytes that host 0 has allocated and not freed, with the overhead of the
 * allocator. */
uint64_t scale_memory(void);

#endif /* TEI_FABTESTS_SIM_SCALE_H */
