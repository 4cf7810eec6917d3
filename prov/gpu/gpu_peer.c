/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory of other processes of this host. An owner exports a handle (CUDA
 * IPC) or, for memory from cuMemMap, file descriptors; another process maps the
 * memory with them.
 *
 * NVIDIA does not define what happens if the owner frees an allocation that another
 * process has mapped. This module does not access such memory: the guard of an
 * operation (struct tei_gpu_guard) refuses copies to memory that its owner has
 * unregistered, and the mapping is removed soon after. What the driver does with
 * the pages until then has not been tested on hardware.
 */
#include <stdlib.h>

#include "prov/gpu/gpu_int.h"

/* Returns the context of the registered GPU memory at addr, or NULL. As long as
 * admin is held, the context stays open. */
static struct gpu_context *peer_context_near(struct tei_gpu *ctx, uint64_t addr,
					     uint64_t len)
	TEI_REQUIRES(ctx->admin)
{
	const struct gpu_mem *m;
	struct gpu_context *c;

	tei_mutex_lock(&ctx->lock);
	m = gpu_mem_find(ctx, addr, len, false);
	c = m && !m->peer ? m->context : NULL;
	tei_mutex_unlock(&ctx->lock);
	return c;
}

static int peer_export(struct tei_gpu *ctx, const struct gpu_context *c,
		       uint64_t addr, uint64_t len, struct tei_cuda_ipc *out,
		       struct tei_cuda_chunks *chunks, struct tei_err *err)
	TEI_REQUIRES(ctx->admin)
{
	int ret = tei_cuda_push(ctx->cuda, c->handle, err);

	if (ret)
		return ret;
	ret = tei_cuda_ipc_export(ctx->cuda, addr, len, out, chunks, err);
	/* a peer may read the memory right after a call of the driver that has
	 * written it; memory that cannot be exported is left as it is */
	if (!ret) {
		ret = tei_cuda_sync_calls(ctx->cuda, addr, err);
		if (ret)
			tei_cuda_chunks_close(chunks);
	}
	tei_cuda_pop(ctx->cuda);
	return ret;
}

int tei_gpu_mem_export(struct tei_gpu *ctx, const void *addr, uint64_t len,
		       struct tei_cuda_ipc *out,
		       struct tei_cuda_chunks *chunks, struct tei_err *err)
{
	const struct gpu_context *c;
	int ret = TEI_ERR_NOT_REGISTERED;

	tei_mutex_lock(&ctx->admin);
	c = peer_context_near(ctx, (uintptr_t)addr, len);
	if (c)
		ret = peer_export(ctx, c, (uintptr_t)addr, len, out, chunks,
				  err);
	else
		gpu_refuse(err, ret, "no registered GPU memory at this address");
	tei_mutex_unlock(&ctx->admin);
	return ret;
}

/* Opens the context in which the memory is mapped: a primary context, which the
 * memory retains. The program may destroy a context of its own, and the driver
 * destroys a primary context that is not retained. */
static int peer_context(struct tei_gpu *ctx, const struct tei_cuda_ipc *from,
			uint64_t near, struct gpu_mem *m, struct tei_err *err)
	TEI_REQUIRES(ctx->admin)
{
	void *handle;
	int ret;

	if (peer_context_near(ctx, near, 1))
		ret = tei_cuda_retain_at(ctx->cuda, near, &m->retained, &handle,
					 err);
	else
		ret = tei_cuda_retain(ctx->cuda, from, &m->retained, &handle,
				      err);
	return ret ? ret : gpu_context_get(ctx, handle, &m->context, err);
}

/* Returns the memory in the table that is the same range of another process as
 * m, or NULL. */
static struct gpu_mem *peer_same(struct tei_gpu *ctx, const struct gpu_mem *m)
	TEI_REQUIRES(ctx->lock)
{
	struct gpu_mem *same = gpu_mem_find(ctx, m->range.base, 1, false);

	return same && same->peer && same->range.base == m->range.base &&
			       same->range.end == m->range.end ?
		       same :
		       NULL;
}

bool gpu_peer_shared(struct tei_gpu *ctx, uint64_t addr)
{
	struct gpu_mem *m = gpu_mem_find(ctx, addr, 1, false);

	if (!m || !m->peer || m->range.base != addr || m->opens < 2)
		return false;
	m->opens--;
	return true;
}

/* Maps the memory and adds it to the table. If the table has it already, sets
 * *same to that element, which the caller uses instead of m. */
static int peer_map(struct tei_gpu *ctx, const struct tei_cuda_ipc *from,
		    const struct tei_cuda_chunks *chunks, uint64_t len,
		    struct gpu_mem *m, struct gpu_mem **same,
		    struct tei_err *err) TEI_REQUIRES(ctx->admin)
{
	int ret = tei_cuda_push(ctx->cuda, m->context->handle, err);

