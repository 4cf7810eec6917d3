/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory: detection and registration. A program that has GPU memory has
 * loaded the GPU driver. If the driver is not loaded and no caller names a GPU
 * as location, the GPU module is not opened.
 */
#include "api/engine_int.h"
#include "api/engine_memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "topo/tei_topo.h"

static struct tei_gpu *gpu_ctx(struct engine *e)
{
	return __atomic_load_n(&e->gpu, __ATOMIC_ACQUIRE);
}

/* --- memory -------------------------------------------------------------- */

/* Opens the GPU module, if it is not open. Adds all registered memory to it,
 * because copies by the GPU may also use host memory. */
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
	for (i = 0; i < e->memory.n && !ret; i++)
		ret = tei_gpu_mem_add(ctx, e->memory.regions[i].addr,
				      e->memory.regions[i].length, err);
	if (ret) {
		tei_gpu_fini(ctx);
		return ret;
	}
	tei_gpu_set_sweep(ctx, engine_segment_sweep, e);
	tei_staging_set_gpu(e->staging, ctx);
	__atomic_store_n(&e->gpu, ctx, __ATOMIC_RELEASE);
	engine_segment_attach_own(e);
	return 0;
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
	/* without a usable driver the memory is host memory */
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

	/* not an error: when the GPU module was opened, the memory was being
	 * unregistered, so it was not added */
	return ret == TEI_ERR_NOT_REGISTERED ? 0 : ret;
}

/* --- requests ------------------------------------------------------------ */

bool engine_gpu_memory(struct engine *e, uint64_t addr, uint64_t len)
{
	struct tei_gpu *ctx = gpu_ctx(e);

	return ctx && tei_gpu_any(ctx) &&
	       tei_gpu_kind(ctx, addr, len) == TEI_GPU_DEVICE;
}

bool engine_gpu_concerns(struct engine *e, const struct transfer_request *r)
{
	return engine_gpu_memory(e, (uintptr_t)r->source, r->length) ||
	       (r->target_id == LOCAL_SEGMENT &&
		engine_gpu_memory(e, r->target_offset, r->length));
}
