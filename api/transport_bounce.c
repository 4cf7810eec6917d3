/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport for requests with TE_REQ_BOUNCE whose local memory is not
 * registered. Their bytes pass through blocks of a pool of bounce buffers
 * (prov/rail/tei_rail_bounce.h) and move over the rails.
 *
 * Pieces. A request is cut into pieces of at most BOUNCE_PIECE bytes, each of
 * which is contiguous at the target. A piece occupies one block while it is in
 * progress. A write copies the bytes of a piece out of the caller's memory
 * immediately before it submits the piece as a task of the data plane. A read
 * copies them into the caller's memory when that task is COMPLETED. When the
 * task of the data plane has ended, nothing accesses the block any longer, so
 * the block can be used again at once, even if that task is unfenced.
 *
 * Ends. A request ends when none of its pieces is in progress and no further
 * piece will begin. So the caller's memory is not accessed after the end. After
 * the failure of a piece, a cancellation or a deadline, no further piece of the
 * request begins. A cancellation or a deadline also ends the pieces that are in
 * progress. If all bytes have moved nevertheless, the request is COMPLETED.
 *
 * Holds. The struct of a piece lies in the member `room` of its block. It stays
 * valid while the piece has holds. The data plane has one hold, until it
 * reports the end of the piece. A thread has another hold while it submits or
 * cancels the piece.
 *
 * Blocks. A target may occupy at most half of the blocks of each size, so that
 * a target that does not answer does not block the others. If no block is
 * available for a request, the request waits in a list of its target. When a
 * block becomes free, the first request of the next target that may use one
 * more block continues. Meanwhile a worker thread registers more blocks.
 *
 * Ready list. This list contains the requests that may begin pieces. A thread
 * that has added a request to the list then calls bounce_run_ready, which
 * begins pieces of the requests until the list is empty. tei_rail_submit may
 * report ends of pieces before it returns. In this case the same thread is
 * already in bounce_run_ready (bounce_running), so it only adds requests to the
 * list.
 *
 * Time limits. The data plane ends a piece when MC_SLICE_TIMEOUT has passed
 * since its request has last made progress (since_ns). So the time in which the
 * request has waited for a block counts, too. Then the requests to the same
 * target that have waited for a block for at least this time also end.
 */
#include "api/transport_bounce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "api/engine_transport.h"
#include "api/transport_rail.h"
#include "prov/rail/tei_rail_bounce.h"
#include "util/world.h"

#define BOUNCE_PIECE 65536u /* greatest length of a piece, bytes */
#define BOUNCE_KINDS 2	    /* number of block sizes that pieces use */
#define BOUNCE_SLABS 2u	    /* greatest number of slabs of each size */
/* greatest number of pieces that one call cancels */
#define BOUNCE_CANCELS 32
/* Time between a failed attempt to register more blocks and the next one, if
 * the pool has blocks of the size already. */
#define BOUNCE_RETRY_NS TEI_NS_PER_SEC

/* State of the blocks of one size. */
struct bounce_kind {
	uint32_t waiting;	/* number of requests that wait for a block of
				 * this size */
	bool growing;		/* a job that registers blocks of this size is
				 * queued or running */
	bool wanted;		/* such a job must be queued (bounce_leave) */
	uint64_t retry_ns;	/* earliest time of the next attempt to register
				 * blocks, ns */
};

/* The state of this transport in an engine. Created and freed with the
 * engine. */
struct engine_bounces {
	struct engine *engine; /* does not change */

	/*
	 * leaf; guards the members below, and the members of other structs that
	 * say so
	 */
	struct tei_mutex lock;
	pthread_cond_t idle;		/* signalled when tasks becomes 0 */
	struct tei_rail_bounces pool;
	struct bounce_kind kind[BOUNCE_KINDS];
	struct tei_list targets;	/* all targets with started requests,
					 * linked by bounce_target.link */
	struct tei_list ready;		/* ready list: requests that may begin
					 * pieces, linked by bounce_task.link */
	uint32_t tasks;			/* number of started tasks whose end was
					 * not reported yet */
};

/* A target with started requests. Guarded by engine_bounces.lock. */
struct bounce_target {
	struct tei_list link;	     /* element of engine_bounces.targets */
	struct tei_rail_peer *peer;  /* peer that is the target; each request of
				      * the target has a reference to it */
	uint32_t tasks;		     /* number of started requests */
	uint32_t used[BOUNCE_KINDS]; /* number of blocks that the target
				      * occupies, by size */
	struct tei_list waiting[BOUNCE_KINDS]; /* requests that wait for a
						* block, by its size; linked by
						* bounce_task.link */
};

