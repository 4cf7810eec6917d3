/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scheduling. Rails pull: a task waits in its peer's queue, and a lane with
 * room takes the next slice from it. Slices are cut at that moment, so a
 * faster rail takes more and nothing has to be guessed about a slower one.
 *
 * A slice that fails goes to its peer's limbo until the target has fenced the
 * generation it was posted to, then to the retry list, which is served before
 * new work. So nothing is ever posted twice at the same time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/rail_int.h"

#define SCHED_SLICE_NS		(250 * TEI_NS_PER_US) /* time of a slice */
#define SCHED_RELEASE	32	/* tasks released per lock */
#define SCHED_FAR_BYTES		(256u << 10) /* far rails help from here on */

/* --- slices -------------------------------------------------------------- */

static int sched_grow(struct tei_rail_dp *dp)
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

	if (tei_list_empty(&dp->slices) && sched_grow(dp))
		return NULL;
	s = tei_list_first(&dp->slices, struct rail_slice, link);
	tei_list_del(&s->link);
	s->retries = 0;
	s->last_err = 0;
	s->rkey = NULL;
	s->path = NULL;
	return s;
}

void rail_slice_put(struct tei_rail_dp *dp, struct rail_slice *slice)
{
	tei_list_add_head(&dp->slices, &slice->link);
}

/* --- ends of tasks ------------------------------------------------------- */

void rail_done_init(struct rail_done *done)
{
	tei_list_init(&done->tasks);
	tei_list_init(&done->heard);
}

/* Whoever unregisters a region goes on when its tasks have been told. */
static void sched_release(struct tei_rail_dp *dp, struct tei_rail_mr **mrs,
			  int n)
{
	bool signal = false;
	int i;

	rail_sched_enter(dp);
	for (i = 0; i < n; i++)
		signal |= !--mrs[i]->tasks &&
			  mrs[i]->state == RAIL_MR_REVOKING;
	rail_sched_leave(dp);
	if (signal)
		rail_progress_signal(dp);
}

void rail_done_run(struct tei_rail_dp *dp, struct rail_done *done)
{
	struct tei_rail_mr *mrs[SCHED_RELEASE];
	int n = 0;
	struct tei_rail_task *task;
	struct rail_heard *h;
	struct tei_err *err;

	while (!tei_list_empty(&done->heard)) {
		h = tei_list_first(&done->heard, struct rail_heard, link);
		tei_list_del(&h->link);
		dp->ops->notify(dp->arg, h->peer, h->name, h->msg);
		free(h);
	}

	while (!tei_list_empty(&done->tasks)) {
		task = tei_list_first(&done->tasks, struct tei_rail_task,
				      live_link);
		tei_list_del(&task->live_link);
		err = task->err;
		mrs[n++] = task->mr;
		/* ownership of the task goes back to the caller here */
		dp->ops->task_done(task,
				   (enum tei_rail_end)(task->end_wanted - 1),
				   err);
		free(err);
		if (n == SCHED_RELEASE || tei_list_empty(&done->tasks)) {
			sched_release(dp, mrs, n);
			n = 0;
		}
	}
}

static void sched_finish(struct tei_rail_dp *dp, struct tei_rail_task *task,
			 struct rail_done *done)
{
	if (task->slices)
		return;
	if (!task->end_wanted) {
		if (task->done_bytes < task->length)
			return;
		task->end_wanted = TEI_RAIL_END_COMPLETED + 1;
	} else if (task->unfenced) {
		task->end_wanted = TEI_RAIL_END_UNFENCED + 1;
	}
	tei_list_del(&task->live_link);
	__atomic_store_n(&dp->nlive, dp->nlive - 1, __ATOMIC_RELAXED);
	tei_list_add_tail(&done->tasks, &task->live_link);
}

static bool sched_slice_dead(const struct rail_slice *s)
{
	struct tei_rail_task *t = s->first;
	uint32_t i;

	for (i = 0; i < s->ntasks; i++, t = t->merge_next)
		if (!t->end_wanted)
			return false;
	return true;
}

