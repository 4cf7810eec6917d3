/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Selects the next slice of a peer for a lane. rail_pick examines each queue of
 * the peer once, decides from which queue the slice comes, over which
 * connection the slice goes and how long the slice may be, and passes these
 * decisions on. rail_slice.c then cuts the slice and rail_post.c posts it;
 * neither of them examines the queues again.
 *
 * The order is: slices of the retry list, small requests, bulk requests. After
 * a number of small requests (rail_share_bulk_turn), a bulk request precedes
 * the small ones.
 */
#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_window.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/sched/rail_select.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"

#define PICK_MOST	64	/* largest number of entries of one queue that
				 * are examined and skipped because they are for
				 * other rails */

/* --- which rails may serve a task ---------------------------------------- */

/* Returns true if the rail with index i is nearer to the memory than a rail
 * with rank "rank", its route to the peer works, and it accepts the region. */
static bool pick_nearer(const struct tei_rail_peer *peer,
			const struct tei_rail_mr *mr, const uint8_t *ranks,
			uint8_t rank, uint32_t i) TEI_REQUIRES(rail_sched_held)
{
	return ranks[i] < rank && rail_health_works(peer, i) &&
	       !rail_hmem_foreign(mr, rail_at(peer->dp, i));
}

/*
 * Returns true if rails that are nearer to the memory than this rail still have
 * room for the peer. A nearer rail that is throttled and has used up its limit
 * of bulk data still counts with the free part of its window. Without small
 * requests, the nearer rail would use the free part of its window for bulk
 * data, and small requests must not change which rail is chosen. Bulk data for
 * which the nearer rails' windows have no free part goes to other rails.
 */
static bool pick_near_has_room(const struct tei_rail_peer *peer,
			       const struct tei_rail_mr *mr,
			       const uint8_t *ranks, uint8_t rank)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t bytes, window, later = 0;
	struct rail *r;
	uint32_t i;

	for (i = 0; i < rail_count(peer->dp); i++) {
		if (!pick_nearer(peer, mr, ranks, rank, i))
			continue;
		r = rail_at(peer->dp, i);
		bytes = rail_window_held(r);
		window = rail_window(r);
		if (bytes >= window)
			continue;
		/* bulk holds more than half of the limit only if all
		 * connections have used up their shares, which are at least one
		 * page each */
		if (rail_window_bulk(r) <= rail_share_throttled(r, bytes) / 2)
			return true;
		later += window - bytes;
	}
	return later > peer->dp->tasks.bulk_left;
}

static bool pick_near_exists(const struct tei_rail_peer *peer,
			     const struct tei_rail_mr *mr, const uint8_t *ranks,
			     uint8_t rank) TEI_REQUIRES(rail_sched_held)
{
	uint32_t i;

	for (i = 0; i < rail_count(peer->dp); i++)
		if (pick_nearer(peer, mr, ranks, rank, i))
			return true;
	return false;
}

/* Returns true if the rail may carry the task. Near rails are preferred. A far
 * rail carries it only if the nearer rails are full or down and the task is
 * long enough. */
static bool pick_may_take(const struct rail *rail,
			  const struct tei_rail_peer *peer,
			  const struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held)
{
	const uint8_t *ranks =
		task->ext ? rail_iov_ranks(task->ext, task->cut)
			  : rail_mr_ranks(task->mr, task->local + task->cut);
	uint8_t rank = ranks[rail->index];

	if (!rank || task->rail)
		return true;
	if (!pick_near_exists(peer, task->mr, ranks, rank))
		return true;
	return rank == 1 && task->length >= RAIL_FAR_BYTES &&
	       !pick_near_has_room(peer, task->mr, ranks, rank);
}

/* Returns true if this rail must leave the task to other rails. This is so if
 * this rail cannot access the memory, or if the task names another rail and
 * either that rail or the task makes progress. */
