/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots, the target: the GPU memory for which slots are granted,
 * and the memory of the slots.
 */
#include "prov/staging/staging_remote_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- memory of a slot ----------------------------------------------------- */

static int slot_open(struct tei_staging *s, const void *gpu,
		     struct staging_remote_slot *slot, char **out,
		     struct tei_err *err)
{
	/* allocated now, because slot_quarantine must not fail */
	if (!slot->record)
		slot->record = calloc(1, sizeof(*slot->record));
	if (!slot->record)
		return tei_err_fail(err, TEI_ERR_MEMORY, "staging", NULL,
				    "no memory for a remote bounce slot");
	return staging_mem_open(s, gpu, TEI_STAGING_PIECE, TEI_RAIL_REMOTE, out,
				err);
}

/* Frees quarantined memory whose grant has been acknowledged. */
static void quarantine_free(struct staging_quarantine *g)
{
	if (g->mem)
		munmap(g->mem, TEI_STAGING_PIECE);
	if (g->unacked.peer)
		tei_rail_peer_put(g->unacked.peer);
	free(g);
}

/* Makes the memory of a slot inaccessible. Its addresses stay in quarantine
 * while the grant is unacknowledged. */
static void slot_quarantine(struct staging_remote *rs,
			    struct staging_remote_slot *slot)
{
	struct staging_quarantine *g = slot->record;
	char *mem = slot->mem;
	bool unacked;

	slot->record = NULL;
	g->mem = mem;
	mmap(mem, TEI_STAGING_PIECE, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	tei_mutex_lock(&rs->lock);
	unacked = slot->unacked.peer;
	if (unacked) {
		g->unacked = slot->unacked; /* g now has the reference */
		slot->unacked.peer = NULL;
		tei_list_add_tail(&rs->quarantine, &g->link);
		staging_remote_notify(rs);
	}
	tei_mutex_unlock(&rs->lock);
	if (!unacked)
		quarantine_free(g);
}

/* Unregisters the memory of a slot. If it returns 0, neither a rail nor a copy
 * accesses the memory any more; otherwise the memory stays. */
static int slot_close(struct staging_remote *rs,
		      struct staging_remote_slot *slot)
{
	struct tei_staging *s = rs->staging;
	int ret = staging_mem_close(s, slot->mem, staging_timeout_ns(s));

	if (!ret)
		slot_quarantine(rs, slot);
	return ret;
}

/* --- unacknowledged grants ------------------------------------------------ */

void staging_unacked_set(struct staging_remote *rs,
			 struct staging_remote_slot *slot,
			 struct tei_rail_peer *peer, uint64_t id)
{
	tei_rail_peer_hold(peer);
	tei_mutex_lock(&rs->lock);
	slot->unacked.peer = peer;
	slot->unacked.id = id;
	rs->nunacked++;
	tei_mutex_unlock(&rs->lock);
}

/* Returns true if the message acknowledges the grant. */
static bool unacked_past(const struct staging_unacked *unacked,
			 const struct tei_rail_peer *peer,
			 const struct staging_msg *m)
{
	return unacked->peer == peer &&
	       (m->id >= unacked->id + STAGING_NUMBERS ||
		(m->id == unacked->id && m->type != STAGING_ASK));
}

/* Moves quarantined memory to a list that is freed without the lock. */
static void unacked_take(struct staging_remote *rs,
			 struct staging_quarantine *g, struct tei_list *over)
	TEI_REQUIRES(rs->lock)
{
	tei_list_del(&g->link);
	tei_list_add_tail(over, &g->link);
	rs->nunacked--;
}

static void unacked_free(struct tei_list *over)
{
	struct staging_quarantine *g;

	while (!tei_list_empty(over)) {
		g = tei_list_first(over, struct staging_quarantine, link);
		tei_list_del(&g->link);
		quarantine_free(g);
	}
}

/* Ends the grant of a slot that is being freed and is not in quarantine. */
static void unacked_drop(struct staging_remote *rs,
			 struct staging_remote_slot *slot)
{
	struct tei_rail_peer *peer;

