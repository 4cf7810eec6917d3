/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cutting of slices, and the pool of free slices. Slices are cut only when a
 * lane has room. So a faster rail takes more slices, and the speed of the rails
 * need not be estimated.
 */
#include <stdlib.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/sched/rail_sched.h"

#define SLICE_NS	(250 * TEI_NS_PER_US) /* target duration of a slice */
#define SLICE_OVERTAKE	16		      /* small requests
					       * per bulk slice */
/*
 * Throttling of bulk data after a small request. For the first SLICE_BESIDE
 * slices of bulk data, the limit is rail_window_throttle. For the next
 * SLICE_LATER slices, and on rails without a known rate, the limit is
 * SLICE_LATER_BYTES.
 */
#define SLICE_BESIDE	256
#define SLICE_LATER	4096
#define SLICE_LATER_BYTES	(8u << 20)
#define SLICE_TURN_NS	4e9		      /* accounting round:
					       * time of four windows */
#define SLICE_LOOK	64		      /* entries for other rails
					       * that are skipped */
#define SLICE_PAGE	UINT64_C(4096)	      /* slice lengths are multiples of
					       * it, */
#define SLICE_GRAIN	UINT64_C(1024)	      /* or of this one
					       * while throttled */

static int slice_grow(struct tei_rail_dp *dp)
{
	struct rail_slice_chunk *c = calloc(1, sizeof(*c));
	size_t i;

	if (!c)
		return TEI_ERR_MEMORY;
	c->next = dp->chunks;
	dp->chunks = c;
	for (i = 0; i < sizeof(c->slice) / sizeof(c->slice[0]); i++) {
		c->slice[i].op.kind = RAIL_OP_SLICE;
		tei_list_add_tail(&dp->slices, &c->slice[i].link);
	}
	return 0;
}

struct rail_slice *rail_slice_get(struct tei_rail_dp *dp)
{
	struct rail_slice *s;

	if (tei_list_empty(&dp->slices) && slice_grow(dp))
		return NULL;
	s = tei_list_first(&dp->slices, struct rail_slice, link);
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
	tei_list_add_head(&dp->slices, &slice->link);
}

/* --- cutting ------------------------------------------------------------- */

/* Returns the number of bulk slices for which the rail stays throttled. */
static uint32_t slice_throttled_left(const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	return rail->dp->settings->small_first ? SLICE_BESIDE + SLICE_LATER
					       : rail->throttled_left;
}

/* Returns true if bulk data must leave room on the rail for small requests. */
static bool slice_throttled(const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	return slice_throttled_left(rail) > SLICE_LATER &&
	       rail_window_throttle(rail) < UINT64_MAX;
}

/*
 * Returns the number of bytes of bulk data that the rail may hold while
 * throttled, whichever peers the small requests are for. Small requests delay
 * each other as well, so the limit is at least three eighths of the bytes that
 * small requests have posted. bytes: all bytes posted on the rail.
 */
static uint64_t slice_window_throttled(const struct rail *rail, uint64_t bytes)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t left = slice_throttled_left(rail);
	uint64_t bulk, most, small;

	if (!left)
		return UINT64_MAX;
	bulk = rail_window_bulk(rail);
	most = rail_window_throttle(rail);
	if (most == UINT64_MAX || left <= SLICE_LATER)
		most = SLICE_LATER_BYTES;
	small = bytes > bulk ? bytes - bulk : 0;
	small = small / 8 * 3;
	return most > small ? most : small;
}

/*
 * Returns the number of bytes of bulk data that a connection may hold while the
 * rail is throttled. The limit of the rail is divided equally among the
 * connections that have taken bulk data recently, with at least one page for
 * each. A connection to a slow or stopped target rarely takes bulk data and so
 * is not counted; its data is not on the wire and does not reduce the share of
 * the other connections.
 */
static uint64_t slice_conn_throttled(const struct rail *rail,
				     const struct rail_conn *p, uint64_t bytes)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t most = slice_window_throttled(rail, bytes);
	uint32_t n = rail->participants + (p->took_in != rail->turn);

	if (most == UINT64_MAX)
		return most;
	if (n < rail->participants_before)
		n = rail->participants_before;
	most = most / n & ~(SLICE_GRAIN - 1);
	return most > SLICE_PAGE ? most : SLICE_PAGE;
}

