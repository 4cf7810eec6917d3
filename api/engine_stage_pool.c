/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging: the pools of bounce buffers.
 */
#include "api/engine_stage_int.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "topo/tei_topo.h"
#include "util/thread.h"

/* --- one pool ------------------------------------------------------------ */

/* Frees a pool. memory false: its memory is not unmapped, because the GPU or a
 * transport may still access it. */
static void pool_free(struct stage_pool *pool, bool memory)
{
	if (memory)
		munmap(pool->mem, STAGE_BYTES);
	free(pool);
}

static struct stage_pool *pool_new(struct engine_staging *s, const void *gpu,
				   char location[TEI_TOPO_NAME])
{
	struct stage_pool *pool = calloc(1, sizeof(*pool));
	uint32_t i;

	if (!pool)
		return NULL;
	pool->mem = engine_gpu_bounce(s->engine, gpu, STAGE_BYTES, location);
	if (!pool->mem) {
		free(pool);
		return NULL;
	}
	tei_list_init(&pool->queue);
	tei_list_init(&pool->deferred);
	for (i = 0; i < STAGE_SLOTS; i++) {
		pool->slot[i].staging = s;
		pool->slot[i].mem = pool->mem + (size_t)i * STAGE_PIECE;
	}
	return pool;
}

static int pool_open(struct engine_staging *s, const void *gpu,
		     struct stage_pool **out, struct tei_err *err)
{
	char location[TEI_TOPO_NAME];
	struct stage_pool *pool = pool_new(s, gpu, location);
	struct engine *e = s->engine;
	struct tei_rail_mr *mr;
	int ret;

	if (!pool)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory for the bounce buffers of GPU memory");
	ret = tei_gpu_mem_pin(s->gpu, gpu, pool->mem, STAGE_BYTES, err);
	if (ret)
		goto err_pool;
	ret = tei_rail_mr_reg(e->dp, pool->mem, STAGE_BYTES, location, 0, err,
			      &mr);
	if (ret)
		goto err_pin;
	ret = engine_files_mem_add(e, pool->mem, STAGE_BYTES, NULL);
	if (ret) {
		tei_err_fail(err, ret, "engine", NULL,
			     "%zu bytes for the bounce buffers of GPU memory",
			     STAGE_BYTES);
		goto err_rail;
	}
	*out = pool;
	return 0;
err_rail:
	tei_rail_mr_dereg(e->dp, pool->mem, 0, NULL);
err_pin:
	tei_gpu_mem_remove(s->gpu, pool->mem, tei_now_ns());
err_pool:
	pool_free(pool, true);
	return ret;
}

/* Closes a pool whose tasks have ended. Threads may still be in the callbacks
 * of those tasks. */
static void pool_close(struct engine_staging *s, struct stage_pool *pool)
{
	struct engine *e = s->engine;
	uint64_t wait = e->settings.slice_timeout_s * TEI_NS_PER_SEC;
	uint64_t until = tei_now_ns() + wait;
	struct tei_err err;
	int ret;

	ret = engine_files_mem_remove(e, pool->mem, until);
	if (!ret)
		ret = tei_rail_mr_dereg(e->dp, pool->mem, wait, &err);
	if (!ret)
		ret = tei_gpu_mem_remove(s->gpu, pool->mem, until);
	if (ret)
		TEI_WARN("engine", "bounce buffers of GPU memory: %zu bytes are not freed, because they are still in use: %s",
			 STAGE_BYTES, tei_err_name(ret));
	pool_free(pool, !ret);
}

/* --- all of them --------------------------------------------------------- */

static void staging_free(struct engine_staging *s) TEI_NO_TSA
{
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->idle);
	tei_mutex_fini(&s->lock);
	tei_mutex_fini(&s->admin);
	free(s);
}