/* Gives a slice back that will not be posted; its tasks may end by that. */
static void sched_drop(struct tei_rail_dp *dp, struct rail_slice *s,
		       bool unfenced, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t = s->first, *next;
	uint32_t i, n = s->ntasks;

	tei_list_del(&s->link);
	if (s->rkey)
		rail_key_slice_done(s->peer, s->rkey);
	for (i = 0; i < n; i++, t = next) {
		next = t->merge_next;
		t->slices--;
		t->unfenced |= unfenced;
		sched_finish(dp, t, done);
	}
	rail_slice_put(dp, s);
}

static void sched_purge(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s, *tmp;

	tei_list_foreach_safe(s, tmp, &peer->retry, struct rail_slice, link)
		if (sched_slice_dead(s))
			sched_drop(peer->dp, s, false, done);
}

void rail_task_end(struct tei_rail_dp *dp, struct tei_rail_task *task,
		   enum tei_rail_end end, const struct tei_err *err,
		   struct rail_done *done)
{
	struct tei_rail_peer *peer = task->peer;

	if (task->end_wanted)
		return;
	task->end_wanted = (uint8_t)(end + 1);
	if (err) {
		task->err = malloc(sizeof(*task->err));
		if (task->err)
			*task->err = *err;
	}
	if (task->cut < task->length) {
		tei_list_del(&task->queue_link);
		peer->queued--;
	}
	if (task->slices)
		sched_purge(peer, done);
	else
		sched_finish(dp, task, done);
}

static void sched_fill_err(const struct tei_rail_peer *peer,
			   struct rail_slice *s, int code, const char *what,
			   struct tei_err *err)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->prov_errno = s->last_err;
	err->when_ns = tei_now_ns();
	snprintf(err->peer, sizeof(err->peer), "%.95s", peer->name);
	if (s->lane) {
		snprintf(err->rail, sizeof(err->rail), "%s",
			 s->lane->rail->name);
		snprintf(err->provider, sizeof(err->provider), "%s",
			 s->lane->rail->provider);
	}
	snprintf(err->text, sizeof(err->text), "%s%s%s", what,
		 s->last_err ? ": " : "",
		 s->last_err ? fi_strerror(s->last_err) : "");
}

static void sched_fail_slice(struct rail_slice *s, int code, const char *what,
			     struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t = s->first, *next;
	struct tei_rail_peer *peer = s->peer;
	struct tei_err err;
	uint32_t i, n = s->ntasks, left;

	sched_fill_err(peer, s, code, what, &err);
	if (tei_log_permit(&peer->err_limit, &left))
		TEI_WARN("rail", "%s: %s", peer->name, err.text);
	/* the last of its tasks to be ended takes the slice along */
	for (i = 0; i < n; i++, t = next) {
		next = t->merge_next;
		rail_task_end(peer->dp, t, TEI_RAIL_END_FAILED, &err, done);
	}
}

/* --- slices that come back ----------------------------------------------- */

void rail_sched_ok(struct tei_rail_dp *dp, struct rail_slice *s, uint64_t now,
		   struct rail_done *done)
{
	struct tei_rail_task *t = s->first, *next;
	uint32_t i, n = s->ntasks;
	uint64_t bytes;

	s->peer->posted--;
	s->peer->alive_ns = now;
	if (s->rkey)
		rail_key_slice_done(s->peer, s->rkey);
	for (i = 0; i < n; i++, t = next) {
		next = t->merge_next;
		bytes = n == 1 ? s->len : t->length;
		t->slices--;
		t->progress_ns = now;
		__atomic_store_n(&t->done_bytes, t->done_bytes + bytes,
				 __ATOMIC_RELAXED);
		sched_finish(dp, t, done);
	}
	rail_slice_put(dp, s);
}

/* To be posted again, unless it was too often. */
static void sched_again(struct tei_rail_peer *peer, struct rail_slice *s,
			struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_dp *dp = peer->dp;

	tei_list_del(&s->link);
	tei_list_add_tail(&peer->retry, &s->link);
	if (sched_slice_dead(s)) {
		sched_drop(dp, s, false, done);
		return;
	}
	if (peer->state == RAIL_PEER_GONE) {
		sched_fail_slice(s, TEI_ERR_CONTEXT,
				 "the peer's process has gone", done);
		return;
	}
	if (s->retries >= dp->settings->retry_cnt) {
		sched_fail_slice(s, TEI_ERR_ENDPOINT,
				 "posted MC_RETRY_CNT times again", done);
		return;
	}
	s->retries++;
	if (s->lane)
		__atomic_fetch_add(&s->lane->rail->retries, 1,
				   __ATOMIC_RELAXED);
	rail_peer_activate(peer);
}

