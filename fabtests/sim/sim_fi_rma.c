/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>

#include "fabtests/sim/sim_fi_int.h"

static struct {
	const struct sim_conf *conf;
	struct fi_slot *slots;		/* fi_lanes slots of each target, in the
					 * order of the hosts */
	struct fi_counter *counters;	/* counters, in the same order */
	uint64_t **counts;		/* memory of the counters, indexed by
					 * host */
	char **local;			/* local memory of the workers, indexed
					 * by host */
	struct sim_tomb *tombs;		/* tombstones of local memory, one per
					 * worker of each host */
} rma;

/* Returns the size of the memory that a process registers for atomics, bytes. */
static size_t rma_counts_size(void)
{
	return fi_lanes(rma.conf) * sizeof(uint64_t);
}

void fi_rma_begin(const struct sim_conf *conf)
{
	size_t lanes = fi_lanes(conf), i, j;

	rma.conf = conf;
	rma.slots = calloc(conf->hosts * lanes, sizeof(*rma.slots));
	rma.counters = calloc(conf->hosts * lanes, sizeof(*rma.counters));
	rma.counts = calloc(conf->hosts, sizeof(*rma.counts));
	rma.local = calloc(conf->hosts, sizeof(*rma.local));
	rma.tombs = calloc((size_t)conf->hosts * conf->workers,
			   sizeof(*rma.tombs));
	if (!rma.slots || !rma.counters || !rma.counts || !rma.local ||
	    !rma.tombs)
		sim_fail("no memory for the workload");
	for (i = 0; i < conf->hosts; i++) {
		rma.counts[i] = sim_arena(rma_counts_size(), 4096);
		rma.local[i] = sim_arena(conf->workers * (size_t)FI_STRIDE,
					 4096);
		for (j = 0; j < lanes; j++) {
			rma.counters[i * lanes + j].value = rma.counts[i] + j;
			rma.slots[i * lanes + j].at =
				sim_cluster_node((uint32_t)i)->chunk[0] +
				j * FI_STRIDE + 64;
		}
	}
}

void fi_rma_end(void)
{
	free(rma.slots);
	free(rma.counters);
	free(rma.counts);
	free(rma.local);
	free(rma.tombs);
}

void fi_rma_verify(void)
{
	size_t n = rma.conf->hosts * fi_lanes(rma.conf), i;
	const struct fi_counter *c;

	for (i = 0; i < n; i++) {
		sim_tomb_verify(&rma.slots[i].tomb,
				"a slot that no transfer uses");
		c = &rma.counters[i];
		if (*c->value < c->done || *c->value > c->done + c->unknown)
			sim_found("a counter is %" PRIu64 " after %" PRIu64 " additions and %" PRIu64 " unknown ones",
				  *c->value, c->done, c->unknown);
	}
	for (i = 0; i < (size_t)rma.conf->hosts * rma.conf->workers; i++)
		sim_tomb_verify(&rma.tombs[i],
				"local memory of an ended transfer");
}

int fi_rma_open(struct fi_proc *fp)
{
	const struct sim_node *node = fp->proc->node;
	uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
	int ret = fi_mr_reg(fp->domain, node->chunk[0], rma.conf->chunk, access,
			    0, FI_KEY_SLOTS, 0, &fp->slots, NULL);

	return ret ? ret : fi_mr_reg(fp->domain, rma.counts[node->id],
				     rma_counts_size(), access, 0,
				     FI_KEY_COUNTS, 0, &fp->counts, NULL);
}

void fi_rma_worker(struct fi_worker *w)
{
	uint32_t id = w->proc->node->id;

	w->local = rma.local[id] + (size_t)w->index * FI_STRIDE + 64;
	w->tomb = &rma.tombs[(size_t)id * rma.conf->workers + w->index];
	w->operand = (uint64_t *)(void *)(w->local + FI_MAX + 32);
}

/* --- operations --- */

static bool rma_prepare_atomic(struct fi_worker *w, size_t lane)
{
	w->counter = &rma.counters[lane];
	w->swap = sim_rng_below(&w->rng, 3) == 0;
	/* Half of the compare-and-swaps expect a wrong value and must have no
	 * effect, unless an addition with an unknown outcome was executed. */
	w->operand[1] = w->counter->done + sim_rng_below(&w->rng, 2);
	w->operand[0] = w->swap ? w->operand[1] + 1 : 1;
	w->operand[2] = UINT64_MAX;
	w->len = sizeof(uint64_t);
	return true;
}

