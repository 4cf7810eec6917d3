/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_ATOMIC_H
#define TEI_UTIL_ATOMIC_H

/*
 * One atomic operation on memory of this process, as somebody else asked for
 * it: the one place where they are executed, whoever asks, so that all of them
 * are atomic with one another and with this program's own __atomic builtins.
 */

#include <stdint.h>

/* On the wire: values never change. */
enum tei_atomic_op {
	TEI_ATOMIC_ADD = 1,	/* *addr += operand, wraps */
	TEI_ATOMIC_SWAP = 2,	/* *addr = operand */
	TEI_ATOMIC_CAS = 3,	/* if *addr == compare: *addr = operand */
};

/*
 * 0, or TEI_ERR_INVALID: not such an operation, a width other than 4 and 8, or
 * an address that is not a multiple of it.
 */
int tei_atomic_check(unsigned int op, unsigned int width, uint64_t addr);

/*
 * Executes it, sequentially consistent; *old gets what was there before. The
 * numbers are unsigned, of width bytes; higher bits are ignored. Checks as
 * above. TEI_ERR_NOT_REGISTERED, and nothing was done, where the memory is not
 * mapped, cannot be written or is no memory of the processor's; kernels before
 * 5.14 can't tell, there such an address is a fault. May wait for a page.
 */
int tei_atomic_run(unsigned int op, unsigned int width, uint64_t addr,
		   uint64_t operand, uint64_t compare, uint64_t *old);

#endif /* TEI_UTIL_ATOMIC_H */
