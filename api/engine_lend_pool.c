/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots, the target: the GPU memory for which slots are granted,
 * and the memory of the slots.
 */
#include "api/engine_lease_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "topo/tei_topo.h"

/* --- memory of a slot ----------------------------------------------------- */

static int slot_open(struct engine *e, const void *gpu, struct lend_slot *slot,
		     char **out, struct tei_err *err)
{
	char location[TEI_TOPO_NAME], *mem;
	struct tei_rail_mr *mr;
	int ret;

	/* allocated now, because slot_bury must not fail */
	if (!slot->grave)
		slot->grave = calloc(1, sizeof(*slot->grave));
	if (!slot->grave)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory for a remote bounce slot");
	mem = engine_gpu_bounce(e, gpu, LEASE_PIECE, location);
	if (!mem)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory for a remote bounce slot");
	ret = tei_gpu_mem_pin(e->gpu, gpu, mem, LEASE_PIECE, err);
	if (ret)
		goto err_unmap;
	ret = tei_rail_mr_reg(e->dp, mem, LEASE_PIECE, location,
			      TEI_RAIL_REMOTE, err, &mr);
	if (ret)
		goto err_unpin;
	*out = mem;
	return 0;
err_unpin:
	tei_gpu_mem_remove(e->gpu, mem, tei_now_ns());
err_unmap:
	munmap(mem, LEASE_PIECE);
	return ret;
}

/* Frees quarantined memory whose grant has been acknowledged. */
static void grave_free(struct lend_grave *g)
{
	if (g->mem)
		munmap(g->mem, LEASE_PIECE);
	if (g->late.peer)
		tei_rail_peer_put(g->late.peer);
	free(g);
}

/* Makes the memory of a slot inaccessible. Its addresses stay in quarantine
 * while the grant is unacknowledged. */
static void slot_bury(struct engine_leasing *l, struct lend_slot *slot)
{
	struct lend_grave *g = slot->grave;
	char *mem = slot->mem;
	bool late;

	slot->grave = NULL;
	g->mem = mem;
	mmap(mem, LEASE_PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
	     MAP_NORESERVE | MAP_FIXED, -1, 0);
	tei_mutex_lock(&l->lock);
	late = slot->late.peer;
	if (late) {
		g->late = slot->late;	/* g now has the reference */
		slot->late.peer = NULL;
		tei_list_add_tail(&l->graves, &g->link);
		leasing_word(l);
	}
	tei_mutex_unlock(&l->lock);
	if (!late)
		grave_free(g);
}

/* Unregisters the memory of a slot. If it returns 0, neither a rail nor a copy
 * accesses the memory any more; otherwise the memory stays. */
static int slot_close(struct engine_leasing *l, struct lend_slot *slot)
{
	struct engine *e = l->engine;
	uint64_t wait = e->settings.slice_timeout_s * TEI_NS_PER_SEC;
	struct tei_err err;
	int ret;

	ret = tei_rail_mr_dereg(e->dp, slot->mem, wait, &err);
	if (ret == TEI_ERR_NOT_REGISTERED)
		ret = 0;		/* an earlier call has done that */
	/* the callback of a copy may still be running in its thread */
	if (!ret)
		ret = tei_gpu_mem_remove(e->gpu, slot->mem,
					 tei_now_ns() + wait);
	if (!ret)
		slot_bury(l, slot);
	return ret;
}

/* --- unacknowledged grants ------------------------------------------------ */

void lend_late_set(struct engine_leasing *l, struct lend_slot *slot,
		   struct tei_rail_peer *peer, uint64_t id)
{
	tei_rail_peer_hold(peer);
	tei_mutex_lock(&l->lock);
	slot->late.peer = peer;
	slot->late.id = id;
	l->nlate++;
	tei_mutex_unlock(&l->lock);
}

/* Returns true if the message acknowledges the grant. */
static bool late_past(const struct lend_late *late,
		      const struct tei_rail_peer *peer,
		      const struct lease_msg *m)
{
	return late->peer == peer &&
	       (m->id >= late->id + LEASE_PIECES ||
		(m->id == late->id && m->type != LEASE_ASK));
}

/* Moves quarantined memory to a list that is freed without the lock. */
static void late_take(struct engine_leasing *l, struct lend_grave *g,
		      struct tei_list *over) TEI_REQUIRES(l->lock)
{
	tei_list_del(&g->link);
	tei_list_add_tail(over, &g->link);
	l->nlate--;
}

