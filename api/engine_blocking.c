/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocking transfers. A call submits its tasks to a batch of its own, waits for
 * them, and frees the batch. The batch is internal: te_ended_batches does not
 * report it.
 *
 * When the timeout has passed, the call ends the tasks as the deadline of a
 * batch does, and waits until they are terminal. Therefore no transfer uses the
 * caller's memory after the call has returned. The calling thread itself
 * watches the timeout, because a deadline in engine_deadline.c would wake
 * another thread for each call.
 */
#include <stdlib.h>

#include "api/engine_int.h"
#include "api/engine_refusal.h"

/* number of requests that struct blocking holds without an allocation */
#define BLOCKING_FEW 16

/* A blocking call of the application. The struct is on the stack of the calling
 * thread. */
struct blocking {
	struct engine *e;
	const char *call;
	struct transfer_request *reqs;
	size_t n;
	struct transfer_request few[BLOCKING_FEW];
	/* the requests of te_submit_wait; the other calls use the member
	 * reqs */
	const struct te_request *ranges;
	size_t elem_size; /* size of an element of `ranges`, bytes; 0: reqs is
			   * used instead of `ranges` */
	uint64_t flags;
};

static int blocking_refuse(const struct blocking *c, const char *text)
{
	return engine_refuse(c->call, ENGINE_REFUSE_CALL, 1, NULL, "%s", text);
}

/* --- the lists ----------------------------------------------------------- */

/* A position in the lists of local and remote ranges. */
struct blocking_walk {
	const struct te_local *local;
	const struct te_remote *remote;
	size_t locals, remotes;		/* number of ranges from the present one
					 * to the end of each list */
	uint64_t local_off, remote_off; /* offsets in the present range of each
					 * list, bytes */
};

/* Sets c->reqs to an array for n requests. Returns 0 or 302 (no memory). */
static int blocking_room(struct blocking *c, size_t n)
{
	c->reqs = c->few;
	if (n <= BLOCKING_FEW)
		return 0;
	c->reqs = malloc(n * sizeof(*c->reqs));
	if (c->reqs)
		return 0;
	return engine_refuse(c->call, ENGINE_REFUSE_CALL, 302, NULL,
			     "no memory for %zu requests", n);
}

static void blocking_room_free(struct blocking *c)
{
	if (c->reqs != c->few)
		free(c->reqs);
}

/* Adds the request for the next part that is contiguous on both sides, and
 * advances *w past it. */
static void blocking_part(struct blocking *c, struct blocking_walk *w,
			  int opcode, segment_id_t id)
{
	uint64_t local = w->local->length - w->local_off;
	uint64_t remote = w->remote->length - w->remote_off;
	uint64_t length = local < remote ? local : remote;

	c->reqs[c->n++] = (struct transfer_request){
		.opcode = opcode,
		.source = (char *)w->local->addr + w->local_off,
		.target_id = id,
		.target_offset = w->remote->addr + w->remote_off,
		.length = length,
	};
	w->local_off += length;
	w->remote_off += length;
	if (w->local_off == w->local->length) {
		w->local++;
		w->locals--;
		w->local_off = 0;
	}
	if (w->remote_off == w->remote->length) {
		w->remote++;
		w->remotes--;
		w->remote_off = 0;
	}
}

/* Checks each range before the lists are divided into parts. In the parts, an
 * overflow of an address could no longer be detected. */
static int blocking_check(const struct blocking *c,
			  const struct blocking_walk *w)
{
	const struct te_local *l = w->local;
	const struct te_remote *r = w->remote;
	size_t i;

	for (i = 0; i < w->locals; i++)
		if (!l[i].addr || !l[i].length ||
		    (uintptr_t)l[i].addr + (l[i].length - 1) <
			    (uintptr_t)l[i].addr)
			return engine_refuse(c->call, ENGINE_REFUSE_CALL, 1,
					     NULL,
					     "local[%zu], %p: NULL, length 0, "
					     "or the range overflows 64 bits",
					     i, l[i].addr);
	for (i = 0; i < w->remotes; i++)
		if (!r[i].length || r[i].addr + (r[i].length - 1) < r[i].addr)
			return engine_refuse(c->call, ENGINE_REFUSE_CALL, 1,
					     NULL,
					     "remote[%zu], 0x%llx: length 0, "
					     "or the range overflows 64 bits",
					     i, (unsigned long long)r[i].addr);
	return 0;
}

