/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The copy threads and their queue.
 *
 * An operation is in ctx->live from submit until it ends, and in ctx->queue
 * while pieces remain to start. A thread takes a piece from the operation at
 * the head and moves the operation to the tail. So operations take turns, and
 * other threads can take the next piece of the same operation. The last piece
 * that completes ends the operation. pool_end removes it from ctx->live under
 * the lock, which happens once, and calls done without the lock. Until done has
 * returned, a record on the stack of pool_end is in ctx->ending. Threads that
 * cancel an operation or remove a region wait for that record and do not access
 * the operation, which done may have freed.
 *
 * A copy within this process needs no slot: it was checked under the lock when
 * it was submitted, and a region is removed under the lock only after no live
 * operation accesses it.
 *
 * Small operations for the same peer that follow each other in the queue are
 * copied together (local_run.c). Those that are not complete then return to the
 * queue, and the first of them is copied alone.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "prov/local/local_int.h"
#include "util/clock.h"
#include "util/thread.h"

#define POOL_STALL_SLEEP_NS	(100 * 1000)
/* largest total length of operations that a thread copies together, bytes */
#define POOL_RUN_BYTES		(256u << 10)

/* ---- end of an operation ----------------------------------------------- */

static void pool_unqueue(struct tei_local *ctx, struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock)
{
	if (tei_list_empty(&op->queue_node))
		return;
	tei_list_del(&op->queue_node);
	atomic_fetch_sub_explicit(&ctx->queued, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&ctx->queued_bytes, op->length - op->next,
				  memory_order_relaxed);
}

static void pool_enqueue(struct tei_local *ctx, struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock)
{
	tei_list_add_tail(&ctx->queue, &op->queue_node);
	atomic_fetch_add_explicit(&ctx->queued_bytes, op->length - op->next,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&ctx->queued, 1, memory_order_release);
}

/*
 * Stores the error record in op->err or, if op has none, in a new record for
 * the done callback.
 */
static void pool_explain(struct tei_local_op *op, const struct tei_err *err)
{
	if (op->err) {
		*op->err = *err;
		return;
	}
	if (op->code == TEI_LOCAL_CANCELLED)
		return;
	op->why = malloc(sizeof(*op->why));
	if (op->why)
		*op->why = *err;
}

/* Records the first failure and drops the pieces that have not started. */
static void pool_fail(struct tei_local *ctx, struct tei_local_op *op, int code,
		      const struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	pool_unqueue(ctx, op);
	if (op->code)
		return;
	op->code = code;
	pool_explain(op, err);
}

static void pool_end(struct tei_local *ctx, struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock)
{
	struct local_ending ending = { .op = op, .peer = op->peer,
				       .reach = local_reach(op) };
	struct tei_err *why = op->why;
	uint64_t moved = op->moved;
	int code = op->code;

	tei_list_del(&op->live_node);
	op->live = false;
	tei_list_add_tail(&ctx->ending, &ending.node);
	tei_mutex_unlock(&ctx->lock);
	op->done(op, code, moved);	/* done owns op from here on */
	free(why);
	tei_mutex_lock(&ctx->lock);
	tei_list_del(&ending.node);
	if (ctx->waiters)
		pthread_cond_broadcast(&ctx->ended);
}

static void pool_end_if_idle(struct tei_local *ctx, struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock)
{
	if (!op->running && tei_list_empty(&op->queue_node))
		pool_end(ctx, op);
}

/* ---- starting threads --------------------------------------------------- */

static void *pool_main(void *arg);

static int pool_start_thread(struct tei_local *ctx) TEI_REQUIRES(ctx->lock)
{
	pthread_t *t = &ctx->threads[ctx->nthreads];
	int rc;

	rc = tei_thread_start(t, false, pool_main, ctx);
	if (rc)
		return rc;
	pthread_setname_np(*t, "tei-copy");
	ctx->nthreads++;
	return 0;
}

/*
 * Starts one more thread if none is idle and not all have been started. Returns
 * an error only if no copy thread exists.
 */
