/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests how much a bulk request delays small requests on the same rails, and
 * how requests to two targets share a rail. Virtual time makes the measurements
 * exact: code takes no time, only the network does.
 *
 * The delay of a small request is its latency next to the bulk request minus
 * its latency alone. It is measured in slice times: the time in which the bulk
 * request moves one slice on one rail. To keep the delay small, the data plane
 * limits the posted bytes of bulk requests (rail_window_throttle), but on IP
 * networks only. On other networks, the connections to two targets share a rail
 * packet by packet.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_planes.h"
#include "fabtests/sim/sim_test.h"
#include "prov/rail/tei_rail.h"

#define OVER_BULK	(32u << 20)
#define OVER_SMALL	4096u
#define OVER_SLICE	(64u << 10)	/* default of MC_SLICE_SIZE, bytes */
#define OVER_BANDWIDTH	125000000u	/* bandwidth of a NIC, bytes/s */
/* number of small requests at the beginning of the bulk request that are not
 * measured, because the data plane does not know the rate of the rail yet */
#define OVER_WARM	20u
#define OVER_ALONE	10u		/* number of small requests before the
					 * bulk request */
#define OVER_MOST	1000u		/* maximum number of measured small
					 * requests during a bulk request */
#define OVER_LEAST	40u		/* minimum number of measured small
					 * requests */
#define OVER_MANY	256u		/* number of one-slice requests to one
					 * target */
#define OVER_SHARE	0.25		/* smallest share of the rail that a
					 * bulk request must have next to
					 * one-slice requests; a fair share is
					 * 0.5 */
#define OVER_STEP_NS	(10 * SIM_US)	/* time between two checks whether a
					 * task has ended */

/* The parameters of a measurement. */
struct over_case {
	uint32_t rails;
	bool verbs, read;
	uint32_t bulk_to;		/* target of the bulk request; the small
					 * requests always go to target 1 */
	double slices;			/* maximum of the median delay, slice
					 * times */
};

static struct sim_planes_conf over_conf = {
	.bytes = OVER_BULK + OVER_SMALL,
	.hosts = 3,
	.bandwidth = OVER_BANDWIDTH,
};
static const struct over_case *over_now;	/* parameters of the present
						 * measurement */

/* --- requests --- */

static struct sim_plane_task over_bulk, over_small;
static struct sim_plane_task over_many[OVER_MANY];

/* Submits a transfer between host 0 and host `to`. `off` is the offset in the
 * memory of both hosts. */
static void over_submit(struct sim_plane *p, struct sim_plane_task *t,
			uint32_t to, uint64_t off, uint64_t len)
{
	struct tei_rail_task *task = &t->task;

	memset(t, 0, sizeof(*t));
	task->peer = p->peers[to];
	task->read = over_now->read;
	task->local = p->mem + off;
	task->remote = (uintptr_t)sim_planes[to].mem + off;
	task->length = len;
	CU_ASSERT_EQUAL_FATAL(tei_rail_submit(p->dp, &task, 1), 0);
}

/* Waits until the task has ended. Called in a fiber. */
static void over_wait(const struct sim_plane_task *t)
{
	while (!t->ends)
		sim_sleep_until(sim_now() + OVER_STEP_NS);
	CU_ASSERT_EQUAL(t->ends, 1);
	CU_ASSERT_EQUAL(t->end, TEI_RAIL_END_COMPLETED);
}

/* Sends one small request to each target, so that the connections exist
 * afterwards. */
static void over_connect(struct sim_plane *p)
{
	for (uint32_t i = 1; i < over_conf.hosts; i++) {
		over_submit(p, &over_small, i, 0, OVER_SMALL);
		over_wait(&over_small);
	}
}

/* Does a small request to target 1. Returns its latency, ns. */
static uint64_t over_latency(struct sim_plane *p)
{
	uint64_t from = sim_now();

	over_submit(p, &over_small, 1, OVER_BULK, OVER_SMALL);
	over_wait(&over_small);
	return over_small.end_ns - from;
}

/* --- a small request during a bulk request --- */

/* latencies of small requests, ns: the lowest one without a bulk request, and
 * those during it */
static uint64_t over_alone, over_beside[OVER_MOST];
static uint32_t over_n;				/* number of elements of
						 * over_beside */
static uint64_t over_bulk_ns;	/* duration of the bulk request, ns */

static int over_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void *over_measure(void *arg)
{
	const uint64_t slice_ns = OVER_SLICE * SIM_SEC / OVER_BANDWIDTH;
	struct sim_plane *p = arg;
	struct sim_rng rng;
	uint64_t from, ns;
	uint32_t i;

	sim_rng_init(&rng, "overtake", over_now->rails);
	over_connect(p);
	over_alone = UINT64_MAX;
	for (i = 0; i < OVER_ALONE; i++) {
		ns = over_latency(p);
		if (ns < over_alone)
			over_alone = ns;
	}
	from = sim_now();
	over_submit(p, &over_bulk, over_now->bulk_to, 0, OVER_BULK);
	for (over_n = i = 0; over_n < OVER_MOST; i++) {
		/* A random pause keeps the requests from always meeting the
		 * same part of a slice. */
		sim_sleep_until(sim_now() + sim_rng_below(&rng, 2 * slice_ns));
		ns = over_latency(p);
		if (over_bulk.ends)
			break;
		if (i >= OVER_WARM)
			over_beside[over_n++] = ns;
	}
	over_wait(&over_bulk);
	over_bulk_ns = over_bulk.end_ns - from;
	return NULL;
}

