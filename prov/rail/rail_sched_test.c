/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two data planes in one process: "from" submits, "to" holds the memory.
 */
#include "prov/rail/rail_test.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SCHED_BIG	(32u << 20)
#define SCHED_SMALL	1024u

struct sched_rig {
	struct test_plane from, to;
	struct tei_rail_peer *peer;	/* to, as from knows it */
	char *src, *dst;		/* SCHED_BIG each, registered */
};

static char *sched_map(size_t len)
{
	char *mem = aligned_alloc(4096, len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(mem);
	memset(mem, 0, len);
	return mem;
}

static void sched_reg(struct test_plane *p, void *mem, uint64_t len)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p->dp, mem, len, "*", true, &err,
					      &mr), 0);
}

/* Planes that give up only after long, and fence soon. */
static void sched_init(struct sched_rig *rig)
{
	test_plane_init(&rig->from);
	test_plane_init(&rig->to);
	rig->from.settings.retry_cnt = 128;
	rig->from.settings.slice_timeout_s = 60;
	rig->from.settings.fence_ms = 2000;
	rig->to.settings.fence_ms = 50;
}

static void sched_begin(struct sched_rig *rig)
{
	test_plane_open(&rig->from, "127.0.0.1");
	test_plane_open(&rig->to, "127.0.0.2");
	rig->src = sched_map(SCHED_BIG);
	rig->dst = sched_map(SCHED_BIG);
	sched_reg(&rig->from, rig->src, SCHED_BIG);
	rig->peer = test_plane_peer(&rig->from, &rig->to);
}

/* Connects, and fetches the key of all of dst. */
static void sched_warm(struct sched_rig *rig)
{
	sched_reg(&rig->to, rig->dst, SCHED_BIG);
	CU_ASSERT_EQUAL_FATAL(test_run(rig->from.dp, rig->peer, false, rig->src,
				       rig->dst, 1), TEI_RAIL_END_COMPLETED);
}

static void sched_end(struct sched_rig *rig)
{
	tei_rail_peer_put(rig->peer);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
	free(rig->src);
	free(rig->dst);
}

static struct tei_rail_stats sched_stats(struct test_plane *p)
{
	struct tei_rail_stats s;

	memset(&s, 0, sizeof(s));
	CU_ASSERT_EQUAL(tei_rail_get_stats(p->dp, 0, &s), 0);
	return s;
}

/* Submits tasks at those offsets together; slices that came of it. */
static uint64_t sched_slices(struct sched_rig *rig, const uint32_t *offset,
			     size_t n)
{
	uint64_t before = sched_stats(&rig->from).slices;
	struct test_task t[16];
	size_t i;

	for (i = 0; i < n; i++)
		test_task_init(&t[i], rig->peer, false, rig->src + offset[i],
			       rig->dst + offset[i], SCHED_SMALL);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->from.dp, t, n), 0);
	CU_ASSERT_FATAL(test_wait(t, n));
	for (i = 0; i < n; i++) {
		CU_ASSERT_EQUAL(t[i].end, TEI_RAIL_END_COMPLETED);
		CU_ASSERT_EQUAL(test_ends(&t[i]), 1);
		CU_ASSERT_EQUAL(t[i].task.done_bytes, SCHED_SMALL);
		CU_ASSERT_EQUAL(memcmp(rig->src + offset[i],
				       rig->dst + offset[i], SCHED_SMALL), 0);
	}
	return sched_stats(&rig->from).slices - before;
}

static void test_adjacent_small_tasks_share_a_slice(void)
{
	struct sched_rig rig;
	uint32_t offset[16], i;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	test_fill(rig.src, 16 * SCHED_SMALL, 3);
	for (i = 0; i < 16; i++)
		offset[i] = i * SCHED_SMALL;
	CU_ASSERT_EQUAL(sched_slices(&rig, offset, 16), 1);
	sched_end(&rig);
}

static void test_small_tasks_apart_have_a_slice_each(void)
{
	struct sched_rig rig;
	uint32_t offset[16], i;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	test_fill(rig.src, 64 * SCHED_SMALL, 4);
	for (i = 0; i < 16; i++)
		offset[i] = i * 2 * SCHED_SMALL;
	CU_ASSERT_EQUAL(sched_slices(&rig, offset, 16), 16);
	/* adjacent, but backwards */
	for (i = 0; i < 16; i++)
		offset[i] = (15 - i) * SCHED_SMALL;
	CU_ASSERT_EQUAL(sched_slices(&rig, offset, 16), 16);
	sched_end(&rig);
}

