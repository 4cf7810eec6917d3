/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory: detection, registration, and copies inside this process by the
 * driver. A program that has such memory has loaded the driver. Without the
 * driver none of this runs.
 */
#include "api/engine_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "topo/tei_topo.h"

static struct tei_gpu *gpu_ctx(struct engine *e)
{
	return __atomic_load_n(&e->gpu, __ATOMIC_ACQUIRE);
}

/* --- memory -------------------------------------------------------------- */

/* Opens the GPU module with the first GPU memory. Memory registered before is
 * added, because copies may use it, too. */
static int gpu_on(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	struct tei_gpu *ctx;
	uint32_t i;
	int ret;

	if (e->gpu)
		return 0;
	ret = tei_gpu_init(&e->settings, err, &ctx);
	if (ret)
		return ret;
	for (i = 0; i < e->nregions && !ret; i++)
		ret = tei_gpu_mem_add(ctx, e->regions[i].addr,
				      e->regions[i].length, err);
	if (ret)
		tei_gpu_fini(ctx);
	else
		__atomic_store_n(&e->gpu, ctx, __ATOMIC_RELEASE);
	return ret;
}

static int gpu_refuse(const void *addr, size_t len, struct tei_err *err)
{
	struct tei_err why = *err;

	return tei_err_fail(err, why.code, "engine", NULL, "%p, %zu bytes: %s",
			    addr, len, why.text);
}

int engine_gpu_where(struct engine *e, void *addr, size_t len,
		     const struct tei_topo_where *said, int *device,
		     struct tei_err *err)
{
	bool gpu = said->kind == TEI_TOPO_WHERE_CUDA;
	int ret = 0;

	*device = -1;
	if (gpu || tei_gpu_present())
		ret = gpu_on(e, err);
	/* without a usable driver no memory can be GPU memory */
	if (!gpu && (ret == TEI_ERR_NO_DEVICE || ret == TEI_ERR_UNSUPPORTED))
		return 0;
	if (!ret && e->gpu)
		ret = tei_gpu_where(e->gpu, addr, len, device, err);
	if (ret)
		return gpu_refuse(addr, len, err);
	if (gpu && *device < 0)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "%p is host memory, not cuda:%d", addr,
				    said->index);
	if (gpu && *device != said->index)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "%p is memory of cuda:%d, not cuda:%d",
				    addr, *device, said->index);
	if (*device >= 0 && !gpu && said->kind != TEI_TOPO_WHERE_ANY)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "%p is memory of cuda:%d, not of the host",
				    addr, *device);
	return 0;
}

int engine_gpu_direct_add(struct engine *e, const struct engine_region *r,
			  bool remote, struct tei_err *err)
{
	struct tei_rail_device device = { .cuda = r->device, .dmabuf = -1 };
	struct tei_rail_mr *mr;
	int ret;

	if (!tei_rail_may_gpu(e->dp, err))
		return err->code;
	ret = tei_gpu_mem_share(gpu_ctx(e), r->addr, r->length, &device.dmabuf,
				&device.offset, err);
	if (ret)
		return ret;
	ret = tei_rail_mr_reg_gpu(e->dp, r->addr, r->length, r->location,
				  remote ? TEI_RAIL_REMOTE : 0, &device, err,
				  &mr);
	if (ret && device.dmabuf >= 0)
		close(device.dmabuf);
	return ret;
}

void *engine_gpu_bounce(struct engine *e, const void *gpu, size_t size,
			char *location)
{
	struct tei_err none;
	int device;

	snprintf(location, TEI_TOPO_NAME, "%s", TEI_TOPO_ANY);
	if (!tei_gpu_where(gpu_ctx(e), gpu, 1, &device, &none) && device >= 0)
		snprintf(location, TEI_TOPO_NAME, "cuda:%d", device);
	return tei_rail_mem_near(e->dp, location, size);
}

int engine_gpu_alloc(struct engine *e, int device, size_t len, void **addr,
		     struct tei_err *err)
{
	struct tei_err why;
	uint64_t at;
	int ret;

	tei_mutex_lock(&e->control);
	ret = gpu_on(e, &why);
	tei_mutex_unlock(&e->control);
	if (!ret)
		ret = tei_gpu_alloc(gpu_ctx(e), device, len, &at, &why);
	if (ret)
		return tei_err_fail(err, ret, "engine", NULL,
				    "te_alloc: %zu bytes of cuda:%d: %s", len,
				    device, why.text);
	*addr = (void *)(uintptr_t)at;
	return 0;
}

