/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pool of bounce buffers.
 */
#include "prov/rail/tei_rail_bounce.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "prov/rail/tei_rail.h"
#include "topo/tei_topo.h"
#include "util/clock.h"
#include "util/log.h"

#define BOUNCE_PAGE	UINT64_C(65536)	/* sizes of separate blocks are
					 * multiples of this value, bytes */
#define BOUNCE_WAIT_NS	(5 * TEI_NS_PER_SEC)
#define BOUNCE_DIRTY_NS	TEI_NS_PER_SEC	/* shortest time between the
					 * unregistrations of two dirty
					 * blocks */

static const struct bounce_size {
	uint32_t bytes, blocks;
} bounce_sizes[TEI_RAIL_BOUNCE_SIZES] = {
	{ 4096, 256 }, { 65536, 32 }, { 1048576, 4 },
};

struct tei_rail_bounce_slab {
	struct tei_list link;		/* entry of the list
					 * tei_rail_bounces.slabs */
	char *mem;			/* mapped memory of the slab */
	uint64_t size;
	int kind;			/* kind of all blocks of the slab, which
					 * is the index of their size */
	uint64_t blocks[];
};

/* --- sizes --------------------------------------------------------------- */

int tei_rail_bounce_kind(uint64_t len)
{
	int k;

	for (k = 0; k < TEI_RAIL_BOUNCE_SIZES; k++)
		if (len <= bounce_sizes[k].bytes)
			return k;
	return TEI_RAIL_BOUNCE_SEPARATE;
}

uint32_t tei_rail_bounce_size(int kind)
{
	return bounce_sizes[kind].bytes;
}

uint32_t tei_rail_bounce_count(int kind)
{
	return bounce_sizes[kind].blocks;
}

/* Returns the distance between the starts of two adjacent blocks of a slab,
 * bytes. */
static size_t bounce_stride(const struct tei_rail_bounces *b)
{
	const size_t align = _Alignof(struct tei_rail_bounce);

	return (sizeof(struct tei_rail_bounce) + b->room + align - 1) / align *
	       align;
}

static struct tei_rail_bounce *
bounce_at(const struct tei_rail_bounces *b, struct tei_rail_bounce_slab *slab,
	  uint32_t i)
{
	return (void *)((char *)slab->blocks + i * bounce_stride(b));
}

/* --- start and end ------------------------------------------------------- */

void tei_rail_bounces_init(struct tei_rail_bounces *b, struct tei_rail_dp *dp,
			   uint32_t access, size_t room)
{
	int k;

	memset(b, 0, sizeof(*b));
	b->dp = dp;
	b->access = access;
	b->room = room;
	for (k = 0; k < TEI_RAIL_BOUNCE_SIZES; k++)
		tei_list_init(&b->idle[k]);
	tei_list_init(&b->slabs);
	tei_list_init(&b->separate);
	tei_list_init(&b->dirty);
}

static void bounce_free_blocks(struct tei_list *list)
{
	struct tei_rail_bounce *block, *tmp;

	tei_list_foreach_safe(block, tmp, list, struct tei_rail_bounce, link) {
		munmap(block->mem, block->size);
		free(block);
	}
}

void tei_rail_bounces_fini(struct tei_rail_bounces *b)
{
	struct tei_rail_bounce_slab *slab, *tmp;

	bounce_free_blocks(&b->separate);
	bounce_free_blocks(&b->dirty);
	tei_list_foreach_safe(slab, tmp, &b->slabs,
			      struct tei_rail_bounce_slab, link) {
		munmap(slab->mem, slab->size);
		free(slab);
	}
}

/* --- with the owner's lock ----------------------------------------------- */

struct tei_rail_bounce *
tei_rail_bounce_take_separate(struct tei_rail_bounces *b, uint64_t len)
{
	struct tei_rail_bounce *block;

	tei_list_foreach(block, &b->separate, struct tei_rail_bounce, link) {
		if (block->size < len || block->size / 4 > len)
			continue;
		tei_list_del(&block->link);
		b->separate_bytes -= block->size;
		b->in_use++;
		return block;
	}
	return NULL;
}

struct tei_rail_bounce *tei_rail_bounce_take(struct tei_rail_bounces *b,
					     uint64_t len)
{
	int kind = tei_rail_bounce_kind(len);
	struct tei_rail_bounce *block;

	if (kind < 0)
		return tei_rail_bounce_take_separate(b, len);
	if (tei_list_empty(&b->idle[kind]))
		return NULL;
	block = tei_list_first(&b->idle[kind], struct tei_rail_bounce, link);
	tei_list_del(&block->link);
	b->in_use++;
	return block;
}

static void bounce_add_separate(struct tei_rail_bounces *b,
				struct tei_rail_bounce *block)
{
	tei_list_add_head(&b->separate, &block->link);
	b->separate_bytes += block->size;
}

void tei_rail_bounce_add_dirty(struct tei_rail_bounces *b,
			       struct tei_rail_bounce *block)
{
	tei_list_add_tail(&b->dirty, &block->link);
	b->dirty_bytes += block->size;
}