static void test_tasks_of_both_directions_do_not_share_a_slice(void)
{
	struct test_task t[2];
	struct sched_rig rig;
	uint64_t before;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	memset(rig.src, 1, SCHED_SMALL);
	memset(rig.dst + SCHED_SMALL, 2, SCHED_SMALL);
	before = sched_stats(&rig.from).slices;
	test_task_init(&t[0], rig.peer, false, rig.src, rig.dst, SCHED_SMALL);
	test_task_init(&t[1], rig.peer, true, rig.src + SCHED_SMALL,
		       rig.dst + SCHED_SMALL, SCHED_SMALL);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, 2), 0);
	CU_ASSERT_FATAL(test_wait(t, 2));
	CU_ASSERT_EQUAL(sched_stats(&rig.from).slices - before, 2);
	CU_ASSERT_EQUAL(rig.dst[SCHED_SMALL - 1], 1);
	CU_ASSERT_EQUAL(rig.src[2 * SCHED_SMALL - 1], 2);
	sched_end(&rig);
}

static void test_what_is_in_flight_stays_within_the_window(void)
{
	const uint64_t window = 256u << 10, slice = 64u << 10;
	struct tei_rail_stats s;
	struct sched_rig rig;

	sched_init(&rig);
	rig.from.settings.slice_size = (uint32_t)slice;
	rig.from.settings.slice_max = (uint32_t)slice;
	sched_begin(&rig);
	__atomic_store_n(&rail_at(rig.from.dp, 0)->window, window,
			 __ATOMIC_RELAXED);
	sched_warm(&rig);
	test_fill(rig.src, SCHED_BIG, 5);
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 SCHED_BIG), TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst, SCHED_BIG), 0);
	s = sched_stats(&rig.from);
	CU_ASSERT(s.inflight_max > 0);
	/* the last slice of a task may be half as long again */
	CU_ASSERT(s.inflight_max <= window + slice + slice / 2);
	CU_ASSERT_EQUAL(s.inflight_bytes, 0);
	CU_ASSERT_EQUAL(s.tx_bytes, SCHED_BIG + 1);
	CU_ASSERT(s.slices >= SCHED_BIG / (slice + slice / 2));
	sched_end(&rig);
}

static void test_a_task_spans_adjacent_regions(void)
{
	struct sched_rig rig;

	sched_init(&rig);
	sched_begin(&rig);
	sched_reg(&rig.to, rig.dst, 12345);
	sched_reg(&rig.to, rig.dst + 12345, SCHED_BIG - 12345);
	test_fill(rig.src, SCHED_BIG, 6);
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 SCHED_BIG), TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst, SCHED_BIG), 0);
	memset(rig.src, 0, SCHED_BIG);
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, true, rig.src,
				 rig.dst + 12000, 1000),
			TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst + 12000, 1000), 0);
	sched_end(&rig);
}

static void test_a_target_outside_its_regions_fails(void)
{
	struct sched_rig rig;
	struct test_task t;

	sched_init(&rig);
	sched_begin(&rig);
	sched_warm(&rig);
	test_task_init(&t, rig.peer, false, rig.src,
		       rig.dst + SCHED_BIG - 1, 2);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, &t, 1), 0);
	CU_ASSERT_FATAL(test_wait(&t, 1));
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_FAILED);
	CU_ASSERT_EQUAL(t.code, TEI_ERR_NOT_REGISTERED);
	/* nor does a source outside ours get that far */
	test_task_init(&t, rig.peer, false, rig.src + SCHED_BIG - 1, rig.dst,
		       2);
	CU_ASSERT_EQUAL(test_submit(rig.from.dp, &t, 1),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(test_ends(&t), 0);
	sched_end(&rig);
}

const struct tei_test_case rail_sched_cases[] = {
	{ "adjacent_small_tasks_share_a_slice",
	  test_adjacent_small_tasks_share_a_slice },
	{ "small_tasks_apart_have_a_slice_each",
	  test_small_tasks_apart_have_a_slice_each },
	{ "tasks_of_both_directions_do_not_share_a_slice",
	  test_tasks_of_both_directions_do_not_share_a_slice },
	{ "what_is_in_flight_stays_within_the_window",
	  test_what_is_in_flight_stays_within_the_window },
	{ "a_task_spans_adjacent_regions", test_a_task_spans_adjacent_regions },
	{ "a_target_outside_its_regions_fails",
	  test_a_target_outside_its_regions_fails },
	{ NULL, NULL },
};