static bool pick_of_other(const struct rail *rail,
			  const struct tei_rail_peer *peer,
			  const struct tei_rail_task *t)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t i = t->rail - 1u;
	uint64_t last, now, most;

	if (rail_hmem_foreign(t->mr, rail))
		return true;
	if (!t->rail || i == rail->index || i >= rail_count(peer->dp) ||
	    !rail_health_works(peer, i))
		return false;
	last = peer->tasks.served_ns[i] > t->progress_ns
		       ? peer->tasks.served_ns[i]
		       : t->progress_ns;
	now = tei_now_ns();
	most = peer->dp->settings->failure.slice_timeout_s * TEI_NS_PER_SEC / 2;
	/* The second condition covers a named rail that completes other tasks
	 * but has no remote key for this one. */
	return now - last < peer->dp->times.stuck_ns &&
	       now - t->progress_ns < most;
}

/* --- the heads of the queues --------------------------------------------- */

/*
 * For each queue of a peer, the first entry that this rail may carry, or NULL.
 * rotate: true if none of the first PICK_MOST slices of the retry list is for
 * this rail. bulk_waits: true if the peer has a bulk request, or if the retry
 * list has a slice that this rail may post.
 */
struct pick_heads {
	struct rail_slice *retry;
	struct tei_rail_task *small, *bulk;
	bool rotate, bulk_waits;
};

/* Returns the first task of the queue that this rail may carry, or NULL. Adds
 * the number of examined tasks to *visited. */
static struct tei_rail_task *pick_first(const struct tei_list *queue,
					const struct rail *rail,
					const struct tei_rail_peer *peer,
					uint32_t *visited)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t;
	uint32_t n = 0;

	tei_list_foreach(t, queue, struct tei_rail_task, queue_link) {
		++*visited;
		if (!pick_of_other(rail, peer, t))
			return t;
		if (++n == PICK_MOST)
			break;
	}
	return NULL;
}

/* Returns the first slice of the retry list that this rail may post, or NULL.
 * Sets *rotate as pick_heads describes it. */
static struct rail_slice *pick_first_retry(const struct tei_rail_peer *peer,
					   const struct rail *rail,
					   uint32_t *visited, bool *rotate)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s;
	uint32_t n = 0;

	*rotate = false;
	tei_list_foreach (s, &peer->tasks.retry, struct rail_slice, link) {
		++*visited;
		if (!rail_hmem_foreign(s->mr, rail))
			return s;
		*rotate = ++n == PICK_MOST;
		if (*rotate)
			break;
	}
	return NULL;
}

/* Fills heads. Examines each queue of the peer once. An extra lane takes only
 * bulk data. */
static void pick_heads(const struct tei_rail_peer *peer,
		       const struct rail_lane *lane, struct pick_heads *heads,
		       uint32_t *visited) TEI_REQUIRES(rail_sched_held)
{
	const struct rail *rail = lane->rail;
	bool extra = rail_width_extra(lane);

	heads->retry = pick_first_retry(peer, rail, visited, &heads->rotate);
	if (extra && heads->retry && !heads->retry->bulk)
		heads->retry = NULL;
	heads->small = extra ? NULL
			     : pick_first(&peer->tasks.small, rail, peer,
					  visited);
	heads->bulk = pick_first(&peer->tasks.queue, rail, peer, visited);
	heads->bulk_waits = heads->retry || !tei_list_empty(&peer->tasks.queue);
}

/* Moves the first PICK_MOST slices of the retry list to its end. None of them
 * is for this rail; the next call then examines the slices that follow. */
static void pick_rotate(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s;
	uint32_t n;

	for (n = 0; n < PICK_MOST; n++) {
		s = tei_list_first(&peer->tasks.retry, struct rail_slice, link);
		tei_list_del(&s->link);
		tei_list_add_tail(&peer->tasks.retry, &s->link);
	}
}

/* --- the connection ------------------------------------------------------ */