void rail_sched_broken(struct tei_rail_dp *dp, struct rail_slice *s, int err,
		       struct rail_done *done)
{
	struct tei_rail_peer *peer = s->peer;

	(void)dp;
	peer->posted--;
	s->last_err = err;
	tei_list_add_tail(&peer->limbo, &s->link);
	if (peer->state == RAIL_PEER_GONE ||
	    s->remote_idx >= peer->nremotes ||
	    peer->remotes[s->remote_idx].gen > s->remote_gen) {
		/* that generation is closed: the target said so */
		sched_again(peer, s, done);
		return;
	}
	rail_fence_want(peer, s->remote_idx, s->remote_gen);
}

void rail_sched_fenced(struct tei_rail_peer *peer, uint16_t remote,
		       uint32_t gen, struct rail_done *done)
{
	struct rail_fence *f = &peer->remotes[remote].fence;
	struct rail_slice *s, *tmp;

	if (f->gen <= gen) {
		f->wanted = false;
		f->tries = 0;
		if (f->unfenced) {
			f->unfenced = false;
			peer->unfenced--;
		}
	}
	tei_list_foreach_safe(s, tmp, &peer->limbo, struct rail_slice, link)
		if (s->remote_idx == remote && s->remote_gen <= gen)
			sched_again(peer, s, done);
	rail_peer_activate(peer);
}

void rail_sched_abandon(struct tei_rail_task *t, const struct tei_err *err,
			struct rail_done *done)
{
	if (t->cut < t->length && !t->end_wanted)
		tei_list_del(&t->queue_link);
	if (!t->err) {
		t->err = malloc(sizeof(*t->err));
		if (t->err)
			*t->err = *err;
	}
	t->end_wanted = (t->slices ? TEI_RAIL_END_UNFENCED :
				     TEI_RAIL_END_FAILED) + 1;
	tei_list_del(&t->live_link);
	tei_list_add_tail(&done->tasks, &t->live_link);
}

void rail_sched_give_up(struct tei_rail_peer *peer, struct rail_done *done)
{
	struct rail_slice *s, *tmp;
	struct rail_fence *f;

	tei_list_foreach_safe(s, tmp, &peer->limbo, struct rail_slice, link) {
		if (!sched_slice_dead(s))
			continue;
		f = &peer->remotes[s->remote_idx].fence;
		if (!f->unfenced) {
			f->unfenced = true;
			peer->unfenced++;
		}
		sched_drop(peer->dp, s, true, done);
	}
}

static struct rail_slice *sched_keyless(struct tei_rail_peer *peer,
					uint64_t addr, uint64_t len)
{
	struct rail_slice *s;

	tei_list_foreach(s, &peer->retry, struct rail_slice, link)
		if (!s->rkey && s->remote == addr && s->len == len)
			return s;
	return NULL;
}

void rail_sched_no_key(struct tei_rail_peer *peer, uint64_t addr, uint64_t len,
		       int code, struct rail_done *done)
{
	struct tei_rail_task *t, *tnext;
	struct rail_slice *s;
	struct tei_err err;
	uint32_t left;

	memset(&err, 0, sizeof(err));
	err.code = code;
	err.when_ns = tei_now_ns();
	snprintf(err.peer, sizeof(err.peer), "%.95s", peer->name);
	snprintf(err.text, sizeof(err.text),
		 "0x%llx, %llu bytes: not inside remotely accessible memory of the peer",
		 (unsigned long long)addr, (unsigned long long)len);
	snprintf(err.hint, sizeof(err.hint),
		 "target_offset is an absolute address of the target process");
	if (tei_log_permit(&peer->err_limit, &left))
		TEI_WARN("rail", "%s: %s", peer->name, err.text);
	while ((s = sched_keyless(peer, addr, len)))
		sched_fail_slice(s, code, err.text, done);
	tei_list_foreach_safe(t, tnext, &peer->queue, struct tei_rail_task,
			      queue_link)
		if (!t->keys_checked && t->remote == addr && t->length == len)
			rail_task_end(peer->dp, t, TEI_RAIL_END_FAILED, &err,
				      done);
	rail_peer_activate(peer);
}

