/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bounce thread of a domain.
 *
 * Registration may wait for the progress thread, so only calls of the
 * application and the bounce thread register memory. Unregistration may wait
 * for peers, so only the bounce thread unregisters blocks. A move that finds
 * no free block waits for the bounce thread.
 */
#include <pthread.h>
#include <stdlib.h>

#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/thread.h"
#include "util/world.h"

/* Starts the first waiting move if a block is free. Returns 0 if the move was
 * started or has failed, otherwise the size of the block that the move needs.
 * last: if no block is free, the move fails. */
static uint64_t bounce_start_one(struct moonrail_bounces *b, bool last)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_deferred_move *l = tei_list_first(
		&b->deferred, struct moonrail_deferred_move, link);
	struct moonrail_op *op = l->op;

	op->block = tei_rail_bounce_take(&b->pool, moonrail_bounce_len(op));
	if (!op->block && !last)
		return moonrail_bounce_len(op);
	tei_list_del(&l->link);
	op->ep->busy--;
	if (!op->block) {
		op->err = FI_ENOMEM;
		op->failed = true;
		op->type->moved(op);
	} else {
		op->type->restart(op, l->at, l->n);
	}
	free(l);
	return 0;
}

/* Starts all waiting moves. Returns true if the first one must wait until a
 * block in use becomes free or idle blocks have been unregistered. */
static bool bounce_start_deferred(struct moonrail_bounces *b)
{
	struct moonrail_domain *d = b->domain;
	bool last = false;
	uint64_t want;

	for (;;) {
		want = 0;
		moonrail_enter(d);
		while (!want && !tei_list_empty(&b->deferred)) {
			want = bounce_start_one(b, last);
			last = false;
		}
		moonrail_leave(d);
		if (!want)
			return false;
		if (moonrail_bounce_grow(b, want))
			continue;
		moonrail_enter(d);
		last = !moonrail_bounce_scarce(b);
		moonrail_leave(d);
		if (!last)
			return true;
	}
}

/* Unregisters a block. If that fails, the block becomes dirty. */
static void bounce_drop(struct moonrail_bounces *b,
			struct tei_rail_bounce *block)
{
	if (tei_rail_bounce_free(&b->pool, block))
		return;
	moonrail_enter(b->domain);
	tei_rail_bounce_add_dirty(&b->pool, block);
	moonrail_leave(b->domain);
}

/* Unregisters one pinned range or block. Returns false if there is none to
 * unregister. */
static bool bounce_unregister_one(struct moonrail_bounces *b)
{
	struct moonrail_domain *d = b->domain;
	struct tei_rail_bounce *block = NULL;
	struct moonrail_pin *pin = NULL;
	struct tei_list gone;

	tei_list_init(&gone);
	moonrail_enter(d);
	if (!tei_list_empty(&b->pins)) {
		pin = tei_list_first(&b->pins, struct moonrail_pin, link);
		tei_list_del(&pin->link);
		tei_list_add_tail(&gone, &pin->link);
	} else {
		block = tei_rail_bounce_surplus(&b->pool, tei_now_ns());
	}
	moonrail_leave(d);
	if (pin)
		moonrail_pin_drop(d, &gone);
	else if (block)
		bounce_drop(b, block);
	return pin || block;
}

/* Sleeps until there is work, but for at most one second. */
static void bounce_wait(struct moonrail_bounces *b)
{
	tei_mutex_lock(&b->lock);
	if (!b->work)
		tei_mutex_wait(&b->cond, &b->lock, TEI_NS_PER_SEC);
	b->work = false;
	tei_mutex_unlock(&b->lock);
}

static bool bounce_stopped(struct moonrail_bounces *b)
{
	bool stop;

	tei_mutex_lock(&b->lock);
	stop = b->stop;
	tei_mutex_unlock(&b->lock);
	return stop;
}

static void *bounce_main(void *arg)
{
	struct moonrail_bounces *b = arg;

	while (!bounce_stopped(b)) {
		bounce_start_deferred(b);
		if (!bounce_unregister_one(b))
			bounce_wait(b);
	}
	return NULL;
}

int moonrail_bounce_open(struct moonrail_domain *d)
{
	uint32_t wants = tei_rail_wants(d->dp);
	struct moonrail_bounces *b;

	if (!wants)
		return 0;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -FI_ENOMEM;
	b->domain = d;
	tei_rail_bounces_init(&b->pool, d->dp, TEI_RAIL_REMOTE, 0);
	tei_list_init(&b->pins);
	tei_list_init(&b->deferred);
	tei_mutex_init(&b->lock);
	tei_cond_init(&b->cond);
	d->bounces = b;
	d->bounces_local = wants & TEI_RAIL_WANTS_LOCAL;
	if (!tei_thread_start(&b->thread, false, bounce_main, b))
		return 0;
	d->bounces = NULL;
	pthread_cond_destroy(&b->cond);
	tei_mutex_fini(&b->lock);
	free(b);
	return -FI_ENOMEM;
}

void moonrail_bounce_stop(struct moonrail_domain *d)
{
	if (!d->bounces)
		return;
	moonrail_bounce_wake(d->bounces, true);
	tei_thread_join(d->bounces->thread);
}