/* The ranges of a request that has several local or several remote ranges. */
struct bounce_ranges {
	uint32_t nlocal, nremote;	/* numbers of local and remote ranges;
					 * do not change */
	uint32_t at;			/* index of the remote range to which
					 * the next piece belongs */
	uint64_t done;			/* number of bytes of this remote range
					 * that belong to pieces which have
					 * begun */
	struct tei_rail_iov iov[];	/* all local ranges, then all remote
					 * ranges */
};

/* The data of this transport in a task (engine_task.room). */
struct bounce_task {
	/* the members from peer to read do not change from the start of the
	 * task to its end */
	struct tei_rail_peer *peer;
	char *local; /* local memory; NULL: the request has several ranges, and
		      * `ranges` is used */
	uint64_t remote;
	struct bounce_ranges *ranges; /* owned by the task; NULL: one range on
				       * each side. Only bounce_run changes its
				       * members `at` and `done` */
	struct tei_rail_group *group; /* the group of the pieces, freed at the
				       * end of the task; NULL: the task has
				       * one piece */
	bool read;

	/* the members from target to err are guarded by engine_bounces.lock */
	struct bounce_target *target;
	struct tei_list link;		/* element of engine_bounces.ready or of
					 * a list of target->waiting, or of no
					 * list */
	/* index of the list in target->waiting in which the task is, or -1 */
	int waits;
	struct tei_list pieces;		/* pieces in progress, linked by
					 * bounce_piece.link */
	uint64_t next;			/* number of bytes that belong to pieces
					 * which have begun */
	uint64_t since_ns;		/* time of the last progress, ns: the
					 * start, or the last piece that was
					 * COMPLETED */
	uint32_t running;		/* number of pieces that have holds, and
					 * so still use their blocks */
	bool runs;			/* a thread is in bounce_run with this
					 * task */
	bool ended;
	bool stopped, expired;		/* stopped: cancelled or ended by a
					 * deadline; expired: ended by a
					 * deadline */
	enum tei_rail_end end;		/* COMPLETED while pieces may begin;
					 * otherwise the reason why no further
					 * piece begins */
	struct tei_err *err;		/* error record that belongs to `end`;
					 * owned, or NULL */

	uint64_t moved; /* atomic: number of bytes of completed
			 * pieces */
};

_Static_assert(sizeof(struct bounce_task) <= ENGINE_TASK_ROOM, "fits");

/* A piece in progress. The struct lies in the member `room` of its block. */
struct bounce_piece {
	struct tei_rail_task rail;
	struct bounce_task *task;      /* request to which the piece belongs;
					* does not change */
	struct tei_rail_bounce *block; /* block that the piece occupies; does
					* not change */
	uint64_t at;		       /* offset of the piece in the request;
					* does not change */

	/* the members below are guarded by engine_bounces.lock */
	struct tei_list link; /* element of task->pieces until the end
			       * of the piece */
	uint32_t holds;
	bool posted;			/* the piece was submitted to the data
					 * plane, so it can be cancelled
					 * there */
	bool ended;
};

/* True in a thread that is in bounce_run_ready. */
static _Thread_local bool bounce_running;

static struct engine_bounces *bounces_of(const struct bounce_task *task)
{
	return engine_task_from_const(task)->engine->bounces;
}

static uint64_t bounce_length(const struct bounce_task *task)
{
	return engine_task_from_const(task)->length;
}

/* --- ranges -------------------------------------------------------------- */

/* Copies the bytes of a piece between its block and the local ranges of the
 * request. */
static void bounce_copy_ranges(const struct bounce_piece *piece)
{
	const struct bounce_ranges *r = piece->task->ranges;
	const struct tei_rail_iov *iov = r->iov;
	uint64_t at = piece->at, left = piece->rail.length, skip, n;
	char *mem = piece->block->mem, *local;

	while (iov->off + iov->len <= at)
		iov++;
	for (; left; iov++, mem += n, at += n, left -= n) {
		skip = at - iov->off;
		n = iov->len - skip < left ? iov->len - skip : left;
		local = (char *)(uintptr_t)(iov->addr + skip);
		if (piece->task->read)
			memcpy(local, mem, n);
		else
			memcpy(mem, local, n);
	}
}