/* Returns the remote rail for the slice that is probably cut next, or -1. */
static int16_t pick_remote(struct rail_lane *lane, struct tei_rail_peer *peer,
			   const struct pick_heads *heads, uint64_t *now)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	const struct rail_slice *s = heads->retry;
	const struct tei_rail_task *t =
		heads->small ? heads->small : heads->bulk;
	int16_t route = rail_conn_route(peer, lane->rail);
	const struct rail_rkey *k = NULL;

	if (!peer->routes.choice || route < 0 ||
	    peer->dp->settings->sched.path_roundrobin)
		return route;
	if (s) {
		k = s->ext ? NULL : rail_key_find(peer, s->remote);
		return k ? rail_select_remote(peer, lane, k,
					      rail_mr_ranks(s->mr, s->local),
					      s->first->length, now)
			 : route;
	}
	if (t && !t->ext)
		k = rail_key_find(peer, t->remote + t->cut);
	return k ? rail_select_remote(peer, lane, k,
				      rail_mr_ranks(t->mr, t->local + t->cut),
				      t->length, now)
		 : route;
}

/* Selects the connection. Returns false if nothing may be posted to the remote
 * rail. */
static bool pick_conn(struct rail_lane *lane, struct tei_rail_peer *peer,
		      const struct pick_heads *heads, uint64_t *now,
		      struct rail_pick *pick) TEI_REQUIRES(lane->lock)
	TEI_REQUIRES(rail_sched_held)
{
	int16_t r = pick_remote(lane, peer, heads, now);

	if (r < 0)
		return false;
	pick->remote_idx = (uint16_t)r;
	pick->remote = &peer->remotes[r];
	if (rail_fence_outstanding(&pick->remote->fence) ||
	    !pick->remote->addr.len)
		return false;
	pick->conn = rail_conn_get(peer, lane, pick->remote_idx);
	return pick->conn && rail_width_covers(pick->conn, lane);
}

/* Returns true if the health of the rail pair and the state of the connection
 * allow a post. */
static bool pick_conn_works(const struct rail_lane *lane,
			    const struct rail_pick *pick, uint64_t *now)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	const struct rail_conn *p = pick->conn;

	if (!tei_list_empty(&p->peer->faults) &&
	    !rail_health_open(p->peer, lane->rail, pick->remote_idx,
			      p->width ? p->width->bytes : p->bytes))
		return false;
	if (!p->blocked_ns)
		return true;
	if (!*now)
		*now = tei_now_ns();
	return *now >= p->blocked_ns;
}

/* --- the slice ----------------------------------------------------------- */

/* Sets the address and the key of the remote memory for the selected remote
 * rail. Returns false if the peer has sent no key for this rail. */
static bool pick_address(struct rail_pick *pick, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_rkey *k = pick->key;
	uint16_t i;

	for (i = 0; i < k->nparts; i++) {
		if (k->part[i].rail_id != pick->remote->id)
			continue;
		pick->rma_key = k->part[i].key64;
		pick->rma_addr = pick->to;
		if (!pick->remote->virt_addr)
			pick->rma_addr -= k->range.base - k->part[i].offset;
		return !(rail->fab.mr_mode & FI_MR_RAW) ||
		       rail_key_raw(k, i, rail, &pick->rma_key);
	}
	return false;
}

uint64_t rail_pick_local_room(const struct tei_rail_mr *mr, char *local,
			      const struct rail *rail)
{
	const struct rail_mr_part *part = &mr->part[rail->index];

	return part->desc ? rail_mr_room(mr, part, local) : UINT64_MAX;
}

/* Returns the number of bytes that one operation can cover from the first byte
 * of the slice. */
static uint64_t pick_room(const struct rail_pick *pick,
			  const struct tei_rail_mr *mr,
			  const struct tei_rail_task_ext *ext, uint64_t off,
			  const struct rail *rail)
{
	const struct rail_rkey *k = pick->key;
	uint64_t room;

	if (ext)
		return rail_iov_fit(ext, off, k, rail);
	room = rail_pick_local_room(mr, pick->local, rail);
	return room < k->range.end - pick->to ? room : k->range.end - pick->to;
}

/* Does for a slice with iov entries what pick_retry_key does. */
static bool pick_retry_keys(struct tei_rail_peer *peer, struct rail_slice *s)
	TEI_REQUIRES(rail_sched_held)
{
	if (!rail_iov_keys(peer, s->ext, s->off, s->len, s->read))
		return false;
	s->rkey = rail_key_find(peer, s->remote);
	if (!s->rkey)
		return false;
	s->rkey->slices++;
	return true;
}

