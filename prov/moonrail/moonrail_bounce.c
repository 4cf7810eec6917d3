/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bounce buffers of a domain: blocks of registered memory.
 *
 * Moves use blocks of three sizes, which are cut from registered slabs that
 * stay until the domain is closed. A sent message that its receiver reads, and
 * a move that is larger than the largest size, have a separate block with a
 * registration of its own. If the receiver never acknowledges a message, its
 * block is dirty: the receiver may still read it, so nothing else is put into
 * it. Unregistering a dirty block needs a fence, which disturbs all peers. So
 * dirty blocks are unregistered only if there are more than 64 MiB of them,
 * and at most one per second.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"

#define BOUNCE_PAGE	UINT64_C(65536)	/* granularity of the sizes of separate
					 * blocks */
#define BOUNCE_WAIT_NS	(5 * TEI_NS_PER_SEC)

static const struct bounce_size {
	uint32_t bytes, blocks;
} bounce_sizes[MOONRAIL_BOUNCE_SIZES] = {
	{ 4096, 256 }, { 65536, 32 }, { 1048576, 4 },
};

void moonrail_bounce_wake(struct moonrail_bounces *b, bool stop)
{
	tei_mutex_lock(&b->lock);
	b->work = true;
	b->stop |= stop;
	pthread_cond_signal(&b->cond);
	tei_mutex_unlock(&b->lock);
}

static void *bounce_region(struct moonrail_domain *d, uint64_t size)
{
	void *mem = tei_rail_mem_near(d->dp, "*", size);
	struct tei_rail_mr *mr;

	if (!mem)
		return NULL;
	if (!tei_rail_mr_reg(d->dp, mem, size, "*", TEI_RAIL_REMOTE, NULL,
			     &mr))
		return mem;
	munmap(mem, size);
	return NULL;
}

static int bounce_kind(uint64_t len)
{
	int k;

	for (k = 0; k < MOONRAIL_BOUNCE_SIZES; k++)
		if (len <= bounce_sizes[k].bytes)
			return k;
	return -1;
}

/* Registers a slab of blocks of one size. Called only by the bounce thread,
 * without the lock. Returns NULL if memory is short. */
static struct moonrail_slab *bounce_new_slab(struct moonrail_domain *d,
					     int kind)
{
	const struct bounce_size *s = &bounce_sizes[kind];
	struct moonrail_slab *slab;
	uint32_t i;

	slab = calloc(1, sizeof(*slab) + s->blocks * sizeof(slab->block[0]));
	if (!slab)
		return NULL;
	slab->size = (uint64_t)s->bytes * s->blocks;
	slab->mem = bounce_region(d, slab->size);
	if (!slab->mem) {
		free(slab);
		return NULL;
	}
	for (i = 0; i < s->blocks; i++) {
		slab->block[i].mem = slab->mem + (uint64_t)i * s->bytes;
		slab->block[i].size = s->bytes;
		slab->block[i].kind = kind;
	}
	return slab;
}

static void bounce_add_slab(struct moonrail_bounces *b,
			    struct moonrail_slab *slab, int kind)
{
	uint32_t i;

	tei_list_add_tail(&b->slabs, &slab->link);
	for (i = 0; i < bounce_sizes[kind].blocks; i++)
		tei_list_add_tail(&b->idle[kind], &slab->block[i].link);
}

struct moonrail_block *moonrail_bounce_new(struct moonrail_domain *d,
					   uint64_t len)
{
	struct moonrail_block *block = calloc(1, sizeof(*block));

	if (!block)
		return NULL;
	tei_list_init(&block->link);
	block->kind = -1;
	block->size = (len + BOUNCE_PAGE - 1) / BOUNCE_PAGE * BOUNCE_PAGE;
	block->mem = bounce_region(d, block->size);
	if (!block->mem) {
		free(block);
		return NULL;
	}
	return block;
}

static void bounce_add_dirty(struct moonrail_bounces *b,
			     struct moonrail_block *block)
{
	tei_list_add_tail(&b->dirty, &block->link);
	b->dirty_bytes += block->size;
}

static void bounce_add_separate(struct moonrail_bounces *b,
				struct moonrail_block *block)
{
	tei_list_add_head(&b->separate, &block->link);
	b->separate_bytes += block->size;
}