static void bounce_copy(const struct bounce_piece *piece)
{
	const struct bounce_task *task = piece->task;

	if (task->ranges)
		bounce_copy_ranges(piece);
	else if (task->read)
		memcpy(task->local + piece->at, piece->block->mem,
		       piece->rail.length);
	else
		memcpy(piece->block->mem, task->local + piece->at,
		       piece->rail.length);
}

/* Finds the next piece. Sets *remote to its address at the target, and *whole
 * to the start of the remote range that contains it. Returns the number of
 * bytes from *remote to the end of that range. */
static uint64_t bounce_next(const struct bounce_task *task, uint64_t *remote,
			    uint64_t *whole)
{
	const struct bounce_ranges *r = task->ranges;
	const struct tei_rail_iov *iov;

	if (!r) {
		*whole = task->remote;
		*remote = task->remote + task->next;
		return bounce_length(task) - task->next;
	}
	iov = &r->iov[r->nlocal + r->at];
	*whole = iov->addr;
	*remote = iov->addr + r->done;
	return iov->len - r->done;
}

/* Records that a piece of len bytes has begun. */
static void bounce_advance(struct bounce_task *task, uint64_t len)
{
	struct bounce_ranges *r = task->ranges;

	task->next += len;
	if (!r)
		return;
	r->done += len;
	if (r->done < r->iov[r->nlocal + r->at].len)
		return;
	r->at++;
	r->done = 0;
}

/* --- targets ------------------------------------------------------------- */

/* Returns the target of a peer, after raising its number of started requests.
 * Creates the target if it does not exist. Returns NULL if memory is short. */
static struct bounce_target *target_get(struct engine_bounces *b,
					struct tei_rail_peer *peer)
	TEI_REQUIRES(b->lock)
{
	struct bounce_target *target;
	int k;

	tei_list_foreach(target, &b->targets, struct bounce_target, link)
		if (target->peer == peer) {
			target->tasks++;
			return target;
		}
	target = calloc(1, sizeof(*target));
	if (!target)
		return NULL;
	target->peer = peer;
	target->tasks = 1;
	for (k = 0; k < BOUNCE_KINDS; k++)
		tei_list_init(&target->waiting[k]);
	tei_list_add_head(&b->targets, &target->link);
	return target;
}

static void target_put(struct bounce_target *target)
{
	if (--target->tasks)
		return;
	tei_list_del(&target->link);
	free(target);
}

/* --- blocks -------------------------------------------------------------- */

static bool bounce_may_grow(const struct engine_bounces *b, int k)
{
	const struct bounce_kind *kind = &b->kind[k];
	uint32_t slabs = b->pool.nslabs[k];

	return !kind->growing && slabs < BOUNCE_SLABS &&
	       (!slabs || tei_now_ns() >= kind->retry_ns);
}

/* Takes a block of size k for a target. Returns NULL if the request must wait,
 * because the target occupies half of these blocks already, or no block is
 * free. In the second case sets `wanted`, so that a worker thread registers
 * more blocks. */
static struct tei_rail_bounce *bounce_take(struct engine_bounces *b,
					   struct bounce_target *target, int k)
	TEI_REQUIRES(b->lock)
{
	uint32_t share = BOUNCE_SLABS * tei_rail_bounce_count(k) / 2;
	struct tei_rail_bounce *block;

	if (target->used[k] >= share)
		return NULL;
	block = tei_rail_bounce_take(&b->pool, tei_rail_bounce_size(k));
	if (block)
		target->used[k]++;
	else if (bounce_may_grow(b, k))
		b->kind[k].growing = b->kind[k].wanted = true;
	return block;
}

/* Moves a waiting request to the ready list. */
static void bounce_wake(struct engine_bounces *b, struct bounce_task *task)
	TEI_REQUIRES(b->lock)
{
	b->kind[task->waits].waiting--;
	task->waits = -1;
	tei_list_del(&task->link);
	tei_list_add_tail(&b->ready, &task->link);
}

/* Moves a request that waits for a block of size k to the ready list. The
 * targets are served in turn, except those that occupy half of these blocks
 * already. Returns false if there is no such request. */
static bool bounce_wake_one(struct engine_bounces *b, int k)
	TEI_REQUIRES(b->lock)
{
	uint32_t share = BOUNCE_SLABS * tei_rail_bounce_count(k) / 2;
	struct bounce_target *target;

	if (!b->kind[k].waiting)
		return false;
	tei_list_foreach(target, &b->targets, struct bounce_target, link) {
		if (tei_list_empty(&target->waiting[k]) ||
		    target->used[k] >= share)
			continue;
		bounce_wake(b, tei_list_first(&target->waiting[k],
					      struct bounce_task, link));
		tei_list_del(&target->link);
		tei_list_add_tail(&b->targets, &target->link);
		return true;
	}
	return false;
}

