/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging: the pools of bounce buffers of both parts, one for each CUDA
 * context, and the other functions that both parts use.
 */
#include "prov/staging/staging_int.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "util/thread.h"

/* --- slots --------------------------------------------------------------- */

static size_t span_bytes(const struct staging_pool_kind *kind)
{
	return (size_t)kind->together * TEI_STAGING_PIECE;
}

int staging_slot_open(struct staging_slot *slot, const void *gpu, char **mem,
		      struct tei_err *err)
{
	const struct staging_pool_kind *kind = slot->pool->part->kind;
	struct tei_staging *s = slot->pool->part->staging;
	size_t len = span_bytes(kind);
	int ret = kind->prepare ? kind->prepare(slot, err) : 0;

	if (!ret)
		ret = staging_mem_open(s, gpu, len, kind->access, mem,
				       &slot->share, err);
	if (ret || !kind->carried)
		return ret;
	ret = s->ops->mem_add(s->arg, *mem, len);
	if (!ret)
		return 0;
	tei_err_fail(err, ret, "staging", NULL,
		     "%zu bytes for %s could not be registered", len,
		     kind->name);
	staging_mem_discard(s, *mem, len);
	return ret;
}

int staging_slot_close(struct staging_slot *slot)
{
	const struct staging_pool_kind *kind = slot->pool->part->kind;
	struct tei_staging *s = slot->pool->part->staging;
	uint64_t wait = staging_timeout_ns(s);
	int ret = 0;

	if (kind->carried)
		ret = s->ops->mem_remove(s->arg, slot->mem,
					 tei_now_ns() + wait);
	if (!ret)
		ret = staging_mem_close(s, slot->mem, wait);
	if (ret)
		return ret;
	if (kind->retire)
		kind->retire(slot);
	else
		munmap(slot->mem, span_bytes(kind));
	return 0;
}

struct staging_slot *staging_slot_idle(struct staging_part *part,
				       struct staging_pool *pool,
				       uint32_t *idle, uint32_t *used)
{
	struct tei_gpu *gpu = staging_gpu(part->staging);
	struct staging_slot *slot, *found = NULL;
	uint32_t i;

	*idle = *used = 0;
	for (i = 0; i < part->kind->slots; i++) {
		slot = staging_slot_at(pool, i);
		*used += slot->used;
		if (slot->used || slot->must_renew || !slot->mem)
			continue;
		if (slot->lost && !tei_gpu_mem_idle(gpu, (uintptr_t)slot->mem,
						    TEI_STAGING_PIECE))
			continue;
		slot->lost = false;
		found = slot;
		++*idle;
	}
	return found;
}

/* --- one pool ------------------------------------------------------------ */

static void pool_free(struct staging_pool *pool)
{
	const struct staging_pool_kind *kind = pool->part->kind;
	uint32_t i;

	for (i = 0; kind->fini && i < kind->slots; i++)
		kind->fini(staging_slot_at(pool, i));
	free(pool);
}

/* Closes a pool that has no hold. Threads may still run the callbacks of the
 * last copies. */
static void pool_close(struct staging_pool *pool)
{
	const struct staging_pool_kind *kind = pool->part->kind;
	struct staging_slot *slot;
	uint32_t i;
	int ret;

	for (i = 0; i < kind->slots; i += kind->together) {
		slot = staging_slot_at(pool, i);
		ret = slot->mem ? staging_slot_close(slot) : 0;
		if (ret)
			TEI_WARN("staging", "%s: %zu bytes are not freed, because they are still in use: %s",
				 kind->name, span_bytes(kind),
				 tei_err_name(ret));
	}
	pool_free(pool);
}

/* Opens memory for the slots that share one registration. first: index of the
 * first of them. */
static int pool_open_span(struct staging_pool *pool, uint32_t first,
			  const void *gpu, struct tei_err *err)
{
	struct staging_slot *slot = staging_slot_at(pool, first);
	uint32_t i;
	char *mem;
	int ret;

	ret = staging_slot_open(slot, gpu, &mem, err);
	for (i = 0; !ret && i < pool->part->kind->together; i++) {
		slot = staging_slot_at(pool, first + i);
		slot->mem = mem + (size_t)i * TEI_STAGING_PIECE;
	}
	return ret;
}