/* Returns true if rail i is nearer to the memory than rank, works for the peer
 * and accepts the region. */
static bool slice_nearer(const struct tei_rail_peer *peer,
			 const struct tei_rail_mr *mr, const uint8_t *ranks,
			 uint8_t rank, uint32_t i)
	TEI_REQUIRES(rail_sched_held)
{
	return ranks[i] < rank && rail_health_works(peer, i) &&
	       !rail_hmem_foreign(mr, rail_at(peer->dp, i));
}

/*
 * Returns true if nearer rails still have room for the peer. A nearer rail that
 * is throttled and has used up its limit of bulk data still counts with the
 * rest of its window. It would use this rest if there were no small requests,
 * and the choice of the rail must not depend on small requests. Bulk data that
 * exceeds the rests of the nearer rails goes to other rails.
 */
static bool slice_near_has_room(const struct tei_rail_peer *peer,
				const struct tei_rail_mr *mr,
				const uint8_t *ranks, uint8_t rank)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t bytes, window, later = 0;
	struct rail *r;
	uint32_t i;

	for (i = 0; i < rail_count(peer->dp); i++) {
		if (!slice_nearer(peer, mr, ranks, rank, i))
			continue;
		r = rail_at(peer->dp, i);
		bytes = rail_window_held(r);
		window = rail_window(r);
		if (bytes >= window)
			continue;
		/* if all connections have used their shares, even of one page
		 * each, the rail holds more than half of its limit */
		if (rail_window_bulk(r) <= slice_window_throttled(r, bytes) / 2)
			return true;
		later += window - bytes;
	}
	return later > peer->dp->bulk_left;
}

static bool slice_near_exists(const struct tei_rail_peer *peer,
			      const struct tei_rail_mr *mr,
			      const uint8_t *ranks, uint8_t rank)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t i;

	for (i = 0; i < rail_count(peer->dp); i++)
		if (slice_nearer(peer, mr, ranks, rank, i))
			return true;
	return false;
}

/* Returns true if this rail must leave the task to other rails: because this
 * rail cannot access the memory, or because the task names another rail, and
 * the named rail or the task makes progress. */
static bool slice_of_other(const struct rail *rail,
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
	last = peer->served_ns[i] > t->progress_ns ? peer->served_ns[i] :
						     t->progress_ns;
	now = tei_now_ns();
	most = peer->dp->settings->slice_timeout_s * TEI_NS_PER_SEC / 2;
	/* the named rail may serve other tasks but have no remote key for this
	 * task */
	return now - last < peer->dp->stuck_ns && now - t->progress_ns < most;
}

/* Returns the first task that this rail may serve, or NULL. */
static struct tei_rail_task *slice_first(const struct tei_list *queue,
					 const struct rail *rail,
					 const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t;
	uint32_t n = 0;

	tei_list_foreach(t, queue, struct tei_rail_task, queue_link) {
		if (!slice_of_other(rail, peer, t))
			return t;
		if (++n == SLICE_LOOK)
			break;
	}
	return NULL;
}

/* Returns the first slice on the retry list that this rail may post, or NULL.
 * *passed: number of slices skipped, at most SLICE_LOOK. */
static struct rail_slice *slice_check_retry(const struct tei_rail_peer *peer,
					    const struct rail *rail,
					    uint32_t *passed)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s;

	*passed = 0;
	tei_list_foreach(s, &peer->retry, struct rail_slice, link) {
		if (!rail_hmem_foreign(s->mr, rail))
			return s;
		if (++*passed == SLICE_LOOK)
			break;
	}
	return NULL;
}

static struct rail_slice *slice_first_retry(const struct tei_rail_peer *peer,
					    const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t passed;

	return slice_check_retry(peer, rail, &passed);
}

/* If none of the first SLICE_LOOK slices is for this rail, moves these slices
 * to the end of the list, so that the next call examines the following ones. */
