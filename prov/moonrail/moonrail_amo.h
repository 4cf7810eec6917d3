/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_AMO_H
#define TEI_PROV_MOONRAIL_MOONRAIL_AMO_H

/*
 * Atomic operations on one element: an integer of up to 8 bytes, a
 * floating-point number, or a complex number.
 */

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <stdbool.h>
#include <stddef.h>

#define MOONRAIL_AMO_MAX	8064	/* largest total size of the elements of
					 * one operation, bytes */

enum moonrail_amo_kind {
	MOONRAIL_AMO_BASE,		/* fi_atomic: returns no value */
	MOONRAIL_AMO_FETCH,		/* fi_fetch_atomic: returns the old
					 * values */
	MOONRAIL_AMO_COMPARE,		/* fi_compare_atomic: compares first,
					 * and returns the old values */
};

/* Returns the size of an element, or 0 if that operation is not supported for
 * the type. */
size_t moonrail_amo_size(enum moonrail_amo_kind kind, enum fi_datatype type,
			 enum fi_op op);

/*
 * Executes an operation on the element at addr and stores the old value in
 * *old. An element of up to 8 bytes at a multiple of its size is accessed
 * atomically with respect to all other accesses. Other elements are atomic only
 * with respect to callers that hold the same lock. operand and compare are read
 * only if the operation uses them. operand, compare and old need no alignment.
 */
void moonrail_amo_run(enum fi_datatype type, enum fi_op op, void *addr,
		      const void *operand, const void *compare, void *old);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_AMO_H */
