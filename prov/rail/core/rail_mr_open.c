/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registers a region on all rails, or on none. The nearest rails come first, so
 * that a limited resource runs out on rails that matter less.
 *
 * Pinning takes time, about a second per ten gigabytes, and each rail pins the
 * memory again. So large regions are registered on several rails in parallel.
 * The number is limited, because pinning contends for the page tables of the
 * process.
 */
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/lock.h"
#include "util/thread.h"

#define MR_AT_A_TIME	4		/* limit of the rails on which a region
					 * is registered in parallel */
/* Smallest region that is registered by several threads, bytes. */
#define MR_LARGE (64u << 20)

struct mr_opening {
	struct tei_rail_mr *mr;
	struct rail *rails[TEI_RAIL_MAX];
	uint8_t rank[TEI_RAIL_MAX];
	uint32_t n;
	uint32_t next;			/* atomic: index of the rail that the
					 * next free thread takes */
	int ret;			/* atomic: error code of the first
					 * registration that failed; 0 if none
					 * failed */
	struct tei_err err;		/* error of the registration that failed
					 * first; written by the thread that set
					 * "ret" */
};

/* Returns the best rank that the rail has for any NUMA range of the region. */
static uint8_t mr_rank_of(const struct tei_rail_mr *mr, uint32_t rail)
	TEI_REQUIRES(rail_sched_held)
{
	uint8_t rank = mr->places[0].rank[rail];
	uint32_t p;

	for (p = 1; p < mr->nplaces; p++)
		if (mr->places[p].rank[rail] < rank)
			rank = mr->places[p].rank[rail];
	return rank;
}

/* Lists the open rails in o->rails, nearest first. */
static void mr_order(struct tei_rail_dp *dp, struct mr_opening *o)
{
	uint32_t i, at;
	uint8_t rank;

	rail_sched_enter(dp);
	for (i = 0; i < rail_count(dp); i++) {
		if (!rail_at(dp, i)->open)
			continue;
		rank = mr_rank_of(o->mr, i);
		for (at = o->n++; at && o->rank[at - 1] > rank; at--) {
			o->rails[at] = o->rails[at - 1];
			o->rank[at] = o->rank[at - 1];
		}
		o->rails[at] = rail_at(dp, i);
		o->rank[at] = rank;
	}
	rail_sched_leave(dp);
}

/* Registers the region on one rail after the other until no rail is left or one
 * has failed. The caller of rail_mr_open_all holds dp->admin meanwhile. */
static void *mr_open_next(void *arg)
{
	struct mr_opening *o = arg;
	struct tei_err err;
	uint32_t i;
	int ret, none;

	for (;;) {
		i = __atomic_fetch_add(&o->next, 1, __ATOMIC_RELAXED);
		if (i >= o->n || __atomic_load_n(&o->ret, __ATOMIC_RELAXED))
			return NULL;
		ret = rail_mr_open_on(o->mr, o->rails[i], &err);
		none = 0;
		if (ret && __atomic_compare_exchange_n(&o->ret, &none, ret,
						       false, __ATOMIC_RELAXED,
						       __ATOMIC_RELAXED))
			o->err = err;
	}
}

static void mr_open_together(struct mr_opening *o)
{
	pthread_t helper[MR_AT_A_TIME - 1];
	uint32_t n = 0;

	while (o->mr->len >= MR_LARGE && n + 1 < MR_AT_A_TIME &&
	       n + 1 < o->n &&
	       !tei_thread_start(&helper[n], false, mr_open_next, o))
		n++;
	mr_open_next(o);
	while (n--)
		tei_thread_join(helper[n]);
}

int rail_mr_open_all(struct tei_rail_dp *dp, struct tei_rail_mr *mr,
		     struct tei_err *err)
{
	struct mr_opening o = { .mr = mr };
	uint32_t i;

	mr_order(dp, &o);
	mr_open_together(&o);
	if (!o.ret)
		return 0;
	for (i = 0; i < o.n; i++)
		rail_mr_close_on(mr, o.rails[i]);
	*err = o.err;
	if (!mr->gpu)			/* the error may have occurred on
					 * another thread, so set it as the last
					 * error of this thread */
		tei_err_set_last(&o.err);
	return o.ret;
}
