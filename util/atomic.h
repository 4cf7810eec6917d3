/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_ATOMIC_H
#define TEI_UTIL_ATOMIC_H

/*
 * Executes one atomic operation on memory of this process on behalf of a peer
 * or another local process. All atomic operations of the library run here, so
 * they are atomic with respect to each other and to the program's own __atomic
 * builtins.
 */

#include <stdint.h>

/* The numbers of the operations are sent in messages, so they must never
 * change. */
enum tei_atomic_op {
	TEI_ATOMIC_ADD = 1,	/* *addr += operand, modulo 2^32 or 2^64 */
	TEI_ATOMIC_SWAP = 2,	/* *addr = operand */
	TEI_ATOMIC_CAS = 3,	/* if *addr == compare: *addr = operand */
};

/* Checks the arguments of tei_atomic_run. Returns 0. Returns TEI_ERR_INVALID if
 * op is unknown, if width is a number other than 4 and 8, or if addr is not a
 * multiple of width. */
int tei_atomic_check(unsigned int op, unsigned int width, uint64_t addr);

/*
 * Executes the operation with sequential consistency and stores the previous
 * value in *old. operand and compare are unsigned numbers of width bytes; their
 * higher bits are ignored. May block on a page fault.
 *
 * Returns 0, TEI_ERR_INVALID as tei_atomic_check does, or
 * TEI_ERR_NOT_REGISTERED without having executed anything if the memory is not
 * mapped, not writable or not ordinary memory. On kernels before 5.14 this
 * check is not possible, so an access to such memory raises SIGSEGV or SIGBUS.
 */
int tei_atomic_run(unsigned int op, unsigned int width, uint64_t addr,
		   uint64_t operand, uint64_t compare, uint64_t *old);

#endif /* TEI_UTIL_ATOMIC_H */