/* --- cutting ------------------------------------------------------------- */

/* Whether some better placed rail of this peer still has room. */
static bool sched_near_has_room(const struct tei_rail_peer *peer,
				const struct tei_rail_mr *mr, uint8_t rank)
{
	struct rail *r;
	uint32_t i;

	for (i = 0; i < rail_count(peer->dp); i++) {
		if (peer->route[i] < 0 || mr->rank[i] >= rank)
			continue;
		r = rail_at(peer->dp, i);
		if (__atomic_load_n(&r->inflight_bytes, __ATOMIC_RELAXED) <
		    __atomic_load_n(&r->window, __ATOMIC_RELAXED))
			return true;
	}
	return false;
}

static bool sched_near_exists(const struct tei_rail_peer *peer,
			      const struct tei_rail_mr *mr, uint8_t rank)
{
	uint32_t i;

	for (i = 0; i < rail_count(peer->dp); i++)
		if (peer->route[i] >= 0 && mr->rank[i] < rank)
			return true;
	return false;
}

/* Near rails first; far ones when those are full or down, and it pays. */
static bool sched_may_take(const struct rail *rail,
			   const struct tei_rail_peer *peer,
			   const struct tei_rail_task *task)
{
	uint8_t rank = task->mr->rank[rail->index];

	if (!rank)
		return true;
	if (!sched_near_exists(peer, task->mr, rank))
		return true;
	return rank == 1 && task->length >= SCHED_FAR_BYTES &&
	       !sched_near_has_room(peer, task->mr, rank);
}

static uint32_t sched_routes(const struct tei_rail_peer *peer)
{
	uint32_t i, n = 0;

	for (i = 0; i < rail_count(peer->dp); i++)
		n += peer->route[i] >= 0;
	return n;
}

/*
 * Large enough to amortise a post (what the rail moves in 250 µs), small
 * enough to balance; towards the end of a task that several rails share it
 * shrinks, so that they finish together (guided self-scheduling, Polychronopoulos
 * and Kuck, IEEE ToC 1987).
 */
static uint64_t sched_slice_len(const struct rail *rail,
				const struct tei_rail_peer *peer, uint64_t left)
{
	const struct tei_settings *s = rail->dp->settings;
	uint64_t rate = __atomic_load_n(&rail->rate_bps, __ATOMIC_RELAXED);
	uint64_t len = rate ? (uint64_t)((double)rate * 1e-9 * SCHED_SLICE_NS) :
			      4ull * s->slice_size;
	uint32_t routes = sched_routes(peer);

	len &= ~UINT64_C(4095);
	if (len > s->slice_max)
		len = s->slice_max;
	if (routes > 1 && len > left / (2 * routes))
		len = left / (2 * routes) & ~UINT64_C(4095);
	if (len < s->slice_size)
		len = s->slice_size;
	if (len > rail->max_slice)
		len = rail->max_slice;
	/* no crumbs */
	if (left <= len + len / 2 && left <= rail->max_slice)
		len = left;
	return len < left ? len : left;
}

/* Points the slice at one remote rail: its address and key there. */
static bool sched_aim(struct rail_slice *s, const struct rail_remote *remote)
{
	struct rail_rkey *k = s->rkey;
	uint16_t i;

	for (i = 0; i < k->nparts; i++) {
		if (k->part[i].rail_id != remote->id)
			continue;
		s->rma_key = k->part[i].key64;
		s->rma_addr = remote->virt_addr ? s->remote :
						  s->remote - k->base;
		return true;
	}
	return false;
}

/*
 * The range of a slice was registered anew, in two regions: it goes in two.
 * Merged slices are not split; one is left to its deadline.
 */