void engine_gpu_free(struct engine *e, void *addr)
{
	tei_gpu_free(gpu_ctx(e), (uintptr_t)addr);
}

int engine_gpu_mem_add(struct engine *e, void *addr, uint64_t len,
		       struct tei_err *err)
{
	struct tei_gpu *ctx = gpu_ctx(e);

	if (!ctx || !tei_gpu_mem_add(ctx, addr, len, err))
		return 0;
	return gpu_refuse(addr, len, err);
}

int engine_gpu_mem_remove(struct engine *e, void *addr, uint64_t deadline_ns)
{
	struct tei_gpu *ctx = gpu_ctx(e);
	int ret = ctx ? tei_gpu_mem_remove(ctx, addr, deadline_ns) : 0;

	/* it was being unregistered when the first GPU memory was registered */
	return ret == TEI_ERR_NOT_REGISTERED ? 0 : ret;
}

/* --- tasks --------------------------------------------------------------- */

bool engine_gpu_concerns(struct engine *e, const struct transfer_request *r)
{
	struct tei_gpu *ctx = gpu_ctx(e);

	if (!ctx || !tei_gpu_any(ctx))
		return false;
	return tei_gpu_kind(ctx, (uintptr_t)r->source, r->length) ==
		       TEI_GPU_DEVICE ||
	       (r->target_id == LOCAL_SEGMENT &&
		tei_gpu_kind(ctx, r->target_offset, r->length) ==
			TEI_GPU_DEVICE);
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
	struct engine_task *t = tei_container_of(op, struct engine_task,
						 u.gpu);
	struct tei_err ended;

	if (code != TEI_GPU_CANCELLED) {
		gpu_end(t, !code ? STATUS_COMPLETED :
			   code == TEI_ERR_TIMED_OUT ? STATUS_TIMEOUT :
						       STATUS_FAILED, err);
		return;
	}
	gpu_err(&ended, __atomic_load_n(&t->expired, __ATOMIC_RELAXED) ?
			TEI_ERR_TIMED_OUT : TEI_ERR_CANCELED);
	gpu_end(t, ended.code == TEI_ERR_CANCELED ? STATUS_CANCELED :
						    STATUS_FAILED, &ended);
}

static bool gpu_overlap(const struct transfer_request *r)
{
	uint64_t source = (uintptr_t)r->source, target = r->target_offset;

	return source < target + r->length && target < source + r->length;
}

/* Returns true if the rails can move the request's memory on both sides, and no
 * other transport has precedence. */
static bool gpu_by_rail(struct engine *e, const struct transfer_request *r,
			const struct engine_target *target)
{
	return target->peer && !target->files &&
	       (!target->local || engine_batch_gpu(target, r->target_offset)) &&
	       !engine_batch_lent(target, r->target_offset, r->length) &&
	       tei_rail_mr_direct(e->dp, r->source, r->length);
}

int engine_gpu_prepare(struct engine *e, struct engine_task *t,
		       const struct transfer_request *r,
		       const struct engine_target *target)
{
	if (r->target_id != LOCAL_SEGMENT && target->files &&
	    engine_files_take(e, r, target))
		return engine_files_prepare(e, t, r, target->files);
	if (r->target_id != LOCAL_SEGMENT && gpu_by_rail(e, r, target)) {
		engine_batch_by_rail(e, t, r, target);
		return 0;
	}
	if (r->target_id != LOCAL_SEGMENT)
		return engine_stage_prepare(e, t, r, target);
	if (tei_gpu_kind(gpu_ctx(e), (uintptr_t)r->source, r->length) ==
	    TEI_GPU_NOT_REGISTERED)
		return 3;
	if (gpu_overlap(r))
		return 1;		/* the driver's order is undefined */
	engine_batch_task(e, t, r, ENGINE_BY_GPU);
	t->u.gpu.dst = t->read ? (uintptr_t)r->source : r->target_offset;
	t->u.gpu.src = t->read ? r->target_offset : (uintptr_t)r->source;
	t->u.gpu.length = r->length;
	t->u.gpu.done = gpu_done;
	return 0;
}

void engine_gpu_start(struct engine *e, struct engine_task *t)
{
	struct tei_err err;
	int ret = tei_gpu_submit(gpu_ctx(e), &t->u.gpu);

	if (!ret)
		return;			/* gpu_done will end it */
	gpu_err(&err, ret);
	gpu_end(t, STATUS_FAILED, &err);
}
