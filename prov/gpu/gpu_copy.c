/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread that starts copies and polls for their end.
 *
 * An operation is in ctx->live until it ends, and in its context's queue while
 * copies of it remain to be started; it counts its copies in flight. When it is
 * not queued and no copy of it is in flight, it moves to ctx->over, once. Then
 * its done callback is called. A CUDA context that is used without the lock
 * cannot close meanwhile: a live operation or an abandoned copy keeps its
 * memory registered.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/gpu/gpu_int.h"
#include "util/clock.h"

/* Number of idle iterations in which the thread calls sched_yield; in later
 * ones it sleeps. */
#define GPU_YIELDS 64u
/* Length of each of the first GPU_NAPS sleeps. */
#define GPU_NAP_NS  (50 * TEI_NS_PER_US)
#define GPU_NAPS    100u		  /* number of short sleeps */
#define GPU_REST_NS (500 * TEI_NS_PER_US) /* length of the later sleeps */
#define GPU_SWEEP_NS TEI_NS_PER_SEC	  /* time between two sweeps */

/* --- completion ---------------------------------------------------------- */

static void copy_log(struct tei_gpu *ctx, const struct tei_gpu_op *op,
		     const struct tei_err *err)
{
	TEI_LOG_LIMITED(&ctx->log_limit, TEI_LOG_ERROR, "gpu",
			"copy of %llu bytes from %#llx to %#llx: %s",
			(unsigned long long)op->length,
			(unsigned long long)op->src,
			(unsigned long long)op->dst, err->text);
}

static void op_fail(struct tei_gpu *ctx, struct tei_gpu_op *op,
		    const struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	if (op->code)
		return;
	op->code = err->code;
	op->err = malloc(sizeof(*op->err));
	if (op->err)
		*op->err = *err;
	copy_log(ctx, op, err);
}

/*
 * Fails the operation with TEI_ERR_TIMED_OUT, which replaces an earlier code,
 * because its copies may still access memory.
 */
static void op_time_out(struct tei_gpu *ctx, struct tei_gpu_op *op,
			const struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	if (op->code == TEI_ERR_TIMED_OUT)
		return;
	free(op->err);
	op->err = NULL;
	op->code = 0;
	op_fail(ctx, op, err);
}

/* Updates an operation after a copy of it has ended, or after it was cancelled
 * or has failed: ends the operation if it has nothing left to do. */
static void op_step(struct tei_gpu *ctx, struct tei_gpu_op *op)
	TEI_REQUIRES(ctx->lock)
{
	if (op->code && op->queued) {
		tei_list_del(&op->node);
		op->queued = false;
	}
	if (!op->running && !op->queued)
		tei_list_add_tail(&ctx->over, &op->node);
}

void gpu_op_drop(struct tei_gpu *ctx, struct tei_gpu_op *op)
{
	/* an operation whose copies have all ended is not cancelled */
	if (op->code || !(op->queued || op->running))
		return;
	op->code = TEI_GPU_CANCELLED;
	op_step(ctx, op);
	pthread_cond_signal(&ctx->work);
}

/* Calls the done callback of one operation; releases the lock meanwhile. */
static void op_notify(struct tei_gpu *ctx, struct tei_gpu_op *op)
	TEI_REQUIRES(ctx->lock)
{
	struct gpu_ending ending = { op->dst, op->src, op->length };
	struct tei_err none, *err = op->err;
	int code = op->code;

	tei_list_del(&op->node);
	tei_list_del(&op->live_node);
	op->live = false;
	op->err = NULL;
	ctx->ending = &ending;
	tei_mutex_unlock(&ctx->lock);
	memset(&none, 0, sizeof(none));
	none.code = code;
	op->done(op, code, code ? err ? err : &none : NULL);
	free(err);
	tei_mutex_lock(&ctx->lock);
	ctx->ending = NULL;
	pthread_cond_broadcast(&ctx->ended);
}

static bool copy_notify_all(struct tei_gpu *ctx) TEI_REQUIRES(ctx->lock)
{
	bool any = false;

	while (!tei_list_empty(&ctx->over)) {
		op_notify(ctx,
			  tei_list_first(&ctx->over, struct tei_gpu_op, node));
		any = true;
	}
	return any;
}

/* --- copies -------------------------------------------------------------- */

/* Queues one copy. The context is pushed and the lock is not held. The driver
 * may report an error of earlier work, so the copy may have been queued even if
 * this function fails. */
static int copy_queue(struct tei_gpu *ctx, struct gpu_context *c,
		      struct gpu_copy *copy, struct tei_err *err)
{
	void *event = c->events[(c->first + c->count) % GPU_DEPTH];
	struct tei_err second;
	int ret, marked;

