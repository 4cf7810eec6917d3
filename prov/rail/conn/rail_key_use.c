/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the tasks that have used a region of the peer. If the peer unregisters
 * a region, a task of which bytes were cut to that region must not continue in
 * a region that the peer registers later at the same address. Otherwise the
 * task would be COMPLETED although its first bytes are no longer in place.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/range.h"

/* values of tei_rail_task.forgotten */
#define USE_NONE	0u		/* no key was forgotten */
#define USE_SEVERAL	UINT32_MAX	/* keys of several regions were
					 * forgotten */

/* Examines a range of the peer's memory to which bytes of the task were cut.
 * Returns true to end the examination of this task. */
typedef bool (*use_fn)(struct tei_rail_peer *peer, struct tei_rail_task *task,
		       uint64_t addr, uint64_t len, const struct rail_rkey *key);

/* Calls fn for each range of the task until fn returns true. Returns true if fn
 * has returned true. */
static bool use_task(struct tei_rail_peer *peer, struct tei_rail_task *t,
		     use_fn fn, const struct rail_rkey *key)
{
	const struct tei_rail_iov *p;
	uint64_t left;
	uint32_t i;

	if (!t->cut || t->complete_wanted || (t->ext && t->ext->atomic))
		return false;
	if (!t->ext)
		return fn(peer, t, t->remote, t->cut, key);
	p = &t->ext->piece[t->ext->nlocal];
	for (i = 0; i < t->ext->nremote && p[i].off < t->cut; i++) {
		left = t->cut - p[i].off;
		if (fn(peer, t, p[i].addr, p[i].len < left ? p[i].len : left,
		       key))
			return true;
	}
	return false;
}

/* --- regions that stay registered ---------------------------------------- */

/* Returns the value of tei_rail_task.forgotten that means: only keys of the
 * region with this id were forgotten. */
static uint32_t use_mark(uint64_t id)
{
	uint32_t mark = (uint32_t)id;

	return mark == USE_NONE || mark == USE_SEVERAL ? 1 : mark;
}

static bool use_forget(struct tei_rail_peer *peer, struct tei_rail_task *t,
		       uint64_t addr, uint64_t len, const struct rail_rkey *key)
{
	uint32_t i = tei_range_index(&peer->keys.rkeys, addr), mark;
	struct tei_range *r;

	(void)key;
	while ((r = tei_range_below(&peer->keys.rkeys, i++, addr + len))) {
		mark = use_mark(tei_container_of(r, struct rail_rkey,
						 range)->id);
		if (t->forgotten != USE_NONE && t->forgotten != mark)
			mark = USE_SEVERAL;
		t->forgotten = mark;
		peer->keys.forgotten = true;
	}
	return false;
}

void rail_key_forget(struct tei_rail_peer *peer)
{
	struct tei_rail_task *t;

	if (tei_list_empty(&peer->tasks.live))
		peer->keys.forgotten = false;
	tei_list_foreach (t, &peer->tasks.live, struct tei_rail_task, live_link)
		use_task(peer, t, use_forget, NULL);
}

/* --- groups of tasks ----------------------------------------------------- */

struct tei_rail_group *tei_rail_group_new(struct tei_rail_peer *peer)
{
	struct tei_rail_group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->peer = peer;
	tei_list_init(&g->link);
	return g;
}

void tei_rail_group_free(struct tei_rail_group *g)
{
	struct rail_key_use *u, *next;

	if (!g)
		return;
	rail_sched_enter(g->peer->dp);
	tei_list_del(&g->link);
	rail_sched_leave(g->peer->dp);
	for (u = g->uses; u; u = next) {
		next = u->next;
		free(u);
	}
	free(g);
}

/* Records that the group may use the bytes [base, end) of the region with this
 * id. Returns false if memory is short. */
static bool group_use(struct tei_rail_group *g, uint64_t id, uint64_t base,
		      uint64_t end)
{
	struct rail_key_use *u = g->uses;

	while (u && u->id != id)
		u = u->next;
	if (!u) {
		u = malloc(sizeof(*u));
		if (!u)
			return false;
		u->next = g->uses;
		u->id = id;
		u->range.base = base;
		u->range.end = end;
		g->uses = u;
	}
	if (base < u->range.base)
		u->range.base = base;
	if (end > u->range.end)
		u->range.end = end;
	return true;
}

static bool group_use_keys(struct tei_rail_peer *peer,
			   const struct tei_rail_task *t)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t base = t->remote, end = base + t->length;
	uint32_t i = tei_range_index(&peer->keys.rkeys, base);
	const struct rail_rkey *k;
	struct tei_range *r;

	while ((r = tei_range_below(&peer->keys.rkeys, i++, end))) {
		k = tei_container_of(r, struct rail_rkey, range);
		if (!group_use(t->group, k->id,
			       k->range.base > base ? k->range.base : base,
			       k->range.end < end ? k->range.end : end))
			return false;
	}
	if (tei_list_empty(&t->group->link))
		tei_list_add_tail(&peer->keys.groups, &t->group->link);
	return true;
}

bool rail_key_group_gone(const struct tei_rail_task *t)
{
	return t->group &&
	       __atomic_load_n(&t->group->region_gone, __ATOMIC_RELAXED);
}

