/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_ATOMIC_H
#define TEI_PROV_LOCAL_ATOMIC_H

/* Atomics on memory of this process. The rules of tei_local.h apply. */

#include <stdint.h>

struct tei_err;
struct tei_local;

/* An atomic operation on memory of this process. */
struct tei_local_atom {
	unsigned int op;    /* enum tei_atomic_op */
	unsigned int width; /* 4 or 8, bytes */
	uint64_t addr;	    /* a multiple of width, in a region of ctx */
	uint64_t operand, compare;
	void *result; /* address for the old value, in a region of
		       * ctx; or NULL */
};

/*
 * Executes the operation on the calling thread. Returns 0. On failure nothing
 * was executed, and *err is filled (err may be NULL): TEI_ERR_INVALID,
 * TEI_ERR_NOT_REGISTERED, TEI_ERR_TOO_MANY (no slot is free at the moment) or
 * TEI_ERR_CONTEXT. There are no atomics on other processes, because the
 * kernel's copies are not atomic.
 */
int tei_local_atomic(struct tei_local *ctx, const struct tei_local_atom *atom,
		     struct tei_err *err);

#endif /* TEI_PROV_LOCAL_ATOMIC_H */