void tei_rail_bounce_put(struct tei_rail_bounces *b,
			 struct tei_rail_bounce *block, bool clean)
{
	b->in_use--;
	if (block->kind >= 0)
		tei_list_add_head(&b->idle[block->kind], &block->link);
	else if (clean)
		bounce_add_separate(b, block);
	else
		tei_rail_bounce_add_dirty(b, block);
}

void tei_rail_bounce_slab_add(struct tei_rail_bounces *b,
			      struct tei_rail_bounce_slab *slab)
{
	uint32_t i;

	tei_list_add_tail(&b->slabs, &slab->link);
	b->nslabs[slab->kind]++;
	for (i = 0; i < bounce_sizes[slab->kind].blocks; i++)
		tei_list_add_tail(&b->idle[slab->kind],
				  &bounce_at(b, slab, i)->link);
}

void tei_rail_bounce_add(struct tei_rail_bounces *b,
			 struct tei_rail_bounce *block, bool used)
{
	if (used)
		b->in_use++;
	else
		bounce_add_separate(b, block);
}

bool tei_rail_bounce_too_many(const struct tei_rail_bounces *b)
{
	return b->dirty_bytes > TEI_RAIL_BOUNCE_IDLE ||
	       b->separate_bytes > TEI_RAIL_BOUNCE_IDLE;
}

struct tei_rail_bounce *tei_rail_bounce_surplus(struct tei_rail_bounces *b,
						uint64_t now)
{
	struct tei_rail_bounce *block;

	if (!tei_list_empty(&b->separate) &&
	    (b->scarce || b->separate_bytes > TEI_RAIL_BOUNCE_IDLE)) {
		block = tei_container_of(b->separate.prev,
					 struct tei_rail_bounce, link);
		b->separate_bytes -= block->size;
	} else if (b->dirty_bytes > TEI_RAIL_BOUNCE_IDLE &&
		   now - b->dirty_ns > BOUNCE_DIRTY_NS) {
		block = tei_list_first(&b->dirty, struct tei_rail_bounce,
				       link);
		b->dirty_bytes -= block->size;
		b->dirty_ns = now;
	} else {
		b->scarce = false;
		return NULL;
	}
	tei_list_del(&block->link);
	return block;
}

bool tei_rail_bounce_scarce(struct tei_rail_bounces *b)
{
	b->scarce |= b->separate_bytes != 0;
	return b->separate_bytes || b->in_use;
}

/* --- functions that block ------------------------------------------------ */

static void *bounce_region(const struct tei_rail_bounces *b, uint64_t size)
{
	void *mem = tei_topo_map(tei_rail_node_near(b->dp, "*"), size);
	struct tei_rail_mr *mr;

	if (!mem)
		return NULL;
	if (!tei_rail_mr_reg(b->dp, mem, size, "*", b->access, NULL, &mr))
		return mem;
	munmap(mem, size);
	return NULL;
}

struct tei_rail_bounce_slab *
tei_rail_bounce_slab_new(const struct tei_rail_bounces *b, int kind)
{
	const struct bounce_size *s = &bounce_sizes[kind];
	struct tei_rail_bounce_slab *slab;
	struct tei_rail_bounce *block;
	uint32_t i;

	slab = calloc(1, sizeof(*slab) + s->blocks * bounce_stride(b));
	if (!slab)
		return NULL;
	slab->kind = kind;
	slab->size = (uint64_t)s->bytes * s->blocks;
	slab->mem = bounce_region(b, slab->size);
	if (!slab->mem) {
		free(slab);
		return NULL;
	}
	for (i = 0; i < s->blocks; i++) {
		block = bounce_at(b, slab, i);
		block->mem = slab->mem + (uint64_t)i * s->bytes;
		block->size = s->bytes;
		block->kind = kind;
	}
	return slab;
}

struct tei_rail_bounce *tei_rail_bounce_new(const struct tei_rail_bounces *b,
					    uint64_t len)
{
	struct tei_rail_bounce *block = calloc(1, bounce_stride(b));

	if (!block)
		return NULL;
	tei_list_init(&block->link);
	block->kind = TEI_RAIL_BOUNCE_SEPARATE;
	block->size = (len + BOUNCE_PAGE - 1) / BOUNCE_PAGE * BOUNCE_PAGE;
	block->mem = bounce_region(b, block->size);
	if (!block->mem) {
		free(block);
		return NULL;
	}
	return block;
}

bool tei_rail_bounce_free(const struct tei_rail_bounces *b,
			  struct tei_rail_bounce *block)
{
	struct tei_err err;

	if (!tei_rail_mr_dereg(b->dp, block->mem, BOUNCE_WAIT_NS, &err)) {
		munmap(block->mem, block->size);
		free(block);
		return true;
	}
	TEI_WARN("rail", "bounce buffer at %p: stays registered: %s",
		 (void *)block->mem, err.text);
	return false;
}