	if (ret)
		return ret;
	ret = tei_cuda_ipc_open(ctx->cuda, from, chunks, len, &m->opened, err);
	tei_cuda_pop(ctx->cuda);
	if (ret)
		return ret;
	m->range.base = m->opened.addr + from->offset;
	m->range.end = m->range.base + len;
	tei_mutex_lock(&ctx->lock);
	*same = peer_same(ctx, m);
	if (*same)
		(*same)->opens++;
	else
		ret = gpu_mem_insert(ctx, m, err);
	tei_mutex_unlock(&ctx->lock);
	/* the driver counts the opened handles, so the memory stays mapped for
	 * the element of the table; chunks get other addresses each time */
	if (ret || *same)
		gpu_peer_unmap(ctx, m);
	return ret;
}

/* Releases what peer_open has acquired for m, except for its memory. */
static void peer_undo(struct tei_gpu *ctx, struct gpu_mem *m)
	TEI_REQUIRES(ctx->admin)
{
	if (m->context && !m->context->memories)
		gpu_context_close(ctx, m->context);
	gpu_peer_release(ctx, m);
	m->context = NULL;
	m->retained = -1;
}

/* Stores in *out the element of the table: m, or an earlier one. */
static int peer_open(struct tei_gpu *ctx, const struct tei_cuda_ipc *from,
		     const struct tei_cuda_chunks *chunks, uint64_t len,
		     uint64_t near, struct gpu_mem *m, struct gpu_mem **out,
		     struct tei_err *err) TEI_REQUIRES(ctx->admin)
{
	struct gpu_mem *same = NULL;
	int ret = peer_context(ctx, from, near, m, err);

	if (!ret)
		ret = peer_map(ctx, from, chunks, len, m, &same, err);
	if (ret || same)
		peer_undo(ctx, m);
	if (!ret)
		*out = same ? same : m;
	return ret;
}

/* Does what peer_open does. If the GPU of the memory at "near" cannot map the
 * memory, the memory's own GPU may be able to. */
static int peer_open_any(struct tei_gpu *ctx, const struct tei_cuda_ipc *from,
			 const struct tei_cuda_chunks *chunks, uint64_t len,
			 uint64_t near, struct gpu_mem *m, struct gpu_mem **out,
			 struct tei_err *err) TEI_REQUIRES(ctx->admin)
{
	struct tei_err second;
	int ret = peer_open(ctx, from, chunks, len, near, m, out, err);

	if (ret && near &&
	    !peer_open(ctx, from, chunks, len, 0, m, out, &second))
		return 0;
	return ret;
}

/* Starts the thread, because its sweep unmaps the memory, even if no operation
 * ever uses it. */
static int peer_staff(struct tei_gpu *ctx, struct tei_err *err)
{
	int ret;

	tei_mutex_lock(&ctx->lock);
	ret = gpu_staff(ctx);
	tei_mutex_unlock(&ctx->lock);
	if (ret)
		gpu_refuse(err, ret, "the thread cannot be started");
	return ret;
}

int tei_gpu_peer_open(struct tei_gpu *ctx, const struct tei_cuda_ipc *from,
		      const struct tei_cuda_chunks *chunks, uint64_t len,
		      uint64_t near, uint64_t *addr, struct tei_err *err)
{
	struct gpu_mem *m = calloc(1, sizeof(*m)), *got = NULL;
	int ret;

	if (!m) {
		gpu_refuse(err, TEI_ERR_MEMORY, "out of memory");
		return TEI_ERR_MEMORY;
	}
	m->peer = true;
	m->opens = 1;
	m->retained = -1;
	tei_mutex_lock(&ctx->admin);
	ret = peer_staff(ctx, err);
	if (!ret)
		ret = peer_open_any(ctx, from, chunks, len, near, m, &got, err);
	if (!ret)
		*addr = got->range.base;
	tei_mutex_unlock(&ctx->admin);
	if (got != m)
		free(m);
	return ret;
}

void gpu_peer_unmap(struct tei_gpu *ctx, const struct gpu_mem *m)
{
	struct tei_err err;
	bool pushed = !tei_cuda_push(ctx->cuda, m->context->handle, &err);

	/* if the context no longer exists, the driver has unmapped an
	 * allocation; chunks do not belong to a context */
	if (pushed || m->opened.size)
		tei_cuda_ipc_close(ctx->cuda, &m->opened);
	if (pushed)
		tei_cuda_pop(ctx->cuda);
}

void gpu_peer_release(struct tei_gpu *ctx, const struct gpu_mem *m)
{
	if (m->retained >= 0)
		tei_cuda_release(ctx->cuda, m->retained);
}
