/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Leased slots, the target's side: the GPU memory that is lent for, and the
 * host memory that is lent.
 */
#include "api/engine_lease_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- a slot's memory ----------------------------------------------------- */

static int slot_open(struct engine *e, const void *gpu, char **out,
		     struct tei_err *err)
{
	struct tei_rail_mr *mr;
	char *mem;
	int ret;

	mem = mmap(NULL, LEASE_PIECE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory to lend for GPU memory");
	ret = tei_gpu_mem_pin(e->gpu, gpu, mem, LEASE_PIECE, err);
	if (ret)
		goto err_unmap;
	ret = tei_rail_mr_reg(e->dp, mem, LEASE_PIECE, "*",
			      TEI_RAIL_REMOTE, err, &mr);
	if (ret)
		goto err_unpin;
	*out = mem;
	return 0;
err_unpin:
	tei_gpu_mem_remove(e->gpu, mem, tei_now_ns());
err_unmap:
	munmap(mem, LEASE_PIECE);
	return ret;
}

/* Its addresses stay, nobody's; without memory for that the memory stays. */
static void slot_bury(struct engine_leasing *l, char *mem)
{
	struct lend_grave *g = malloc(sizeof(*g));

	if (!g)
		return;
	if (mmap(mem, LEASE_PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
		 MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
		free(g);
		return;
	}
	g->mem = mem;
	tei_mutex_lock(&l->lock);
	g->next = l->graves;
	l->graves = g;
	tei_mutex_unlock(&l->lock);
}

/* No rail and no copy touches it when this returns, or it stays for ever. */
static void slot_close(struct engine_leasing *l, char *mem, bool doubtful)
{
	struct engine *e = l->engine;
	uint64_t wait = e->settings.slice_timeout_s * TEI_NS_PER_SEC;
	struct tei_err err;
	int ret;

	ret = tei_rail_mr_dereg(e->dp, mem, wait, &err);
	/* who told that a copy has ended may not be back yet */
	if (!ret)
		ret = tei_gpu_mem_remove(e->gpu, mem, tei_now_ns() + wait);
	if (ret)
		TEI_WARN("engine", "%u bytes of host memory stay in use: %s",
			 LEASE_PIECE, tei_err_name(ret));
	else if (doubtful)
		slot_bury(l, mem);
	else
		munmap(mem, LEASE_PIECE);
}

/* --- pools --------------------------------------------------------------- */

static void pool_close(struct engine_leasing *l, struct lend_pool *pool)
{
	uint32_t i;

	for (i = 0; i < LEASE_SLOTS; i++)
		if (pool->slot[i].mem)
			slot_close(l, pool->slot[i].mem,
				   pool->slot[i].doubtful);
	free(pool);
}

static int pool_open(struct engine_leasing *l, const void *gpu,
		     struct lend_pool **out, struct tei_err *err)
{
	struct lend_pool *pool = calloc(1, sizeof(*pool));
	uint32_t i;
	int ret = 0;

	if (!pool)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory to lend for GPU memory");
	pool->leasing = l;
	for (i = 0; i < LEASE_SLOTS && !ret; i++) {
		pool->slot[i].pool = pool;
		ret = slot_open(l->engine, gpu, &pool->slot[i].mem, err);
	}
	if (ret)
		pool_close(l, pool);
	else
		*out = pool;
	return ret;
}

/* Its last region has gone: the thread has done with it, then it closes. */
static void pool_leave(struct engine_leasing *l, uint32_t place)
{
	struct lend_pool *pool;

	tei_mutex_lock(&l->lock);
	pool = l->pool[place];
	pool->leaving = true;
	pool->empty = false;
	leasing_word(l);
	while (!pool->empty && !l->closing)
		tei_mutex_wait(&l->idle, &l->lock, TEI_NS_PER_SEC);
	l->pool[place] = NULL;
	tei_mutex_unlock(&l->lock);
	pool_close(l, pool);
}

/* GPU memory of the pool's context, held; NULL: there is none. */
static const void *pool_hold(struct engine_leasing *l,
			     const struct lend_pool *pool)
{
	const void *gpu = NULL;
	struct lend_region *r;
	uint32_t i, place;

	tei_mutex_lock(&l->lock);
	for (i = 0; i < l->nregions && !gpu; i++) {
		r = &l->regions[i];
		if (!r->gone && l->pool[r->place] == pool &&
		    !tei_gpu_mem_hold(l->engine->gpu, r->base, 1, &place))
			gpu = (const void *)(uintptr_t)r->base;
	}
	tei_mutex_unlock(&l->lock);
	return gpu;
}

void engine_lend_renew(struct engine *e, struct lend_slot *slot)
{
	struct engine_leasing *l = engine_leasing(e);
	struct lend_pool *pool = slot->pool;
	const void *gpu = pool_hold(l, pool);
	char *mem = NULL;
	struct tei_err err;

	/* what is left of it without GPU memory is closed with its pool */
	if (gpu) {
		slot_close(l, slot->mem, true);
		if (slot_open(e, gpu, &mem, &err))
			TEI_WARN("engine", "one slot less to lend for GPU memory: %s",
				 err.text);
		tei_gpu_mem_let_go(e->gpu, (uintptr_t)gpu);
	}
	tei_mutex_lock(&l->lock);
	if (gpu) {
		slot->mem = mem;
		slot->doubtful = false;
	}
	slot->renewing = false;
	leasing_word(l);
	tei_mutex_unlock(&l->lock);
}

void lend_pools_free(struct engine_leasing *l) TEI_NO_TSA
{
	struct lend_slot *slot;
	struct lend_grave *g;
	uint32_t i, k;

	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		for (k = 0; l->pool[i] && k < LEASE_SLOTS; k++) {
			slot = &l->pool[i]->slot[k];
			if (slot->mem && !slot->lost)
				munmap(slot->mem, LEASE_PIECE);
		}
		free(l->pool[i]);
	}
	while ((g = l->graves)) {
		l->graves = g->next;
		munmap(g->mem, LEASE_PIECE);
		free(g);
	}
}

/* --- regions ------------------------------------------------------------- */

static int region_add(struct engine_leasing *l, const void *gpu, uint64_t len,
		      uint32_t place, uint64_t *serial)
{
	struct lend_region *grown;

	tei_mutex_lock(&l->lock);
	grown = realloc(l->regions, (l->nregions + 1) * sizeof(*grown));
	if (grown) {
		l->regions = grown;
		grown[l->nregions++] = (struct lend_region){
			.serial = ++l->serial, .base = (uintptr_t)gpu,
			.length = len, .place = place,
		};
		*serial = l->serial;
	}
	tei_mutex_unlock(&l->lock);
	return grown ? 0 : TEI_ERR_MEMORY;
}

static struct lend_region *region_find(struct engine_leasing *l,
				       uint64_t serial) TEI_REQUIRES(l->lock)
{
	uint32_t i = 0;

	while (l->regions[i].serial != serial)
		i++;
	return &l->regions[i];
}

/* The GPU memory is held. */
static int lend_use(struct engine_leasing *l, const void *gpu, uint64_t len,
		    uint32_t place, uint64_t *serial, struct tei_err *err)
{
	struct lend_pool *pool;
	int ret = 0;

	tei_mutex_lock(&l->admin);
	pool = l->pool[place];
	if (!pool) {
		ret = pool_open(l, gpu, &pool, err);
		if (!ret) {
			tei_mutex_lock(&l->lock);
			l->pool[place] = pool;
			tei_mutex_unlock(&l->lock);
		}
	}
	if (!ret) {
		pool->users++;
		ret = region_add(l, gpu, len, place, serial);
		if (ret)
			tei_err_fail(err, ret, "engine", NULL,
				     "no memory to lend for GPU memory");
		if (ret && !--pool->users)
			pool_leave(l, place);
	}
	tei_mutex_unlock(&l->admin);
	return ret;
}

int engine_lend_add(struct engine *e, void *gpu, uint64_t len, uint64_t *serial,
		    struct tei_err *err)
{
	struct engine_leasing *l = engine_leasing_get(e);
	uint32_t place;
	int ret;