static bool sched_split(struct tei_rail_peer *peer, struct rail_slice *s,
			uint64_t len) TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *rest;

	if (s->ntasks > 1)
		return false;
	rest = rail_slice_get(peer->dp);
	if (!rest)
		return false;
	rest->peer = peer;
	rest->lane = s->lane;
	rest->first = s->first;
	rest->ntasks = 1;
	rest->mr = s->mr;
	rest->read = s->read;
	rest->retries = s->retries;
	rest->local = s->local + len;
	rest->remote = s->remote + len;
	rest->len = s->len - len;
	s->len = len;
	s->first->slices++;
	tei_list_insert_after(&s->link, &rest->link);
	return true;
}

/* A slice from the retry list that this lane may post, or NULL. */
static struct rail_slice *sched_take_retry(struct tei_rail_peer *peer,
					   const struct rail_remote *remote)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s;

	if (tei_list_empty(&peer->retry))
		return NULL;
	s = tei_list_first(&peer->retry, struct rail_slice, link);
	if (s->rkey && s->rkey->revoked) {
		rail_key_slice_done(peer, s->rkey);
		s->rkey = NULL;
	}
	if (!s->rkey) {
		struct rail_rkey *k = rail_key_find(peer, s->remote);

		if (!k || !rail_key_covers(peer, s->remote, s->len)) {
			rail_key_want(peer, s->remote, s->len);
			return NULL;
		}
		if (s->len > k->base + k->len - s->remote &&
		    !sched_split(peer, s, k->base + k->len - s->remote))
			return NULL;
		s->rkey = k;
		k->slices++;
	}
	if (!sched_aim(s, remote))
		return NULL;
	tei_list_del(&s->link);
	return s;
}

/* Adds the whole small tasks that follow seamlessly behind the first. */
static void sched_merge(struct tei_rail_peer *peer, struct rail_slice *s,
			uint64_t max)
{
	struct tei_rail_task *last = s->first, *t;
	uint64_t end = s->rkey->base + s->rkey->len;

	while (!tei_list_empty(&peer->queue)) {
		t = tei_list_first(&peer->queue, struct tei_rail_task,
				   queue_link);
		if (t->read != s->read || t->cut || t->mr != s->mr ||
		    t->local != s->local + s->len ||
		    t->remote != s->remote + s->len ||
		    s->len + t->length > max || t->remote + t->length > end)
			return;
		t->keys_checked = true;
		t->cut = t->length;
		t->slices++;
		t->merge_next = NULL;
		last->merge_next = t;
		last = t;
		tei_list_del(&t->queue_link);
		peer->queued--;
		s->ntasks++;
		s->len += t->length;
	}
}

static bool sched_keys_ready(struct tei_rail_peer *peer,
			     struct tei_rail_task *t)
{
	if (t->keys_checked)
		return true;
	if (!rail_key_covers(peer, t->remote, t->length)) {
		rail_key_want(peer, t->remote, t->length);
		return false;
	}
	t->keys_checked = true;
	return true;
}

/* A new slice from the queue, or NULL. */
static struct rail_slice *sched_take_queue(struct tei_rail_peer *peer,
					   struct rail *rail,
					   const struct rail_remote *remote)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t;
	struct rail_slice *s;
	struct rail_rkey *k;
	uint64_t len, left, floor = rail->dp->settings->slice_size;

	if (tei_list_empty(&peer->queue))
		return NULL;
	t = tei_list_first(&peer->queue, struct tei_rail_task, queue_link);
	if (!sched_keys_ready(peer, t) || !sched_may_take(rail, peer, t))
		return NULL;
	k = rail_key_find(peer, t->remote + t->cut);
	if (!k) {
		t->keys_checked = false;	/* revoked meanwhile */
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
	if (!sched_aim(s, remote)) {
		rail_slice_put(peer->dp, s);
		return NULL;
	}
	k->slices++;
	left = t->length - t->cut;
	len = sched_slice_len(rail, peer, left);
	if (len > k->base + k->len - s->remote)
		len = k->base + k->len - s->remote;
	s->len = len;
	t->merge_next = NULL;
	t->slices++;
	t->cut += len;
	if (t->cut < t->length)
		return s;
	tei_list_del(&t->queue_link);
	peer->queued--;
	if (len == t->length && len < floor && rail->dp->settings->merge)
		sched_merge(peer, s, floor < rail->max_slice ? floor :
							       rail->max_slice);
	return s;
}