static void over_check(const struct over_case *c)
{
	double slice, half, most;

	over_now = c;
	over_conf.seed = 1;
	over_conf.verbs = c->verbs;
	over_conf.nics = c->rails;
	sim_planes_begin(&over_conf);
	sim_plane_run(&sim_planes[0], over_measure);
	sim_planes_end();
	CU_ASSERT_FATAL(over_n >= OVER_LEAST);
	qsort(over_beside, over_n, sizeof(*over_beside), over_compare);
	slice = (double)over_bulk_ns * OVER_SLICE * c->rails / OVER_BULK;
	half = ((double)over_beside[over_n / 2] - (double)over_alone) / slice;
	most = ((double)over_beside[over_n - 1] - (double)over_alone) / slice;
	printf("# %s, %u rail(s), %s, bulk to target %u: %u requests, alone %.1f us, a slice takes %.1f us; wait: median %.2f slices, longest %.2f\n",
	       c->verbs ? "verbs" : "tcp", c->rails,
	       c->read ? "read" : "write", c->bulk_to, over_n,
	       (double)over_alone / 1e3, slice / 1e3, half, most);
	CU_ASSERT(half <= c->slices);
}

static void test_small_write_waits_for_one_slice_of_a_large_one(void)
{
	static const struct over_case cases[] = {
		{ 1, false, false, 1, 1 }, { 2, false, false, 1, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		over_check(&cases[i]);
}

static void test_small_read_waits_for_one_slice_of_a_large_one(void)
{
	static const struct over_case cases[] = {
		{ 1, false, true, 1, 1 }, { 2, false, true, 1, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		over_check(&cases[i]);
}

static void test_bulk_request_to_another_target_delays_by_one_slice(void)
{
	static const struct over_case cases[] = {
		{ 1, false, false, 2, 1 }, { 2, false, false, 2, 1 },
		{ 1, true, false, 2, 1 },  { 2, true, false, 2, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		over_check(&cases[i]);
}

/* --- shares of two targets --- */

static uint64_t over_many_end_ns;	/* virtual time at which the last
					 * one-slice request ended */
static uint64_t over_many_ns;		/* duration of all one-slice requests,
					 * ns */

static void *over_compete(void *arg)
{
	struct sim_plane *p = arg;
	uint64_t from;
	uint32_t i;

	over_connect(p);
	from = sim_now();
	for (i = 0; i < OVER_MANY; i++)
		over_submit(p, &over_many[i], 1, (uint64_t)i * OVER_SLICE,
			    OVER_SLICE);
	over_submit(p, &over_bulk, 2, 0, OVER_BULK);
	over_many_end_ns = 0;
	for (i = 0; i < OVER_MANY; i++) {
		over_wait(&over_many[i]);
		if (over_many[i].end_ns > over_many_end_ns)
			over_many_end_ns = over_many[i].end_ns;
	}
	over_many_ns = over_many_end_ns - from;
	over_wait(&over_bulk);
	return NULL;
}

static void test_large_request_keeps_its_share_next_to_small_ones(void)
{
	static const struct over_case one = { 1, false, false, 2, 0 };
	double moved, small = (double)OVER_MANY * OVER_SLICE, share;

	over_now = &one;
	over_conf.verbs = false;
	over_conf.nics = 1;
	sim_planes_begin(&over_conf);
	sim_plane_run(&sim_planes[0], over_compete);
	sim_planes_end();
	/* bytes that the rail has moved until the one-slice requests ended */
	moved = (double)over_many_ns / SIM_SEC * OVER_BANDWIDTH;
	share = (moved - small) / moved;
	printf("# share of a bulk request next to %u requests of 64 KiB to another target: %.0f %%\n",
	       OVER_MANY, share * 100);
	CU_ASSERT(share >= OVER_SHARE);
	CU_ASSERT(over_bulk.end_ns > over_many_end_ns);
}

const struct tei_test_case sim_overtake_cases[] = {
	{ "small_write_waits_for_one_slice_of_a_large_one",
	  test_small_write_waits_for_one_slice_of_a_large_one },
	{ "small_read_waits_for_one_slice_of_a_large_one",
	  test_small_read_waits_for_one_slice_of_a_large_one },
	{ "bulk_request_to_another_target_delays_by_one_slice",
	  test_bulk_request_to_another_target_delays_by_one_slice },
	{ "large_request_keeps_its_share_next_to_small_ones",
	  test_large_request_keeps_its_share_next_to_small_ones },
	{ NULL, NULL },
};
