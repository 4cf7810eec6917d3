/* SPDX-License-Identifier: BSD-2-Clause */
/* Cuts slices, and keeps the pool of free slices. Slices are cut only when a
 * lane has room. So a faster rail takes more slices, and the speed of the rails
 * need not be estimated. */

#include <stdlib.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_window.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"

static int slice_grow(struct tei_rail_dp *dp)
{
	struct rail_slice_chunk *c = calloc(1, sizeof(*c));
	size_t i;

	if (!c)
		return TEI_ERR_MEMORY;
	c->next = dp->tasks.chunks;
	dp->tasks.chunks = c;
	for (i = 0; i < sizeof(c->slice) / sizeof(c->slice[0]); i++) {
		c->slice[i].op.handler = &rail_slice_op;
		tei_list_add_tail(&dp->tasks.slices, &c->slice[i].link);
	}
	return 0;
}

struct rail_slice *rail_slice_get(struct tei_rail_dp *dp)
{
	struct rail_slice *s;

	if (tei_list_empty(&dp->tasks.slices) && slice_grow(dp))
		return NULL;
	s = tei_list_first(&dp->tasks.slices, struct rail_slice, link);
	tei_list_del(&s->link);
	s->retries = 0;
	s->last_err = 0;
	s->prov_err = 0;
	s->rkey = NULL;
	s->conn = NULL;
	s->ext = NULL;
	s->bulk = false;
	return s;
}

void rail_slice_put(struct tei_rail_dp *dp, struct rail_slice *slice)
{
	tei_list_add_head(&dp->tasks.slices, &slice->link);
}

/* --- cutting ------------------------------------------------------------- */

bool rail_slice_split(struct tei_rail_peer *peer, struct rail_slice *s,
		      uint64_t len)
{
	struct rail_slice *rest = rail_slice_get(peer->dp);

	if (!rest)
		return false;
	rest->peer = peer;
	rest->lane = s->lane;
	rest->first = s->first;
	rest->ntasks = 1;
	rest->mr = s->mr;
	rest->read = s->read;
	rest->retries = s->retries;
	rest->last_err = s->last_err;
	rest->prov_err = s->prov_err;
	if (s->ntasks > 1) {
		len = s->first->length;
		rest->first = s->first->merge_next;
		rest->ntasks = s->ntasks - 1;
		s->ntasks = 1;
	} else {
		s->first->slices++;
	}
	rest->local = s->local + len;
	rest->remote = s->remote + len;
	rest->ext = s->ext;
	rest->off = s->off + len;
	rest->bulk = s->bulk;
	if (rest->ext)
		rail_iov_select(rest->ext, rest->off, &rest->local,
				&rest->remote);
	rest->len = s->len - len;
	s->len = len;
	tei_list_insert_after(&s->link, &rest->link);
	return true;
}

/* Merges small tasks into the slice, from the list entry "next" on, as long as
 * each task is adjacent to the previous one in both local and remote memory.
 * max: largest length of the slice. */
static void slice_merge(struct rail_slice *s, struct tei_list *next,
			uint64_t max) TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *last = s->first, *t;
	uint64_t end = s->rkey->range.end - 1;

	while (next != &s->peer->tasks.small) {
		t = tei_container_of(next, struct tei_rail_task, queue_link);
		next = next->next;
		if (t->ext || t->group || t->read != s->read || t->cut ||
		    t->mr != s->mr || t->rail != s->first->rail ||
		    t->local != s->local + s->len ||
		    t->remote != s->remote + s->len ||
		    s->len + t->length > max ||
		    t->remote + (t->length - 1) > end)
			return;
		t->keys_checked = true;
		t->cut = t->length;
		t->slices++;
		t->merge_next = NULL;
		last->merge_next = t;
		last = t;
		rail_task_unqueue(t);
		s->ntasks++;
		s->len += t->length;
	}
}

/* Counts the next len bytes of the task as cut. */
static void slice_count(struct tei_rail_task *t, uint64_t len)
	TEI_REQUIRES(rail_sched_held)
{
	t->merge_next = NULL;
	t->slices++;
	t->cut += len;
	if (rail_task_bulk(t))
		t->peer->dp->tasks.bulk_left -= len;
}

/* Takes the selected slice from the retry list. If the slice is too long for
 * one operation, splits it; returns NULL if memory is short then. */
static struct rail_slice *slice_cut_retry(const struct rail_pick *pick)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s = pick->slice;

	while (s->len > pick->len)
		if (!rail_slice_split(s->peer, s, pick->len))
			return NULL;
	tei_list_del(&s->link);
	s->peer->tasks.overtaken = 0;
	return s;
}

/* Merges more small requests into a slice that covers the whole of its task.
 * next: list entry of the first request to be merged. */
