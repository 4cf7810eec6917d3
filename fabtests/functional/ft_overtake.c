/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures the latency of a small request during a bulk request to the same
 * target or to another, on one rail and on two, between two network namespaces.
 * The test starts itself again in one of them. The extra latency is expressed
 * in slice times of the bulk request, measured in the same run. The median
 * request must wait for at most one slice. The test also measures a bulk
 * request during many small ones to another target.
 *
 * A busy machine delays single requests. Therefore the median is used, and a
 * bad measurement is reported and repeated before it counts as a failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/fx_links.h"

#define OVER_BULK	(64 * FX_MIB)
#define OVER_SMALL	(4 * FX_KIB)
#define OVER_SLICE	(64 * FX_KIB)	/* default of MC_SLICE_SIZE */
#define OVER_WARM	20		/* unmeasured first requests */
#define OVER_ALONE	40
#define OVER_MOST	2000
#define OVER_LEAST	40		/* samples required */
#define OVER_PAUSE_NS	5600000
#define OVER_TRIES	3
#define OVER_SLICES	1.0		/* median limit, in slices */
#define OVER_SLOW	2.0		/* limit under a sanitizer, where four
					 * slices are posted without small
					 * requests */
#define OVER_SHARE	0.2		/* minimum share of a bulk request */

struct over_case {
	const char *name;
	const char *devices;
	unsigned int rails;
	int op;
	bool deferred; /* the bulk request has another target */
};

/* the second target */
struct over_other {
	struct fx_peer target;
	segment_id_t seg;
};

/* latencies in ms, sorted */
struct over_lat {
	double ms[OVER_MOST];
	unsigned int n;
};

static int over_cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double over_at(const struct over_lat *l, unsigned int percent)
{
	return l->ms[(l->n - 1) * percent / 100];
}

/* Moves one small request behind the bulk request's memory. Returns ms, or a
 * negative number on failure. */
static double over_small(const struct fx_links *l, int op)
{
	uint64_t from = ft_now_ns();

	if (!fx_move(l->engine, l->seg, op, l->mem.p + OVER_BULK,
		     l->target.mem.addr + OVER_BULK, OVER_SMALL, 0))
		return -1;
	return (double)(ft_now_ns() - from) / 1e6;
}

static bool over_alone(const struct fx_links *l, int op, struct over_lat *lat)
{
	for (lat->n = 0; lat->n < OVER_ALONE; lat->n++) {
		lat->ms[lat->n] = over_small(l, op);
		if (lat->ms[lat->n] < 0)
			return false;
	}
	qsort(lat->ms, lat->n, sizeof(*lat->ms), over_cmp);
	return true;
}

static uint64_t over_random;

/* Sleeps for up to two slice times, so that the requests do not synchronize
 * with the slices. */
static void over_pause(void)
{
	struct timespec ts = { 0 };

	ts.tv_nsec = (long)(ft_random(&over_random) % OVER_PAUSE_NS);
	nanosleep(&ts, NULL);
}

/* Measures small requests until most of the bulk request is done. Returns in
 * *bytes and *ns what the bulk request moved, and in what time. */
static bool over_beside(const struct fx_links *l, struct fx_job *bulk,
			struct over_lat *lat, double *bytes, double *ns)
{
	uint64_t from = 0, was = 0;
	unsigned int i = 0;
	double ms;

	lat->n = 0;
	while (!fx_job_poll(bulk) && bulk->bytes < OVER_BULK / 8 * 7 &&
	       lat->n < OVER_MOST) {
		if (i++ == OVER_WARM) {
			from = ft_now_ns();
			was = bulk->bytes;
		}
		*bytes = (double)(bulk->bytes - was);
		*ns = (double)(ft_now_ns() - from);
		over_pause();
		ms = over_small(l, bulk->op);
		if (ms < 0)
			return false;
		if (i > OVER_WARM)
			lat->ms[lat->n++] = ms;
	}
	qsort(lat->ms, lat->n, sizeof(*lat->ms), over_cmp);
	return true;
}

/* Returns true if the latency is within its limit. Sets *failed on any other
 * error. */