bool rail_key_group_ready(struct tei_rail_peer *peer,
			  const struct tei_rail_task *t)
{
	bool whole = t->whole_length != 0;

	if (rail_key_group_gone(t) ||
	    !rail_key_covers_or_want(peer, whole ? t->whole : t->remote,
				     whole ? t->whole_length : t->length,
				     t->read))
		return false;
	if (group_use_keys(peer, t))
		return true;
	/* memory is short; the answer of the peer causes the next attempt */
	rail_key_want(peer, t->remote, t->length);
	return false;
}

/* Marks the groups that have used the peer's region with this id, so that their
 * further tasks fail. Returns true if there is such a group. */
static bool group_unregistered(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail_key_use *u;
	struct tei_rail_group *g;
	bool any = false;

	tei_list_foreach (g, &peer->keys.groups, struct tei_rail_group, link) {
		for (u = g->uses; u && u->id != id; u = u->next)
			;
		if (!u)
			continue;
		__atomic_store_n(&g->region_gone, true, __ATOMIC_RELAXED);
		any = true;
	}
	return any;
}

/* Called when the peer has sent a key. Marks the groups that have used bytes in
 * the range of the key while these bytes belonged to another region, so that
 * their further tasks fail. Returns true if there is such a group. */
static bool group_replaced(struct tei_rail_peer *peer,
			   const struct rail_rkey *key)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail_key_use *u;
	struct tei_rail_group *g;
	bool any = false;

	tei_list_foreach (g, &peer->keys.groups, struct tei_rail_group, link)
		for (u = g->uses; u; u = u->next) {
			if (u->id == key->id ||
			    u->range.base >= key->range.end ||
			    u->range.end <= key->range.base)
				continue;
			__atomic_store_n(&g->region_gone, true,
					 __ATOMIC_RELAXED);
			any = true;
		}
	return any;
}

/* --- regions that the peer has unregistered ------------------------------ */

/* Marks the tasks that have used a region with this id whose keys were
 * forgotten. Returns true if there is such a task. */
static bool use_of_forgotten(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t;
	bool any = false;

	tei_list_foreach (t, &peer->tasks.live, struct tei_rail_task,
			  live_link) {
		if (t->forgotten != use_mark(id) && t->forgotten != USE_SEVERAL)
			continue;
		t->region_gone = true;
		any = true;
	}
	return any;
}

bool rail_key_unregistered(struct tei_rail_peer *peer, uint64_t id)
{
	bool any = group_unregistered(peer, id);
	struct rail_rkey *k;

	if (tei_list_empty(&peer->tasks.live))
		return false;
	for (k = rail_key_of_region(peer, id, NULL); k;
	     k = rail_key_of_region(peer, id, k)) {
		k->unregistered = true;
		any = true;
	}
	return any || (peer->keys.forgotten && use_of_forgotten(peer, id));
}

static bool use_in_key(struct tei_rail_peer *peer, struct tei_rail_task *t,
		       uint64_t addr, uint64_t len, const struct rail_rkey *key)
{
	(void)peer;
	(void)t;
	return addr < key->range.end && addr + (len - 1) >= key->range.base;
}

/* Does what rail_key_replaces does for keys that were forgotten. */
static bool use_replaces_forgotten(struct tei_rail_peer *peer,
				   const struct rail_rkey *key)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t;
	bool any = false;

	tei_list_foreach (t, &peer->tasks.live, struct tei_rail_task,
			  live_link) {
		if (t->forgotten == USE_NONE || t->forgotten == USE_SEVERAL ||
		    t->forgotten == use_mark(key->id) ||
		    !use_task(peer, t, use_in_key, key))
			continue;
		t->region_gone = true;
		any = true;
	}
	return any;
}

bool rail_key_replaces(struct tei_rail_peer *peer, const struct rail_rkey *key)
{
	uint32_t i = tei_range_index(&peer->keys.rkeys, key->range.base);
	bool any = group_replaced(peer, key);
	const struct rail_rkey *old;
	struct tei_range *r;

	while ((r = tei_range_below(&peer->keys.rkeys, i++, key->range.end))) {
		old = tei_container_of(r, struct rail_rkey, range);
		if (old->id != key->id)
			any |= rail_key_unregistered(peer, old->id);
	}
	if (peer->keys.forgotten)
		any |= use_replaces_forgotten(peer, key);
	return any;
}

static bool use_unregistered(struct tei_rail_peer *peer,
			     struct tei_rail_task *t, uint64_t addr,
			     uint64_t len, const struct rail_rkey *key)
{
	uint32_t i = tei_range_index(&peer->keys.rkeys, addr);
	struct tei_range *r;

	(void)key;
	while ((r = tei_range_below(&peer->keys.rkeys, i++, addr + len))) {
		if (!tei_container_of(r, struct rail_rkey, range)->unregistered)
			continue;
		t->region_gone = true;
		return true;
	}
	return false;
}

void rail_key_mark_tasks(struct tei_rail_peer *peer)
{
	struct tei_rail_task *t;

	tei_list_foreach (t, &peer->tasks.live, struct tei_rail_task, live_link)
		use_task(peer, t, use_unregistered, NULL);
}