	ret = tei_cuda_copy(ctx->cuda, (void *)(uintptr_t)copy->dst,
			    (void *)(uintptr_t)copy->src, copy->len, c->stream,
			    err);
	marked = tei_cuda_event_record(ctx->cuda, event, c->stream,
				       ret ? &second : err);
	copy->unmarked = marked != 0;
	copy->failed = ret || marked;
	return ret ? ret : marked;
}

/* Releases the claim of a copy that the GPU has completed. */
static void copy_leave(const struct gpu_copy *copy)
{
	if (copy->guard)
		copy->guard->leave(copy->guard, copy->claim);
}

/* Queues the rest of an operation again, from the copy for which its guard has
 * returned TEI_ERR_TOO_MANY. Fails the operation if the guard has returned this
 * code for slice_timeout_s. */
static void copy_put_back(struct tei_gpu *ctx, struct gpu_context *c,
			  struct tei_gpu_op *op, uint64_t len,
			  const struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	uint64_t now = tei_now_ns();

	op->next -= len;
	if (!op->code && !op->queued) {
		op->queued = true;
		tei_list_add_tail(&c->queue, &op->node);
	}
	if (!op->refused_ns)
		op->refused_ns = now;
	else if (now - op->refused_ns > ctx->stall_ns)
		op_fail(ctx, op, err);
}

/* Handles a copy that the guard of its operation has refused. Returns true if
 * further copies may start. */
static bool copy_refused(struct tei_gpu *ctx, struct gpu_context *c,
			 const struct gpu_copy *copy, const struct tei_err *err)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_gpu_op *op = copy->op;
	bool again = err->code == TEI_ERR_TOO_MANY;

	op->running--;
	if (again)
		copy_put_back(ctx, c, op, copy->len, err);
	else
		op_fail(ctx, op, err);
	if (op->code || !op->queued)
		op_step(ctx, op);
	return !again;
}

/*
 * Starts the next copy of the operation at the head of the queue. The context
 * is pushed. Returns false if there is no operation, too much is in flight, or
 * a guard has returned TEI_ERR_TOO_MANY.
 */
static bool copy_begin(struct tei_gpu *ctx, struct gpu_context *c)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_gpu_op *op;
	struct gpu_copy copy;
	struct tei_err err;
	uint64_t at;
	int ret = 0;

	if (tei_list_empty(&c->queue) || c->count == GPU_DEPTH ||
	    c->bytes >= GPU_BEGUN_MAX)
		return false;
	op = tei_list_first(&c->queue, struct tei_gpu_op, node);
	/* One copy of the operation is started here. If more copies remain, the
	 * operation is queued again below. */
	tei_list_del(&op->node);
	at = op->next;
	copy = (struct gpu_copy){
		.op = op, .guard = op->guard, .dst = op->dst + at,
		.src = op->src + at, .len = op->length - at,
		.begun_ns = tei_now_ns(),
	};
	if (copy.len > GPU_PIECE)
		copy.len = GPU_PIECE;
	op->next += copy.len;
	op->running++;
	op->queued = op->next < op->length;
	if (op->queued)
		tei_list_add_tail(&c->queue, &op->node);
	tei_mutex_unlock(&ctx->lock);
	if (copy.guard)
		ret = copy.guard->enter(copy.guard, op, at, copy.len,
					&copy.claim, &err);
	if (ret) {
		err.code = ret;
		tei_mutex_lock(&ctx->lock);
		return copy_refused(ctx, c, &copy, &err);
	}
	ret = copy_queue(ctx, c, &copy, &err);
	tei_mutex_lock(&ctx->lock);
	op->refused_ns = 0;
	/* a failed copy stays in the ring until the stream has passed it */
	c->ring[(c->first + c->count++) % GPU_DEPTH] = copy;
	c->bytes += copy.len;
	if (ret) {
		op_fail(ctx, op, &err);
		op_step(ctx, op);
	}
	return true;
}

/* Removes the oldest copy, which has ended. err: cause of its failure, or
 * NULL. */
static void copy_end(struct tei_gpu *ctx, struct gpu_context *c,
		     const struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	struct gpu_copy copy = c->ring[c->first];
	struct tei_gpu_op *op = copy.op;

	c->first = (c->first + 1) % GPU_DEPTH;
	c->count--;
	c->bytes -= copy.len;
	c->ended_ns = tei_now_ns();
	copy_leave(&copy);
	if (!op) {
		if (!--ctx->given_up)
			pthread_cond_broadcast(&ctx->ended);
		return;
	}
	if (err)
		op_fail(ctx, op, err);
	else if (!copy.failed)
		__atomic_store_n(&op->moved, op->moved + copy.len,
				 __ATOMIC_RELAXED);
	op->running--;
	op_step(ctx, op);
}