static void slice_turn_retry(struct tei_rail_peer *peer,
			     const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s;
	uint32_t n;

	if (slice_check_retry(peer, rail, &n) || n < SLICE_LOOK)
		return;
	while (n--) {
		s = tei_list_first(&peer->retry, struct rail_slice, link);
		tei_list_del(&s->link);
		tei_list_add_tail(&peer->retry, &s->link);
	}
}

/* Returns true if the rail may serve the task. Near rails come first. A far
 * rail helps if the nearer rails are full or down and the task is large
 * enough. */
static bool slice_may_take(const struct rail *rail,
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
	if (!slice_near_exists(peer, task->mr, ranks, rank))
		return true;
	return rank == 1 && task->length >= RAIL_FAR_BYTES &&
	       !slice_near_has_room(peer, task->mr, ranks, rank);
}

/* Returns the usual length of a slice: what the rail moves in 250 µs, which is
 * large enough to amortize a post. */
static uint64_t slice_usual(const struct rail *rail)
{
	const struct tei_settings *s = rail->dp->settings;
	uint64_t rate = __atomic_load_n(&rail->rate_bps, __ATOMIC_RELAXED);
	uint64_t len = rate ? (uint64_t)((double)rate * 1e-9 * SLICE_NS)
			    : 4ull * s->slice_size;

	len &= ~(SLICE_PAGE - 1);
	return len < s->slice_max ? len : s->slice_max;
}

/* Returns the minimum length of a slice. For bulk data on a throttled rail the
 * minimum is halved, because small requests wait for each posted slice. */
static uint64_t slice_floor(const struct rail *rail, bool bulk)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t floor = rail->dp->settings->slice_size;

	return bulk && slice_throttled(rail) ? floor / 2 : floor;
}

static uint64_t slice_whole(const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t len = slice_usual(rail), floor = slice_floor(rail, true);

	return len > floor ? len : floor;
}

/* Starts a new accounting round. before: number of connections that took bulk
 * data in the last round. */
static void slice_turn(struct rail *rail, uint32_t before)
	TEI_REQUIRES(rail_sched_held)
{
	rail->participants_before = before;
	rail->participants = 0;
	rail->taken = 0;
	if (!++rail->turn)
		rail->turn = 1;
}

/* Ends an accounting round in which the rail could have sent four windows,
 * because few connections still take bulk data. After twice this time, the
 * count of connections is outdated and set to 0. */
static void slice_turn_ages(struct rail *rail, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t rate = __atomic_load_n(&rail->rate_bps, __ATOMIC_RELAXED);
	double most = SLICE_TURN_NS * (double)rail_window(rail);
	double ns = now > rail->turn_ns ? (double)(now - rail->turn_ns) : 0;

	if (ns * (double)rate < most)
		return;
	slice_turn(rail, ns * (double)rate < 2 * most ? rail->participants : 0);
	rail->turn_ns = now;
}

/*
 * Accounts for len bytes of bulk data cut for the connection while the rail is
 * throttled. The accounting round ends when the bulk bytes taken reach the
 * rail's window. now: time of the last completion on the lane.
 */
static void slice_took(struct rail *rail, struct rail_conn *p, uint64_t len,
		       uint64_t now) TEI_REQUIRES(rail_sched_held)
{
	uint64_t whole = slice_whole(rail), n;

	slice_turn_ages(rail, now);
	rail->throttled_part += len;
	n = rail->throttled_part / whole;
	rail->throttled_part -= n * whole;
	rail->throttled_left -=
		n < rail->throttled_left ? (uint32_t)n : rail->throttled_left;
	rail->participants += p->took_in != rail->turn;
	p->took_in = rail->turn;
	rail->taken += len;
	if (rail->taken < rail_window(rail))
		return;
	slice_turn(rail, rail->participants);
	if (now > rail->turn_ns)
		rail->turn_ns = now;
}

/*
 * Returns the present maximum length of a bulk slice for the connection; on a
 * throttled rail, an even part of the connection's share. Returns 0 if the
 * share is used up.
 */
