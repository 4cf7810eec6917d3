/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_AMO_H
#define TEI_PROV_MOONRAIL_MOONRAIL_AMO_H

/*
 * What atomic operations there are, and what each does to a number: integers of
 * up to eight bytes, floating-point numbers, and complex ones of these.
 */

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <stdbool.h>
#include <stddef.h>

#define MOONRAIL_AMO_MAX	8064	/* bytes of one operation's numbers */

enum moonrail_amo_kind {
	MOONRAIL_AMO_BASE,		/* nothing comes back */
	MOONRAIL_AMO_FETCH,		/* the old numbers come back */
	MOONRAIL_AMO_COMPARE,		/* the same, where a comparison holds */
};

/* Bytes of a number, 0: there is no such operation. */
size_t moonrail_amo_size(enum moonrail_amo_kind kind, enum fi_datatype type,
			 enum fi_op op);

/*
 * Executes it on the number at addr; old gets what was there. Atomic with all
 * other accesses where a number of up to eight bytes is at a multiple of its
 * size, with those made under the same lock elsewhere. operand, compare: not
 * read where the operation has none; all three without alignment.
 */
void moonrail_amo_run(enum fi_datatype type, enum fi_op op, void *addr,
		      const void *operand, const void *compare, void *old);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_AMO_H */