static int pool_staff(struct tei_local *ctx) TEI_REQUIRES(ctx->lock)
{
	int rc;

	if (ctx->nthreads == ctx->workers || ctx->sleepers || ctx->spinning ||
	    ctx->stopping)
		return 0;
	rc = pool_start_thread(ctx);
	if (rc && !ctx->nthreads)
		return local_fail(ctx, NULL, TEI_ERR_MEMORY, NULL, rc,
				  "no copy thread could be started: %s", strerrordesc_np(rc));
	return 0;
}

/* ---- pieces ------------------------------------------------------------ */

/*
 * Returns the length of the next piece: so short that all threads can take
 * part, but not below LOCAL_CUT_MIN.
 */
static uint64_t pool_piece_length(struct tei_local *ctx,
				  const struct tei_local_op *op)
{
	uint64_t left = op->length - op->next, n = op->length / ctx->workers;

	n = (n + 4095) & ~UINT64_C(4095);
	if (n < LOCAL_CUT_MIN)
		n = LOCAL_CUT_MIN;
	if (n > TEI_LOCAL_PIECE)
		n = TEI_LOCAL_PIECE;
	return n < left ? n : left;
}

static struct local_piece pool_cut(struct tei_local *ctx,
				   struct tei_local_op *op)
{
	return (struct local_piece){
		.ctx = ctx,
		.peer = op->peer && op->peer->shared_table ? op->peer : NULL,
		.opcode = op->opcode,
		.local = (char *)op->local + op->next,
		.remote = op->remote + op->next,
		.length = pool_piece_length(ctx, op),
		.serial = op->required,
		.registered = op->registered,
	};
}

/*
 * Handles an operation for which no copy slot at the target is free: moves it
 * to the tail of the queue, frees slots of dead owners, or fails it after
 * slice_timeout_s.
 */
static void pool_stall(struct tei_local *ctx, struct tei_local_op *op,
		       bool may_sleep) TEI_REQUIRES(ctx->lock)
{
	struct timespec ts = { .tv_nsec = POOL_STALL_SLEEP_NS };
	uint64_t now = tei_now_ns();
	struct tei_err err;

	if (!op->stalled_ns)
		op->stalled_ns = now;
	if (now - op->stalled_ns > ctx->stall_ns) {
		local_fail(ctx, &err, TEI_ERR_TOO_MANY, op->peer, 0,
			   "no copy slot of the target became free");
		pool_fail(ctx, op, TEI_ERR_TOO_MANY, &err);
		pool_end_if_idle(ctx, op);
		return;
	}
	pool_unqueue(ctx, op);
	pool_enqueue(ctx, op);
	if (!may_sleep)
		return;
	op->running++;
	tei_mutex_unlock(&ctx->lock);
	local_slots_reclaim(op->peer->shared_table);
	nanosleep(&ts, NULL);
	tei_mutex_lock(&ctx->lock);
	op->running--;
	pool_end_if_idle(ctx, op);
}

/* If operations remain in the queue, wakes an idle copy thread or starts a new
 * one. */
static void pool_wake_another(struct tei_local *ctx) TEI_REQUIRES(ctx->lock)
{
	if (tei_list_empty(&ctx->queue) || ctx->spinning)
		return;
	if (ctx->sleepers)
		pthread_cond_signal(&ctx->work);
	else
		pool_staff(ctx);
}

/* Returns true if op may be copied together with others. */
static bool pool_is_small(const struct tei_local_op *op)
{
	return op->peer && op->peer->shared_table && !op->peer->self &&
	       !op->next && !op->alone && op->length <= LOCAL_CUT_MIN;
}

/* Stores in ops the small operations at the head of the queue that can be
 * copied together. Returns their number. */