/* The next slice of this peer for this lane, or NULL; both locks held. */
static struct rail_slice *sched_cut(struct rail_lane *lane,
				    struct tei_rail_peer *peer, uint64_t *now)
	TEI_REQUIRES(rail_sched_held)
{
	int16_t r = rail_path_route(peer, lane->rail);
	struct rail_remote *remote;
	struct rail_slice *s;
	struct rail_path *p;

	if (r < 0 || peer->unfenced || peer->state != RAIL_PEER_READY)
		return NULL;
	remote = &peer->remotes[r];
	if (remote->fence.wanted)
		return NULL;
	p = rail_path_get(peer, lane, (uint16_t)r);
	if (!p || p->inflight >= (lane->rail->tx_depth + 1) / 2)
		return NULL;
	if (p->blocked_ns) {
		if (!*now)
			*now = tei_now_ns();
		if (*now < p->blocked_ns)
			return NULL;
	}
	s = sched_take_retry(peer, remote);
	if (!s)
		s = sched_take_queue(peer, lane->rail, remote);
	if (!s)
		return NULL;
	s->path = p;
	s->lane = lane;
	s->remote_idx = (uint16_t)r;
	s->remote_gen = remote->gen;
	s->path_fresh = !(p->ready && p->lane_gen == lane->gen &&
			  p->remote_serial == remote->serial);
	peer->posted++;
	return s;
}

static void sched_rest(struct tei_rail_peer *peer)
{
	if (tei_list_empty(&peer->queue) && tei_list_empty(&peer->retry)) {
		tei_list_del(&peer->active_link);
		__atomic_fetch_sub(&peer->dp->nactive, 1, __ATOMIC_RELAXED);
	}
}

/* Up to RAIL_BUNDLE slices, round robin over the peers with work. */
static int sched_cut_bundle(struct rail_lane *lane, struct rail_slice **out)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	uint64_t bytes = __atomic_load_n(&lane->rail->inflight_bytes,
					 __ATOMIC_RELAXED);
	uint64_t window = lane->rail->window, now = 0;
	struct tei_rail_peer *peer, *tmp;
	uint32_t room = lane->rail->tx_depth > lane->inflight ?
			lane->rail->tx_depth - lane->inflight : 0;
	struct rail_slice *s;
	int n = 0;

	if (room > RAIL_BUNDLE)
		room = RAIL_BUNDLE;
	tei_list_foreach_safe(peer, tmp, &dp->active, struct tei_rail_peer,
			      active_link) {
		while ((uint32_t)n < room && bytes < window) {
			s = sched_cut(lane, peer, &now);
			if (!s)
				break;
			bytes += s->len;
			out[n++] = s;
		}
		sched_rest(peer);
		if ((uint32_t)n >= room || bytes >= window)
			break;
	}
	/* whoever was first stands behind the others next time */
	if (n && !tei_list_empty(&dp->active)) {
		peer = tei_list_first(&dp->active, struct tei_rail_peer,
				      active_link);
		tei_list_del(&peer->active_link);
		tei_list_add_tail(&dp->active, &peer->active_link);
	}
	return n;
}

/* --- posting ------------------------------------------------------------- */