/* Finds the remote key for the start of the slice. If a key for a part of the
 * slice is not known, requests it and returns false. */
static bool pick_retry_key(struct tei_rail_peer *peer, struct rail_slice *s)
	TEI_REQUIRES(rail_sched_held)
{
	if (s->rkey && !s->rkey->revoked)
		return true;
	if (s->rkey)
		rail_key_slice_done(peer, s->rkey);
	s->rkey = NULL;
	if (s->ext)
		return pick_retry_keys(peer, s);
	if (!rail_key_covers_or_want(peer, s->remote, s->len, s->read))
		return false;
	s->rkey = rail_key_find(peer, s->remote);
	s->rkey->slices++;
	return true;
}

/* Selects the slice s of the retry list. Returns false if the lane may not post
 * s, or if s is NULL, which means that the list has no slice for this rail. */
static bool pick_retry(struct tei_rail_peer *peer, const struct rail *rail,
		       struct rail_slice *s, struct rail_pick *pick)
	TEI_REQUIRES(rail_sched_held)
{
	if (!s || !pick_retry_key(peer, s))
		return false;
	pick->key = s->rkey;
	pick->local = s->local;
	pick->to = s->remote;
	if (!pick_address(pick, rail))
		return false;
	pick->len = pick_room(pick, s->mr, s->ext, s->off, rail);
	if (pick->len > rail->caps.max_slice)
		pick->len = rail->caps.max_slice;
	pick->source = RAIL_PICK_RETRY;
	pick->slice = s;
	return true;
}

/* Returns true if the remote keys of the whole task are known. Requests the
 * missing ones. */
static bool pick_keys_ready(struct tei_rail_peer *peer, struct tei_rail_task *t)
	TEI_REQUIRES(rail_sched_held)
{
	if (t->keys_checked)
		return true;
	if (t->ext)
		t->keys_checked =
			rail_iov_keys(peer, t->ext, 0, t->length, t->read);
	else if (t->group)
		t->keys_checked = rail_key_group_ready(peer, t);
	else
		t->keys_checked = rail_key_covers_or_want(peer, t->remote,
							  t->length, t->read);
	return t->keys_checked;
}

/* Sets the length of the next slice of the task. Returns false if the rail must
 * leave the rest of the task to other rails. bytes: number of bytes that are
 * posted on the rail, including slices just cut. most: largest length of the
 * slice. */
static bool pick_len(struct tei_rail_peer *peer, const struct rail *rail,
		     const struct tei_rail_task *t, bool last, uint64_t bytes,
		     uint64_t most, struct rail_pick *pick)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t left = t->length - t->cut;
	struct rail_window_sum sum;

	rail_window_sum(rail, peer, t->mr, rail_mr_ranks(t->mr, pick->local),
			bytes, &sum);
	pick->len = rail_share_len(rail, &sum, left, rail_task_bulk(t), most);
	return t->ext || !last || !t->cut || t->rail ||
	       !rail_window_over(&sum, bytes, left, pick->len);
}

/* Finds the addresses and the remote key for the next byte of the task. Returns
 * false if the key has been revoked since pick_keys_ready. */
static bool pick_key(struct tei_rail_peer *peer, struct tei_rail_task *t,
		     struct rail_pick *pick) TEI_REQUIRES(rail_sched_held)
{
	if (t->ext) {
		rail_iov_select(t->ext, t->cut, &pick->local, &pick->to);
	} else {
		pick->local = t->local + t->cut;
		pick->to = t->remote + t->cut;
	}
	pick->key = rail_key_find(peer, pick->to);
	t->keys_checked = pick->key != NULL;
	return t->keys_checked;
}

/*
 * Selects a slice of task t, which is the first task of its queue that this
 * rail may serve. t is NULL if there is no such task. Returns false if the lane
 * may not cut a slice now. most: maximum length of the slice.
 */