	if (!l)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no thread to lend for GPU memory");
	ret = tei_gpu_mem_hold(e->gpu, (uintptr_t)gpu, len, &place);
	if (ret)
		return tei_err_fail(err, ret, "engine", NULL,
				    "%p: it is being unregistered", gpu);
	ret = lend_use(l, gpu, len, place, serial, err);
	tei_gpu_mem_let_go(e->gpu, (uintptr_t)gpu);
	return ret;
}

void engine_lend_remove(struct engine *e, uint64_t serial)
{
	struct engine_leasing *l = engine_leasing(e);

	tei_mutex_lock(&l->lock);
	region_find(l, serial)->gone = true;
	leasing_word(l);
	tei_mutex_unlock(&l->lock);
}

void engine_lend_again(struct engine *e, uint64_t serial)
{
	struct engine_leasing *l = engine_leasing(e);

	tei_mutex_lock(&l->lock);
	region_find(l, serial)->gone = false;
	tei_mutex_unlock(&l->lock);
}

void engine_lend_drop(struct engine *e, uint64_t serial)
{
	struct engine_leasing *l = engine_leasing(e);
	struct lend_region *r;
	uint32_t place;

	tei_mutex_lock(&l->admin);
	tei_mutex_lock(&l->lock);
	r = region_find(l, serial);
	place = r->place;
	*r = l->regions[--l->nregions];
	tei_mutex_unlock(&l->lock);
	if (!--l->pool[place]->users)
		pool_leave(l, place);
	tei_mutex_unlock(&l->admin);
}
