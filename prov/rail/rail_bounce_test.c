/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of the pool of bounce buffers.
 */
#include <rdma/fi_errno.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/rail_shim.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail_bounce.h"

#define BOUNCE_BIG (TEI_RAIL_BOUNCE_IDLE / 4)

struct bounce_rig {
	struct test_plane plane;
	struct rail_shim shim;
	struct tei_rail_bounces pool;
};

/* Data that these tests store in the member "room" of a block. */
struct bounce_room {
	uint64_t value;
};

static struct bounce_room *bounce_room(struct tei_rail_bounce *block)
{
	return (void *)block->room;
}

static void bounce_open(struct bounce_rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	test_plane_init(&rig->plane);
	test_plane_open(&rig->plane, "127.0.0.1");
	rail_shim_install(&rig->shim, rail_at(rig->plane.dp, 0), 0);
	/* provider tcp does not register memory that only local tasks use, so
	 * the pool's memory is made accessible to peers */
	tei_rail_bounces_init(&rig->pool, rig->plane.dp, TEI_RAIL_REMOTE,
			      sizeof(struct bounce_room));
}

static void bounce_close(struct bounce_rig *rig)
{
	CU_ASSERT_EQUAL(rig->pool.in_use, 0);
	test_plane_close(&rig->plane);
	rail_shim_remove(&rig->shim);
	tei_rail_bounces_fini(&rig->pool);
}

static bool bounce_registered(struct bounce_rig *rig,
			      const struct tei_rail_bounce *block)
{
	if (tei_rail_mr_hold(rig->plane.dp, block->mem, block->size, true))
		return false;
	tei_rail_mr_let_go(rig->plane.dp, block->mem, block->size);
	return true;
}

/* Makes a separate block of at least len bytes and adds it to the pool as
 * idle. */