static size_t pool_gather(struct tei_local *ctx,
			  struct tei_local_op *ops[TEI_LOCAL_RUN])
	TEI_REQUIRES(ctx->lock)
{
	struct tei_local_op *op;
	uint64_t bytes = 0;
	size_t n = 0;

	tei_list_foreach (op, &ctx->queue, struct tei_local_op, queue_node) {
		if (n == TEI_LOCAL_RUN || !pool_is_small(op) ||
		    (n && (op->peer != ops[0]->peer ||
			   op->opcode != ops[0]->opcode)) ||
		    (bytes += op->length) > POOL_RUN_BYTES)
			break;
		ops[n++] = op;
	}
	return n;
}

/* Handles an operation that was copied together with others. If all its bytes
 * were copied, ends it. Otherwise returns it to the queue. alone: an operation
 * that returns to the queue must then be copied alone. */
static void pool_settle(struct tei_local *ctx, struct tei_local_op *op,
			bool complete, bool alone) TEI_REQUIRES(ctx->lock)
{
	op->running--;
	if (complete) {
		op->moved = op->length;
	} else if (!op->code) {
		op->next = 0;
		op->alone = alone;
		pool_enqueue(ctx, op);
	}
	pool_end_if_idle(ctx, op);
}

static void pool_step_run(struct tei_local *ctx,
			  struct tei_local_op *const ops[], size_t n)
	TEI_REQUIRES(ctx->lock)
{
	size_t i, done;

	for (i = 0; i < n; i++) {
		pool_unqueue(ctx, ops[i]);
		ops[i]->running++;
		ops[i]->next = ops[i]->length;
	}
	pool_wake_another(ctx);
	tei_mutex_unlock(&ctx->lock);
	done = local_run_copy(ctx, ops, n);
	tei_mutex_lock(&ctx->lock);
	for (i = 0; i < n; i++)
		pool_settle(ctx, ops[i], i < done, i == done);
	pool_wake_another(ctx);
}

/* Copies one piece of the operation at the head of the queue. */
static void pool_step_piece(struct tei_local *ctx, bool may_sleep)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_local_op *op = tei_list_first(&ctx->queue,
						 struct tei_local_op,
						 queue_node);
	struct local_piece p = pool_cut(ctx, op);
	uint64_t length = p.length;
	struct tei_err err;
	int code;

	if (p.peer && !local_piece_enter(&p)) {
		pool_stall(ctx, op, may_sleep);
		return;
	}
	pool_unqueue(ctx, op);
	op->stalled_ns = 0;
	op->running++;
	op->next += length;
	if (op->next < op->length)
		pool_enqueue(ctx, op);
	pool_wake_another(ctx);
	tei_mutex_unlock(&ctx->lock);
	code = local_piece_run(&p, &err);
	tei_mutex_lock(&ctx->lock);
	op->running--;
	if (code)
		pool_fail(ctx, op, code, &err);
	else
		op->moved += length;
	pool_end_if_idle(ctx, op);
}

/* Copies one piece, or several small operations, at the head of the queue. */
static void pool_step(struct tei_local *ctx, bool may_sleep)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_local_op *ops[TEI_LOCAL_RUN];
	size_t n = pool_gather(ctx, ops);

	if (n > 1)
		pool_step_run(ctx, ops, n);
	else
		pool_step_piece(ctx, may_sleep);
}

/* ---- threads ----------------------------------------------------------- */

static void pool_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#else
	sched_yield();
#endif
}

/*
 * Spins for spin_ns or until work is queued. At most one thread spins. While it
 * does, threads that submit need not wake another thread.
 */
static void pool_spin(struct tei_local *ctx) TEI_REQUIRES(ctx->lock)
{
	uint64_t until = tei_now_ns() + ctx->spin_ns;

	ctx->spinning = true;
	tei_mutex_unlock(&ctx->lock);
	while (!atomic_load_explicit(&ctx->queued, memory_order_acquire) &&
	       tei_now_ns() < until)
		pool_relax();
	tei_mutex_lock(&ctx->lock);
	ctx->spinning = false;
}