/* --- ends ---------------------------------------------------------------- */

/* Records the reason why the task begins no further piece. The first reason is
 * kept, but UNFENCED replaces any other one. */
static void bounce_fail(struct bounce_task *task, enum tei_rail_end end,
			const struct tei_err *err)
{
	if (task->end != TEI_RAIL_END_COMPLETED &&
	    (end != TEI_RAIL_END_UNFENCED ||
	     task->end == TEI_RAIL_END_UNFENCED))
		return;
	task->end = end;
	if (!err)
		return;
	if (!task->err)
		task->err = malloc(sizeof(*task->err));
	if (task->err)
		*task->err = *err;
}

static void bounce_fail_code(struct bounce_task *task, enum tei_rail_end end,
			     int code, const char *text)
{
	struct tei_err err;

	memset(&err, 0, sizeof(err));
	err.code = code;
	err.when_ns = tei_now_ns();
	snprintf(err.text, sizeof(err.text), "%s", text);
	snprintf(err.peer, sizeof(err.peer), "%.95s",
		 tei_rail_peer_name(task->peer));
	bounce_fail(task, end, &err);
}

/* Ends a task that has no pieces in progress. Releases the lock meanwhile. */
static void bounce_end(struct engine_bounces *b, struct bounce_task *task)
	TEI_REQUIRES(b->lock)
{
	struct engine_task *t = engine_task_from(task);
	struct tei_rail_group *group = task->group;
	struct tei_rail_peer *peer = task->peer;
	struct tei_err *err = task->err;
	int status;

	if (task->moved == t->length)
		task->end = TEI_RAIL_END_COMPLETED;
	status = engine_rail_status(task->end);
	task->ended = true;
	target_put(task->target);
	tei_mutex_unlock(&b->lock);
	engine_task_end(t, status, err);
	/* the application may have freed the batch with t by now, so this
	 * function no longer reads t and task */
	free(err);
	tei_rail_group_free(group);
	tei_rail_peer_put(peer);
	tei_mutex_lock(&b->lock);
	if (!--b->tasks)
		tei_cond_broadcast(&b->idle);
}

/* Ends the task if none of its pieces is in progress and no further piece will
 * begin. */
static void bounce_maybe_end(struct engine_bounces *b, struct bounce_task *task)
	TEI_REQUIRES(b->lock)
{
	if (task->runs || task->running ||
	    (task->end == TEI_RAIL_END_COMPLETED &&
	     task->next < bounce_length(task)))
		return;
	if (task->waits >= 0)
		bounce_wake(b, task);
	tei_list_del(&task->link);
	bounce_end(b, task);
}

/* Called when MC_SLICE_TIMEOUT has ended a piece. Ends the requests to the same
 * target that wait for a block and have made no progress for
 * MC_SLICE_TIMEOUT. */
static void bounce_silent(struct engine_bounces *b, struct bounce_target *target,
			  const struct tei_err *err) TEI_REQUIRES(b->lock)
{
	uint64_t limit = b->engine->settings.failure.slice_timeout_s *
			 TEI_NS_PER_SEC;
	uint64_t now = tei_now_ns();
	struct bounce_task *task, *tmp;
	int k;

	for (k = 0; k < BOUNCE_KINDS; k++)
		tei_list_foreach_safe(task, tmp, &target->waiting[k],
				      struct bounce_task, link)
			if (now - task->since_ns >= limit) {
				bounce_fail(task, TEI_RAIL_END_FAILED, err);
				bounce_wake(b, task);
			}
}

/* Drops a hold of a piece. After the last one, the piece's block returns to the
 * pool, and the task ends if it has nothing left to do. */
static void piece_put(struct engine_bounces *b, struct bounce_piece *piece)
	TEI_REQUIRES(b->lock)
{
	struct bounce_task *task = piece->task;
	int k = piece->block->kind;

	if (--piece->holds)
		return;
	task->running--;
	task->target->used[k]--;
	tei_rail_bounce_put(&b->pool, piece->block, true);
	/* the piece must not be accessed any longer, because its block may be
	 * in use again */
	bounce_wake_one(b, k);
	bounce_maybe_end(b, task);
}