static bool pick_task(struct tei_rail_peer *peer, const struct rail *rail,
		      struct tei_rail_task *t, enum rail_pick_source source,
		      uint64_t bytes, uint64_t most, struct rail_pick *pick)
	TEI_REQUIRES(rail_sched_held)
{
	const struct tei_list *queue = source == RAIL_PICK_SMALL
					       ? &peer->tasks.small
					       : &peer->tasks.queue;
	uint64_t room;

	if (!t || !pick_keys_ready(peer, t) || !pick_may_take(rail, peer, t) ||
	    !pick_key(peer, t, pick) ||
	    !pick_len(peer, rail, t, t->queue_link.next == queue, bytes, most,
		      pick) ||
	    !pick_address(pick, rail))
		return false;
	room = pick_room(pick, t->mr, t->ext, t->cut, rail);
	if (pick->len > room)
		pick->len = room;
	pick->source = source;
	pick->task = t;
	pick->most = most;
	return true;
}

/* What the connection may take now. small: true if it may take small requests.
 * most: largest length of a bulk slice, bytes; 0 if it may take no bulk data.
 * full: true if it has used up its share of bulk data. */
struct pick_limits {
	bool small, full;
	uint64_t most;
};

static void pick_limits(struct rail_lane *lane, const struct rail_conn *p,
			const struct pick_heads *heads, uint64_t bytes,
			struct pick_limits *out) TEI_REQUIRES(lane->lock)
	TEI_REQUIRES(rail_sched_held)
{
	out->small = rail_share_room(lane, p, bytes, false);
	out->most = 0;
	out->full = false;
	if (!heads->bulk_waits || !rail_share_room(lane, p, bytes, true))
		return;
	out->most = rail_share_most(lane->rail, p, bytes);
	out->full = !out->most;
}

/*
 * Decides from which queue the next slice comes. Small requests precede bulk
 * requests, so that a small request waits only for slices that are already
 * posted. When bulk data is next, a small request is selected only if the rail
 * cannot carry the bulk request. If the connection may not take bulk data then,
 * nothing is selected. While the connection's share of bulk data is used up,
 * bulk data is never next.
 */
static bool pick_source(struct tei_rail_peer *peer, const struct rail *rail,
			const struct pick_heads *heads,
			const struct pick_limits *may, uint64_t bytes,
			struct rail_pick *pick) TEI_REQUIRES(rail_sched_held)
{
	bool bulk_first =
		!may->full && heads->bulk_waits && rail_share_bulk_turn(peer);

	if (may->most && pick_retry(peer, rail, heads->retry, pick))
		return true;
	if (may->small && !bulk_first &&
	    pick_task(peer, rail, heads->small, RAIL_PICK_SMALL, bytes,
		      UINT64_MAX, pick))
		return true;
	if (!may->most)
		return false;
	return pick_task(peer, rail, heads->bulk, RAIL_PICK_BULK, bytes,
			 may->most, pick) ||
	       (may->small && bulk_first &&
		pick_task(peer, rail, heads->small, RAIL_PICK_SMALL, bytes,
			  UINT64_MAX, pick));
}

bool rail_pick(struct rail_lane *lane, struct tei_rail_peer *peer,
	       uint64_t bytes, uint64_t *now, struct rail_pick *pick)
{
	struct pick_limits may;
	struct pick_heads heads;

	pick->source = RAIL_PICK_NONE;
	pick->visited = 0;
	if (rail_fence_failed(&peer->fence) || peer->state != RAIL_PEER_READY)
		return false;
	pick_heads(peer, lane, &heads, &pick->visited);
	pick->bulk_waits = heads.bulk_waits;
	if (pick_conn(lane, peer, &heads, now, pick)) {
		pick_limits(lane, pick->conn, &heads, bytes, &may);
		if ((may.small || may.most) &&
		    pick_conn_works(lane, pick, now) &&
		    pick_source(peer, lane->rail, &heads, &may, bytes, pick) &&
		    rail_cache_admit(lane, pick->conn, now))
			return true;
	}
	pick->source = RAIL_PICK_NONE;
	if (heads.rotate)
		pick_rotate(peer);
	return false;
}
