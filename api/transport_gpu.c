/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport for copies inside this process from or to GPU memory. The GPU
 * driver makes these copies.
 */
#include <stdio.h>
#include <string.h>

#include "api/engine_int.h"
#include "api/engine_transport.h"

_Static_assert(sizeof(struct tei_gpu_op) <= ENGINE_TASK_ROOM, "fits");

static struct tei_gpu *gpu_ctx(struct engine *e)
{
	return __atomic_load_n(&e->gpu, __ATOMIC_ACQUIRE);
}

static void gpu_err(struct tei_err *err, int code)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->provider, sizeof(err->provider), "cuda");
	snprintf(err->text, sizeof(err->text), "copy of GPU memory: %s",
		 tei_err_name(code));
}

static void gpu_end(struct engine_task *t, int status,
		    const struct tei_err *err)
{
	engine_traffic_count(&t->engine->own, t->read,
			     status == STATUS_COMPLETED ? t->length : 0,
			     status);
	engine_task_end(t, status, err);
}

static void gpu_done(struct tei_gpu_op *op, int code, const struct tei_err *err)
{
	struct engine_task *t = engine_task_from(op);
	struct tei_err ended;

	if (code != TEI_GPU_CANCELLED) {
		gpu_end(t,
			!code			    ? STATUS_COMPLETED
			: code == TEI_ERR_TIMED_OUT ? STATUS_TIMEOUT
						    : STATUS_FAILED,
			err);
		return;
	}
	gpu_err(&ended, __atomic_load_n(&t->expired, __ATOMIC_RELAXED)
				? TEI_ERR_TIMED_OUT
				: TEI_ERR_CANCELED);
	gpu_end(t,
		ended.code == TEI_ERR_CANCELED ? STATUS_CANCELED
					       : STATUS_FAILED,
		&ended);
}

static bool gpu_overlap(const struct transfer_request *r)
{
	uint64_t source = (uintptr_t)r->source, target = r->target_offset;

	return source < target + r->length && target < source + r->length;
}

static void *gpu_attach(struct engine *e, const struct engine_segment *s)
{
	return s ? NULL : gpu_ctx(e);
}

static int gpu_prepare(struct engine *e, struct engine_task *t,
		       const struct transfer_request *r,
		       struct engine_target *target, void *at)
{
	struct tei_gpu_op *op = engine_task_room(t);

	(void)target;
	if (tei_gpu_kind(at, (uintptr_t)r->source, r->length) ==
	    TEI_GPU_NOT_REGISTERED)
		return 3;
	if (gpu_overlap(r))
		return 1; /* refused because the ranges overlap: the order in
			   * which the driver copies bytes is undefined */
	engine_task_init(e, t, r, &transport_gpu);
	op->dst = t->read ? (uintptr_t)r->source : r->target_offset;
	op->src = t->read ? r->target_offset : (uintptr_t)r->source;
	op->length = r->length;
	op->done = gpu_done;
	return 0;
}

static void gpu_start(struct engine *e, struct engine_task *t)
{
	struct tei_err err;
	int ret = tei_gpu_submit(gpu_ctx(e), engine_task_room(t));

	if (!ret)
		return; /* gpu_done will end it */
	gpu_err(&err, ret);
	gpu_end(t, STATUS_FAILED, &err);
}

static void gpu_cancel(struct engine *e, struct engine_task *t, bool deadline)
{
	(void)deadline;
	tei_gpu_cancel(e->gpu, engine_task_room(t));
}

static uint64_t gpu_moved(const struct engine_task *t)
{
	const struct tei_gpu_op *op = engine_task_room_const(t);

	return __atomic_load_n(&op->moved, __ATOMIC_RELAXED);
}

static bool gpu_drain(struct engine *e,
		      const struct engine_transport_ops *through,
		      uint64_t until_ns)
{
	return through || !e->gpu || tei_gpu_drain(e->gpu, until_ns);
}

static void gpu_close(struct engine *e)
{
	tei_gpu_fini(e->gpu);
	__atomic_store_n(&e->gpu, NULL, __ATOMIC_RELEASE);
}

const struct engine_transport_ops transport_gpu = {
	.takes = ENGINE_GPU_HOST | ENGINE_HOST_GPU | ENGINE_GPU_GPU,
	.attach = gpu_attach,
	.prepare = gpu_prepare,
	.start = gpu_start,
	.cancel = gpu_cancel,
	.moved = gpu_moved,
	.drain = gpu_drain,
	.close = gpu_close,
};