static void pool_idle(struct tei_local *ctx) TEI_REQUIRES(ctx->lock)
{
	if (ctx->spin_ns && !ctx->spinning)
		pool_spin(ctx);
	while (tei_list_empty(&ctx->queue) && !ctx->stopping) {
		ctx->sleepers++;
		local_wait(&ctx->work, &ctx->lock, UINT64_MAX);
		ctx->sleepers--;
	}
}

static void *pool_main(void *arg)
{
	struct tei_local *ctx = arg;

	tei_mutex_lock(&ctx->lock);
	while (!ctx->stopping || !tei_list_empty(&ctx->queue)) {
		if (tei_list_empty(&ctx->queue))
			pool_idle(ctx);
		else
			pool_step(ctx, true);
	}
	tei_mutex_unlock(&ctx->lock);
	return NULL;
}

bool tei_local_progress(struct tei_local *ctx)
{
	bool found;

	if (local_guard(ctx) ||
	    !atomic_load_explicit(&ctx->queued, memory_order_relaxed) ||
	    !tei_mutex_trylock(&ctx->lock))
		return false;
	found = !tei_list_empty(&ctx->queue);
	if (found)
		pool_step(ctx, false);
	tei_mutex_unlock(&ctx->lock);
	return found;
}

/* ---- submit and cancel ------------------------------------------------- */

static bool pool_op_sane(const struct tei_local_op *op)
{
	uint64_t local = (uint64_t)(uintptr_t)op->local;

	return op->done && !op->live && (op->local || !op->length) &&
	       (op->opcode == TEI_LOCAL_READ ||
		op->opcode == TEI_LOCAL_WRITE) &&
	       local <= UINT64_MAX - op->length &&
	       op->remote <= UINT64_MAX - op->length;
}

static void pool_add(struct tei_local *ctx, struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock)
{
	op->next = 0;
	op->moved = 0;
	op->stalled_ns = 0;
	op->running = 0;
	op->code = 0;
	op->why = NULL;
	op->alone = false;
	op->live = true;
	tei_list_init(&op->queue_node);
	tei_list_add_tail(&ctx->live, &op->live_node);
	pool_enqueue(ctx, op);
	if (ctx->sleepers && !ctx->spinning)
		pthread_cond_signal(&ctx->work);
}

/*
 * Checks the whole range of an operation that will have several pieces, so that
 * no piece is copied if another would be refused, and stores the serial number of
 * the present registration in the operation. A later piece fails if the target
 * has since unregistered the memory, even if it was registered again. A single
 * piece is checked when it is copied.
 */
static bool pool_set_serial(struct tei_local *ctx, struct tei_local_op *op)
{
	const struct tei_local_peer *peer = op->peer;
	uint64_t serial;

	op->required = op->serial;
	if (!peer || !peer->shared_table || op->length <= LOCAL_CUT_MIN)
		return true;
	serial = tei_local_serial(ctx, peer, op->remote, op->length,
				  op->opcode == TEI_LOCAL_WRITE);
	if (!op->required)
		op->required = serial;
	return serial && serial == op->required;
}

static int pool_submit(struct tei_local *ctx, struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock)
{
	int rc;

	if (ctx->stopping)
		return TEI_ERR_CONTEXT;
	if (!local_regions_allow(ctx, op) || !pool_set_serial(ctx, op))
		return TEI_ERR_NOT_REGISTERED;
	rc = pool_staff(ctx);
	if (rc)
		return rc;
	pool_add(ctx, op);
	return 0;
}

int tei_local_submit(struct tei_local *ctx, struct tei_local_op *op)
{
	int rc = local_guard(ctx);

	if (rc)
		return rc;
	if (!pool_op_sane(op))
		return local_fail(ctx, op->err, TEI_ERR_INVALID, op->peer, 0,
				  "copy between %p and %#llx, %llu bytes: invalid argument",
				  op->local, (unsigned long long)op->remote,
				  (unsigned long long)op->length);
	tei_mutex_lock(&ctx->lock);
	rc = pool_submit(ctx, op);
	tei_mutex_unlock(&ctx->lock);
	if (rc)
		return local_fail(ctx, op->err, rc, op->peer, 0,
				  "copy between %p and %#llx, %llu bytes: %s",
				  op->local, (unsigned long long)op->remote,
				  (unsigned long long)op->length,
				  tei_err_name(rc));
	return 0;
}

