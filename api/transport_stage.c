/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transports for GPU memory that the rails, files and local copies cannot
 * access: transport_stage for GPU memory of this process (engine_stage.h), and
 * transport_lease for GPU memory of the target (engine_lease.h).
 */
#include "api/engine_int.h"
#include "api/engine_transport.h"

_Static_assert(sizeof(struct engine_stage) <= ENGINE_TASK_ROOM, "fits");
_Static_assert(sizeof(struct engine_lease) <= ENGINE_TASK_ROOM, "fits");

/* --- GPU memory of this process ------------------------------------------- */

static void *stage_attach(struct engine *e, const struct engine_segment *s)
{
	return s ? e : NULL;
}

/* Returns true if the rails can move the request's memory on both sides, and no
 * other transport has precedence. */
static bool stage_rails_can(struct engine *e, const struct transfer_request *r,
			    const struct engine_target *target)
{
	return engine_target_at(target, &transport_rail) &&
	       !engine_target_at(target, &transport_file) &&
	       (!engine_target_at(target, &transport_local) ||
		target->kind == ENGINE_GPU_GPU) &&
	       !engine_target_lent(target, r->target_offset, r->length) &&
	       tei_rail_mr_direct(e->dp, r->source, r->length);
}

static int stage_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 struct engine_target *target, void *at)
{
	struct tei_nvmeof_seg *files =
		engine_target_at(target, &transport_file);

	(void)at;
	if ((files && engine_files_take(e, r, files)) ||
	    stage_rails_can(e, r, target))
		return ENGINE_DECLINED;
	return engine_stage_prepare(e, t, r, target);
}

static uint64_t stage_moved(const struct engine_task *t)
{
	const struct engine_stage *stage = engine_task_room_const(t);

	return __atomic_load_n(&stage->moved, __ATOMIC_RELAXED);
}

static bool stage_drain(struct engine *e,
			const struct engine_transport_ops *through,
			uint64_t until_ns)
{
	bool all = true;

	if (!through || through == &transport_rail) {
		all &= engine_stage_drain(e, STAGE_BY_RAIL, until_ns);
		all &= engine_stage_drain(e, STAGE_BY_LEASE, until_ns);
	}
	if (!through || through == &transport_file)
		all &= engine_stage_drain(e, STAGE_BY_FILE, until_ns);
	if (!through || through == &transport_local)
		all &= engine_stage_drain(e, STAGE_BY_KERNEL, until_ns);
	return all;
}

const struct engine_transport_ops transport_stage = {
	.takes = ENGINE_GPU_HOST | ENGINE_GPU_GPU,
	.attach = stage_attach,
	.prepare = stage_prepare,
	.start = engine_stage_start,
	.cancel = engine_stage_cancel,
	.moved = stage_moved,
	.drain = stage_drain,
};

/* --- GPU memory of the target --------------------------------------------- */

static void *lease_attach(struct engine *e, const struct engine_segment *s)
{
	return s && s->gpu ? e : NULL;
}

/* GPU memory with keys is left to the rails. */
static int lease_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 struct engine_target *target, void *at)
{
	(void)at;
	if (engine_target_at(target, &transport_rail) &&
	    !engine_target_lent(target, r->target_offset, r->length))
		return ENGINE_DECLINED;
	return engine_lease_prepare(e, t, r, target);
}

static void lease_cancel(struct engine *e, struct engine_task *t, bool deadline)
{
	engine_lease_cancel(e, engine_task_room(t), deadline);
}

static uint64_t lease_moved(const struct engine_task *t)
{
	const struct engine_lease *lease = engine_task_room_const(t);

	return __atomic_load_n(&lease->moved, __ATOMIC_RELAXED);
}

static bool lease_drain(struct engine *e,
			const struct engine_transport_ops *through,
			uint64_t until_ns)
{
	return (through && through != &transport_rail) ||
	       engine_lease_drain(e, until_ns);
}

const struct engine_transport_ops transport_lease = {
	.takes = ENGINE_HOST_GPU,
	.attach = lease_attach,
	.prepare = lease_prepare,
	.start = engine_lease_start_task,
	.cancel = lease_cancel,
	.moved = lease_moved,
	.drain = lease_drain,
};