/* Divides the two lists into parts that are contiguous on both sides, and adds
 * one request for each part. Returns 0 or the code of the call. */
static int blocking_parts(struct blocking *c, struct blocking_walk *w,
			  int opcode, segment_id_t id)
{
	int ret = blocking_check(c, w);

	while (!ret && w->locals && w->remotes)
		blocking_part(c, w, opcode, id);
	if (!ret && (w->locals || w->remotes))
		return blocking_refuse(c, "the local and the remote ranges "
					  "differ in total length");
	return ret;
}

/* --- the wait ------------------------------------------------------------ */

/* Sets the calling thread's last error to the error record of the first task
 * that has that status. Returns the code of the record as a positive number. */
static int blocking_failed(struct engine *e, batch_id_t id, int status)
{
	struct tei_err err = { .code = TEI_ERR_MEMORY,
			       .text = "no memory for the error record" };
	struct engine_batch *b = engine_batch_lock(e, id);
	uint32_t i;

	if (!b)
		return 1;
	for (i = 0; i < b->count; i++) {
		if (b->tasks[i].status != status)
			continue;
		if (b->tasks[i].err)
			err = *b->tasks[i].err;
		break;
	}
	engine_batch_unlock(b);
	err.unfenced = status == STATUS_TIMEOUT;
	tei_err_set_last(&err);
	return tei_err_transfer_code(err.code);
}

/* Ends the unfinished tasks as a deadline does. */
static void blocking_expire(struct engine *e, batch_id_t id)
{
	struct engine_batch *b = engine_batch_lock(e, id);

	if (!b)
		return;
	engine_cancel_tasks(b, 0, b->count, true);
	engine_batch_unlock(b);
}

/* Waits until all tasks are terminal. If the timeout passes before, ends the
 * tasks that have not ended. Returns the code of the blocking call. */
static int blocking_wait(struct engine *e, batch_id_t id, int64_t timeout_us)
{
	uint64_t deadline_ns = engine_wait_deadline(timeout_us);
	struct transfer_status status;
	int ret;

	ret = engine_wait(e, id, ENGINE_WAIT_ALL, deadline_ns, &status);
	if (ret == TE_TIMED_OUT) {
		blocking_expire(e, id);
		ret = engine_wait(e, id, ENGINE_WAIT_ALL, UINT64_MAX, &status);
	}
	if (ret || status.status == STATUS_COMPLETED)
		return ret;
	return blocking_failed(e, id, status.status);
}

static int blocking_submit(const struct blocking *c, batch_id_t id)
{
	if (c->reqs)
		return engine_submit(c->e, c->call, id, c->reqs, c->n, NULL);
	return engine_submit_ranges(c->e, c->call, id, c->ranges, c->elem_size,
				    c->n, c->flags);
}

static int blocking_run(struct blocking *c, int64_t timeout_us)
{
	batch_id_t id;
	int ret;

	if (c->n > ENGINE_BATCH_MAX)
		return engine_refuse(c->call, ENGINE_REFUSE_CALL, 2, NULL,
				     "%zu requests (at most %u)", c->n,
				     ENGINE_BATCH_MAX);
	id = engine_batch_alloc(c->e, c->n, true);
	if (id == INVALID_BATCH)
		return engine_refuse(c->call, ENGINE_REFUSE_CALL, 302, NULL,
				     "no memory for a batch of %zu tasks", c->n);
	/* keeps the engine from being freed before engine_batch_free has
	 * returned */
	engine_wait_enter(c->e);
	ret = blocking_submit(c, id);
	if (!ret && c->n)
		ret = blocking_wait(c->e, id, timeout_us);
	/* if the engine was destroyed during the wait, its destruction frees
	 * the batch */
	engine_batch_free(c->e, id);
	engine_wait_leave(c->e);
	return ret;
}

