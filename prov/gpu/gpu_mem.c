/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory, and the CUDA contexts that it belongs to. ctx->admin is
 * held whenever a context opens or closes.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/gpu/gpu_int.h"
#include "util/clock.h"

void gpu_refuse(struct tei_err *err, int code, const char *text)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	strcpy(err->provider, "cuda");
	strcpy(err->text, text);
}

/* --- the table ----------------------------------------------------------- */

/* Returns the object that contains the range r, or NULL if r is NULL. */
static struct gpu_mem *mem_of(struct tei_range *r)
{
	return r ? tei_container_of(r, struct gpu_mem, range) : NULL;
}

struct gpu_mem *gpu_mem_find(struct tei_gpu *ctx, uint64_t addr, uint64_t len,
			     bool going)
{
	struct gpu_mem *m = mem_of(tei_range_find(&ctx->mem, addr, len));

	return m && (going || !m->removing) ? m : NULL;
}

bool tei_gpu_any(struct tei_gpu *ctx)
{
	return __atomic_load_n(&ctx->ndevice, __ATOMIC_ACQUIRE);
}

enum tei_gpu_kind tei_gpu_kind(struct tei_gpu *ctx, uint64_t addr,
			       uint64_t len)
{
	enum tei_gpu_kind kind = TEI_GPU_NOT_REGISTERED;
	const struct gpu_mem *m;

	tei_mutex_lock(&ctx->lock);
	m = gpu_mem_find(ctx, addr, len, false);
	if (m && !m->peer)
		kind = m->context ? TEI_GPU_DEVICE : TEI_GPU_HOST;
	tei_mutex_unlock(&ctx->lock);
	return kind;
}

/* Creates the object of a range, which is in no table yet. Returns NULL with
 * *err filled if memory is short. */
static struct gpu_mem *mem_new(const void *addr, uint64_t len,
			       struct tei_err *err)
{
	struct gpu_mem *m = calloc(1, sizeof(*m));

	if (!m) {
		gpu_refuse(err, TEI_ERR_MEMORY, "out of memory");
		return NULL;
	}
	m->range.base = (uintptr_t)addr;
	m->range.end = m->range.base + len;
	return m;
}

static void mem_refuse(const struct tei_gpu *ctx, const struct gpu_mem *m,
		       int code, struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	const struct tei_range *other =
		tei_range_overlap(&ctx->mem, m->range.base, m->range.end);

	gpu_refuse(err, code, tei_err_name(code));
	if (code == TEI_ERR_OVERLAP)
		snprintf(err->text, sizeof(err->text),
			 "the range overlaps the registered buffer 0x%llx of "
			 "%llu bytes",
			 (unsigned long long)other->base,
			 (unsigned long long)(other->end - other->base));
}

/* Returns true if the memory is GPU memory of this process. */
static bool mem_own(const struct gpu_mem *m)
{
	return m->context && !m->peer;
}

int gpu_mem_insert(struct tei_gpu *ctx, struct gpu_mem *m, struct tei_err *err)
{
	int ret = tei_range_insert(&ctx->mem, &m->range);

	if (ret) {
		mem_refuse(ctx, m, ret, err);
		return ret;
	}
	if (m->pinned)
		m->pinned->memories++;
	if (!m->context)
		return 0;
	m->context->memories++;
	if (mem_own(m))
		__atomic_store_n(&ctx->ndevice, ctx->ndevice + 1,
				 __ATOMIC_RELEASE);
	return 0;
}

/* --- contexts ------------------------------------------------------------ */

/* Destroys the context's stream, and as many of its events as were created. The
 * context is pushed. */
static void context_free(struct tei_gpu *ctx, struct gpu_context *c)
{
	uint32_t i;

	for (i = 0; i < GPU_DEPTH; i++) {
		if (c->events[i])
			tei_cuda_event_destroy(ctx->cuda, c->events[i]);
		c->events[i] = NULL;
	}
	if (c->stream)
		tei_cuda_stream_destroy(ctx->cuda, c->stream);
	c->stream = NULL;
}

void gpu_context_close(struct tei_gpu *ctx, struct gpu_context *c)
{
	struct tei_err err;

	/* if the context no longer exists, the stream and the events are
	 * already destroyed */
	if (tei_cuda_push(ctx->cuda, c->handle, &err))
		return;
	context_free(ctx, c);
	tei_cuda_pop(ctx->cuda);
}

static int context_open(struct tei_gpu *ctx, struct gpu_context *c,
			void *handle, struct tei_err *err)
{
	uint32_t i;
	int ret;

	ret = tei_cuda_push(ctx->cuda, handle, err);
	if (ret)
		return ret;
	memset(c->events, 0, sizeof(c->events));
	c->handle = handle;
	c->stream = NULL;
	c->first = c->count = 0;
	c->bytes = c->ended_ns = 0;
	ret = tei_cuda_stream_create(ctx->cuda, &c->stream, err);
	for (i = 0; i < GPU_DEPTH && !ret; i++)
		ret = tei_cuda_event_create(ctx->cuda, &c->events[i], err);
	if (ret)
		context_free(ctx, c);
	tei_cuda_pop(ctx->cuda);
	return ret;
}