static void piece_ended(struct engine_bounces *b, struct bounce_piece *piece,
			enum tei_rail_end end, const struct tei_err *err)
	TEI_REQUIRES(b->lock)
{
	struct bounce_task *task = piece->task;

	piece->ended = true;
	tei_list_del(&piece->link);
	if (end == TEI_RAIL_END_COMPLETED) {
		__atomic_store_n(&task->moved,
				 task->moved + piece->rail.length,
				 __ATOMIC_RELAXED);
		task->since_ns = tei_now_ns();
	} else {
		bounce_fail(task, end, err);
	}
	if (piece->rail.silent)
		bounce_silent(b, task->target, err);
	piece_put(b, piece);
}

/* --- running ------------------------------------------------------------- */

static void bounce_run_ready(struct engine_bounces *b) TEI_REQUIRES(b->lock);

/* Marks all requests that wait for a block of size k as failed, and moves them
 * to b->ready. bounce_run_ready() then ends them. */
static void bounce_fail_waiting(struct engine_bounces *b, int k, int code,
				const char *text) TEI_REQUIRES(b->lock)
{
	struct bounce_target *target;
	struct bounce_task *task;

	tei_list_foreach(target, &b->targets, struct bounce_target, link)
		while (!tei_list_empty(&target->waiting[k])) {
			task = tei_list_first(&target->waiting[k],
					      struct bounce_task, link);
			bounce_fail_code(task, TEI_RAIL_END_FAILED, code, text);
			bounce_wake(b, task);
		}
}

/* Handles a failure to register more blocks of size k. If the pool has blocks
 * of that size, the waiting requests go on waiting for them. Otherwise they
 * fail. */
static void bounce_grow_failed(struct engine_bounces *b, int k)
	TEI_REQUIRES(b->lock)
{
	b->kind[k].growing = false;
	b->kind[k].retry_ns = tei_now_ns() + BOUNCE_RETRY_NS;
	if (!b->pool.nslabs[k])
		bounce_fail_waiting(b, k, TEI_ERR_MEMORY,
				    "no memory for bounce buffers");
}

/* Registers more blocks of size k. Moves waiting requests to the ready list,
 * one for each new block. Releases the lock meanwhile. */
static void bounce_grow(struct engine_bounces *b, int k) TEI_REQUIRES(b->lock)
{
	struct tei_rail_bounce_slab *slab;
	uint32_t i;

	tei_mutex_unlock(&b->lock);
	slab = tei_rail_bounce_slab_new(&b->pool, k);
	tei_mutex_lock(&b->lock);
	if (!slab) {
		bounce_grow_failed(b, k);
		return;
	}
	b->kind[k].growing = false;
	tei_rail_bounce_slab_add(&b->pool, slab);
	for (i = 0; i < tei_rail_bounce_count(k); i++)
		if (!bounce_wake_one(b, k))
			break;
}

static void bounce_grow_job(struct engine *e, const struct engine_work *w)
{
	struct engine_bounces *b = e->bounces;
	struct bounce_kind *kind = w->arg;

	tei_mutex_lock(&b->lock);
	bounce_grow(b, (int)(kind - b->kind));
	bounce_run_ready(b);
	tei_mutex_unlock(&b->lock);
}

/* Queues the jobs that register blocks, if they are wanted. Then releases the
 * lock. */
static void bounce_leave(struct engine_bounces *b) TEI_RELEASE(b->lock)
{
	static const struct engine_work_kind job = { .run = bounce_grow_job };
	bool asked;
	int k;

	for (k = 0; k < BOUNCE_KINDS; k++) {
		if (!b->kind[k].wanted)
			continue;
		b->kind[k].wanted = false;
		tei_mutex_unlock(&b->lock);
		asked = engine_work_arg(b->engine, &job, &b->kind[k]);
		tei_mutex_lock(&b->lock);
		if (!asked)
			bounce_grow_failed(b, k);
	}
	bounce_run_ready(b);
	tei_mutex_unlock(&b->lock);
}