static uint64_t slice_most(struct rail *rail, const struct rail_conn *p,
			   uint64_t bytes) TEI_REQUIRES(rail_sched_held)
{
	uint64_t part = slice_conn_throttled(rail, p, bytes), len;

	if (part == UINT64_MAX)
		return part;
	len = slice_whole(rail);
	len = part / ((part + len - 1) / len) & ~(SLICE_GRAIN - 1);
	if (len < SLICE_PAGE)
		len = SLICE_PAGE;
	if (!p->bulk_bytes || p->bulk_bytes + len <= part)
		return len;
	if (rail->wire && bytes < rail_window(rail))
		__atomic_store_n(&rail->throttled, true, __ATOMIC_RELAXED);
	return 0;
}

/*
 * Returns the length of the next slice. The usual length is small enough to
 * balance the rails. Towards the end of a task that several rails share, slices
 * shrink, so that the rails finish together (guided self-scheduling,
 * Polychronopoulos and Kuck, IEEE ToC 1987).
 */
static uint64_t slice_len(const struct rail *rail,
			  const struct rail_window_sum *sum, uint64_t left,
			  uint64_t floor, uint64_t most)
{
	uint64_t len = slice_usual(rail);
	uint64_t share = (uint64_t)(sum->share * (double)left / 2);

	if (sum->rails > 1 && len > share)
		len = share & ~(SLICE_PAGE - 1);
	if (len < floor)
		len = floor;
	if (len > most)
		len = most;
	if (len > rail->max_slice)
		len = rail->max_slice;
	/* avoid a tiny last slice */
	if (left <= len + len / 2 && left <= rail->max_slice)
		len = left;
	return len < left ? len : left;
}

/* Sets the slice's address and key for one remote rail. Returns false if the
 * peer gave no key for that rail. */
static bool slice_aim(struct rail_slice *s, const struct rail *rail,
		      const struct rail_remote *remote)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_rkey *k = s->rkey;
	uint16_t i;

	for (i = 0; i < k->nparts; i++) {
		if (k->part[i].rail_id != remote->id)
			continue;
		s->rma_key = k->part[i].key64;
		s->rma_addr = s->remote;
		if (!remote->virt_addr)
			s->rma_addr -= k->base - k->part[i].offset;
		return !(rail->mr_mode & FI_MR_RAW) ||
		       rail_key_raw(k, i, rail, &s->rma_key);
	}
	return false;
}

/* Returns the number of local bytes that one operation can cover, from the
 * start of the slice. */
static uint64_t slice_local_room(const struct rail_slice *s,
				 const struct rail *rail)
{
	const struct rail_mr_part *part = &s->mr->part[rail->index];

	return part->desc ? rail_mr_room(s->mr, part, s->local) : UINT64_MAX;
}

/*
 * Splits a slice on the retry list that one operation can no longer cover, for
 * example because the memory is now registered as two regions. A slice with
 * several tasks is split after the first task, any other slice after len bytes.
 * Returns false if memory is short.
 */
static bool slice_split(struct tei_rail_peer *peer, struct rail_slice *s,
			uint64_t len) TEI_REQUIRES(rail_sched_held)
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
		rail_iov_select(rest);
	rest->len = s->len - len;
	s->len = len;
	tei_list_insert_after(&s->link, &rest->link);
	return true;
}

/* Does the work of slice_find_key for a task with iov entries. */
static bool slice_find_keys(struct tei_rail_peer *peer, struct rail_slice *s)
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

/* Finds the remote key for the start of the slice. Returns false, and requests
 * keys, if the key of a part of the slice is not known. */
static bool slice_find_key(struct tei_rail_peer *peer, struct rail_slice *s)
	TEI_REQUIRES(rail_sched_held)
{
	if (s->rkey && !s->rkey->revoked)
		return true;
	if (s->rkey)
		rail_key_slice_done(peer, s->rkey);
	s->rkey = NULL;
	if (s->ext)
		return slice_find_keys(peer, s);
	if (!rail_key_covers_or_want(peer, s->remote, s->len, s->read))
		return false;
	s->rkey = rail_key_find(peer, s->remote);
	s->rkey->slices++;
	return true;
}

