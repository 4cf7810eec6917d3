/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU staging, the part for GPU memory of this process: creates and frees the
 * part, and provides pools for registered GPU memory.
 */
#include "prov/staging/staging_int.h"

#include <stdlib.h>

static const struct staging_pool_kind local_kind = {
	.name = "bounce buffers of GPU memory",
	.slots = STAGING_SLOTS,
	.together = STAGING_SLOTS,
	.slot_size = sizeof(struct staging_local_slot),
	.carried = true,
};

static struct staging_local *local_new(struct tei_staging *s)
{
	struct staging_local *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->gpu = staging_gpu(s);
	tei_list_init(&l->live);
	tei_list_init(&l->stopping);
	tei_list_init(&l->ended);
	if (staging_part_open(&l->part, s, &local_kind, staging_task_main, l,
			      "tei-stage"))
		return l;
	free(l);
	return NULL;
}

/* Returns the part and creates it if necessary. Returns NULL on failure. */
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

int tei_staging_mem_add(struct tei_staging *s, void *gpu, uint64_t len,
			uint32_t *place, struct tei_err *err)
{
	struct staging_local *l = local_get(s);
	uint32_t at;
	int ret;

	if (!l)
		return tei_err_fail(err, TEI_ERR_MEMORY, "staging", NULL,
				    "GPU memory: the staging thread cannot be started");
	ret = tei_gpu_mem_hold(l->gpu, (uintptr_t)gpu, len, &at);
	if (ret)
		return tei_err_fail(err, ret, "staging", NULL,
				    "%p: the GPU memory is being unregistered", gpu);
	tei_mutex_lock(&l->part.admin);
	ret = staging_pool_use(&l->part, gpu, at, err);
	tei_mutex_unlock(&l->part.admin);
	tei_gpu_mem_let_go(l->gpu, (uintptr_t)gpu);
	if (!ret)
		*place = at;
	return ret;
}

/* Drops a user of a pool. The pool may still have tasks of other GPU memory,
 * which is not counted as a user because no pool could be created when it was
 * registered. staging_pool_leave waits for these tasks. */
void tei_staging_mem_drop(struct tei_staging *s, uint32_t place)
{
	struct staging_local *l = staging_local(s);

	tei_mutex_lock(&l->part.admin);
	staging_pool_leave(&l->part, place);
	tei_mutex_unlock(&l->part.admin);
}

int tei_staging_mem_each(struct tei_staging *s,
			 int (*add)(void *arg, void *mem, uint64_t len),
			 void (*commit)(void *arg), void *arg) TEI_NO_TSA
{
	struct staging_local *l = staging_local(s);
	struct staging_slot *first;
	uint32_t i;
	int ret = 0;

	if (l)
		tei_mutex_lock(&l->part.admin);
	for (i = 0; l && i < TEI_GPU_CONTEXTS && !ret; i++) {
		if (!l->part.pool[i])
			continue;
		first = staging_slot_at(l->part.pool[i], 0);
		ret = add(arg, first->mem,
			  (size_t)STAGING_SLOTS * TEI_STAGING_PIECE);
	}
	if (!ret)
		commit(arg);
	if (l)
		tei_mutex_unlock(&l->part.admin);
	return ret;
}

void staging_local_free(struct tei_staging *s)
{
	struct staging_local *l = staging_local(s);

	if (!l)
		return;
	staging_part_fini(&l->part);
	free(l);
}