int gpu_context_get(struct tei_gpu *ctx, void *handle, struct gpu_context **out,
		    struct tei_err *err)
{
	struct gpu_context *c, *room = NULL;
	int i, ret;

	tei_mutex_lock(&ctx->lock);
	for (i = TEI_GPU_CONTEXTS - 1; i >= 0; i--) {
		c = &ctx->contexts[i];
		if (c->memories && c->handle == handle)
			break;
		if (!c->memories)
			room = c;
	}
	tei_mutex_unlock(&ctx->lock);
	if (i >= 0) {
		*out = c;
		return 0;
	}
	if (!room) {
		gpu_refuse(err, TEI_ERR_TOO_MANY,
			   "memory of more than 64 CUDA contexts is registered");
		return TEI_ERR_TOO_MANY;
	}
	ret = context_open(ctx, room, handle, err);
	if (!ret)
		*out = room;
	return ret;
}

/* --- public calls -------------------------------------------------------- */

int tei_gpu_where(struct tei_gpu *ctx, const void *addr, uint64_t len,
		  int *device, struct tei_err *err)
{
	struct tei_cuda_mem where;
	int ret = tei_cuda_where(ctx->cuda, addr, len, &where, err);

	if (!ret)
		*device = where.device;
	return ret;
}

static int mem_add(struct tei_gpu *ctx, struct gpu_mem *m, struct tei_err *err)
	TEI_REQUIRES(ctx->admin)
{
	const void *addr = (const void *)(uintptr_t)m->range.base;
	struct tei_cuda_mem where;
	int ret;

	ret = tei_cuda_where(ctx->cuda, addr, m->range.end - m->range.base,
			     &where, err);
	if (!ret && where.device >= 0)
		ret = gpu_context_get(ctx, where.context, &m->context, err);
	if (ret)
		return ret;
	tei_mutex_lock(&ctx->lock);
	ret = gpu_mem_insert(ctx, m, err);
	tei_mutex_unlock(&ctx->lock);
	if (ret && m->context && !m->context->memories)
		gpu_context_close(ctx, m->context);
	return ret;
}

void gpu_mem_unpin(struct tei_gpu *ctx, const struct gpu_mem *m)
{
	struct tei_err err;

	/* if the context no longer exists, the memory is already unpinned */
	if (tei_cuda_push(ctx->cuda, m->pinned->handle, &err))
		return;
	tei_cuda_unpin(ctx->cuda, (void *)(uintptr_t)m->range.base);
	tei_cuda_pop(ctx->cuda);
}

static int mem_pin(struct tei_gpu *ctx, struct gpu_mem *m, struct tei_err *err)
	TEI_REQUIRES(ctx->admin)
{
	int ret;

	ret = tei_cuda_push(ctx->cuda, m->pinned->handle, err);
	if (ret)
		return ret;
	ret = tei_cuda_pin(ctx->cuda, (void *)(uintptr_t)m->range.base,
			   m->range.end - m->range.base, err);
	tei_cuda_pop(ctx->cuda);
	if (ret)
		return ret;
	tei_mutex_lock(&ctx->lock);
	ret = gpu_mem_insert(ctx, m, err);
	tei_mutex_unlock(&ctx->lock);
	if (ret)
		gpu_mem_unpin(ctx, m);
	return ret;
}

int tei_gpu_mem_pin(struct tei_gpu *ctx, const void *gpu, void *addr,
		    uint64_t len, struct tei_err *err)
{
	struct gpu_mem *m = mem_new(addr, len, err);
	const struct gpu_mem *of;
	int ret = TEI_ERR_NOT_REGISTERED;

	if (!m)
		return TEI_ERR_MEMORY;
	tei_mutex_lock(&ctx->admin);
	tei_mutex_lock(&ctx->lock);
	of = gpu_mem_find(ctx, (uintptr_t)gpu, 1, false);
	m->pinned = of && !of->peer ? of->context : NULL;
	tei_mutex_unlock(&ctx->lock);
	if (m->pinned) /* as long as admin is held, the context stays open */
		ret = mem_pin(ctx, m, err);
	else
		gpu_refuse(err, ret, "no registered GPU memory at this address");
	tei_mutex_unlock(&ctx->admin);
	if (ret)
		free(m);
	return ret;
}

static int mem_share(struct tei_gpu *ctx, const struct gpu_context *c,
		     uint64_t addr, uint64_t len, int *fd, uint64_t *offset,
		     struct tei_err *err) TEI_REQUIRES(ctx->admin)
{
	struct tei_err none;
	int ret = tei_cuda_push(ctx->cuda, c->handle, err);