static ssize_t sched_write(struct rail_lane *lane, struct rail_slice *s,
			   void **desc)
{
	struct iovec iov = { .iov_base = s->local, .iov_len = s->len };
	struct fi_rma_iov rma = {
		.addr = s->rma_addr, .len = s->len, .key = s->rma_key,
	};
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = desc, .iov_count = 1,
		.addr = s->path->fi_addr, .rma_iov = &rma, .rma_iov_count = 1,
		.context = &s->op.ctx,
	};

	if (s->read)
		return fi_readmsg(lane->ep, &msg, FI_COMPLETION);
	return fi_writemsg(lane->ep, &msg,
			   FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

static ssize_t sched_post(struct rail_lane *lane, struct rail_slice *s)
	TEI_REQUIRES(lane->lock)
{
	struct rail *rail = lane->rail;
	uint64_t total, max;
	void *desc = NULL;
	ssize_t ret;

	if (s->path_fresh) {
		ret = rail_path_ready(s->peer, s->path, lane, s->remote_idx);
		if (ret)
			return ret;
	}
	if (s->mr->part[rail->index].mr_local)
		desc = fi_mr_desc(s->mr->part[rail->index].mr_local);
	ret = sched_write(lane, s, &desc);
	if (ret)
		return ret;
	if (!lane->inflight) {
		lane->busy_ns = tei_now_ns();
		lane->served = 0;
	}
	s->path->inflight++;
	s->path->since_ns = 0;
	s->path->backoff_us = 0;
	tei_list_add_tail(&lane->posted, &s->link);
	__atomic_store_n(&lane->inflight, lane->inflight + 1, __ATOMIC_RELAXED);
	lane->inflight_bytes += s->len;
	total = __atomic_add_fetch(&rail->inflight_bytes, s->len,
				   __ATOMIC_RELAXED);
	max = __atomic_load_n(&rail->inflight_max, __ATOMIC_RELAXED);
	if (total > max)
		__atomic_store_n(&rail->inflight_max, total, __ATOMIC_RELAXED);
	__atomic_fetch_add(&rail->dp->inflight, 1, __ATOMIC_RELAXED);
	return 0;
}

/* A slice that could not be posted: nothing of it is on its way. */
static void sched_unpost(struct rail_slice *s, ssize_t err,
			 struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *peer = s->peer;

	peer->posted--;
	if (err == -FI_EAGAIN) {
		tei_list_add_head(&peer->retry, &s->link);
		if (sched_slice_dead(s))
			sched_drop(peer->dp, s, false, done);
		else
			rail_peer_activate(peer);
		return;
	}
	s->last_err = (int)-err;
	tei_list_init(&s->link);
	sched_again(peer, s, done);
}

bool rail_sched_pull(struct rail_lane *lane, struct rail_done *done)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	struct rail_slice *s[RAIL_BUNDLE];
	ssize_t ret[RAIL_BUNDLE];
	bool any = false, blocked = false;
	uint64_t now;
	int i, n;

	if (!__atomic_load_n(&dp->nactive, __ATOMIC_RELAXED))
		return false;
	do {
		rail_sched_enter(dp);
		n = sched_cut_bundle(lane, s);
		rail_sched_leave(dp);
		for (i = 0; i < n; i++) {
			ret[i] = s[i]->path->blocked_now ? -FI_EAGAIN :
							   sched_post(lane, s[i]);
			if (!ret[i]) {
				any = true;
				continue;
			}
			blocked = true;
			s[i]->path->blocked_now = true;
		}
		if (!blocked)
			continue;
		now = tei_now_ns();
		rail_sched_enter(dp);
		for (i = n - 1; i >= 0; i--) {
			if (!ret[i])
				continue;
			if (s[i]->path->blocked_now) {
				if (rail_path_block(s[i]->path, now) &&
				    !s[i]->peer->stuck) {
					s[i]->peer->stuck = true;
					rail_peer_attend(s[i]->peer);
				}
				s[i]->path->blocked_now = false;
			}
			sched_unpost(s[i], ret[i], done);
		}
		rail_sched_leave(dp);
	} while (n == RAIL_BUNDLE && !blocked);
	return any;
}

void rail_sched_kick(struct tei_rail_dp *dp)
{
	uint32_t n = rail_count(dp), first, i, j;
	struct rail_lane *lane;
	struct rail *rail;

	if (!n)
		return;
	first = __atomic_fetch_add(&dp->turn, 1, __ATOMIC_RELAXED);
	for (i = 0; i < n; i++) {
		rail = rail_at(dp, (first + i) % n);
		for (j = 0; j < rail->ninit * RAIL_LANE_SLOTS; j++) {
			lane = &rail->init[j];
			if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) ==
			    RAIL_LANE_ACTIVE)
				rail_lane_run(lane, true);
		}
	}
}

/* --- the calls ----------------------------------------------------------- */

