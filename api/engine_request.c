/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks of requests of te_submit that several transports use. */
#include "api/engine_int.h"
#include "util/atomic.h"

bool engine_range_registered(struct engine *e, const struct te_request *r,
			     uint32_t k)
{
	return !tei_local_region_check(e->local, r->local[k].addr,
				       r->local[k].length,
				       r->opcode != TE_WRITE);
}

bool engine_ranges_registered(struct engine *e, const struct te_request *r)
{
	uint32_t k;

	for (k = 0; k < r->local_count; k++)
		if (!engine_range_registered(e, r, k))
			return false;
	return true;
}

unsigned int engine_atomic_op(uint32_t opcode)
{
	switch (opcode) {
	case TE_ATOMIC_SWAP:
		return TEI_ATOMIC_SWAP;
	case TE_ATOMIC_CAS:
		return TEI_ATOMIC_CAS;
	default:
		return TEI_ATOMIC_ADD;
	}
}
