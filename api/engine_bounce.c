/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks of the local memory of requests with TE_REQ_BOUNCE: which memory may
 * be used without registration.
 */
#include "api/transport_bounce.h"

#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "api/engine_refusal.h"
#include "topo/tei_topo.h"

enum engine_bounce_refusal engine_bounce_check(struct engine *e,
					       const void *addr, uint64_t len,
					       bool write, bool *bounce)
{
	uint64_t base, end;

	if (!tei_local_region_check(e->local, addr, len, write))
		return ENGINE_BOUNCE_NONE;
	if (!tei_local_region_check(e->local, addr, len, false))
		return ENGINE_BOUNCE_READ_ONLY;
	if (engine_gpu_memory(e, (uintptr_t)addr, len))
		return ENGINE_BOUNCE_GPU;
	/* refuses a read into a range of which a part is registered, because
	 * that part may be registered for reading only */
	if (write && tei_local_region_touches(e->local, addr, len))
		return ENGINE_BOUNCE_PARTLY;
	if (tei_topo_maps_check(NULL, addr, len, &base, &end) ==
	    TEI_TOPO_UNMAPPED)
		return ENGINE_BOUNCE_UNMAPPED;
	*bounce = true;
	return ENGINE_BOUNCE_NONE;
}

static const struct bounce_reason {
	const char *text, *hint;
} bounce_reasons[] = {
	[ENGINE_BOUNCE_READ_ONLY] = {
		"is registered for reading only, and the request writes there",
		"register memory that is mapped with PROT_WRITE" },
	[ENGINE_BOUNCE_PARTLY] = {
		"is registered in part, and the request writes there",
		"keep each range inside one registered buffer or outside of all" },
	[ENGINE_BOUNCE_UNMAPPED] = {
		"is not mapped in this process",
		"pass memory of this process that stays mapped until the task has ended" },
	[ENGINE_BOUNCE_GPU] = {
		"is GPU memory that is not inside one registered buffer, and TE_REQ_BOUNCE works for host memory only",
		"register the GPU memory, and keep each range inside one registered buffer" },
};

int engine_bounce_refuse(struct engine *e, const char *call, size_t i,
			 const struct te_request *r)
{
	enum engine_bounce_refusal why;
	bool bounce = false;
	uint32_t k;

	for (k = 0; k < r->local_count; k++) {
		why = engine_bounce_check(e, r->local[k].addr,
					  r->local[k].length,
					  r->opcode == TE_READ, &bounce);
		if (why != ENGINE_BOUNCE_NONE)
			return engine_refuse(call, i, 3,
					     bounce_reasons[why].hint,
					     "local[%u] %p, %llu bytes, %s", k,
					     r->local[k].addr,
					     (unsigned long long)
						     r->local[k].length,
					     bounce_reasons[why].text);
	}
	return engine_refuse_code(call, i, 3);
}
