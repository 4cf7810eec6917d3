/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Manages the pool of bounce buffers of a domain, and makes requests to the
 * bounce thread.
 */
#include <pthread.h>
#include <stdlib.h>

#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_mr.h"
#include "util/list.h"
#include "util/world.h"

void moonrail_bounce_wake(struct moonrail_bounces *b, bool stop)
{
	tei_mutex_lock(&b->lock);
	b->work = true;
	b->stop |= stop;
	tei_cond_signal(&b->cond);
	tei_mutex_unlock(&b->lock);
}

void moonrail_bounce_put(struct moonrail_domain *d,
			 struct tei_rail_bounce *block, bool clean)
{
	struct moonrail_bounces *b = d->bounces;

	tei_rail_bounce_put(&b->pool, block, clean);
	if (!tei_list_empty(&b->deferred) || tei_rail_bounce_too_many(&b->pool))
		moonrail_bounce_wake(b, false);
}

bool moonrail_bounce_scarce(struct moonrail_bounces *b)
{
	bool hope = tei_rail_bounce_scarce(&b->pool);

	if (b->pool.scarce)
		moonrail_bounce_wake(b, false);
	return hope;
}

void moonrail_bounce_unregister_later(struct moonrail_domain *d,
				      struct tei_list *pins)
{
	if (tei_list_empty(pins))
		return;
	tei_list_splice_tail(&d->bounces->pins, pins);
	moonrail_bounce_wake(d->bounces, false);
}

void moonrail_bounce_free(struct moonrail_domain *d)
{
	struct moonrail_bounces *b = d->bounces;
	struct moonrail_pin *p, *ptmp;

	if (!b)
		return;
	tei_rail_bounces_fini(&b->pool);
	tei_list_foreach_safe(p, ptmp, &b->pins, struct moonrail_pin, link)
		free(p);
	pthread_cond_destroy(&b->cond);
	tei_mutex_fini(&b->lock);
	free(b);
	d->bounces = NULL;
}

bool moonrail_bounce_grow(struct moonrail_bounces *b, uint64_t len)
{
	int kind = tei_rail_bounce_kind(len);
	struct tei_rail_bounce_slab *slab = NULL;
	struct tei_rail_bounce *block = NULL;

	if (kind < 0)
		block = tei_rail_bounce_new(&b->pool, len);
	else
		slab = tei_rail_bounce_slab_new(&b->pool, kind);
	moonrail_enter(b->domain);
	if (slab)
		tei_rail_bounce_slab_add(&b->pool, slab);
	else if (block)
		tei_rail_bounce_add(&b->pool, block, false);
	moonrail_leave(b->domain);
	return slab || block;
}