/* Records that the oldest copy has failed. The copy may still be running. */
static void copy_fail(struct tei_gpu *ctx, struct gpu_context *c,
		      const struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	struct gpu_copy *copy = &c->ring[c->first];

	copy->unmarked = copy->failed = true;
	if (!copy->op)
		return;
	op_fail(ctx, copy->op, err);
	op_step(ctx, copy->op);
}

/* --- a GPU that does not complete copies --------------------------------- */

/* Returns true if no copy of the context has ended for slice_timeout_s. This
 * time begins at "since", or at the last end of a copy if that was later. */
static bool copy_stalled(const struct tei_gpu *ctx, const struct gpu_context *c,
			 uint64_t since)
{
	if (c->ended_ns > since)
		since = c->ended_ns;
	return tei_now_ns() - since > ctx->stall_ns;
}

static void copy_drop_queue(struct tei_gpu *ctx, struct gpu_context *c,
			    const struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	struct tei_gpu_op *op;

	while (!tei_list_empty(&c->queue)) {
		op = tei_list_first(&c->queue, struct tei_gpu_op, node);
		op_fail(ctx, op, err);
		op_step(ctx, op);
	}
}

/*
 * Abandons the operations whose copies in the ring are overdue, each with all
 * of its copies.
 */
static void copy_give_up_ring(struct tei_gpu *ctx, struct gpu_context *c,
			      const struct tei_err *err)
	TEI_REQUIRES(ctx->lock)
{
	struct gpu_copy *copy;
	struct tei_gpu_op *op;
	uint32_t i;

	for (i = 0; i < c->count; i++) {
		copy = &c->ring[(c->first + i) % GPU_DEPTH];
		if (!copy_stalled(ctx, c, copy->begun_ns))
			break;		/* later copies began later, so they are
					 * not overdue */
		if (copy->op)
			op_time_out(ctx, copy->op, err);
	}
	for (i = 0; i < c->count; i++) {
		copy = &c->ring[(c->first + i) % GPU_DEPTH];
		op = copy->op;
		if (!op || op->code != TEI_ERR_TIMED_OUT)
			continue;
		copy->op = NULL;
		ctx->given_up++;
		op->running--;
		op_step(ctx, op);
	}
}

/*
 * Ends the operations that have waited for too long: with TEI_ERR_TIMED_OUT if
 * copies were started, otherwise with TEI_ERR_CONTEXT. Later operations have
 * their own timeout, because the GPU may recover.
 */
static void copy_give_up(struct tei_gpu *ctx, struct gpu_context *c)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_gpu_op *op, *tmp;
	struct tei_err err;

	memset(&err, 0, sizeof(err));
	err.code = TEI_ERR_TIMED_OUT;
	err.when_ns = tei_now_ns();
	strcpy(err.provider, "cuda");
	snprintf(err.text, sizeof(err.text),
		 "the GPU has completed no copy for %llu s",
		 (unsigned long long)(ctx->stall_ns / TEI_NS_PER_SEC));
	copy_give_up_ring(ctx, c, &err);
	err.code = TEI_ERR_CONTEXT;
	tei_list_foreach_safe(op, tmp, &c->queue, struct tei_gpu_op, node) {
		if (op->running || !copy_stalled(ctx, c, op->queued_ns))
			continue;
		op_fail(ctx, op, &err);
		op_step(ctx, op);
	}
}

/*
 * Handles a context that cannot be pushed. If the CUDA context no longer
 * exists, all its copies have ended. Otherwise the state of the copies is
 * unknown, and the next iteration tries again.
 */
static void copy_break(struct tei_gpu *ctx, struct gpu_context *c,
		       const struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	while (c->count && tei_cuda_gone(err))
		copy_end(ctx, c, err);
	if (c->count && copy_stalled(ctx, c, c->ring[c->first].begun_ns))
		copy_give_up(ctx, c);
	copy_drop_queue(ctx, c, err);
}

/* --- the thread ---------------------------------------------------------- */

/*
 * Checks whether the oldest copy has ended. Returns 1 if it has ended, else 0.
 * Sets *failed and *err if the driver reports an error. A failed copy counts as
 * ended only when the stream has passed it or cannot continue; until then its
 * memory must not be reused. A copy with a guard accesses memory of another
 * process, which may use the memory for other data as soon as the claim is
 * released. An error of the stream does not prove that such a copy has ended, so
 * it counts as ended only if the stream has passed it or the context is gone.
 */