/* Begins a piece of len bytes that uses the block. */
static struct bounce_piece *piece_begin(struct bounce_task *task,
					struct tei_rail_bounce *block,
					uint64_t len)
{
	struct bounce_piece *piece = (void *)block->room;
	uint64_t whole;

	memset(piece, 0, sizeof(*piece));
	piece->task = task;
	piece->block = block;
	piece->at = task->next;
	piece->holds = 2; /* one hold of the data plane and one of piece_post */
	piece->rail.peer = task->peer;
	piece->rail.local = block->mem;
	piece->rail.length = len;
	piece->rail.read = task->read;
	piece->rail.since_ns = task->since_ns;
	piece->rail.whole_length =
		bounce_next(task, &piece->rail.remote, &whole);
	piece->rail.whole = whole;
	piece->rail.whole_length += piece->rail.remote - whole;
	if (piece->rail.whole_length == len)
		piece->rail.whole_length = 0;
	return piece;
}

static void bounce_done(struct tei_rail_task *rail, enum tei_rail_end end,
			const struct tei_err *err)
{
	struct bounce_piece *piece =
		tei_container_of(rail, struct bounce_piece, rail);
	struct engine_bounces *b = bounces_of(piece->task);

	if (end == TEI_RAIL_END_COMPLETED && rail->read)
		bounce_copy(piece);
	tei_mutex_lock(&b->lock);
	piece_ended(b, piece, end, err);
	bounce_run_ready(b);
	bounce_leave(b);
}

static void pieces_cancel(struct engine_bounces *b, struct tei_rail_task **list,
			  size_t n, bool deadline)
{
	if (n && deadline)
		tei_rail_expire(b->engine->dp, list, n);
	else if (n)
		tei_rail_cancel(b->engine->dp, list, n);
}

/*
 * Submits a piece to the data plane. For a write, copies its bytes into the
 * block before. Releases the lock meanwhile. If the request is cancelled in the
 * meantime, cancels the piece here, because bounce_cancel cancels only pieces
 * that have been submitted.
 */
static void piece_post(struct engine_bounces *b, struct bounce_piece *piece)
	TEI_REQUIRES(b->lock)
{
	struct bounce_task *task = piece->task;
	struct tei_rail_task *rail = &piece->rail;
	int ret;

	tei_mutex_unlock(&b->lock);
	if (!rail->read)
		bounce_copy(piece);
	rail->done = bounce_done;
	ret = tei_rail_submit_group(b->engine->dp, task->group, &rail, 1);
	tei_mutex_lock(&b->lock);
	if (ret) {
		bounce_fail_code(task, TEI_RAIL_END_FAILED, ret,
				 "the data plane did not accept a piece of the request");
		piece_ended(b, piece, TEI_RAIL_END_FAILED, NULL);
	}
	piece->posted = !ret;
	if (task->stopped && !piece->ended) {
		piece->posted = false;
		tei_mutex_unlock(&b->lock);
		pieces_cancel(b, &rail, 1, task->expired);
		tei_mutex_lock(&b->lock);
	}
	piece_put(b, piece);
}

/* Begins pieces of a task until no block is available or all its bytes belong
 * to pieces that have begun. */
static void bounce_run(struct engine_bounces *b, struct bounce_task *task)
	TEI_REQUIRES(b->lock)
{
	struct tei_rail_bounce *block;
	struct bounce_piece *piece;
	uint64_t len, remote, whole;
	int k;

	task->runs = true;
	while (task->end == TEI_RAIL_END_COMPLETED &&
	       task->next < bounce_length(task)) {
		len = bounce_next(task, &remote, &whole);
		if (len > BOUNCE_PIECE)
			len = BOUNCE_PIECE;
		k = tei_rail_bounce_kind(len);
		block = bounce_take(b, task->target, k);
		if (!block) {
			task->waits = k;
			b->kind[k].waiting++;
			tei_list_add_tail(&task->target->waiting[k],
					  &task->link);
			break;
		}
		piece = piece_begin(task, block, len);
		bounce_advance(task, len);
		task->running++;
		tei_list_add_tail(&task->pieces, &piece->link);
		piece_post(b, piece);
	}
	task->runs = false;
	bounce_maybe_end(b, task);
}

static void bounce_run_ready(struct engine_bounces *b)
{
	struct bounce_task *task;

	if (bounce_running)
		return;
	bounce_running = true;
	while (!tei_list_empty(&b->ready)) {
		task = tei_list_first(&b->ready, struct bounce_task, link);
		tei_list_del(&task->link);
		bounce_run(b, task);
	}
	bounce_running = false;
}

/* --- tasks --------------------------------------------------------------- */

static void *bounce_attach(struct engine *e, const struct engine_segment *s)
{
	(void)e;
	return s ? s->peer : NULL;
}