/* Returns a slice from the retry list that this lane may post, or NULL. */
static struct rail_slice *slice_take_retry(struct tei_rail_peer *peer,
					   const struct rail *rail,
					   const struct rail_remote *remote)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s = slice_first_retry(peer, rail);
	uint64_t room;

	if (!s)
		return NULL;
	if (!slice_find_key(peer, s) || !slice_aim(s, rail, remote))
		return NULL;
	room = slice_local_room(s, rail);
	if (s->ext)
		room = rail_iov_fit(s, rail);
	else if (room > s->rkey->base + s->rkey->len - s->remote)
		room = s->rkey->base + s->rkey->len - s->remote;
	if (room > rail->max_slice)
		room = rail->max_slice;
	while (s->len > room)
		if (!slice_split(peer, s, room))
			return NULL;
	tei_list_del(&s->link);
	return s;
}

/* Merges the next small tasks into the slice as long as they are adjacent to it
 * in local and in remote memory. */
static void slice_merge(struct rail_slice *s, const struct tei_list *queue,
			uint64_t max) TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *last = s->first, *t;
	uint64_t end = s->rkey->base + (s->rkey->len - 1);

	while (!tei_list_empty(queue)) {
		t = tei_list_first(queue, struct tei_rail_task, queue_link);
		if (t->ext || t->whole_length || t->read != s->read || t->cut ||
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

static bool slice_keys_ready(struct tei_rail_peer *peer,
			     struct tei_rail_task *t)
	TEI_REQUIRES(rail_sched_held)
{
	if (t->keys_checked)
		return true;
	t->keys_checked = t->whole_length ?
		rail_key_covers_or_want(peer, t->whole, t->whole_length,
					t->read) :
		rail_key_covers_or_want(peer, t->remote, t->length, t->read);
	return t->keys_checked;
}

/* Counts the next len bytes of the task as cut. */
static void slice_count(struct tei_rail_task *t, uint64_t len)
	TEI_REQUIRES(rail_sched_held)
{
	t->merge_next = NULL;
	t->slices++;
	t->cut += len;
	if (rail_task_bulk(t))
		t->peer->dp->bulk_left -= len;
}

/* Does the work of slice_take_queue for a task with iov entries. */
static struct rail_slice *
slice_take_iov(struct tei_rail_peer *peer, struct tei_rail_task *t,
	       struct rail *rail, const struct rail_remote *remote,
	       uint64_t bytes, uint64_t most) TEI_REQUIRES(rail_sched_held)
{
	struct rail_window_sum sum;
	struct rail_slice *s;
	uint64_t fit;

	if (!t->keys_checked &&
	    !rail_iov_keys(peer, t->ext, 0, t->length, t->read))
		return NULL;
	t->keys_checked = true;
	if (!slice_may_take(rail, peer, t))
		return NULL;
	s = rail_slice_get(peer->dp);
	if (!s)
		return NULL;
	s->peer = peer;
	s->first = t;
	s->ntasks = 1;
	s->read = t->read;
	s->mr = t->mr;
	s->ext = t->ext;
	s->off = t->cut;
	rail_iov_select(s);
	s->rkey = rail_key_find(peer, s->remote);
	if (!s->rkey || !slice_aim(s, rail, remote)) {
		t->keys_checked = s->rkey != NULL; /* if there is no key, it was
						    * revoked after the check */
		rail_slice_put(peer->dp, s);
		return NULL;
	}
	s->rkey->slices++;
	rail_window_sum(rail, peer, t->mr, rail_mr_ranks(t->mr, s->local),
			bytes, &sum);
	s->len = slice_len(rail, &sum, t->length - t->cut,
			   slice_floor(rail, rail_task_bulk(t)), most);
	fit = rail_iov_fit(s, rail);
	if (s->len > fit)
		s->len = fit;
	slice_count(t, s->len);
	if (t->cut == t->length)
		rail_task_unqueue(t);
	return s;
}

/* Cuts a new slice of at most `most` bytes from the queue. Returns NULL if
 * nothing can be cut. */
static struct rail_slice *slice_take_queue(struct tei_rail_peer *peer,
					   const struct tei_list *queue,
					   struct rail *rail,
					   const struct rail_remote *remote,
					   uint64_t bytes, uint64_t most)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_window_sum sum;
	struct tei_rail_task *t;
	struct rail_slice *s;
	struct rail_rkey *k;
	uint64_t len, left, room, floor = rail->dp->settings->slice_size;

	t = slice_first(queue, rail, peer);
	if (!t)
		return NULL;
	if (t->ext)
		return slice_take_iov(peer, t, rail, remote, bytes, most);
	if (!slice_keys_ready(peer, t) || !slice_may_take(rail, peer, t))
		return NULL;
	left = t->length - t->cut;
	rail_window_sum(rail, peer, t->mr,
			rail_mr_ranks(t->mr, t->local + t->cut), bytes, &sum);
	len = slice_len(rail, &sum, left, slice_floor(rail, rail_task_bulk(t)),
			most);
	if (t->queue_link.next == queue && t->cut && !t->rail &&
	    rail_window_over(&sum, bytes, left, len))
		return NULL;
	k = rail_key_find(peer, t->remote + t->cut);
	if (!k) {
		t->keys_checked = false; /* revoked meanwhile */
		return NULL;
	}
	s = rail_slice_get(peer->dp);
	if (!s)
		return NULL;
	s->peer = peer;
	s->first = t;
	s->ntasks = 1;
	s->read = t->read;
	s->mr = t->mr;
	s->rkey = k;
	s->local = t->local + t->cut;
	s->remote = t->remote + t->cut;
	if (!slice_aim(s, rail, remote)) {
		rail_slice_put(peer->dp, s);
		return NULL;
	}
	k->slices++;
	room = slice_local_room(s, rail);
	if (len > room)
		len = room;
	if (len > k->base + k->len - s->remote)
		len = k->base + k->len - s->remote;
	s->len = len;
	slice_count(t, len);
	if (t->cut < t->length)
		return s;
	rail_task_unqueue(t);
	if (len == t->length && len < floor && rail->dp->settings->merge) {
		if (room > floor)
			room = floor;
		slice_merge(s, queue,
			    room < rail->max_slice ? room : rail->max_slice);
	}
	return s;
}

static bool slice_bulk_waits(const struct tei_rail_peer *peer,
			     const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	return !tei_list_empty(&peer->queue) || slice_first_retry(peer, rail);
}

static struct rail_slice *slice_take_small(struct tei_rail_peer *peer,
					   struct rail *rail,
					   const struct rail_remote *remote,
					   uint64_t bytes)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s;

	s = slice_take_queue(peer, &peer->small, rail, remote, bytes,
			     UINT64_MAX);
	if (!s)
		return NULL;
	peer->overtaken += slice_bulk_waits(peer, rail);
	if (!peer->dp->bulk_left)
		return s;
	/* the counts of the last accounting round are outdated */
	if (!rail->throttled_left)
		slice_turn(rail, 0);
	rail->throttled_left = SLICE_BESIDE + SLICE_LATER;
	return s;
}