	tei_mutex_lock(&rs->lock);
	peer = slot->unacked.peer;
	slot->unacked.peer = NULL;
	rs->nunacked -= peer != NULL;
	tei_mutex_unlock(&rs->lock);
	if (peer)
		tei_rail_peer_put(peer);
}

/* Ends the acknowledged grants of slots that are not in quarantine yet. Returns
 * their number. */
static uint32_t unacked_slots(struct staging_remote *rs,
			      const struct tei_rail_peer *peer,
			      const struct staging_msg *m)
	TEI_REQUIRES(rs->lock)
{
	struct staging_remote_slot *slot;
	uint32_t i, k, n = 0;

	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		for (k = 0; rs->pool[i] && k < STAGING_REMOTE_SLOTS; k++) {
			slot = &rs->pool[i]->slot[k];
			if (!unacked_past(&slot->unacked, peer, m))
				continue;
			slot->unacked.peer = NULL;
			n++;
		}
	}
	rs->nunacked -= n;
	return n;
}

void staging_unacked_message(struct staging_remote *rs,
			     const struct tei_rail_peer *peer,
			     const struct staging_msg *m)
{
	struct staging_quarantine *g, *tmp;
	struct tei_list over;
	uint32_t slots = 0;

	tei_list_init(&over);
	tei_mutex_lock(&rs->lock);
	if (rs->nunacked) {
		slots = unacked_slots(rs, peer, m);
		tei_list_foreach_safe(g, tmp, &rs->quarantine,
				      struct staging_quarantine, link)
			if (unacked_past(&g->unacked, peer, m))
				unacked_take(rs, g, &over);
	}
	tei_mutex_unlock(&rs->lock);
	while (slots--)
		tei_rail_peer_put((struct tei_rail_peer *)peer);
	unacked_free(&over);
}

/* Returns the quarantined memory after g, or the first if g is NULL. Only the
 * thread removes elements. */
static struct staging_quarantine *unacked_next(struct staging_remote *rs,
					       struct staging_quarantine *g)
{
	struct tei_list *next;

	tei_mutex_lock(&rs->lock);
	next = g ? g->link.next : rs->quarantine.next;
	tei_mutex_unlock(&rs->lock);
	return next == &rs->quarantine ?
		       NULL :
		       tei_container_of(next, struct staging_quarantine, link);
}

bool staging_unacked_any(struct staging_remote *rs,
			 const struct tei_rail_peer *peer)
{
	struct staging_quarantine *g;
	uint32_t i, k;
	bool any = false;

	tei_mutex_lock(&rs->lock);
	if (rs->nunacked) {
		tei_list_foreach(g, &rs->quarantine, struct staging_quarantine,
				 link)
			any |= g->unacked.peer == peer;
		for (i = 0; i < TEI_GPU_CONTEXTS; i++)
			for (k = 0; rs->pool[i] && k < STAGING_REMOTE_SLOTS;
			     k++)
				any |= rs->pool[i]->slot[k].unacked.peer ==
				       peer;
	}
	tei_mutex_unlock(&rs->lock);
	return any;
}

void staging_unacked_check(struct staging_remote *rs)
{
	struct staging_quarantine *g, *next;
	struct tei_list over;

	tei_list_init(&over);
	for (g = unacked_next(rs, NULL); g; g = next) {
		next = unacked_next(rs, g);
		staging_remote_due(rs, rs->now + TEI_NS_PER_SEC);
		if (!tei_rail_peer_gone(g->unacked.peer))
			continue;
		tei_mutex_lock(&rs->lock);
		unacked_take(rs, g, &over);
		tei_mutex_unlock(&rs->lock);
	}
	unacked_free(&over);
}

void staging_unacked_forget(struct staging_remote *rs) TEI_NO_TSA
{
	struct staging_quarantine *g;
	struct staging_remote_slot *slot;
	uint32_t i, k;

	while (!tei_list_empty(&rs->quarantine)) {
		g = tei_list_first(&rs->quarantine, struct staging_quarantine,
				   link);
		tei_list_del(&g->link);
		quarantine_free(g);
	}
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		for (k = 0; rs->pool[i] && k < STAGING_REMOTE_SLOTS; k++) {
			slot = &rs->pool[i]->slot[k];
			if (slot->unacked.peer)
				tei_rail_peer_put(slot->unacked.peer);
			slot->unacked.peer = NULL;
		}
	}
}

/* --- pools --------------------------------------------------------------- */

static void pool_close(struct staging_remote *rs,
		       struct staging_remote_pool *pool)
{
	uint32_t i;
	int ret;