static void bounce_task_init(struct bounce_task *task,
			     struct tei_rail_peer *peer, uint64_t remote,
			     bool read)
{
	task->peer = peer;
	task->remote = remote;
	task->read = read;
	task->waits = -1;
	task->end = TEI_RAIL_END_COMPLETED;
	tei_list_init(&task->link);
	tei_list_init(&task->pieces);
}

static int bounce_prepare(struct engine *e, struct engine_task *t,
			  const struct transfer_request *r,
			  struct engine_target *target, void *at)
{
	struct bounce_task *task = engine_task_room(t);

	if (engine_target_needs_slot(target, r->target_offset, r->length))
		return ENGINE_DECLINED;
	engine_task_init(e, t, r, &transport_bounce);
	bounce_task_init(task, at, r->target_offset, t->read);
	task->local = r->source;
	return 0;
}

static int bounce_prepare_ranges(struct engine *e, struct engine_task *t,
				 const struct te_request *r,
				 struct engine_target *target, void *at)
{
	struct bounce_task *task = engine_task_room(t);
	struct bounce_ranges *ranges;
	uint32_t i, n = r->local_count;

	(void)e;
	for (i = 0; i < r->remote_count; i++)
		if (engine_target_needs_slot(target, r->remote[i].addr,
					     r->remote[i].length))
			return ENGINE_DECLINED;
	ranges = calloc(1, sizeof(*ranges) +
				   (size_t)(n + r->remote_count) *
					   sizeof(ranges->iov[0]));
	if (!ranges)
		return 302;
	ranges->nlocal = n;
	ranges->nremote = r->remote_count;
	for (i = 0; i < n; i++) {
		ranges->iov[i].addr = (uintptr_t)r->local[i].addr;
		ranges->iov[i].len = r->local[i].length;
	}
	for (i = 0; i < r->remote_count; i++) {
		ranges->iov[n + i].addr = r->remote[i].addr;
		ranges->iov[n + i].len = r->remote[i].length;
	}
	tei_rail_task_ext_lay(ranges->iov, n);
	tei_rail_task_ext_lay(ranges->iov + n, r->remote_count);
	t->by = &transport_bounce;
	bounce_task_init(task, at, 0, r->opcode == TE_READ);
	task->ranges = ranges;
	return 0;
}

/* Returns true if the request is moved in several pieces. */
static bool bounce_is_divided(const struct bounce_task *task)
{
	return bounce_length(task) > BOUNCE_PIECE ||
	       (task->ranges && task->ranges->nremote > 1);
}

/* Prepares a task for its start. Returns false if memory is short. */
static bool bounce_open(struct engine_bounces *b, struct bounce_task *task)
	TEI_REQUIRES(b->lock)
{
	if (bounce_is_divided(task)) {
		task->group = tei_rail_group_new(task->peer);
		if (!task->group)
			return false;
	}
	task->target = target_get(b, task->peer);
	return task->target != NULL;
}

static void bounce_start(struct engine *e, struct engine_task *t)
{
	struct bounce_task *task = engine_task_room(t);
	struct engine_bounces *b = e->bounces;
	const struct tei_err short_err = {
		.code = TEI_ERR_MEMORY, .text = "no memory for a request",
	};

	tei_rail_peer_hold(task->peer);
	tei_mutex_lock(&b->lock);
	if (!bounce_open(b, task)) {
		tei_mutex_unlock(&b->lock);
		tei_rail_group_free(task->group);
		tei_rail_peer_put(task->peer);
		engine_task_end(t, STATUS_FAILED, &short_err);
		return;
	}
	b->tasks++;
	task->since_ns = tei_now_ns();
	tei_list_add_tail(&b->ready, &task->link);
	bounce_run_ready(b);
	bounce_leave(b);
}

/* Cancels those pieces of a task that were submitted to the data plane.
 * Releases the lock meanwhile. */
static void bounce_cancel_pieces(struct engine_bounces *b,
				 struct bounce_task *task, bool deadline)
	TEI_REQUIRES(b->lock)
{
	struct bounce_piece *held[BOUNCE_CANCELS], *piece;
	struct tei_rail_task *list[BOUNCE_CANCELS];
	size_t n, i;

	do {
		n = 0;
		tei_list_foreach(piece, &task->pieces, struct bounce_piece,
				 link) {
			if (!piece->posted || n == BOUNCE_CANCELS)
				continue;
			piece->posted = false;
			piece->holds++;
			held[n] = piece;
			list[n++] = &piece->rail;
		}
		tei_mutex_unlock(&b->lock);
		pieces_cancel(b, list, n, deadline);
		tei_mutex_lock(&b->lock);
		for (i = 0; i < n; i++)
			piece_put(b, held[i]);
	} while (n == BOUNCE_CANCELS);
}

