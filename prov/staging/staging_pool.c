/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging: the pools of bounce buffers.
 */
#include "prov/staging/staging_int.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "util/thread.h"

/* --- one pool ------------------------------------------------------------ */

/* Frees a pool. memory false: its memory is not unmapped, because the GPU or a
 * transport may still access it. */
static void pool_free(struct staging_local_pool *pool, bool memory)
{
	if (memory)
		munmap(pool->mem, STAGING_POOL_BYTES);
	free(pool);
}

static struct staging_local_pool *pool_new(struct staging_local *l, char *mem)
{
	struct staging_local_pool *pool = calloc(1, sizeof(*pool));
	uint32_t i;

	if (!pool)
		return NULL;
	pool->mem = mem;
	tei_list_init(&pool->queue);
	tei_list_init(&pool->aside);
	for (i = 0; i < STAGING_SLOTS; i++) {
		pool->slot[i].local = l;
		pool->slot[i].piece.mem = mem + (size_t)i * TEI_STAGING_PIECE;
	}
	return pool;
}

static int pool_open(struct staging_local *l, const void *gpu,
		     struct staging_local_pool **out, struct tei_err *err)
{
	struct tei_staging *s = l->staging;
	char *mem;
	int ret;

	ret = staging_mem_open(s, gpu, STAGING_POOL_BYTES, 0, &mem, err);
	if (ret)
		return ret;
	ret = s->ops->mem_add(s->arg, mem, STAGING_POOL_BYTES);
	if (ret) {
		tei_err_fail(err, ret, "staging", NULL,
			     "%zu bytes for the bounce buffers of GPU memory",
			     STAGING_POOL_BYTES);
		goto err_mem;
	}
	*out = pool_new(l, mem);
	if (*out)
		return 0;
	ret = tei_err_fail(err, TEI_ERR_MEMORY, "staging", NULL,
			   "no memory for the bounce buffers of GPU memory");
	s->ops->mem_remove(s->arg, mem, tei_now_ns());
err_mem:
	staging_mem_close(s, mem, 0);
	munmap(mem, STAGING_POOL_BYTES);
	return ret;
}

/* Closes a pool whose tasks have ended. Threads may still be in the callbacks
 * of those tasks. */
static void pool_close(struct staging_local *l, struct staging_local_pool *pool)
{
	struct tei_staging *s = l->staging;
	uint64_t wait = staging_timeout_ns(s);
	int ret;

	ret = s->ops->mem_remove(s->arg, pool->mem, tei_now_ns() + wait);
	if (!ret)
		ret = staging_mem_close(s, pool->mem, wait);
	if (ret)
		TEI_WARN("staging", "bounce buffers of GPU memory: %zu bytes are not freed, because they are still in use: %s",
			 STAGING_POOL_BYTES, tei_err_name(ret));
	pool_free(pool, !ret);
}

/* --- all of them --------------------------------------------------------- */

static void local_free(struct staging_local *l) TEI_NO_TSA
{
	pthread_cond_destroy(&l->work);
	pthread_cond_destroy(&l->idle);
	tei_mutex_fini(&l->lock);
	tei_mutex_fini(&l->admin);
	free(l);
}

static struct staging_local *local_new(struct tei_staging *s) TEI_NO_TSA
{
	struct staging_local *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->staging = s;
	l->gpu = staging_gpu(s);
	tei_mutex_init(&l->admin);
	tei_mutex_init(&l->lock);
	tei_cond_init(&l->work);
	tei_cond_init(&l->idle);
	tei_list_init(&l->live);
	tei_list_init(&l->stopping);
	tei_list_init(&l->ended);
	if (!tei_thread_start(&l->thread, false, staging_task_main, l)) {
		pthread_setname_np(l->thread, "tei-stage");
		return l;
	}
	local_free(l);
	return NULL;
}

/* Returns the part, created if necessary, or NULL. */
static struct staging_local *local_get(struct tei_staging *s)
{
	struct staging_local *l;

	tei_mutex_lock(&s->lock);
	l = s->local;
	if (!l) {
		l = local_new(s);
		if (l)
			__atomic_store_n(&s->local, l, __ATOMIC_RELEASE);
	}
	tei_mutex_unlock(&s->lock);
	return l;
}

static void local_set(struct staging_local *l, uint32_t place,
		      struct staging_local_pool *pool)
{
	tei_mutex_lock(&l->lock);
	l->pool[place] = pool;
	tei_mutex_unlock(&l->lock);
}

/* Adds a user to the pool of a context. The GPU memory is held. */
static int local_use(struct staging_local *l, const void *gpu, uint32_t place,
		     struct tei_err *err)
{
	struct staging_local_pool *pool;
	int ret = 0;

	tei_mutex_lock(&l->admin);
	pool = l->pool[place];
	if (!pool) {
		ret = pool_open(l, gpu, &pool, err);
		if (!ret)
			local_set(l, place, pool);
	}
	if (!ret)
		pool->users++;
	tei_mutex_unlock(&l->admin);
	return ret;
}

int tei_staging_mem_add(struct tei_staging *s, void *gpu, uint64_t len,
			uint32_t *place, struct tei_err *err)
{
	struct staging_local *l = local_get(s);
	uint32_t at;
	int ret;

	if (!l)
		return tei_err_fail(
			err, TEI_ERR_MEMORY, "staging", NULL,
			"GPU memory: the staging thread cannot be started");
	ret = tei_gpu_mem_hold(l->gpu, (uintptr_t)gpu, len, &at);
	if (ret)
		return tei_err_fail(err, ret, "staging", NULL,
				    "%p: is being unregistered", gpu);
	ret = local_use(l, gpu, at, err);
	tei_gpu_mem_let_go(l->gpu, (uintptr_t)gpu);
	if (!ret)
		*place = at;
	return ret;
}

void tei_staging_mem_drop(struct tei_staging *s, uint32_t place)
{
	struct staging_local *l = staging_local(s);
	struct staging_local_pool *pool;

	tei_mutex_lock(&l->admin);
	pool = l->pool[place];
	if (!--pool->users) {
		/* tasks of GPU memory that was registered while the pool could
		 * not be created may use it, too */
		tei_mutex_lock(&l->lock);
		pool->leaving = true;
		while (pool->tasks)
			tei_mutex_wait(&l->idle, &l->lock, TEI_NS_PER_SEC);
		l->pool[place] = NULL;
		tei_mutex_unlock(&l->lock);
		pool_close(l, pool);
	}
	tei_mutex_unlock(&l->admin);
}

int tei_staging_mem_each(struct tei_staging *s,
			 int (*add)(void *arg, void *mem, uint64_t len),
			 void (*commit)(void *arg), void *arg) TEI_NO_TSA
{
	struct staging_local *l = staging_local(s);
	uint32_t i;
	int ret = 0;

	if (l)
		tei_mutex_lock(&l->admin);
	for (i = 0; l && i < TEI_GPU_CONTEXTS && !ret; i++)
		if (l->pool[i])
			ret = add(arg, l->pool[i]->mem, STAGING_POOL_BYTES);
	if (!ret)
		commit(arg);
	if (l)
		tei_mutex_unlock(&l->admin);
	return ret;
}

void staging_local_free(struct tei_staging *s)
{
	struct staging_local *l = staging_local(s);
	uint32_t i, k;
	bool lost;

	if (!l)
		return;
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		lost = false;
		for (k = 0; l->pool[i] && k < STAGING_SLOTS; k++)
			lost |= l->pool[i]->slot[k].lost;
		if (l->pool[i])
			pool_free(l->pool[i], !lost);
	}
	local_free(l);
}