/* --- the calls ----------------------------------------------------------- */

static int blocking_one(transfer_engine_t engine, const char *call, int opcode,
			segment_id_t id, void *local, uint64_t remote,
			uint64_t length, int64_t timeout_us)
{
	struct blocking c = { .e = engine_from(engine), .call = call, .n = 1 };

	if (!c.e)
		return 1;
	c.reqs = c.few;
	c.few[0] = (struct transfer_request){
		.opcode = opcode, .source = local, .target_id = id,
		.target_offset = remote, .length = length,
	};
	return blocking_run(&c, timeout_us);
}

static int blocking_lists(transfer_engine_t engine, const char *call,
			  int opcode, segment_id_t id,
			  struct blocking_walk *w, int64_t timeout_us)
{
	size_t locals = w->locals, remotes = w->remotes;
	struct blocking c = { .e = engine_from(engine), .call = call };
	int ret;

	if (!c.e)
		return 1;
	if (!w->local || !w->remote || !locals || !remotes)
		return blocking_refuse(&c, "local or remote is NULL or has no "
					   "range");
	if (locals > ENGINE_BATCH_MAX || remotes > ENGINE_BATCH_MAX)
		return engine_refuse(call, ENGINE_REFUSE_CALL, 2, NULL,
				     "%zu local and %zu remote ranges (at most "
				     "%u)", locals, remotes, ENGINE_BATCH_MAX);
	ret = blocking_room(&c, locals + remotes - 1);
	if (ret)
		return ret;
	ret = blocking_parts(&c, w, opcode, id);
	if (!ret)
		ret = blocking_run(&c, timeout_us);
	blocking_room_free(&c);
	return ret;
}

int te_read(transfer_engine_t engine, segment_id_t segment_id, void *local,
	    uint64_t remote, uint64_t length, int64_t timeout_us)
{
	return blocking_one(engine, __func__, OPCODE_READ, segment_id, local,
			    remote, length, timeout_us);
}

int te_write(transfer_engine_t engine, segment_id_t segment_id,
	     const void *local, uint64_t remote, uint64_t length,
	     int64_t timeout_us)
{
	/* a write only reads the memory; the cast is necessary because
	 * transfer_request has no const */
	return blocking_one(engine, __func__, OPCODE_WRITE, segment_id,
			    (void *)(uintptr_t)local, remote, length,
			    timeout_us);
}

int te_readv(transfer_engine_t engine, segment_id_t segment_id,
	     const struct te_local *local, size_t local_count,
	     const struct te_remote *remote, size_t remote_count,
	     int64_t timeout_us)
{
	struct blocking_walk w = {
		.local = local, .locals = local_count,
		.remote = remote, .remotes = remote_count,
	};

	return blocking_lists(engine, __func__, OPCODE_READ, segment_id, &w,
			      timeout_us);
}

int te_writev(transfer_engine_t engine, segment_id_t segment_id,
	      const struct te_local *local, size_t local_count,
	      const struct te_remote *remote, size_t remote_count,
	      int64_t timeout_us)
{
	struct blocking_walk w = {
		.local = local, .locals = local_count,
		.remote = remote, .remotes = remote_count,
	};

	return blocking_lists(engine, __func__, OPCODE_WRITE, segment_id, &w,
			      timeout_us);
}

int te_submit_wait(transfer_engine_t engine, const struct te_request *reqs,
		   size_t elem_size, size_t count, uint64_t flags,
		   int64_t timeout_us)
{
	struct blocking c = {
		.e = engine_from(engine),
		.call = __func__,
		.n = count,
		.ranges = reqs,
		.elem_size = elem_size,
		.flags = flags,
	};

	return c.e ? blocking_run(&c, timeout_us) : 1;
}