void moonrail_bounce_drop(struct moonrail_domain *d,
			  struct moonrail_block *block)
{
	struct tei_err err;

	if (!tei_rail_mr_dereg(d->dp, block->mem, BOUNCE_WAIT_NS, &err)) {
		munmap(block->mem, block->size);
		free(block);
		return;
	}
	TEI_WARN("prov", "memory at %p stays registered: %s", (void *)block->mem,
		 err.text);
	moonrail_enter(d);
	bounce_add_dirty(d->bounces, block);
	moonrail_leave(d);
}

struct moonrail_block *moonrail_bounce_take_separate(struct moonrail_bounces *b,
						     uint64_t len)
{
	struct moonrail_block *block;

	tei_list_foreach(block, &b->separate, struct moonrail_block, link) {
		if (block->size < len || block->size / 4 > len)
			continue;
		tei_list_del(&block->link);
		b->separate_bytes -= block->size;
		b->in_use++;
		return block;
	}
	return NULL;
}

struct moonrail_block *moonrail_bounce_take(struct moonrail_bounces *b,
					    uint64_t len)
{
	int kind = bounce_kind(len);
	struct moonrail_block *block;

	if (kind < 0)
		return moonrail_bounce_take_separate(b, len);
	if (tei_list_empty(&b->idle[kind]))
		return NULL;
	block = tei_list_first(&b->idle[kind], struct moonrail_block, link);
	tei_list_del(&block->link);
	b->in_use++;
	return block;
}

void moonrail_bounce_put(struct moonrail_domain *d,
			 struct moonrail_block *block, bool clean)
{
	struct moonrail_bounces *b = d->bounces;

	b->in_use--;
	if (block->kind >= 0)
		tei_list_add_head(&b->idle[block->kind], &block->link);
	else if (clean)
		bounce_add_separate(b, block);
	else
		bounce_add_dirty(b, block);
	if (!tei_list_empty(&b->deferred) ||
	    b->dirty_bytes > MOONRAIL_BOUNCE_IDLE ||
	    b->separate_bytes > MOONRAIL_BOUNCE_IDLE)
		moonrail_bounce_wake(b, false);
}

bool moonrail_bounce_scarce(struct moonrail_bounces *b)
{
	if (b->separate_bytes) {
		b->scarce = true;
		moonrail_bounce_wake(b, false);
	}
	return b->separate_bytes || b->in_use;
}

void moonrail_bounce_unregister_later(struct moonrail_domain *d,
				      struct tei_list *pins)
{
	if (tei_list_empty(pins))
		return;
	tei_list_splice_tail(&d->bounces->pins, pins);
	moonrail_bounce_wake(d->bounces, false);
}

static void bounce_free_blocks(struct tei_list *list)
{
	struct moonrail_block *block, *tmp;

	tei_list_foreach_safe(block, tmp, list, struct moonrail_block, link) {
		munmap(block->mem, block->size);
		free(block);
	}
}

void moonrail_bounce_free(struct moonrail_domain *d)
{
	struct moonrail_bounces *b = d->bounces;
	struct moonrail_slab *slab, *tmp;
	struct moonrail_pin *p, *ptmp;

	if (!b)
		return;
	bounce_free_blocks(&b->separate);
	bounce_free_blocks(&b->dirty);
	tei_list_foreach_safe(p, ptmp, &b->pins, struct moonrail_pin, link)
		free(p);
	tei_list_foreach_safe(slab, tmp, &b->slabs, struct moonrail_slab,
			       link) {
		munmap(slab->mem, slab->size);
		free(slab);
	}
	pthread_cond_destroy(&b->cond);
	tei_mutex_fini(&b->lock);
	free(b);
	d->bounces = NULL;
}

bool moonrail_bounce_grow(struct moonrail_bounces *b, uint64_t len)
{
	struct moonrail_domain *d = b->domain;
	int kind = bounce_kind(len);
	struct moonrail_block *block = NULL;
	struct moonrail_slab *slab = NULL;

	if (kind < 0)
		block = moonrail_bounce_new(d, len);
	else
		slab = bounce_new_slab(d, kind);
	moonrail_enter(d);
	if (slab)
		bounce_add_slab(b, slab, kind);
	else if (block)
		bounce_add_separate(b, block);
	moonrail_leave(d);
	return slab || block;
}
