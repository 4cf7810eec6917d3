/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomics on memory of this process, executed by the calling thread. */
#include <string.h>

#include "prov/local/local_int.h"
#include "prov/local/tei_local_atomic.h"
#include "util/atomic.h"

static void atomic_deliver(void *to, unsigned int width, uint64_t old)
{
	uint32_t narrow = (uint32_t)old;

	if (!to)
		return;
	if (width == sizeof(narrow))
		memcpy(to, &narrow, sizeof(narrow));
	else
		memcpy(to, &old, sizeof(old));
}

/*
 * Checks and executes the operation. The caller holds a copy slot on both
 * ranges, so neither range can be removed meanwhile.
 */
static int atomic_guarded(struct tei_local *ctx, const struct tei_local_atom *a,
			  struct tei_err *err)
{
	uint64_t result = (uint64_t)(uintptr_t)a->result, old = 0;
	int ret = 0;

	if (!local_shared_table_covers(ctx->own, a->addr, a->width,
				       LOCAL_WRITABLE) ||
	    (result && !local_shared_table_covers(ctx->own, result, a->width,
						  LOCAL_WRITABLE)))
		ret = TEI_ERR_NOT_REGISTERED;
	if (!ret)
		ret = tei_atomic_run(a->op, a->width, a->addr, a->operand,
				     a->compare, &old);
	if (!ret)
		atomic_deliver(a->result, a->width, old);
	else
		local_explain(err, ret, 0, "atomic on %#llx, %u bytes: %s",
			      (unsigned long long)a->addr, a->width,
			      tei_err_name(ret));
	return ret;
}

int tei_local_atomic(struct tei_local *ctx, const struct tei_local_atom *a,
		     struct tei_err *err)
{
	uint64_t result = (uint64_t)(uintptr_t)a->result;
	uint64_t base[2] = { a->addr, result };
	uint64_t end[2] = { a->addr + a->width,
			    result + (result ? a->width : 0) };
	struct local_slot *guard;
	int ret = local_guard(ctx);

	if (ret) {
		local_explain(err, ret, 0, "%s",
			      tei_local_reason_text(TEI_LOCAL_FORKED));
		return ret;
	}
	guard = local_slot_enter(ctx->own, ctx->owner, base, end);
	if (!guard)
		return local_fail(ctx, err, TEI_ERR_TOO_MANY, NULL, 0,
				  "all copy slots of this process are in use");
	ret = atomic_guarded(ctx, a, err);
	local_slot_leave(guard);
	return ret;
}