/*
 * Returns the value of peer->overtaken after a bulk slice of len bytes was cut,
 * with limit most. If the value is 0, SLICE_OVERTAKE small requests are served
 * before the next bulk slice. If the limit has made the slice short, fewer
 * small requests are served, in proportion to the slice's length, but at least
 * one.
 */
static uint32_t slice_overtaken(const struct rail *rail, uint64_t len,
				uint64_t most) TEI_REQUIRES(rail_sched_held)
{
	uint64_t whole = slice_whole(rail), n;

	if (len < most || len >= whole)
		return 0;
	n = SLICE_OVERTAKE * len / whole;
	return SLICE_OVERTAKE - (n ? (uint32_t)n : 1);
}

/*
 * Takes the next slice. Small requests go first, so that they wait only for
 * slices already posted. After SLICE_OVERTAKE small requests, a bulk slice or a
 * slice of the retry list is taken, if this rail can carry it. small: the
 * connection may take small requests. most: maximum length of a bulk slice; 0:
 * none may be cut. full: the connection has used up its share of bulk data, so
 * that no bulk slice could be cut now.
 */
static struct rail_slice *slice_take(struct tei_rail_peer *peer,
				     struct rail *rail,
				     const struct rail_remote *remote,
				     uint64_t bytes, bool small, uint64_t most,
				     bool full) TEI_REQUIRES(rail_sched_held)
{
	bool turn = !full && slice_bulk_waits(peer, rail) &&
		    peer->overtaken >= SLICE_OVERTAKE;
	struct rail_slice *s = NULL;

	if (small && !turn)
		s = slice_take_small(peer, rail, remote, bytes);
	if (s || !most)
		return s;
	s = slice_take_queue(peer, &peer->queue, rail, remote, bytes, most);
	if (s)
		peer->overtaken = slice_overtaken(rail, s->len, most);
	else if (small && turn)
		s = slice_take_small(peer, rail, remote, bytes);
	return s;
}