static void late_free(struct tei_list *over)
{
	struct lend_grave *g;

	while (!tei_list_empty(over)) {
		g = tei_list_first(over, struct lend_grave, link);
		tei_list_del(&g->link);
		grave_free(g);
	}
}

/* Ends the grant of a slot that is being freed and is not in quarantine. */
static void lend_late_drop(struct engine_leasing *l, struct lend_slot *slot)
{
	struct tei_rail_peer *peer;

	tei_mutex_lock(&l->lock);
	peer = slot->late.peer;
	slot->late.peer = NULL;
	l->nlate -= peer != NULL;
	tei_mutex_unlock(&l->lock);
	if (peer)
		tei_rail_peer_put(peer);
}

/* Ends the acknowledged grants of slots that are not in quarantine yet. Returns
 * their number. */
static uint32_t late_slots(struct engine_leasing *l,
			   const struct tei_rail_peer *peer,
			   const struct lease_msg *m) TEI_REQUIRES(l->lock)
{
	struct lend_slot *slot;
	uint32_t i, k, n = 0;

	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		for (k = 0; l->pool[i] && k < LEASE_SLOTS; k++) {
			slot = &l->pool[i]->slot[k];
			if (!late_past(&slot->late, peer, m))
				continue;
			slot->late.peer = NULL;
			n++;
		}
	}
	l->nlate -= n;
	return n;
}

void lend_late_heard(struct engine_leasing *l, const struct tei_rail_peer *peer,
		     const struct lease_msg *m)
{
	struct lend_grave *g, *tmp;
	struct tei_list over;
	uint32_t slots = 0;

	tei_list_init(&over);
	tei_mutex_lock(&l->lock);
	if (l->nlate) {
		slots = late_slots(l, peer, m);
		tei_list_foreach_safe(g, tmp, &l->graves, struct lend_grave,
				      link)
			if (late_past(&g->late, peer, m))
				late_take(l, g, &over);
	}
	tei_mutex_unlock(&l->lock);
	while (slots--)
		tei_rail_peer_put((struct tei_rail_peer *)peer);
	late_free(&over);
}

/* Returns the quarantined memory after g, or the first if g is NULL. Only the
 * thread removes elements. */
static struct lend_grave *late_next(struct engine_leasing *l,
				    struct lend_grave *g)
{
	struct tei_list *next;

	tei_mutex_lock(&l->lock);
	next = g ? g->link.next : l->graves.next;
	tei_mutex_unlock(&l->lock);
	return next == &l->graves ? NULL :
	       tei_container_of(next, struct lend_grave, link);
}

bool lend_late_any(struct engine_leasing *l, const struct tei_rail_peer *peer)
{
	struct lend_grave *g;
	uint32_t i, k;
	bool any = false;

	tei_mutex_lock(&l->lock);
	if (l->nlate) {
		tei_list_foreach(g, &l->graves, struct lend_grave, link)
			any |= g->late.peer == peer;
		for (i = 0; i < TEI_GPU_CONTEXTS; i++)
			for (k = 0; l->pool[i] && k < LEASE_SLOTS; k++)
				any |= l->pool[i]->slot[k].late.peer == peer;
	}
	tei_mutex_unlock(&l->lock);
	return any;
}

void lend_late_look(struct engine_leasing *l)
{
	struct lend_grave *g, *next;
	struct tei_list over;

	tei_list_init(&over);
	for (g = late_next(l, NULL); g; g = next) {
		next = late_next(l, g);
		leasing_due(l, l->now + TEI_NS_PER_SEC);
		if (!tei_rail_peer_gone(g->late.peer))
			continue;
		tei_mutex_lock(&l->lock);
		late_take(l, g, &over);
		tei_mutex_unlock(&l->lock);
	}
	late_free(&over);
}

void lend_late_forget(struct engine_leasing *l) TEI_NO_TSA
{
	struct lend_grave *g;
	struct lend_slot *slot;
	uint32_t i, k;

	while (!tei_list_empty(&l->graves)) {
		g = tei_list_first(&l->graves, struct lend_grave, link);
		tei_list_del(&g->link);
		grave_free(g);
	}
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		for (k = 0; l->pool[i] && k < LEASE_SLOTS; k++) {
			slot = &l->pool[i]->slot[k];
			if (slot->late.peer)
				tei_rail_peer_put(slot->late.peer);
			slot->late.peer = NULL;
		}
	}
}