void rail_peer_activate(struct tei_rail_peer *peer)
{
	if (tei_list_empty(&peer->queue) && tei_list_empty(&peer->retry))
		return;
	if (peer->state != RAIL_PEER_READY) {
		peer->want_hello = true;
		rail_peer_attend(peer);
		return;
	}
	if (tei_list_empty(&peer->active_link)) {
		tei_list_add_tail(&peer->dp->active, &peer->active_link);
		__atomic_fetch_add(&peer->dp->nactive, 1, __ATOMIC_RELAXED);
	}
}

static int sched_check(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		       size_t n)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_mr *mr = NULL;
	size_t i;

	for (i = 0; i < n; i++) {
		if (!mr || tasks[i]->local < mr->addr ||
		    tasks[i]->local + tasks[i]->length > mr->addr + mr->len)
			mr = rail_mr_find(dp, tasks[i]->local,
					  tasks[i]->length);
		if (!mr)
			return TEI_ERR_NOT_REGISTERED;
		if (tasks[i]->peer->queued + n > RAIL_PEER_QUEUE_MAX)
			return TEI_ERR_TOO_MANY;
		tasks[i]->mr = mr;
	}
	return 0;
}

static void sched_enqueue(struct tei_rail_dp *dp, struct tei_rail_task *t,
			  uint64_t now)
{
	struct tei_rail_peer *peer = t->peer;

	t->progress_ns = now;
	t->mr->tasks++;
	tei_list_add_tail(&peer->queue, &t->queue_link);
	tei_list_add_tail(&peer->live, &t->live_link);
	peer->queued++;
	__atomic_store_n(&dp->nlive, dp->nlive + 1, __ATOMIC_RELAXED);
	rail_peer_activate(peer);
}

int tei_rail_submit(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		    size_t n)
{
	struct tei_err err = { .code = TEI_ERR_CONTEXT };
	uint64_t now = tei_now_ns();
	struct rail_done done;
	size_t i;
	int ret;

	if (!rail_any_open(dp))
		return TEI_ERR_NO_DEVICE;
	rail_done_init(&done);
	rail_sched_enter(dp);
	ret = sched_check(dp, tasks, n);
	for (i = 0; i < n && !ret; i++) {
		sched_enqueue(dp, tasks[i], now);
		if (tasks[i]->peer->state != RAIL_PEER_GONE)
			continue;
		snprintf(err.text, sizeof(err.text),
			 "the process behind this segment has gone");
		snprintf(err.peer, sizeof(err.peer), "%.95s",
			 tasks[i]->peer->name);
		rail_task_end(dp, tasks[i], TEI_RAIL_END_FAILED, &err, &done);
	}
	rail_sched_leave(dp);
	if (ret)
		return ret;
	rail_sched_kick(dp);
	/* nothing in flight would wake the thread for what is still queued */
	if (__atomic_load_n(&dp->nactive, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&dp->inflight, __ATOMIC_RELAXED))
		rail_progress_wake(dp);
	rail_done_run(dp, &done);
	return 0;
}

void tei_rail_cancel(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		     size_t n)
{
	struct tei_err err = { .code = TEI_ERR_CONTEXT };
	struct rail_done done;
	size_t i;

	snprintf(err.text, sizeof(err.text), "cancelled by the caller");
	rail_done_init(&done);
	rail_sched_enter(dp);
	for (i = 0; i < n; i++)
		if (!tei_list_empty(&tasks[i]->live_link))
			rail_task_end(dp, tasks[i], TEI_RAIL_END_CANCELED, &err,
				      &done);
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
}

void tei_rail_progress(struct tei_rail_dp *dp)
{
	bool work = __atomic_load_n(&dp->nactive, __ATOMIC_RELAXED);
	uint32_t n = rail_count(dp), i, j;
	struct rail_lane *lane;
	struct rail *rail;

	__atomic_fetch_add(&dp->drive_seq, 1, __ATOMIC_RELAXED);
	for (i = 0; i < n; i++) {
		rail = rail_at(dp, i);
		for (j = 0; j < rail->ninit * RAIL_LANE_SLOTS; j++) {
			lane = &rail->init[j];
			if (__atomic_load_n(&lane->inflight,
					    __ATOMIC_RELAXED) ||
			    (work && __atomic_load_n(&lane->state,
						     __ATOMIC_RELAXED) ==
					     RAIL_LANE_ACTIVE))
				rail_lane_run(lane, false);
		}
	}
}