static struct engine_staging *staging_new(struct engine *e) TEI_NO_TSA
{
	struct engine_staging *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->engine = e;
	s->gpu = e->gpu;
	tei_mutex_init(&s->admin);
	tei_mutex_init(&s->lock);
	tei_cond_init(&s->work);
	tei_cond_init(&s->idle);
	tei_list_init(&s->live);
	tei_list_init(&s->stopping);
	tei_list_init(&s->ended);
	if (!tei_thread_start(&s->thread, false, engine_stage_main, s)) {
		pthread_setname_np(s->thread, "tei-stage");
		return s;
	}
	staging_free(s);
	return NULL;
}

/* Returns the staging, created if necessary, or NULL. */
static struct engine_staging *staging_get(struct engine *e)
{
	struct engine_staging *s = engine_staging(e);

	if (s)
		return s;
	s = staging_new(e);
	if (s)
		__atomic_store_n(&e->staging, s, __ATOMIC_RELEASE);
	return s;
}

static void staging_set(struct engine_staging *s, uint32_t place,
			struct stage_pool *pool)
{
	tei_mutex_lock(&s->lock);
	s->pool[place] = pool;
	tei_mutex_unlock(&s->lock);
}

/* Adds a user to the pool of a context. The GPU memory is held. */
static int staging_use(struct engine_staging *s, const void *gpu,
		       uint32_t place, struct tei_err *err)
{
	struct stage_pool *pool;
	int ret = 0;

	tei_mutex_lock(&s->admin);
	pool = s->pool[place];
	if (!pool) {
		ret = pool_open(s, gpu, &pool, err);
		if (!ret)
			staging_set(s, place, pool);
	}
	if (!ret)
		pool->users++;
	tei_mutex_unlock(&s->admin);
	return ret;
}

int engine_stage_add(struct engine *e, void *gpu, size_t len, uint32_t *place,
		     struct tei_err *err)
{
	struct engine_staging *s = staging_get(e);
	uint32_t at;
	int ret;

	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "GPU memory: the staging thread cannot be started");
	ret = tei_gpu_mem_hold(s->gpu, (uintptr_t)gpu, len, &at);
	if (ret)
		return tei_err_fail(err, ret, "engine", NULL,
				    "%p: is being unregistered", gpu);
	ret = staging_use(s, gpu, at, err);
	tei_gpu_mem_let_go(s->gpu, (uintptr_t)gpu);
	if (!ret)
		*place = at;
	return ret;
}

void engine_stage_drop(struct engine *e, uint32_t place)
{
	struct engine_staging *s = engine_staging(e);
	struct stage_pool *pool;

	tei_mutex_lock(&s->admin);
	pool = s->pool[place];
	if (!--pool->users) {
		/* tasks of GPU memory that was registered while the pool could
		 * not be created may use it, too */
		tei_mutex_lock(&s->lock);
		pool->leaving = true;
		while (pool->tasks)
			tei_mutex_wait(&s->idle, &s->lock, TEI_NS_PER_SEC);
		s->pool[place] = NULL;
		tei_mutex_unlock(&s->lock);
		pool_close(s, pool);
	}
	tei_mutex_unlock(&s->admin);
}

int engine_stage_files(struct engine *e, struct tei_nvmeof *ctx) TEI_NO_TSA
{
	struct engine_staging *s = engine_staging(e);
	uint32_t i;
	int ret = 0;

	if (s)
		tei_mutex_lock(&s->admin);
	for (i = 0; s && i < TEI_GPU_CONTEXTS && !ret; i++)
		if (s->pool[i])
			ret = tei_nvmeof_mem_add(ctx, s->pool[i]->mem,
						 STAGE_BYTES, NULL);
	if (!ret)
		__atomic_store_n(&e->nvmeof, ctx, __ATOMIC_RELEASE);
	if (s)
		tei_mutex_unlock(&s->admin);
	return ret;
}

void engine_stage_free(struct engine *e)
{
	struct engine_staging *s = engine_staging(e);
	uint32_t i, k;
	bool lost;

	if (!s)
		return;
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		lost = false;
		for (k = 0; s->pool[i] && k < STAGE_SLOTS; k++)
			lost |= s->pool[i]->slot[k].lost;
		if (s->pool[i])
			pool_free(s->pool[i], !lost);
	}
	staging_free(s);
}