	for (i = 0; i < STAGING_REMOTE_SLOTS; i++) {
		ret = pool->slot[i].mem ? slot_close(rs, &pool->slot[i]) : 0;
		if (ret)
			TEI_WARN("staging", "remote bounce slot: %u bytes are not freed, because they are still in use: %s",
				 TEI_STAGING_PIECE, tei_err_name(ret));
		unacked_drop(rs, &pool->slot[i]);
		free(pool->slot[i].record);
	}
	free(pool);
}

static int pool_open(struct staging_remote *rs, const void *gpu,
		     struct staging_remote_pool **out, struct tei_err *err)
{
	struct staging_remote_pool *pool = calloc(1, sizeof(*pool));
	uint32_t i;
	int ret = 0;

	if (!pool)
		return tei_err_fail(err, TEI_ERR_MEMORY, "staging", NULL,
				    "no memory for remote bounce slots");
	pool->remote = rs;
	for (i = 0; i < STAGING_REMOTE_SLOTS && !ret; i++) {
		pool->slot[i].pool = pool;
		ret = slot_open(rs->staging, gpu, &pool->slot[i],
				&pool->slot[i].mem, err);
	}
	if (ret)
		pool_close(rs, pool);
	else
		*out = pool;
	return ret;
}

/* Closes a pool after the last region of its context: waits until the thread
 * does not use its slots any more, then frees it. */
static void pool_leave(struct staging_remote *rs, uint32_t place)
{
	struct staging_remote_pool *pool;

	tei_mutex_lock(&rs->lock);
	pool = rs->pool[place];
	pool->leaving = true;
	pool->empty = false;
	staging_remote_notify(rs);
	while (!pool->empty && !rs->closing)
		tei_mutex_wait(&rs->idle, &rs->lock, TEI_NS_PER_SEC);
	rs->pool[place] = NULL;
	tei_mutex_unlock(&rs->lock);
	pool_close(rs, pool);
}

/* Returns held GPU memory of the pool's context, or NULL if there is none. */
static const void *pool_hold(struct staging_remote *rs,
			     const struct staging_remote_pool *pool)
{
	const void *gpu = NULL;
	struct staging_region *r;
	uint32_t i, place;

	tei_mutex_lock(&rs->lock);
	for (i = 0; i < rs->nregions && !gpu; i++) {
		r = &rs->regions[i];
		if (!r->gone && rs->pool[r->place] == pool &&
		    !tei_gpu_mem_hold(staging_gpu(rs->staging), r->base, 1,
				      &place))
			gpu = (const void *)(uintptr_t)r->base;
	}
	tei_mutex_unlock(&rs->lock);
	return gpu;
}

/* Replaces the memory of a slot. *mem is the memory that it has afterwards, or
 * NULL. */
static int slot_renew(struct staging_remote *rs,
		      struct staging_remote_slot *slot, char **mem)
{
	const void *gpu = pool_hold(rs, slot->pool);
	struct tei_err err = { .text = "no GPU memory" };
	int ret = TEI_ERR_NOT_REGISTERED;

	*mem = slot->mem;
	if (!gpu)
		return ret;		/* closed with its pool, or tried
					 * again */
	ret = slot->mem ? slot_close(rs, slot) : 0;
	if (ret) {
		snprintf(err.text, sizeof(err.text),
			 "the old memory is still in use: %s",
			 tei_err_name(ret));
	} else {
		*mem = NULL;
		ret = slot_open(rs->staging, gpu, slot, mem, &err);
	}
	tei_gpu_mem_let_go(staging_gpu(rs->staging), (uintptr_t)gpu);
	if (ret && !slot->pause_ns)
		TEI_WARN("staging", "remote bounce slot: out of use until its memory can be replaced: %s",
			 err.text);
	return ret;
}

void tei_staging_slot_renew(struct tei_staging *s,
			    struct staging_remote_slot *slot)
{
	struct staging_remote *rs = staging_remote(s);
	char *mem;
	int ret = slot_renew(rs, slot, &mem);

	tei_mutex_lock(&rs->lock);
	slot->mem = mem;
	slot->must_renew = ret != 0;
	slot->pause_ns = !ret		 ? 0 :
			 !slot->pause_ns ? STAGING_RENEW_NS :
			 2 * slot->pause_ns < STAGING_RENEW_MAX_NS ?
					   2 * slot->pause_ns :
					   STAGING_RENEW_MAX_NS;
	slot->again_ns = tei_now_ns() + slot->pause_ns;
	slot->renewing = false;
	staging_remote_notify(rs);
	tei_mutex_unlock(&rs->lock);
}