static int copy_over(struct tei_gpu *ctx, const struct gpu_context *c,
		     const struct gpu_copy *copy, struct tei_err *err,
		     bool *failed)
{
	struct tei_err second, *last;
	int over = 0;

	if (!copy->unmarked)
		over = tei_cuda_event_over(ctx->cuda, c->events[c->first], err);
	*failed = over < 0;
	if (!copy->unmarked && over >= 0)
		return over;
	last = *failed ? &second : err;
	over = tei_cuda_stream_over(ctx->cuda, c->stream, last);
	*failed |= over < 0;
	if (over < 0 && copy->guard)
		return tei_cuda_gone(last);
	return over != 0;
}

/* Removes the copies that have ended, from the oldest to the first one still
 * running. Returns true if any was removed. The context is pushed. */
static bool copy_reap(struct tei_gpu *ctx, struct gpu_context *c)
	TEI_REQUIRES(ctx->lock)
{
	bool any = false, failed;
	struct gpu_copy copy;
	struct tei_err err;
	int over;

	while (c->count) {
		copy = c->ring[c->first];
		tei_mutex_unlock(&ctx->lock);
		over = copy_over(ctx, c, &copy, &err, &failed);
		tei_mutex_lock(&ctx->lock);
		if (failed && !over)
			copy_fail(ctx, c, &err);
		if (!over)
			break;
		copy_end(ctx, c, failed ? &err : NULL);
		any = true;
	}
	return any;
}

static bool copy_turn(struct tei_gpu *ctx, struct gpu_context *c)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_err err;
	bool any = false;
	int ret;

	if (!c->memories || (!c->count && tei_list_empty(&c->queue)))
		return false;
	tei_mutex_unlock(&ctx->lock);
	ret = tei_cuda_push(ctx->cuda, c->handle, &err);
	tei_mutex_lock(&ctx->lock);
	if (ret) {
		copy_break(ctx, c, &err);
		return !c->count;
	}
	while (copy_begin(ctx, c))
		any = true;
	any |= copy_reap(ctx, c);
	if (c->count && copy_stalled(ctx, c, c->ring[c->first].begun_ns))
		copy_give_up(ctx, c);
	tei_mutex_unlock(&ctx->lock);
	tei_cuda_pop(ctx->cuda);
	tei_mutex_lock(&ctx->lock);
	return any;
}

/*
 * Waits after an iteration without progress. rounds: number of consecutive
 * iterations without progress.
 */
static void copy_rest(struct tei_gpu *ctx, uint32_t rounds)
	TEI_REQUIRES(ctx->lock)
{
	if (tei_list_empty(&ctx->live) && !ctx->given_up) {
		tei_mutex_wait(&ctx->work, &ctx->lock, TEI_NS_PER_SEC);
	} else if (rounds < GPU_YIELDS) {
		tei_mutex_unlock(&ctx->lock);
		sched_yield();
		tei_mutex_lock(&ctx->lock);
	} else {
		tei_mutex_wait(&ctx->work, &ctx->lock,
			       rounds < GPU_YIELDS + GPU_NAPS ? GPU_NAP_NS :
								GPU_REST_NS);
	}
}

/* Calls the sweep function if GPU_SWEEP_NS have passed since *last. */
static void copy_sweep(struct tei_gpu *ctx, uint64_t *last)
	TEI_REQUIRES(ctx->lock)
{
	uint64_t now = tei_now_ns();

	if (!ctx->sweep || now - *last < GPU_SWEEP_NS || ctx->stopping)
		return;
	*last = now;
	tei_mutex_unlock(&ctx->lock);
	ctx->sweep(ctx->sweep_arg);
	tei_mutex_lock(&ctx->lock);
}

void *gpu_main(void *arg)
{
	struct tei_gpu *ctx = arg;
	uint64_t swept = tei_now_ns();
	uint32_t rounds = 0, i;
	bool any;

	tei_mutex_lock(&ctx->lock);
	while (!ctx->stopping || !tei_list_empty(&ctx->live)) {
		any = false;
		for (i = 0; i < TEI_GPU_CONTEXTS; i++)
			any |= copy_turn(ctx, &ctx->contexts[i]);
		any |= copy_notify_all(ctx);
		copy_sweep(ctx, &swept);
		rounds = any ? 0 : rounds + 1;
		if (!any && !(ctx->stopping && tei_list_empty(&ctx->live)))
			copy_rest(ctx, rounds);
	}
	tei_mutex_unlock(&ctx->lock);
	return NULL;
}