/* --- pools --------------------------------------------------------------- */

static void pool_close(struct engine_leasing *l, struct lend_pool *pool)
{
	uint32_t i;
	int ret;

	for (i = 0; i < LEASE_SLOTS; i++) {
		ret = pool->slot[i].mem ? slot_close(l, &pool->slot[i]) : 0;
		if (ret)
			TEI_WARN("engine", "remote bounce slot: %u bytes are not freed, because they are still in use: %s",
				 LEASE_PIECE, tei_err_name(ret));
		lend_late_drop(l, &pool->slot[i]);
		free(pool->slot[i].grave);
	}
	free(pool);
}

static int pool_open(struct engine_leasing *l, const void *gpu,
		     struct lend_pool **out, struct tei_err *err)
{
	struct lend_pool *pool = calloc(1, sizeof(*pool));
	uint32_t i;
	int ret = 0;

	if (!pool)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory for remote bounce slots");
	pool->leasing = l;
	for (i = 0; i < LEASE_SLOTS && !ret; i++) {
		pool->slot[i].pool = pool;
		ret = slot_open(l->engine, gpu, &pool->slot[i],
				&pool->slot[i].mem, err);
	}
	if (ret)
		pool_close(l, pool);
	else
		*out = pool;
	return ret;
}

/* Closes a pool after the last region of its context: waits until the thread
 * does not use its slots any more, then frees it. */
static void pool_leave(struct engine_leasing *l, uint32_t place)
{
	struct lend_pool *pool;

	tei_mutex_lock(&l->lock);
	pool = l->pool[place];
	pool->leaving = true;
	pool->empty = false;
	leasing_word(l);
	while (!pool->empty && !l->closing)
		tei_mutex_wait(&l->idle, &l->lock, TEI_NS_PER_SEC);
	l->pool[place] = NULL;
	tei_mutex_unlock(&l->lock);
	pool_close(l, pool);
}

/* Returns held GPU memory of the pool's context, or NULL if there is none. */
static const void *pool_hold(struct engine_leasing *l,
			     const struct lend_pool *pool)
{
	const void *gpu = NULL;
	struct lend_region *r;
	uint32_t i, place;

	tei_mutex_lock(&l->lock);
	for (i = 0; i < l->nregions && !gpu; i++) {
		r = &l->regions[i];
		if (!r->gone && l->pool[r->place] == pool &&
		    !tei_gpu_mem_hold(l->engine->gpu, r->base, 1, &place))
			gpu = (const void *)(uintptr_t)r->base;
	}
	tei_mutex_unlock(&l->lock);
	return gpu;
}

/* Replaces the memory of a slot. *mem is the memory that it has afterwards, or
 * NULL. */
static int slot_renew(struct engine_leasing *l, struct lend_slot *slot,
		      char **mem)
{
	const void *gpu = pool_hold(l, slot->pool);
	struct tei_err err = { .text = "no GPU memory" };
	int ret = TEI_ERR_NOT_REGISTERED;

	*mem = slot->mem;
	if (!gpu)
		return ret;		/* closed with its pool, or tried
					 * again */
	ret = slot->mem ? slot_close(l, slot) : 0;
	if (ret) {
		snprintf(err.text, sizeof(err.text), "the old memory is still in use: %s",
			 tei_err_name(ret));
	} else {
		*mem = NULL;
		ret = slot_open(l->engine, gpu, slot, mem, &err);
	}
	tei_gpu_mem_let_go(l->engine->gpu, (uintptr_t)gpu);
	if (ret && !slot->pause_ns)
		TEI_WARN("engine", "remote bounce slot: out of use until its memory can be replaced: %s",
			 err.text);
	return ret;
}

void engine_lend_renew(struct engine *e, struct lend_slot *slot)
{
	struct engine_leasing *l = engine_leasing(e);
	char *mem;
	int ret = slot_renew(l, slot, &mem);

	tei_mutex_lock(&l->lock);
	slot->mem = mem;
	slot->doubtful = ret != 0;
	slot->pause_ns = !ret ? 0 : !slot->pause_ns ? LEND_AGAIN_NS :
			 2 * slot->pause_ns < LEND_PAUSE_NS ?
			 2 * slot->pause_ns : LEND_PAUSE_NS;
	slot->again_ns = tei_now_ns() + slot->pause_ns;
	slot->renewing = false;
	leasing_word(l);
	tei_mutex_unlock(&l->lock);
}

