/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots, the target: registers the GPU memory for which slots are
 * granted, and provides new memory for slots.
 */
#include "prov/staging/staging_remote_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- regions ------------------------------------------------------------- */

static int region_add(struct staging_remote *rs, const void *gpu, uint64_t len,
		      uint32_t place, uint64_t *serial)
{
	struct staging_region *grown;

	tei_mutex_lock(&rs->part.lock);
	grown = realloc(rs->regions, (rs->nregions + 1) * sizeof(*grown));
	if (grown) {
		rs->regions = grown;
		grown[rs->nregions++] = (struct staging_region){
			.serial = ++rs->serial,
			.base = (uintptr_t)gpu,
			.length = len,
			.place = place,
		};
		*serial = rs->serial;
	}
	tei_mutex_unlock(&rs->part.lock);
	return grown ? 0 : TEI_ERR_MEMORY;
}

static struct staging_region *region_find(struct staging_remote *rs,
					  uint64_t serial)
	TEI_REQUIRES(rs->part.lock)
{
	uint32_t i = 0;

	while (rs->regions[i].serial != serial)
		i++;
	return &rs->regions[i];
}

/* Adds a region to the pool of its context. The GPU memory must be held. */
static int region_use(struct staging_remote *rs, const void *gpu, uint64_t len,
		      uint32_t place, uint64_t *serial, struct tei_err *err)
{
	int ret;

	tei_mutex_lock(&rs->part.admin);
	ret = staging_pool_use(&rs->part, gpu, place, err);
	if (!ret) {
		ret = region_add(rs, gpu, len, place, serial);
		if (ret) {
			tei_err_fail(err, ret, "staging", NULL,
				     "out of host memory for the entry of a GPU memory region");
			staging_pool_leave(&rs->part, place);
		}
	}
	tei_mutex_unlock(&rs->part.admin);
	return ret;
}

int tei_staging_grant_add(struct tei_staging *s, void *gpu, uint64_t len,
			  uint64_t *serial, struct tei_err *err)
{
	struct staging_remote *rs = staging_remote_get(s);
	uint32_t place;
	int ret;

	if (!rs)
		return tei_err_fail(
			err, TEI_ERR_MEMORY, "staging", NULL,
			"remote bounce slots: the thread cannot be started");
	ret = tei_gpu_mem_hold(staging_gpu(s), (uintptr_t)gpu, len, &place);
	if (ret)
		return tei_err_fail(err, ret, "staging", NULL,
				    "%p: the GPU memory is being unregistered", gpu);
	ret = region_use(rs, gpu, len, place, serial, err);
	tei_gpu_mem_let_go(staging_gpu(s), (uintptr_t)gpu);
	return ret;
}

void tei_staging_grant_remove(struct tei_staging *s, uint64_t serial)
{
	struct staging_remote *rs = staging_remote(s);

	tei_mutex_lock(&rs->part.lock);
	region_find(rs, serial)->gone = true;
	staging_part_notify(&rs->part);
	tei_mutex_unlock(&rs->part.lock);
}

void tei_staging_grant_restore(struct tei_staging *s, uint64_t serial)
{
	struct staging_remote *rs = staging_remote(s);

	tei_mutex_lock(&rs->part.lock);
	region_find(rs, serial)->gone = false;
	tei_mutex_unlock(&rs->part.lock);
}

void tei_staging_grant_drop(struct tei_staging *s, uint64_t serial)
{
	struct staging_remote *rs = staging_remote(s);
	struct staging_region *r;
	uint32_t place;

	tei_mutex_lock(&rs->part.admin);
	tei_mutex_lock(&rs->part.lock);
	r = region_find(rs, serial);
	place = r->place;
	*r = rs->regions[--rs->nregions];
	tei_mutex_unlock(&rs->part.lock);
	staging_pool_leave(&rs->part, place);
	tei_mutex_unlock(&rs->part.admin);
}

/* --- new memory for slots ------------------------------------------------- */

/* Chooses any registered GPU memory of the pool's context, holds it and returns
 * its address. Returns NULL if there is none. */
static const void *pool_hold(struct staging_remote *rs,
			     const struct staging_pool *pool)
{
	const void *gpu = NULL;
	struct staging_region *r;
	uint32_t i, place;

	tei_mutex_lock(&rs->part.lock);
	for (i = 0; i < rs->nregions && !gpu; i++) {
		r = &rs->regions[i];
		if (!r->gone && rs->part.pool[r->place] == pool &&
		    !tei_gpu_mem_hold(staging_gpu(rs->part.staging), r->base, 1,
				      &place))
			gpu = (const void *)(uintptr_t)r->base;
	}
	tei_mutex_unlock(&rs->part.lock);
	return gpu;
}

/* Replaces the memory of a slot. Sets *mem to the memory that the slot has
 * afterwards, or to NULL if it has none. Returns 0, or a code with err->text
 * filled. */
static int region_renew(struct staging_remote *rs, struct staging_slot *slot,
			char **mem, struct tei_err *err)
{
	const void *gpu = pool_hold(rs, slot->pool);
	int ret = TEI_ERR_NOT_REGISTERED;

	*mem = slot->mem;
	snprintf(err->text, sizeof(err->text), "no GPU memory");
	if (!gpu)
		return ret; /* the memory is closed later, with its
			     * pool or by another attempt */
	ret = slot->mem ? staging_slot_close(slot) : 0;
	if (ret) {
		snprintf(err->text, sizeof(err->text),
			 "the old memory is still in use: %s",
			 tei_err_name(ret));
	} else {
		*mem = NULL;
		ret = staging_slot_open(slot, gpu, mem, err);
	}
	tei_gpu_mem_let_go(staging_gpu(rs->part.staging), (uintptr_t)gpu);
	return ret;
}

/* Returns the back-off after a failure. pause_ns is the back-off after the
 * previous failure, or 0 if there was none. */
static uint64_t region_pause(uint64_t pause_ns)
{
	if (!pause_ns)
		return STAGING_RENEW_NS;
	return 2 * pause_ns < STAGING_RENEW_MAX_NS ? 2 * pause_ns :
						     STAGING_RENEW_MAX_NS;
}

void tei_staging_slot_renew(struct tei_staging *s, struct staging_slot *base)
{
	struct staging_remote_slot *slot =
		tei_container_of(base, struct staging_remote_slot, slot);
	struct staging_remote *rs = staging_remote(s);
	struct tei_err err;
	char *mem;
	int ret = region_renew(rs, base, &mem, &err);

	if (ret && !slot->pause_ns)
		TEI_WARN("staging", "remote bounce slot: out of use until its memory can be replaced: %s",
			 err.text);
	tei_mutex_lock(&rs->part.lock);
	base->mem = mem;
	base->must_renew = ret != 0;
	slot->pause_ns = ret ? region_pause(slot->pause_ns) : 0;
	slot->again_ns = tei_now_ns() + slot->pause_ns;
	slot->renewing = false;
	staging_pool_release(&rs->part, base->pool);
	staging_part_notify(&rs->part);
	tei_mutex_unlock(&rs->part.lock);
}