static void bounce_cancel(struct engine *e, struct engine_task *t,
			  bool deadline)
{
	struct bounce_task *task = engine_task_room(t);
	struct engine_bounces *b = e->bounces;

	tei_mutex_lock(&b->lock);
	if (!task->ended) {
		task->stopped = true;
		task->expired |= deadline;
		bounce_fail_code(task,
				 deadline ? TEI_RAIL_END_FAILED :
					    TEI_RAIL_END_CANCELED,
				 deadline ? TEI_ERR_TIMED_OUT :
					    TEI_ERR_CANCELED,
				 deadline ? ENGINE_DEADLINE_PASSED :
					    "cancelled by the caller");
		/* counts as a piece in progress, so that the task does not end
		 * before its pieces are cancelled */
		task->running++;
		bounce_cancel_pieces(b, task, deadline);
		task->running--;
		bounce_maybe_end(b, task);
	}
	bounce_run_ready(b);
	bounce_leave(b);
}

static uint64_t bounce_moved(const struct engine_task *t)
{
	const struct bounce_task *task = engine_task_room_const(t);

	return __atomic_load_n(&task->moved, __ATOMIC_RELAXED);
}

static void bounce_release(struct engine_task *t)
{
	struct bounce_task *task = engine_task_room(t);

	free(task->ranges);
}

/* --- the engine ---------------------------------------------------------- */

static bool bounce_drain(struct engine *e,
			 const struct engine_transport_ops *through,
			 uint64_t until_ns)
{
	struct engine_bounces *b = e->bounces;
	bool left;
	int k;

	if (!b || (through && through != &transport_rail))
		return true;
	tei_mutex_lock(&b->lock);
	/* through is NULL: the engine is being destroyed and its worker threads
	 * have ended, so this thread registers the blocks */
	for (k = 0; k < BOUNCE_KINDS && !through; k++)
		if (b->kind[k].waiting && !b->pool.nslabs[k])
			bounce_grow(b, k);
	bounce_run_ready(b);
	while (b->tasks && tei_now_ns() < until_ns)
		tei_mutex_wait(&b->idle, &b->lock, TEI_NS_PER_MS);
	left = b->tasks;
	tei_mutex_unlock(&b->lock);
	return !left;
}

/* Ends the requests that wait for a block. If such a request has pieces in
 * progress, it ends after them, when the data plane is closed. */
static void bounce_close(struct engine *e)
{
	struct engine_bounces *b = e->bounces;
	int k;

	if (!b)
		return;
	tei_mutex_lock(&b->lock);
	for (k = 0; k < BOUNCE_KINDS; k++)
		bounce_fail_waiting(b, k, TEI_ERR_CONTEXT,
				    "the engine is being destroyed");
	bounce_run_ready(b);
	tei_mutex_unlock(&b->lock);
}

int engine_bounce_open(struct engine *e, struct tei_err *err)
{
	struct engine_bounces *b = calloc(1, sizeof(*b));

	if (!b)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory for bounce buffers");
	b->engine = e;
	tei_mutex_init(&b->lock);
	tei_cond_init(&b->idle);
	tei_list_init(&b->targets);
	tei_list_init(&b->ready);
	tei_rail_bounces_init(&b->pool, e->dp, 0, sizeof(struct bounce_piece));
	e->bounces = b;
	return 0;
}

void engine_bounce_free(struct engine *e)
{
	struct engine_bounces *b = e->bounces;

	if (!b)
		return;
	tei_rail_bounces_fini(&b->pool);
	pthread_cond_destroy(&b->idle);
	tei_mutex_fini(&b->lock);
	free(b);
	e->bounces = NULL;
}

const struct engine_transport_ops transport_bounce = {
	.takes = ENGINE_UNREGISTERED_HOST | ENGINE_UNREGISTERED_GPU,
	.through = true,
	.attach = bounce_attach,
	.prepare = bounce_prepare,
	.prepare_ranges = bounce_prepare_ranges,
	.start = bounce_start,
	.cancel = bounce_cancel,
	.moved = bounce_moved,
	.drop = bounce_release,
	.release = bounce_release,
	.drain = bounce_drain,
	.close = bounce_close,
};