static bool over_once(struct fx_links *l, const struct over_other *other,
		      const struct over_case *c, bool *failed)
{
	static struct over_lat alone, beside;
	struct fx_job bulk = {
		.engine = l->engine,
		.op = c->op,
		.len = OVER_BULK,
		.seg = c->deferred ? other->seg : l->seg,
		.local = l->mem.p,
		.remote = c->deferred ? other->target.mem.addr
				      : l->target.mem.addr,
	};
	double bytes = 0, ns = 0, slice, half, most;

	*failed = !over_alone(l, c->op, &alone) || fx_job_start(&bulk);
	if (*failed)
		return false;
	*failed = !over_beside(l, &bulk, &beside, &bytes, &ns);
	*failed = !fx_job_wait(&bulk, FX_LONG_MS) ||
		  bulk.n[STATUS_COMPLETED] != 1 || *failed;
	*failed = !fx_job_free(&bulk) || *failed;
	if (*failed || beside.n < OVER_LEAST || bytes <= 0) {
		ft_diag("%s: only %u requests during the bulk request",
			c->name, beside.n);
		return false;
	}
	slice = ns / 1e6 * OVER_SLICE * c->rails / bytes;
	half = (over_at(&beside, 50) - over_at(&alone, 50)) / slice;
	most = (over_at(&beside, 90) - over_at(&alone, 50)) / slice;
	ft_diag("%s: median %.2f ms alone, %u requests during 64 MiB %.2f ms (90 %%: %.2f); a slice takes %.2f ms: waits for %.2f slices (90 %%: %.2f)",
		c->name, over_at(&alone, 50), beside.n, over_at(&beside, 50),
		over_at(&beside, 90), slice, half, most);
	return half <= (fx_slow() ? OVER_SLOW : OVER_SLICES);
}

static void over_run(const struct over_case *c, struct fx_links *l,
		     const struct over_other *other)
{
	bool good = false, failed = false;
	char what[128];
	int i;

	for (i = 0; i < OVER_TRIES && !good && !failed; i++) {
		if (i)
			ft_diag("%s: above the limit, measured again", c->name);
		good = over_once(l, other, c, &failed);
	}
	snprintf(what, sizeof(what),
		 "a_small_%s_waits_for_no_more_than_a_slice_of_a_large_one",
		 c->name);
	ft_ok(good, "%s", what);
}

/* Many one-slice requests to one target must leave a bulk request to another
 * target its share of the rail. */
static void over_share(struct fx_links *l, const struct over_other *other)
{
	struct fx_job many = {
		.engine = l->engine, .op = OPCODE_WRITE, .len = OVER_BULK,
		.seg = l->seg, .local = l->mem.p,
		.remote = l->target.mem.addr, .block = OVER_SLICE,
	};
	struct fx_job large = many;
	double share;

	large.seg = other->seg;
	large.remote = other->target.mem.addr;
	large.block = 0;
	if (!ft_ok(!fx_job_start(&many) && !fx_job_start(&large),
		   "many_small_requests_and_a_large_one_begin"))
		return;
	while (!fx_job_poll(&many) && !fx_job_poll(&large) &&
	       many.bytes < OVER_BULK / 4 * 3)
		over_pause();
	share = (double)large.bytes / (double)(large.bytes + many.bytes);
	ft_diag("a bulk request during %u requests of 64 KiB to another target: %.0f %% of the rail's bytes",
		(unsigned int)(OVER_BULK / OVER_SLICE), share * 100);
	ft_ok(share >= OVER_SHARE,
	      "large_request_keeps_its_share_next_to_small_ones");
	ft_ok(fx_job_wait(&many, FX_LONG_MS) &&
		      fx_job_wait(&large, FX_LONG_MS) &&
		      large.n[STATUS_COMPLETED] == 1,
	      "small_requests_and_the_large_one_complete");
	ft_ok(fx_job_free(&many) && fx_job_free(&large),
	      "batches_of_small_and_large_requests_are_freed");
}

static bool over_start(struct fx_links *links, struct over_other *other,
		       const char *devices)
{
	memset(links, 0, sizeof(*links));
	memset(other, 0, sizeof(*other));
	if (!fx_links_start_on(links, devices, OVER_BULK) ||
	    !fx_links_target(&other->target, OVER_BULK))
		return false;
	other->seg = openSegment(links->engine, other->target.name);
	return other->seg >= 0 &&
	       fx_move(links->engine, other->seg, OPCODE_WRITE, links->mem.p,
		       other->target.mem.addr, OVER_SMALL, 0);
}

int main(int argc, char **argv)
{
	static const struct over_case cases[] = {
		{ "write_on_one_rail", "r0", 1, OPCODE_WRITE, false },
		{ "read_on_one_rail", "r0", 1, OPCODE_READ, false },
		{ "write_on_one_rail_to_another_target", "r0", 1, OPCODE_WRITE,
		  true },
		{ "write_on_two_rails", "r0,r1", 2, OPCODE_WRITE, false },
		{ "read_on_two_rails", "r0,r1", 2, OPCODE_READ, false },
		{ "read_on_two_rails_from_another_target", "r0,r1", 2,
		  OPCODE_READ, true },
	};
	struct over_other other;
	struct fx_links links;
	size_t i, j;

	fx_init(argc, argv);
	if (!fx_links_are())
		return fx_links_inside(argv, "no");
	over_random = fx_seed();
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i += 3) {
		if (!ft_ok(over_start(&links, &other, cases[i].devices),
			   "an_engine_and_two_targets_on_%s",
			   cases[i].devices))
			return ft_result();
		for (j = i; j < i + 3; j++)
			over_run(&cases[j], &links, &other);
		if (!i)
			over_share(&links, &other);
		ft_ok(fx_peer_stop(&other.target), "the_other_target_ends_well");
		fx_links_stop(&links);
	}
	return ft_result();
}