void lend_pools_free(struct engine_leasing *l) TEI_NO_TSA
{
	struct lend_slot *slot;
	uint32_t i, k;

	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		for (k = 0; l->pool[i] && k < LEASE_SLOTS; k++) {
			slot = &l->pool[i]->slot[k];
			if (slot->mem && !slot->lost)
				munmap(slot->mem, LEASE_PIECE);
			free(slot->grave);
		}
		free(l->pool[i]);
	}
}

/* --- regions ------------------------------------------------------------- */

static int region_add(struct engine_leasing *l, const void *gpu, uint64_t len,
		      uint32_t place, uint64_t *serial)
{
	struct lend_region *grown;

	tei_mutex_lock(&l->lock);
	grown = realloc(l->regions, (l->nregions + 1) * sizeof(*grown));
	if (grown) {
		l->regions = grown;
		grown[l->nregions++] = (struct lend_region){
			.serial = ++l->serial, .base = (uintptr_t)gpu,
			.length = len, .place = place,
		};
		*serial = l->serial;
	}
	tei_mutex_unlock(&l->lock);
	return grown ? 0 : TEI_ERR_MEMORY;
}

static struct lend_region *region_find(struct engine_leasing *l,
				       uint64_t serial) TEI_REQUIRES(l->lock)
{
	uint32_t i = 0;

	while (l->regions[i].serial != serial)
		i++;
	return &l->regions[i];
}

/* Adds a region to the pool of its context. The GPU memory is held. */
static int lend_use(struct engine_leasing *l, const void *gpu, uint64_t len,
		    uint32_t place, uint64_t *serial, struct tei_err *err)
{
	struct lend_pool *pool;
	int ret = 0;

	tei_mutex_lock(&l->admin);
	pool = l->pool[place];
	if (!pool) {
		ret = pool_open(l, gpu, &pool, err);
		if (!ret) {
			tei_mutex_lock(&l->lock);
			l->pool[place] = pool;
			tei_mutex_unlock(&l->lock);
		}
	}
	if (!ret) {
		pool->users++;
		ret = region_add(l, gpu, len, place, serial);
		if (ret)
			tei_err_fail(err, ret, "engine", NULL,
				     "no memory for a region with remote bounce slots");
		if (ret && !--pool->users)
			pool_leave(l, place);
	}
	tei_mutex_unlock(&l->admin);
	return ret;
}

int engine_lend_add(struct engine *e, void *gpu, uint64_t len, uint64_t *serial,
		    struct tei_err *err)
{
	struct engine_leasing *l = engine_leasing_get(e);
	uint32_t place;
	int ret;

	if (!l)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "remote bounce slots: the thread cannot be started");
	ret = tei_gpu_mem_hold(e->gpu, (uintptr_t)gpu, len, &place);
	if (ret)
		return tei_err_fail(err, ret, "engine", NULL,
				    "%p: is being unregistered", gpu);
	ret = lend_use(l, gpu, len, place, serial, err);
	tei_gpu_mem_let_go(e->gpu, (uintptr_t)gpu);
	return ret;
}

void engine_lend_remove(struct engine *e, uint64_t serial)
{
	struct engine_leasing *l = engine_leasing(e);

	tei_mutex_lock(&l->lock);
	region_find(l, serial)->gone = true;
	leasing_word(l);
	tei_mutex_unlock(&l->lock);
}

void engine_lend_again(struct engine *e, uint64_t serial)
{
	struct engine_leasing *l = engine_leasing(e);

	tei_mutex_lock(&l->lock);
	region_find(l, serial)->gone = false;
	tei_mutex_unlock(&l->lock);
}

void engine_lend_drop(struct engine *e, uint64_t serial)
{
	struct engine_leasing *l = engine_leasing(e);
	struct lend_region *r;
	uint32_t place;

	tei_mutex_lock(&l->admin);
	tei_mutex_lock(&l->lock);
	r = region_find(l, serial);
	place = r->place;
	*r = l->regions[--l->nregions];
	tei_mutex_unlock(&l->lock);
	if (!--l->pool[place]->users)
		pool_leave(l, place);
	tei_mutex_unlock(&l->admin);
}