bool fi_rma_prepare(struct fi_worker *w)
{
	size_t lane = w->to * fi_lanes(rma.conf) + fi_lane(w);
	struct fi_slot *slot = &rma.slots[lane];

	if (w->kind == FI_KIND_ATOMIC)
		return rma_prepare_atomic(w, lane);
	if (slot->unknown == w->incarnation)
		return false;
	slot->unknown = 0;
	w->slot = slot;
	w->len = fi_length(&w->rng, 1);
	w->off = sim_rng_below(&w->rng, FI_MAX - w->len + 1);
	sim_tomb_verify(&slot->tomb, "a slot that no transfer uses");
	sim_tomb_verify(w->tomb, "local memory of an ended transfer");
	sim_tomb_set(w->tomb, w->local, w->len);
	sim_tomb_set(&slot->tomb, slot->at + w->off, w->len);
	sim_pattern_fill(w->kind == FI_KIND_READ ? slot->at + w->off : w->local,
			 w->len, w->seed);
	return true;
}

static ssize_t rma_post_atomic(struct fi_worker *w)
{
	struct fi_proc *fp = fi_proc_of(w);
	uint64_t at = fi_lane(w) * sizeof(uint64_t);

	if (w->swap)
		return fi_compare_atomic(fp->ep, &w->operand[0], 1, NULL,
					 &w->operand[1], NULL, &w->operand[2],
					 NULL, w->dest->addr, at, FI_KEY_COUNTS,
					 FI_UINT64, FI_CSWAP, w);
	return fi_fetch_atomic(fp->ep, &w->operand[0], 1, NULL, &w->operand[2],
			       NULL, w->dest->addr, at, FI_KEY_COUNTS,
			       FI_UINT64, FI_SUM, w);
}

ssize_t fi_rma_post(struct fi_worker *w)
{
	struct fid_ep *ep = fi_proc_of(w)->ep;
	uint64_t at;

	if (w->kind == FI_KIND_ATOMIC)
		return rma_post_atomic(w);
	at = fi_lane(w) * FI_STRIDE + 64 + w->off;
	return w->kind == FI_KIND_READ ?
		       fi_read(ep, w->local, w->len, NULL, w->dest->addr, at,
			       FI_KEY_SLOTS, w) :
		       fi_write(ep, w->local, w->len, NULL, w->dest->addr, at,
				FI_KEY_SLOTS, w);
}

/* --- completions --- */

/* Checks the result of an atomic. Each atomic that takes effect increments the
 * counter by 1. */
static void rma_check_atomic(struct fi_worker *w, int err)
{
	struct fi_counter *c = w->counter;
	uint64_t old = w->operand[2];

	if (err) {
		c->unknown++;
		return;
	}
	if (old < c->done || old > c->done + c->unknown)
		sim_found("%s: old value %" PRIu64 " after %" PRIu64 " additions and %" PRIu64 " unknown ones",
			  fi_worker_name(w), old, c->done, c->unknown);
	c->unknown -= old - c->done;
	c->done = old + (!w->swap || old == w->operand[1]);
	if (*c->value < c->done || *c->value > c->done + c->unknown)
		sim_found("%s: the counter is %" PRIu64 " after %" PRIu64 " additions and %" PRIu64 " unknown ones",
			  fi_worker_name(w), *c->value, c->done, c->unknown);
}

static void rma_check_bytes(struct fi_worker *w)
{
	const char *remote = w->slot->at + w->off;
	const char *at = w->kind == FI_KIND_READ ? w->local : remote;
	size_t bad = sim_pattern_differs(at, w->len, w->seed);

	if (bad != w->len)
		sim_found("%s: completed, but byte %zu is not in place",
			  fi_worker_name(w), bad);
}

void fi_rma_ended(struct fi_worker *w, int err)
{
	if (w->kind == FI_KIND_ATOMIC) {
		rma_check_atomic(w, err);
		return;
	}
	sim_tomb_verify_guards(&w->slot->tomb, fi_worker_name(w));
	sim_tomb_verify_guards(w->tomb, fi_worker_name(w));
	if (!err)
		rma_check_bytes(w);
	if (err == FI_ETIMEDOUT) {
		w->slot->unknown = w->incarnation;
		w->slot->tomb.len = 0;
	} else {
		sim_tomb_set(&w->slot->tomb, w->slot->at + w->off, w->len);
	}
	sim_tomb_set(w->tomb, w->local, w->len);
}

void fi_rma_gone(struct fi_worker *w)
{
	if (w->kind == FI_KIND_ATOMIC) {
		w->counter->unknown++;
		return;
	}
	w->tomb->len = 0;
	w->slot->tomb.len = 0;
}