static int pool_open(struct staging_part *part, const void *gpu,
		     struct staging_pool **out, struct tei_err *err)
{
	const struct staging_pool_kind *kind = part->kind;
	struct staging_pool *pool =
		calloc(1, sizeof(*pool) + kind->slots * kind->slot_size);
	struct staging_slot *slot;
	uint32_t i;
	int ret = 0;

	if (!pool)
		return tei_err_fail(err, TEI_ERR_MEMORY, "staging", NULL,
				    "no memory for %s", kind->name);
	pool->part = part;
	tei_list_init(&pool->queue);
	tei_list_init(&pool->deferred);
	for (i = 0; i < kind->slots; i++) {
		slot = staging_slot_at(pool, i);
		slot->pool = pool;
	}
	for (i = 0; i < kind->slots && !ret; i += kind->together)
		ret = pool_open_span(pool, i, gpu, err);
	if (ret)
		pool_close(pool);
	else
		*out = pool;
	return ret;
}

/* --- pools of a part ------------------------------------------------------ */

int staging_pool_use(struct staging_part *part, const void *gpu, uint32_t place,
		     struct tei_err *err)
{
	struct staging_pool *pool = part->pool[place];
	int ret;

	if (!pool) {
		ret = pool_open(part, gpu, &pool, err);
		if (ret)
			return ret;
		tei_mutex_lock(&part->lock);
		part->pool[place] = pool;
		tei_mutex_unlock(&part->lock);
	}
	pool->users++;
	return 0;
}

void staging_pool_leave(struct staging_part *part, uint32_t place)
{
	struct staging_pool *pool = part->pool[place];

	if (--pool->users)
		return;
	tei_mutex_lock(&part->lock);
	pool->leaving = true;
	staging_part_notify(part);
	while (pool->holds && !part->joined)
		tei_mutex_wait(&part->idle, &part->lock, TEI_NS_PER_SEC);
	part->pool[place] = NULL;
	tei_mutex_unlock(&part->lock);
	pool_close(pool);
}

void staging_pool_hold(struct staging_part *part, struct staging_pool *pool)
{
	(void)part;
	pool->holds++;
}

void staging_pool_release(struct staging_part *part, struct staging_pool *pool)
{
	if (!--pool->holds)
		pthread_cond_broadcast(&part->idle);
}

/* --- the part ------------------------------------------------------------ */

static void part_free(struct staging_part *part) TEI_NO_TSA
{
	pthread_cond_destroy(&part->work);
	pthread_cond_destroy(&part->idle);
	tei_mutex_fini(&part->lock);
	tei_mutex_fini(&part->admin);
}

bool staging_part_open(struct staging_part *part, struct tei_staging *s,
		       const struct staging_pool_kind *kind,
		       void *(*main)(void *arg), void *arg,
		       const char *name) TEI_NO_TSA
{
	part->staging = s;
	part->kind = kind;
	tei_mutex_init(&part->admin);
	tei_mutex_init(&part->lock);
	tei_cond_init(&part->work);
	tei_cond_init(&part->idle);
	if (!tei_thread_start(&part->thread, false, main, arg)) {
		pthread_setname_np(part->thread, name);
		return true;
	}
	part_free(part);
	return false;
}

void staging_part_join(struct staging_part *part)
{
	pthread_join(part->thread, NULL);
	tei_mutex_lock(&part->lock);
	part->joined = true;
	pthread_cond_broadcast(&part->idle);
	tei_mutex_unlock(&part->lock);
}

/* Unmaps the memory of a pool, except the memory that the GPU may still
 * access. */
static void pool_unmap(struct staging_pool *pool)
{
	const struct staging_pool_kind *kind = pool->part->kind;
	struct staging_slot *slot = NULL;
	uint32_t i, k;
	char *mem;
	bool lost;

	for (i = 0; i < kind->slots; i += kind->together) {
		slot = staging_slot_at(pool, i);
		mem = slot->mem;
		for (k = 0, lost = false; k < kind->together; k++) {
			slot = staging_slot_at(pool, i + k);
			lost |= slot->lost;
		}
		if (mem && !lost)
			munmap(mem, span_bytes(kind));
	}
}

void staging_part_fini(struct staging_part *part) TEI_NO_TSA
{
	uint32_t i;

	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		if (!part->pool[i])
			continue;
		pool_unmap(part->pool[i]);
		pool_free(part->pool[i]);
	}
	part_free(part);
}