	if (ret)
		return ret;
	ret = tei_cuda_sync_calls(ctx->cuda, addr, err);
	if (!ret && tei_cuda_dmabuf(ctx->cuda, addr, len, fd, offset, &none)) {
		*fd = -1;
		*offset = 0;
	}
	tei_cuda_pop(ctx->cuda);
	return ret;
}

int tei_gpu_mem_share(struct tei_gpu *ctx, const void *addr, uint64_t len,
		      int *fd, uint64_t *offset, struct tei_err *err)
{
	const struct gpu_context *c;
	const struct gpu_mem *m;
	int ret = TEI_ERR_NOT_REGISTERED;

	tei_mutex_lock(&ctx->admin);
	tei_mutex_lock(&ctx->lock);
	m = gpu_mem_find(ctx, (uintptr_t)addr, len, false);
	c = m && !m->peer ? m->context : NULL;
	tei_mutex_unlock(&ctx->lock);
	if (c)			/* as long as admin is held, the context stays
				 * open */
		ret = mem_share(ctx, c, (uintptr_t)addr, len, fd, offset, err);
	else
		gpu_refuse(err, ret, "no registered GPU memory at this address");
	tei_mutex_unlock(&ctx->admin);
	return ret;
}

int tei_gpu_mem_hold(struct tei_gpu *ctx, uint64_t addr, uint64_t len,
		     uint32_t *place)
{
	struct gpu_mem *m;
	bool held;

	tei_mutex_lock(&ctx->lock);
	m = gpu_mem_find(ctx, addr, len, false);
	held = m && mem_own(m);
	if (held) {
		m->holds++;
		*place = (uint32_t)(m->context - ctx->contexts);
	}
	tei_mutex_unlock(&ctx->lock);
	return held ? 0 : TEI_ERR_NOT_REGISTERED;
}

void tei_gpu_mem_let_go(struct tei_gpu *ctx, uint64_t addr)
{
	struct gpu_mem *m;

	tei_mutex_lock(&ctx->lock);
	m = gpu_mem_find(ctx, addr, 1, true);
	assert(m && m->holds);
	m->holds--;
	pthread_cond_broadcast(&ctx->ended);
	tei_mutex_unlock(&ctx->lock);
}

int tei_gpu_mem_add(struct tei_gpu *ctx, void *addr, uint64_t len,
		    struct tei_err *err)
{
	struct gpu_mem *m;
	int ret;

	if (!addr || !len || (uintptr_t)addr + len < (uintptr_t)addr) {
		gpu_refuse(err, TEI_ERR_INVALID, "the address is NULL, the length is 0, or the range wraps around");
		return TEI_ERR_INVALID;
	}
	m = mem_new(addr, len, err);
	if (!m)
		return TEI_ERR_MEMORY;
	tei_mutex_lock(&ctx->admin);
	ret = mem_add(ctx, m, err);
	tei_mutex_unlock(&ctx->admin);
	if (ret)
		free(m);
	return ret;
}

int tei_gpu_alloc(struct tei_gpu *ctx, int device, uint64_t len, uint64_t *addr,
		  struct tei_err *err)
{
	struct gpu_alloc *a = calloc(1, sizeof(*a));
	int ret;

	if (!a) {
		gpu_refuse(err, TEI_ERR_MEMORY, "out of memory");
		return TEI_ERR_MEMORY;
	}
	ret = tei_cuda_alloc(ctx->cuda, device, len, &a->addr, err);
	if (ret) {
		free(a);
		return ret;
	}
	a->device = device;
	*addr = a->addr;
	tei_mutex_lock(&ctx->lock);
	a->next = ctx->allocs;
	ctx->allocs = a;
	tei_mutex_unlock(&ctx->lock);
	return 0;
}

void tei_gpu_free(struct tei_gpu *ctx, uint64_t addr)
{
	struct gpu_alloc **p, *a = NULL;

	tei_mutex_lock(&ctx->lock);
	for (p = &ctx->allocs; *p && (*p)->addr != addr; p = &(*p)->next)
		;
	a = *p;
	if (a)
		*p = a->next;
	tei_mutex_unlock(&ctx->lock);
	if (a)
		tei_cuda_free(ctx->cuda, a->device, a->addr);
	free(a);
}

void gpu_alloc_free_all(struct tei_gpu *ctx) TEI_NO_TSA
{
	struct gpu_alloc *a;

	/* if the GPU hangs, free only the records, because a call that frees
	 * GPU memory would block */
	while (!ctx->given_up && ctx->allocs)
		tei_gpu_free(ctx, ctx->allocs->addr);
	while ((a = ctx->allocs)) {
		ctx->allocs = a->next;
		free(a);
	}
}