static struct tei_rail_bounce *bounce_separate(struct bounce_rig *rig,
					       uint64_t len)
{
	struct tei_rail_bounce *block = tei_rail_bounce_new(&rig->pool, len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(block);
	tei_rail_bounce_add(&rig->pool, block, false);
	return block;
}

static void bounce_check_kind(struct bounce_rig *rig, int kind)
{
	uint32_t n = tei_rail_bounce_count(kind), i;
	struct tei_rail_bounce *block[256];

	CU_ASSERT_FATAL(n <= 256);
	for (i = 0; i < n; i++) {
		block[i] = tei_rail_bounce_take(&rig->pool,
						tei_rail_bounce_size(kind));
		CU_ASSERT_PTR_NOT_NULL_FATAL(block[i]);
		CU_ASSERT(block[i]->kind == kind &&
			  block[i]->size == tei_rail_bounce_size(kind) &&
			  bounce_registered(rig, block[i]));
		CU_ASSERT_EQUAL(bounce_room(block[i])->value, 0);
		bounce_room(block[i])->value = i + 1;
		memset(block[i]->mem, (int)i, block[i]->size);
	}
	CU_ASSERT_PTR_NULL(tei_rail_bounce_take(&rig->pool,
						tei_rail_bounce_size(kind)));
	for (i = 0; i < n; i++) {
		CU_ASSERT(block[i]->mem[0] == (char)i &&
			  block[i]->mem[block[i]->size - 1] == (char)i &&
			  bounce_room(block[i])->value == i + 1);
		tei_rail_bounce_put(&rig->pool, block[i], true);
	}
}

static void test_blocks_of_a_slab_are_registered_and_disjoint(void)
{
	struct tei_rail_bounce_slab *slab;
	struct bounce_rig rig;
	int kind;

	bounce_open(&rig);
	for (kind = 0; kind < TEI_RAIL_BOUNCE_SIZES; kind++) {
		CU_ASSERT_PTR_NULL(tei_rail_bounce_take(
			&rig.pool, tei_rail_bounce_size(kind)));
		slab = tei_rail_bounce_slab_new(&rig.pool, kind);
		CU_ASSERT_PTR_NOT_NULL_FATAL(slab);
		tei_rail_bounce_slab_add(&rig.pool, slab);
		CU_ASSERT_EQUAL(rig.pool.nslabs[kind], 1);
		bounce_check_kind(&rig, kind);
	}
	bounce_close(&rig);
}

static void test_kind_is_the_smallest_size_that_fits(void)
{
	uint32_t last = tei_rail_bounce_size(TEI_RAIL_BOUNCE_SIZES - 1);
	int kind;

	CU_ASSERT_EQUAL(tei_rail_bounce_kind(1), 0);
	for (kind = 0; kind + 1 < TEI_RAIL_BOUNCE_SIZES; kind++) {
		CU_ASSERT_EQUAL(tei_rail_bounce_kind(
					tei_rail_bounce_size(kind)), kind);
		CU_ASSERT_EQUAL(tei_rail_bounce_kind(
					tei_rail_bounce_size(kind) + 1),
				kind + 1);
	}
	CU_ASSERT_EQUAL(tei_rail_bounce_kind(last + 1ull),
			TEI_RAIL_BOUNCE_SEPARATE);
}

static void test_separate_block_is_reused_for_similar_lengths(void)
{
	struct tei_rail_bounce *block;
	struct bounce_rig rig;

	bounce_open(&rig);
	block = bounce_separate(&rig, (2u << 20) + 1);
	CU_ASSERT(block->size >= (2u << 20) + 1 &&
		  bounce_registered(&rig, block));
	/* The block is too small for the first length, and far too large for
	 * the second one. */
	CU_ASSERT_PTR_NULL(tei_rail_bounce_take(&rig.pool, block->size + 1));
	CU_ASSERT_PTR_NULL(tei_rail_bounce_take_separate(&rig.pool, 4096));
	CU_ASSERT_PTR_EQUAL(tei_rail_bounce_take(&rig.pool, 2u << 20), block);
	CU_ASSERT_PTR_NULL(tei_rail_bounce_take(&rig.pool, 2u << 20));
	tei_rail_bounce_put(&rig.pool, block, true);
	CU_ASSERT_PTR_EQUAL(tei_rail_bounce_take_separate(&rig.pool, 1u << 20),
			    block);
	tei_rail_bounce_put(&rig.pool, block, true);
	bounce_close(&rig);
}

static void test_dirty_block_is_not_reused(void)
{
	struct tei_rail_bounce *block;
	struct bounce_rig rig;

	bounce_open(&rig);
	block = bounce_separate(&rig, 2u << 20);
	CU_ASSERT_PTR_EQUAL(tei_rail_bounce_take(&rig.pool, 2u << 20), block);
	tei_rail_bounce_put(&rig.pool, block, false);
	CU_ASSERT_PTR_NULL(tei_rail_bounce_take(&rig.pool, 2u << 20));
	CU_ASSERT_EQUAL(rig.pool.dirty_bytes, block->size);
	/* the dirty bytes are below the limit, so the block is not
	 * unregistered, which would need a fence */
	CU_ASSERT_PTR_NULL(tei_rail_bounce_surplus(&rig.pool, tei_now_ns()));
	CU_ASSERT(bounce_registered(&rig, block));
	bounce_close(&rig);
}

/* Makes six dirty blocks, while the limit allows four. */
static void test_dirty_blocks_above_the_limit_are_surplus_one_per_second(void)
{
	struct tei_rail_bounce *block, *first = NULL;
	uint64_t now = tei_now_ns();
	struct bounce_rig rig;
	int i;

	bounce_open(&rig);
	for (i = 0; i < 6; i++) {
		block = tei_rail_bounce_new(&rig.pool, BOUNCE_BIG);
		CU_ASSERT_PTR_NOT_NULL_FATAL(block);
		tei_rail_bounce_add(&rig.pool, block, true);
		tei_rail_bounce_put(&rig.pool, block, false);
		first = first ? first : block;
	}
	CU_ASSERT(tei_rail_bounce_too_many(&rig.pool));
	CU_ASSERT_PTR_EQUAL(tei_rail_bounce_surplus(&rig.pool, now), first);
	CU_ASSERT_PTR_NULL(tei_rail_bounce_surplus(&rig.pool, now + 1));
	CU_ASSERT(tei_rail_bounce_free(&rig.pool, first));
	block = tei_rail_bounce_surplus(&rig.pool, now + 2 * TEI_NS_PER_SEC);
	CU_ASSERT_PTR_NOT_NULL_FATAL(block);
	CU_ASSERT(!tei_rail_bounce_too_many(&rig.pool));
	tei_rail_bounce_add_dirty(&rig.pool, block);
	bounce_close(&rig);
}

static void test_idle_blocks_above_the_limit_are_surplus_oldest_first(void)
{
	struct tei_rail_bounce *first, *second, *block;
	struct bounce_rig rig;
	int i;

	bounce_open(&rig);
	first = bounce_separate(&rig, BOUNCE_BIG);
	second = bounce_separate(&rig, BOUNCE_BIG);
	for (i = 0; i < 2; i++)
		bounce_separate(&rig, BOUNCE_BIG);
	CU_ASSERT_PTR_NULL(tei_rail_bounce_surplus(&rig.pool, tei_now_ns()));
	bounce_separate(&rig, BOUNCE_BIG);
	block = tei_rail_bounce_surplus(&rig.pool, tei_now_ns());
	CU_ASSERT_PTR_EQUAL_FATAL(block, first);
	CU_ASSERT(tei_rail_bounce_free(&rig.pool, block));
	CU_ASSERT_PTR_NULL(tei_rail_bounce_surplus(&rig.pool, tei_now_ns()));
	/* after tei_rail_bounce_scarce all idle separate blocks are surplus */
	CU_ASSERT(tei_rail_bounce_scarce(&rig.pool));
	block = tei_rail_bounce_surplus(&rig.pool, tei_now_ns());
	CU_ASSERT_PTR_EQUAL_FATAL(block, second);
	CU_ASSERT(tei_rail_bounce_free(&rig.pool, block));
	bounce_close(&rig);
}

static void test_refused_registration_adds_nothing(void)
{
	struct bounce_rig rig;

	bounce_open(&rig);
	rig.shim.max_len = 1;
	rig.shim.refusal = -FI_EACCES;
	CU_ASSERT_PTR_NULL(tei_rail_bounce_slab_new(&rig.pool, 0));
	CU_ASSERT_PTR_NULL(tei_rail_bounce_new(&rig.pool, 1u << 20));
	/* no block is in use and none is idle, so waiting would not help */
	CU_ASSERT(!tei_rail_bounce_scarce(&rig.pool));
	rig.shim.refusal = 0;
	rig.shim.max_len = 0;
	bounce_separate(&rig, 1u << 20);
	CU_ASSERT(tei_rail_bounce_scarce(&rig.pool));
	bounce_close(&rig);
}

const struct tei_test_case rail_bounce_cases[] = {
	{ "blocks_of_a_slab_are_registered_and_disjoint",
	  test_blocks_of_a_slab_are_registered_and_disjoint },
	{ "dirty_block_is_not_reused", test_dirty_block_is_not_reused },
	{ "dirty_blocks_above_the_limit_are_surplus_one_per_second",
	  test_dirty_blocks_above_the_limit_are_surplus_one_per_second },
	{ "idle_blocks_above_the_limit_are_surplus_oldest_first",
	  test_idle_blocks_above_the_limit_are_surplus_oldest_first },
	{ "kind_is_the_smallest_size_that_fits",
	  test_kind_is_the_smallest_size_that_fits },
	{ "refused_registration_adds_nothing",
	  test_refused_registration_adds_nothing },
	{ "separate_block_is_reused_for_similar_lengths",
	  test_separate_block_is_reused_for_similar_lengths },
	{ NULL, NULL },
};