/*
 * Returns true if the connection may take another slice. The connection must
 * leave free half of the lane's depth and a quarter of the rail's window that
 * other connections have not used, so that a stopped peer cannot block other
 * peers. Small requests may use half of this reserve. If the lane's depth
 * allows it, a connection may always have one slice (of bulk data: two halves),
 * however small the window is. bytes: bytes posted on the rail or just cut.
 */
static bool slice_has_share(const struct rail_lane *lane,
			    const struct rail_conn *p, uint64_t bytes,
			    bool bulk) TEI_REQUIRES(rail_sched_held)
{
	uint32_t slices = lane->rail->tx_depth - (lane->inflight - p->inflight);
	uint64_t others = bytes > p->bytes ? bytes - p->bytes : 0;
	uint64_t window = rail_window(lane->rail);

	if (!p->bytes)
		return true;
	if (p->room && p->inflight >= p->room)
		return false;
	if (p->inflight >= (bulk ? (slices + 1) / 2 : (slices + 1) / 4 * 3))
		return false;
	if (bulk && slice_throttled(lane->rail) &&
	    p->bytes < lane->rail->dp->settings->slice_size)
		return true;
	if (bytes >= window || others >= window)
		return false;
	return p->bytes <
	       (bulk ? (window - others) / 4 * 3 : (window - others) / 8 * 7);
}

/* Returns true if the rail may carry a task of the queue now, so that the
 * connection should get a place in the endpoint cache. */
static bool slice_wanted_of(struct tei_rail_peer *peer,
			    const struct tei_list *queue,
			    const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t;

	t = slice_first(queue, rail, peer);
	if (!t)
		return false;
	if (t->ext)
		return true;	/* the ranks are checked for each iov entry when
				 * a slice is cut */
	return slice_keys_ready(peer, t) && slice_may_take(rail, peer, t);
}

static bool slice_wanted(struct tei_rail_peer *peer, const struct rail *rail,
			 bool small, bool bulk) TEI_REQUIRES(rail_sched_held)
{
	return (bulk && slice_first_retry(peer, rail)) ||
	       (small && slice_wanted_of(peer, &peer->small, rail)) ||
	       (bulk && slice_wanted_of(peer, &peer->queue, rail));
}

/* Returns the remote rail for the slice that is probably cut next. */
static int16_t slice_aim_at(struct rail_lane *lane, struct tei_rail_peer *peer,
			    uint64_t *now)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	int16_t route = rail_conn_route(peer, lane->rail);
	const struct rail_rkey *k = NULL;
	struct tei_rail_task *t;
	struct rail_slice *s;

	if (!peer->choice || route < 0 || peer->dp->settings->path_roundrobin)
		return route;
	s = slice_first_retry(peer, lane->rail);
	if (s) {
		k = s->ext ? NULL : rail_key_find(peer, s->remote);
		return k ? rail_select_remote(peer, lane, k,
					      rail_mr_ranks(s->mr, s->local),
					      s->first->length, now)
			 : route;
	}
	t = slice_first(&peer->small, lane->rail, peer);
	if (!t)
		t = slice_first(&peer->queue, lane->rail, peer);
	if (t && !t->ext)
		k = rail_key_find(peer, t->remote + t->cut);
	return k ? rail_select_remote(peer, lane, k,
				      rail_mr_ranks(t->mr, t->local + t->cut),
				      t->length, now)
		 : route;
}