static bool mem_meets(uint64_t addr, uint64_t len, uint64_t base, uint64_t end)
{
	return addr < end && base < addr + len;
}

/* Returns true if an abandoned copy may still access the range. */
static bool mem_given_up(const struct gpu_context *c, uint64_t base,
			 uint64_t end)
{
	const struct gpu_copy *copy;
	uint32_t i;

	for (i = 0; c->memories && i < c->count; i++) {
		copy = &c->ring[(c->first + i) % GPU_DEPTH];
		if (!copy->op && (mem_meets(copy->dst, copy->len, base, end) ||
				  mem_meets(copy->src, copy->len, base, end)))
			return true;
	}
	return false;
}

static bool mem_used(struct tei_gpu *ctx, uint64_t base, uint64_t end)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_gpu_op *op;
	int i;

	for (i = 0; ctx->given_up && i < TEI_GPU_CONTEXTS; i++)
		if (mem_given_up(&ctx->contexts[i], base, end))
			return true;
	tei_list_foreach(op, &ctx->live, struct tei_gpu_op, live_node)
		if (mem_meets(op->dst, op->length, base, end) ||
		    mem_meets(op->src, op->length, base, end))
			return true;
	return false;
}

bool tei_gpu_mem_idle(struct tei_gpu *ctx, uint64_t addr, uint64_t len)
{
	bool idle;

	tei_mutex_lock(&ctx->lock);
	idle = !mem_used(ctx, addr, addr + len);
	tei_mutex_unlock(&ctx->lock);
	return idle;
}

static bool mem_ending(const struct tei_gpu *ctx, uint64_t base, uint64_t end)
{
	const struct gpu_ending *e = ctx->ending;

	return e && (mem_meets(e->dst, e->length, base, end) ||
		     mem_meets(e->src, e->length, base, end));
}

/* Marks the memory, so that no new copy uses it. Waits until the copies that
 * use it have ended, their done callbacks have returned and the memory is not
 * held. Returns 0 with *out set, TEI_ERR_BUSY at the deadline, or
 * TEI_ERR_NOT_REGISTERED. */
static int mem_retire(struct tei_gpu *ctx, uint64_t base, uint64_t deadline_ns,
		      struct gpu_mem **out) TEI_REQUIRES(ctx->lock)
{
	struct gpu_mem *m = mem_of(tei_range_start(&ctx->mem, base));
	bool used;

	if (!m || m->removing)
		return TEI_ERR_NOT_REGISTERED;
	m->removing = true;
	while ((used = m->holds || mem_used(ctx, base, m->range.end) ||
		       mem_ending(ctx, base, m->range.end)) &&
	       gpu_wait(ctx, deadline_ns))
		;
	if (used) {
		m->removing = false;
		return TEI_ERR_BUSY;
	}
	*out = m;
	return 0;
}

/* Removes memory from the table after mem_retire. */
static void mem_take(struct tei_gpu *ctx, struct gpu_mem *m)
	TEI_REQUIRES(ctx->lock)
{
	tei_range_remove(&ctx->mem, &m->range);
	if (mem_own(m))
		__atomic_store_n(&ctx->ndevice, ctx->ndevice - 1,
				 __ATOMIC_RELEASE);
}

/*
 * Drops the reference of a removed range to its context. Closes the context
 * after the last one.
 */
static void mem_leave(struct tei_gpu *ctx, struct gpu_context *c)
	TEI_REQUIRES(ctx->admin)
{
	bool last;

	if (!c)
		return;
	tei_mutex_lock(&ctx->lock);
	last = !--c->memories;
	tei_mutex_unlock(&ctx->lock);
	if (last)
		gpu_context_close(ctx, c);
}

int tei_gpu_mem_remove(struct tei_gpu *ctx, const void *addr,
		       uint64_t deadline_ns)
{
	struct gpu_mem *m;
	int ret;

	tei_mutex_lock(&ctx->lock);
	if (gpu_peer_shared(ctx, (uintptr_t)addr)) {
		tei_mutex_unlock(&ctx->lock);
		return 0;
	}
	ret = mem_retire(ctx, (uintptr_t)addr, deadline_ns, &m);
	tei_mutex_unlock(&ctx->lock);
	if (ret)
		return ret;
	tei_mutex_lock(&ctx->admin);
	tei_mutex_lock(&ctx->lock);
	mem_take(ctx, m);
	tei_mutex_unlock(&ctx->lock);
	if (m->pinned)
		gpu_mem_unpin(ctx, m);
	if (m->peer)
		gpu_peer_unmap(ctx, m);
	mem_leave(ctx, m->pinned ? m->pinned : m->context);
	if (m->peer)
		gpu_peer_release(ctx, m);
	tei_mutex_unlock(&ctx->admin);
	free(m);
	return 0;
}