static void slice_cut_more(struct rail_slice *s, const struct rail *rail,
			   struct tei_list *next)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t max = rail->dp->settings->sched.slice_size;
	uint64_t room = rail_pick_local_room(s->mr, s->local, rail);

	if (s->ext || s->len >= max || !rail->dp->settings->sched.merge)
		return;
	if (max > room)
		max = room;
	slice_merge(s, next,
		    max < rail->caps.max_slice ? max : rail->caps.max_slice);
}

/* Updates peer->tasks.overtaken, the count from which rail_share_bulk_turn
 * decides whether a bulk slice must precede the next small request. */
static void slice_count_turn(struct rail *rail, const struct rail_slice *s,
			     const struct rail_pick *pick)
	TEI_REQUIRES(rail_sched_held)
{
	if (pick->source == RAIL_PICK_BULK) {
		s->peer->tasks.overtaken =
			rail_share_overtaken(rail, s->len, pick->most);
		return;
	}
	s->peer->tasks.overtaken += pick->bulk_waits;
	if (s->peer->dp->tasks.bulk_left)
		rail_share_small(rail);
}

/* Cuts the selected slice from its task. Returns NULL if memory is short. */
static struct rail_slice *slice_cut_task(struct rail *rail,
					 const struct rail_pick *pick)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t = pick->task;
	struct tei_list *next = t->queue_link.next;
	struct rail_slice *s = rail_slice_get(rail->dp);

	if (!s)
		return NULL;
	s->peer = t->peer;
	s->first = t;
	s->ntasks = 1;
	s->read = t->read;
	s->mr = t->mr;
	s->ext = t->ext;
	s->off = t->cut;
	s->rkey = pick->key;
	s->rkey->slices++;
	s->local = pick->local;
	s->remote = pick->to;
	s->len = pick->len;
	slice_count(t, s->len);
	if (t->cut == t->length) {
		rail_task_unqueue(t);
		if (pick->source == RAIL_PICK_SMALL && s->len == t->length)
			slice_cut_more(s, rail, next);
	}
	slice_count_turn(rail, s, pick);
	return s;
}

/* Cuts the selected slice. Returns NULL if memory is short. */
static struct rail_slice *slice_cut(struct rail_lane *lane,
				    const struct rail_pick *pick)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	struct rail_conn *p = pick->conn;
	struct rail_slice *s;

	s = pick->source == RAIL_PICK_RETRY ? slice_cut_retry(pick)
					    : slice_cut_task(lane->rail, pick);
	if (!s)
		return NULL;
	s->rma_addr = pick->rma_addr;
	s->rma_key = pick->rma_key;
	s->lane = lane;
	s->bulk = rail_task_bulk(s->first);
	rail_conn_take(p, s);
	if (s->bulk)
		rail_share_took(lane->rail, p, s->len, lane->rate.served_ns);
	s->remote_idx = pick->remote_idx;
	s->remote_gen = pick->remote->gen;
	s->conn_fresh = !(p->ready && p->lane_gen == lane->gen &&
			  p->remote_serial == pick->remote->serial);
	s->peer->tasks.posted++;
	return s;
}

static void slice_rest(struct tei_rail_peer *peer)
{
	if (rail_slice_none(peer)) {
		tei_list_del(&peer->active_link);
		__atomic_store_n(&peer->dp->tasks.nactive,
				 peer->dp->tasks.nactive - 1, __ATOMIC_RELAXED);
	}
}

int rail_slice_cut(struct rail_lane *lane, struct rail_slice **out)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	uint64_t bytes = rail_window_held(lane->rail);
	uint64_t most = lane->rail->load.window_max, now = 0;
	struct tei_rail_peer *peer, *tmp;
	uint32_t room = lane->rail->caps.tx_depth > lane->inflight
				? lane->rail->caps.tx_depth - lane->inflight
				: 0;
	struct rail_pick pick;
	struct rail_slice *s;
	int n = 0;

	if (room > RAIL_BUNDLE)
		room = RAIL_BUNDLE;
	if (__atomic_load_n(&lane->rail->link.down, __ATOMIC_RELAXED))
		return 0;
	rail_cache_favour(lane);
	tei_list_foreach_safe (peer, tmp, &dp->tasks.active,
			       struct tei_rail_peer, active_link) {
		while ((uint32_t)n < room && bytes < most &&
		       !rail_slice_none(peer)) {
			s = rail_pick(lane, peer, bytes, &now, &pick)
				    ? slice_cut(lane, &pick)
				    : NULL;
			if (!s)
				break;
			bytes += s->len;
			out[n++] = s;
		}
		slice_rest(peer);
		if ((uint32_t)n >= room || bytes >= most)
			break;
	}
	rail_cache_favoured(lane);
	/* the peer that was served first comes last in the next call */
	if (n && !tei_list_empty(&dp->tasks.active)) {
		peer = tei_list_first(&dp->tasks.active, struct tei_rail_peer,
				      active_link);
		tei_list_del(&peer->active_link);
		tei_list_add_tail(&dp->tasks.active, &peer->active_link);
	}
	return n;
}