/* Cuts the next slice of the peer for this lane. Returns NULL if there is
 * none. */
static struct rail_slice *slice_cut(struct rail_lane *lane,
				    struct tei_rail_peer *peer, uint64_t bytes,
				    uint64_t *now)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	int16_t r = slice_aim_at(lane, peer, now);
	struct rail_remote *remote;
	struct rail_slice *s;
	struct rail_conn *p;
	uint64_t most = 0;
	bool small, full = false;

	if (r < 0 || peer->unfenced || peer->state != RAIL_PEER_READY)
		return NULL;
	remote = &peer->remotes[r];
	if (remote->fence.wanted || !remote->addr.len)
		return NULL;
	p = rail_conn_get(peer, lane, (uint16_t)r);
	if (!p)
		return NULL;
	small = slice_has_share(lane, p, bytes, false);
	if (slice_bulk_waits(peer, lane->rail) &&
	    slice_has_share(lane, p, bytes, true)) {
		most = slice_most(lane->rail, p, bytes);
		full = !most;
	}
	if (!small && !most)
		return NULL;
	if (!tei_list_empty(&peer->faults) &&
	    !rail_health_open(peer, lane->rail, (uint16_t)r, p->bytes))
		return NULL;
	if (p->blocked_ns) {
		if (!*now)
			*now = tei_now_ns();
		if (*now < p->blocked_ns)
			return NULL;
	}
	if (!slice_wanted(peer, lane->rail, small, most) ||
	    !rail_cache_admit(lane, p, now))
		return NULL;
	s = most ? slice_take_retry(peer, lane->rail, remote) : NULL;
	if (s)
		peer->overtaken = 0;
	else
		s = slice_take(peer, lane->rail, remote, bytes, small, most,
			       full);
	if (!s)
		return NULL;
	s->lane = lane;
	s->bulk = rail_task_bulk(s->first);
	rail_conn_take(p, s);
	if (s->bulk && slice_throttled_left(lane->rail))
		slice_took(lane->rail, p, s->len, lane->served_ns);
	s->remote_idx = (uint16_t)r;
	s->remote_gen = remote->gen;
	s->conn_fresh = !(p->ready && p->lane_gen == lane->gen &&
			  p->remote_serial == remote->serial);
	peer->posted++;
	return s;
}

static void slice_rest(struct tei_rail_peer *peer)
{
	if (rail_slice_none(peer)) {
		tei_list_del(&peer->active_link);
		__atomic_store_n(&peer->dp->nactive, peer->dp->nactive - 1,
				 __ATOMIC_RELAXED);
	}
}

int rail_slice_cut(struct rail_lane *lane, struct rail_slice **out)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	uint64_t bytes = rail_window_held(lane->rail);
	uint64_t most = lane->rail->window_max, now = 0;
	struct tei_rail_peer *peer, *tmp;
	uint32_t room = lane->rail->tx_depth > lane->inflight
				? lane->rail->tx_depth - lane->inflight
				: 0;
	struct rail_slice *s;
	int n = 0;

	if (room > RAIL_BUNDLE)
		room = RAIL_BUNDLE;
	if (__atomic_load_n(&lane->rail->link_down, __ATOMIC_RELAXED))
		return 0;
	rail_cache_favour(lane);
	tei_list_foreach_safe(peer, tmp, &dp->active, struct tei_rail_peer,
			       active_link) {
		while ((uint32_t)n < room && bytes < most &&
		       !rail_slice_none(peer)) {
			s = slice_cut(lane, peer, bytes, &now);
			if (!s) {
				slice_turn_retry(peer, lane->rail);
				break;
			}
			bytes += s->len;
			out[n++] = s;
		}
		slice_rest(peer);
		if ((uint32_t)n >= room || bytes >= most)
			break;
	}
	rail_cache_favoured(lane);
	/* move the first peer to the end of the list */
	if (n && !tei_list_empty(&dp->active)) {
		peer = tei_list_first(&dp->active, struct tei_rail_peer,
				      active_link);
		tei_list_del(&peer->active_link);
		tei_list_add_tail(&dp->active, &peer->active_link);
	}
	return n;
}