void staging_slots_free(struct staging_remote *rs) TEI_NO_TSA
{
	struct staging_remote_slot *slot;
	uint32_t i, k;

	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		for (k = 0; rs->pool[i] && k < STAGING_REMOTE_SLOTS; k++) {
			slot = &rs->pool[i]->slot[k];
			if (slot->mem && !slot->lost)
				munmap(slot->mem, TEI_STAGING_PIECE);
			free(slot->record);
		}
		free(rs->pool[i]);
	}
}

/* --- regions ------------------------------------------------------------- */

static int region_add(struct staging_remote *rs, const void *gpu, uint64_t len,
		      uint32_t place, uint64_t *serial)
{
	struct staging_region *grown;

	tei_mutex_lock(&rs->lock);
	grown = realloc(rs->regions, (rs->nregions + 1) * sizeof(*grown));
	if (grown) {
		rs->regions = grown;
		grown[rs->nregions++] = (struct staging_region){
			.serial = ++rs->serial,
			.base = (uintptr_t)gpu,
			.length = len,
			.place = place,
		};
		*serial = rs->serial;
	}
	tei_mutex_unlock(&rs->lock);
	return grown ? 0 : TEI_ERR_MEMORY;
}

static struct staging_region *region_find(struct staging_remote *rs,
					  uint64_t serial)
	TEI_REQUIRES(rs->lock)
{
	uint32_t i = 0;

	while (rs->regions[i].serial != serial)
		i++;
	return &rs->regions[i];
}

/* Adds a region to the pool of its context. The GPU memory is held. */
static int grant_use(struct staging_remote *rs, const void *gpu, uint64_t len,
		     uint32_t place, uint64_t *serial, struct tei_err *err)
{
	struct staging_remote_pool *pool;
	int ret = 0;

	tei_mutex_lock(&rs->admin);
	pool = rs->pool[place];
	if (!pool) {
		ret = pool_open(rs, gpu, &pool, err);
		if (!ret) {
			tei_mutex_lock(&rs->lock);
			rs->pool[place] = pool;
			tei_mutex_unlock(&rs->lock);
		}
	}
	if (!ret) {
		pool->users++;
		ret = region_add(rs, gpu, len, place, serial);
		if (ret)
			tei_err_fail(
				err, ret, "staging", NULL,
				"no memory for a region with remote bounce slots");
		if (ret && !--pool->users)
			pool_leave(rs, place);
	}
	tei_mutex_unlock(&rs->admin);
	return ret;
}

int tei_staging_grant_add(struct tei_staging *s, void *gpu, uint64_t len,
			  uint64_t *serial, struct tei_err *err)
{
	struct staging_remote *rs = staging_remote_get(s);
	uint32_t place;
	int ret;

	if (!rs)
		return tei_err_fail(
			err, TEI_ERR_MEMORY, "staging", NULL,
			"remote bounce slots: the thread cannot be started");
	ret = tei_gpu_mem_hold(staging_gpu(s), (uintptr_t)gpu, len, &place);
	if (ret)
		return tei_err_fail(err, ret, "staging", NULL,
				    "%p: is being unregistered", gpu);
	ret = grant_use(rs, gpu, len, place, serial, err);
	tei_gpu_mem_let_go(staging_gpu(s), (uintptr_t)gpu);
	return ret;
}

void tei_staging_grant_remove(struct tei_staging *s, uint64_t serial)
{
	struct staging_remote *rs = staging_remote(s);

	tei_mutex_lock(&rs->lock);
	region_find(rs, serial)->gone = true;
	staging_remote_notify(rs);
	tei_mutex_unlock(&rs->lock);
}

void tei_staging_grant_restore(struct tei_staging *s, uint64_t serial)
{
	struct staging_remote *rs = staging_remote(s);

	tei_mutex_lock(&rs->lock);
	region_find(rs, serial)->gone = false;
	tei_mutex_unlock(&rs->lock);
}

void tei_staging_grant_drop(struct tei_staging *s, uint64_t serial)
{
	struct staging_remote *rs = staging_remote(s);
	struct staging_region *r;
	uint32_t place;

	tei_mutex_lock(&rs->admin);
	tei_mutex_lock(&rs->lock);
	r = region_find(rs, serial);
	place = r->place;
	*r = rs->regions[--rs->nregions];
	tei_mutex_unlock(&rs->lock);
	if (!--rs->pool[place]->users)
		pool_leave(rs, place);
	tei_mutex_unlock(&rs->admin);
}