static void pool_cancel(struct tei_local *ctx, struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_err err;

	local_explain(&err, TEI_LOCAL_CANCELLED, 0, "cancelled");
	pool_fail(ctx, op, TEI_LOCAL_CANCELLED, &err);
	pool_end_if_idle(ctx, op);
}

static bool pool_is_ending(struct tei_local *ctx,
			   const struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock)
{
	struct local_ending *e;

	tei_list_foreach(e, &ctx->ending, struct local_ending, node) {
		if (e->op == op)
			return true;
	}
	return false;
}

void tei_local_cancel(struct tei_local *ctx, struct tei_local_op *op)
{
	if (local_guard(ctx))
		return;
	tei_mutex_lock(&ctx->lock);
	ctx->waiters++;
	if (op->live)
		pool_cancel(ctx, op);
	while (pool_is_ending(ctx, op) || op->live)
		local_wait(&ctx->ended, &ctx->lock, UINT64_MAX);
	ctx->waiters--;
	tei_mutex_unlock(&ctx->lock);
}

void tei_local_cancel_start(struct tei_local *ctx, struct tei_local_op *op)
{
	if (local_guard(ctx))
		return;
	tei_mutex_lock(&ctx->lock);
	if (op->live)
		pool_cancel(ctx, op);
	tei_mutex_unlock(&ctx->lock);
}

/*
 * Returns a live operation of peer (of any peer if peer is NULL) that has
 * neither failed nor been cancelled. Returns NULL if there is none.
 */
static struct tei_local_op *pool_uncancelled(struct tei_local *ctx,
					     const struct tei_local_peer *peer)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_local_op *op;

	tei_list_foreach(op, &ctx->live, struct tei_local_op, live_node) {
		if ((!peer || op->peer == peer) && !op->code)
			return op;
	}
	return NULL;
}

static bool pool_busy_with(struct tei_local *ctx,
			   const struct tei_local_peer *peer)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_local_op *op;
	struct local_ending *e;

	tei_list_foreach(op, &ctx->live, struct tei_local_op, live_node) {
		if (!peer || op->peer == peer)
			return true;
	}
	tei_list_foreach(e, &ctx->ending, struct local_ending, node) {
		if (!peer || e->peer == peer)
			return true;
	}
	return false;
}

bool tei_local_drain(struct tei_local *ctx, uint64_t deadline_ns)
{
	bool busy;

	if (local_guard(ctx))
		return true;
	tei_mutex_lock(&ctx->lock);
	ctx->waiters++;
	while ((busy = pool_busy_with(ctx, NULL)) &&
	       local_wait(&ctx->ended, &ctx->lock, deadline_ns))
		;
	ctx->waiters--;
	tei_mutex_unlock(&ctx->lock);
	return !busy;
}

void local_pool_drain(struct tei_local *ctx, const struct tei_local_peer *peer)
{
	struct tei_local_op *op;

	tei_mutex_lock(&ctx->lock);
	ctx->waiters++;
	while ((op = pool_uncancelled(ctx, peer)))
		pool_cancel(ctx, op);
	while (pool_busy_with(ctx, peer))
		local_wait(&ctx->ended, &ctx->lock, UINT64_MAX);
	ctx->waiters--;
	tei_mutex_unlock(&ctx->lock);
}

void local_pool_join(struct tei_local *ctx)
{
	uint32_t i, n;

	tei_mutex_lock(&ctx->lock);
	ctx->stopping = true;
	n = ctx->nthreads;
	pthread_cond_broadcast(&ctx->work);
	tei_mutex_unlock(&ctx->lock);
	local_pool_drain(ctx, NULL);
	for (i = 0; i < n; i++)
		pthread_join(ctx->threads[i], NULL);
}
