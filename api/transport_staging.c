/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transports for GPU memory that the rails, files and local copies cannot
 * access: transport_staging for GPU memory of this process, through bounce
 * buffers, and transport_slot for GPU memory of the target, through remote
 * bounce slots. Both use prov/staging/, to which this file adds the carriers
 * for files and for kernel copies. engine_host_copy.c copies between this
 * process and the remote bounce slots of a local process.
 */
#include "api/engine_host_copy.h"
#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "api/engine_merged.h"
#include "api/engine_transport.h"
#include "api/transport_rail.h"

/* The data of transport_staging in a task (engine_task.room). */
struct staged {
	struct tei_staging_task task;
	uint64_t copied; /* atomic: number of bytes that kernel copies have
			  * copied */
	/*
	 * For kernel copies: serial number of the target's registration when
	 * the task was started, or 0 if the range was not registered. A piece
	 * fails if its range is in another registration. Otherwise the pieces
	 * of a COMPLETED task could be in two registrations of the same
	 * addresses. Constant after kernel_hold.
	 */
	uint64_t serial;
};

_Static_assert(sizeof(struct staged) <= ENGINE_TASK_ROOM, "fits");
_Static_assert(sizeof(struct tei_staging_remote_task) <= ENGINE_TASK_ROOM,
	       "fits");

/* --- the module ---------------------------------------------------------- */

static int staging_mem_add(void *arg, void *mem, uint64_t len)
{
	return engine_files_mem_add(arg, mem, len, NULL);
}

static int staging_mem_remove(void *arg, void *mem, uint64_t deadline_ns)
{
	return engine_files_mem_remove(arg, mem, deadline_ns);
}

static void staging_renew_slot(struct engine *e, const struct engine_work *w)
{
	tei_staging_slot_renew(e->staging, w->arg);
}

static bool staging_renew(void *arg, struct staging_slot *slot)
{
	static const struct engine_work_kind kind = {
		.run = staging_renew_slot,
	};

	return engine_work_arg(arg, &kind, slot);
}

static const struct tei_staging_ops staging_ops = {
	.mem_add = staging_mem_add,
	.mem_remove = staging_mem_remove,
	.share = engine_host_share,
	.unshare = engine_host_unshare,
	.release = engine_host_release,
	.copy = engine_host_copy,
	.copy_cancel = engine_host_copy_cancel,
	.renew = staging_renew,
};

int engine_staging_open(struct engine *e, struct tei_err *err)
{
	return tei_staging_open(&e->settings, &staging_ops, e, err,
				&e->staging);
}

void engine_staging_message(void *arg, struct tei_rail_message *message)
{
	struct engine *e = arg;

	tei_staging_message(e->staging, message);
}

/* --- the carrier of files ------------------------------------------------- */

static struct tei_nvmeof_op *file_op(struct tei_staging_piece *piece)
{
	_Static_assert(sizeof(struct tei_nvmeof_op) <= TEI_STAGING_OP,
		       "operation of a piece");
	return (void *)piece->op.room;
}

static void file_hold(struct tei_staging_task *task)
{
	tei_nvmeof_seg_hold(task->to);
}

static void file_drop(struct tei_staging_task *task, enum tei_rail_end end)
{
	(void)end;
	tei_nvmeof_seg_put(task->to);
}

static void file_done(struct tei_nvmeof_op *op, int code,
		      const struct tei_err *err)
{
	tei_staging_piece_done(tei_staging_piece_of(op),
			       code ? TEI_RAIL_END_FAILED :
				      TEI_RAIL_END_COMPLETED, false, err);
}

static struct engine *staging_engine(const struct tei_staging_task *task)
{
	return engine_task_from_const(task)->engine;
}

static int file_start(struct tei_staging *s, struct tei_staging_piece *piece)
{
	const struct tei_staging_task *task = piece->task;
	struct tei_nvmeof_op *op = file_op(piece);

	(void)s;
	op->seg = task->to;
	op->read = task->read;
	op->local = piece->mem;
	op->offset = task->remote + piece->at;
	op->length = piece->length;
	op->done = file_done;
	return tei_nvmeof_submit(staging_engine(task)->nvmeof, op);
}

static const struct tei_staging_carrier staging_by_file = {
	.hold = file_hold,
	.drop = file_drop,
	.start = file_start,
};

/* --- the carrier of kernel copies ----------------------------------------- */

struct kernel_copy {
	struct tei_local_op op;
	struct tei_err err;
};

static void kernel_hold(struct tei_staging_task *task)
{
	struct staged *staged = tei_container_of(task, struct staged, task);
	struct engine_local_process *to = task->to;

	engine_local_process_hold(to);
	staged->serial = tei_local_serial(staging_engine(task)->local,
					  to->peer, task->remote, task->length,
					  !task->read);
}

static void kernel_drop(struct tei_staging_task *task, enum tei_rail_end end)
{
	struct staged *staged = tei_container_of(task, struct staged, task);
	struct engine_local_process *to = task->to;

	engine_traffic_count(&to->traffic, task->read,
			     __atomic_load_n(&staged->copied, __ATOMIC_RELAXED),
			     engine_rail_status(end));
	engine_local_process_put(to);
}

static void kernel_done(struct tei_local_op *op, int code, uint64_t bytes)
{
	struct kernel_copy *copy = tei_container_of(op, struct kernel_copy, op);
	struct tei_staging_piece *piece = tei_staging_piece_of(copy);
	struct staged *staged = tei_container_of(piece->task, struct staged,
						 task);

	__atomic_add_fetch(&staged->copied, bytes, __ATOMIC_RELAXED);
	tei_staging_piece_done(piece, code ? TEI_RAIL_END_FAILED :
					     TEI_RAIL_END_COMPLETED, false,
			       &copy->err);
}

static int kernel_start(struct tei_staging *s, struct tei_staging_piece *piece)
{
	const struct tei_staging_task *task = piece->task;
	struct staged *staged = tei_container_of(piece->task, struct staged,
						 task);
	struct engine_local_process *to = task->to;
	struct kernel_copy *copy = (void *)piece->op.room;
	struct tei_local_op *op = &copy->op;

	_Static_assert(sizeof(*copy) <= TEI_STAGING_OP, "operation of a piece");
	(void)s;
	/* kernel_hold has looked up the serial number for the range of the
	 * whole task. If this range is not inside one registration, the first
	 * piece is refused, so no byte of the task moves. */
	if (!staged->serial)
		return TEI_ERR_NOT_REGISTERED;
	op->peer = to->peer;
	op->serial = staged->serial;
	op->opcode = task->read ? TEI_LOCAL_READ : TEI_LOCAL_WRITE;
	op->local = piece->mem;
	op->remote = task->remote + piece->at;
	op->length = piece->length;
	op->done = kernel_done;
	op->err = &copy->err;
	return tei_local_submit(staging_engine(task)->local, op);
}

static const struct tei_staging_carrier staging_by_kernel = {
	.hold = kernel_hold,
	.drop = kernel_drop,
	.start = kernel_start,
};

/* --- memory -------------------------------------------------------------- */

/* The transport for file segments while it is being installed: argument of a
 * callback. */
struct files_install {
	struct engine *engine;
	struct tei_nvmeof *ctx;
};

static int files_add(void *arg, void *mem, uint64_t len)
{
	struct files_install *install = arg;

	return tei_nvmeof_mem_add(install->ctx, mem, len, NULL);
}

static void files_commit(void *arg)
{
	struct files_install *install = arg;

	__atomic_store_n(&install->engine->nvmeof, install->ctx,
			 __ATOMIC_RELEASE);
}

int engine_staging_files(struct engine *e, struct tei_nvmeof *ctx)
{
	struct files_install install = { .engine = e, .ctx = ctx };

	return tei_staging_mem_each(e->staging, files_add, files_commit,
				    &install);
}

/* --- GPU memory of this process ------------------------------------------- */

static void *staging_attach(struct engine *e, const struct engine_segment *s)
{
	return s ? e : NULL;
}

/* Returns true if the rails can access the memory of the request on both sides,
 * and no transport with precedence over the rails reaches the target. */
static bool staging_rails_can(struct engine *e,
			      const struct transfer_request *r,
			      const struct engine_target *target)
{
	return engine_target_at(target, &transport_rail) &&
	       !engine_target_at(target, &transport_file) &&
	       (!engine_target_at(target, &transport_local) ||
		target->kind == ENGINE_GPU_GPU) &&
	       !engine_target_needs_slot(target, r->target_offset,
					 r->length) &&
	       tei_rail_mr_direct(e->dp, r->source, r->length);
}

static const struct engine_merge_ops staging_merge;

/* staging_to_hold takes a reference to the target of a merged operation, in
 * addition to that of the carrier, which ends before staging_done is called:
 * staging_done may start tasks for the target again. staging_to_put drops the
 * reference. */
static void staging_to_hold(const struct tei_staging_task *task)
{
	if (task->carrier == &staging_by_kernel)
		engine_local_process_hold(task->to);
	else
		tei_rail_peer_hold(task->to);
}

static void staging_to_put(const struct tei_staging_carrier *carrier, void *to)
{
	if (carrier == &staging_by_kernel)
		engine_local_process_put(to);
	else
		tei_rail_peer_put(to);
}

static void staging_done(struct tei_staging_task *task, enum tei_rail_end end,
			 const struct tei_err *err)
{
	const struct tei_staging_carrier *carrier = task->carrier;
	struct engine_task *t = engine_task_from(task);
	bool merged = t->merged.n;
	void *to = task->to, *near = task->near;

	engine_merged_end(t->engine, &staging_merge, t, engine_rail_status(end),
			  err);
	if (merged)
		staging_to_put(carrier, to);
	engine_local_process_put(near);
}

/* Sets the carrier that moves the pieces of a task between the bounce buffers
 * and the target. */
static void staging_set_target(struct tei_staging_task *task,
			       const struct engine_target *target)
{
	struct tei_rail_peer *peer = engine_target_at(target, &transport_rail);
	void *files = engine_target_at(target, &transport_file);
	void *process = engine_target_at(target, &transport_local);

	if (engine_target_needs_slot(target, task->remote, task->length)) {
		task->carrier = &tei_staging_by_slot;
		task->to = peer;
		task->near = process;
	} else if (files) {
		task->carrier = &staging_by_file;
		task->to = files;
	} else if (process && !engine_target_gpu(target, task->remote)) {
		task->carrier = &staging_by_kernel;
		task->to = process;
	} else {
		task->carrier = &tei_staging_by_rail;
		task->to = peer;
	}
}

static int staging_prepare(struct engine *e, struct engine_task *t,
			   const struct transfer_request *r,
			   struct engine_target *target, void *at)
{
	struct tei_nvmeof_seg *files =
		engine_target_at(target, &transport_file);
	struct tei_staging_task *task = engine_task_room(t);

	(void)at;
	if ((files && engine_files_take(e, r, files)) ||
	    staging_rails_can(e, r, target))
		return ENGINE_DECLINED;
	if (files && !tei_nvmeof_seg_covers(files, r->target_offset, r->length))
		return 1;
	if (engine_target_gpu(target, r->target_offset) &&
	    !engine_target_at(target, &transport_rail))
		return 8;
	if (!tei_staging_ready(e->staging, (uintptr_t)r->source, r->length))
		return 8;
	engine_task_init(e, t, r, &transport_staging);
	task->gpu = (uintptr_t)r->source;
	task->remote = r->target_offset;
	task->length = r->length;
	task->read = t->read;
	task->done = staging_done;
	staging_set_target(task, target);
	return 0;
}

/* Requests to files are not merged, because they may concern different
 * files. */
static bool staging_adjacent(const struct engine_task *t,
			     const struct engine_task *next)
{
	const struct tei_staging_task *a = engine_task_room_const(t);
	const struct tei_staging_task *b = engine_task_room_const(next);

	return a->carrier == b->carrier && a->carrier != &staging_by_file &&
	       a->to == b->to && a->near == b->near && a->read == b->read &&
	       a->gpu + a->length == b->gpu &&
	       a->remote + a->length == b->remote;
}

static void staging_start(struct engine *e, struct engine_task *t,
			  uint64_t length, uint64_t since_ns)
{
	struct tei_staging_task *task = engine_task_room(t);

	task->length = length;
	task->waits_ns = since_ns;
	if (t->merged.n)
		staging_to_hold(task);
	engine_local_process_hold(task->near);
	tei_staging_start(e->staging, task);
}

static uint64_t staging_since(const struct engine_task *t)
{
	const struct tei_staging_task *task = engine_task_room_const(t);

	return task->waits_ns;
}

static void staging_stop(struct engine *e, struct engine_task *t, bool deadline)
{
	tei_staging_cancel(e->staging, engine_task_room(t), deadline);
}

static const struct engine_merge_ops staging_merge = {
	.adjacent = staging_adjacent,
	.start = staging_start,
	.since = staging_since,
	.cancel = staging_stop,
};

static size_t staging_start_next(struct engine *e, struct engine_task *tasks,
				 size_t n)
{
	const struct tei_staging_task *first = engine_task_room(&tasks[0]);
	uint64_t length;

	n = engine_merged_count(e, &staging_merge, tasks, n, TEI_STAGING_PIECE,
				&length);
	/* the memory of the tasks may belong to two registrations */
	if (n > 1 && !tei_staging_ready(e->staging, first->gpu, length)) {
		length = first->length;
		n = 1;
	}
	engine_merged_start(e, &staging_merge, tasks, n, length);
	return n;
}

static void staging_cancel(struct engine *e, struct engine_task *t,
			   bool deadline)
{
	engine_merged_cancel(e, &staging_merge, t, deadline);
}

static uint64_t staging_moved(const struct engine_task *t)
{
	const struct tei_staging_task *task = engine_task_room_const(t);
	uint64_t moved = __atomic_load_n(&task->moved, __ATOMIC_RELAXED);

	/* the task's operation may move the bytes of further tasks */
	return moved < t->length ? moved : t->length;
}

/* Does not wait for copies to and from the slots of local processes if through
 * is transport_local: their tasks hold references to the process, for which
 * engine_segment_drain waits. */
static bool staging_drain(struct engine *e,
			  const struct engine_transport_ops *through,
			  uint64_t until_ns)
{
	struct tei_staging *s = e->staging;
	bool all = true;

	if (!through || through == &transport_rail) {
		all &= tei_staging_drain(s, &tei_staging_by_rail, until_ns);
		all &= tei_staging_drain(s, &tei_staging_by_slot, until_ns);
	}
	if (!through || through == &transport_file)
		all &= tei_staging_drain(s, &staging_by_file, until_ns);
	if (!through || through == &transport_local)
		all &= tei_staging_drain(s, &staging_by_kernel, until_ns);
	return all;
}

const struct engine_transport_ops transport_staging = {
	.takes = ENGINE_GPU_HOST | ENGINE_GPU_GPU,
	.through = true,
	.attach = staging_attach,
	.prepare = staging_prepare,
	.start_next = staging_start_next,
	.cancel = staging_cancel,
	.moved = staging_moved,
	.drain = staging_drain,
};

/* --- GPU memory of the target --------------------------------------------- */

static void *slot_attach(struct engine *e, const struct engine_segment *s)
{
	return s && s->gpu ? e : NULL;
}

static const struct engine_merge_ops slot_merge;

static void slot_done(struct tei_staging_remote_task *task,
		      enum tei_rail_end end, const struct tei_err *err)
{
	struct engine_task *t = engine_task_from(task);
	struct tei_rail_dp *dp = t->engine->dp;
	struct tei_rail_peer *peer = task->peer;
	void *near = task->near;
	uint64_t length = task->length;
	char *held = task->held ? task->local : NULL;

	engine_merged_end(t->engine, &slot_merge, t, engine_rail_status(end),
			  err);
	tei_rail_peer_put(peer);
	engine_local_process_put(near);
	/* the local memory is released only after the task has ended, so that a
	 * call which unregisters the memory finds no unfinished task */
	if (held)
		tei_rail_mr_let_go(dp, held, length);
}

/* Prepares a task. Declines a request whose target memory is registered on the
 * rails, so that transport_rail takes it. */
static int slot_prepare(struct engine *e, struct engine_task *t,
			const struct transfer_request *r,
			struct engine_target *target, void *at)
{
	struct tei_rail_peer *peer = engine_target_at(target, &transport_rail);
	struct tei_staging_remote_task *task = engine_task_room(t);

	(void)at;
	if (peer &&
	    !engine_target_needs_slot(target, r->target_offset, r->length))
		return ENGINE_DECLINED;
	if (!peer || !tei_staging_remote_ready(e->staging))
		return 8;
	if (tei_local_region_check(e->local, r->source, r->length,
				   r->opcode == OPCODE_READ))
		return 3;
	engine_task_init(e, t, r, &transport_slot);
	task->peer = peer;
	task->near = engine_target_at(target, &transport_local);
	task->local = r->source;
	task->remote = r->target_offset;
	task->length = r->length;
	task->read = t->read;
	task->done = slot_done;
	return 0;
}

static bool slot_adjacent(const struct engine_task *t,
			  const struct engine_task *next)
{
	const struct tei_staging_remote_task *a = engine_task_room_const(t);
	const struct tei_staging_remote_task *b = engine_task_room_const(next);

	return a->peer == b->peer && a->near == b->near && a->read == b->read &&
	       a->local + a->length == b->local &&
	       a->remote + a->length == b->remote;
}

static void slot_start(struct engine *e, struct engine_task *t, uint64_t length,
		       uint64_t since_ns)
{
	struct tei_staging_remote_task *task = engine_task_room(t);
	struct tei_err err;
	int ret;

	task->length = length;
	task->since_ns = since_ns;
	tei_rail_peer_hold(task->peer);
	engine_local_process_hold(task->near);
	/* keeps the local memory of the whole operation registered, because
	 * each task of the data plane keeps only the memory of its piece
	 * registered */
	ret = tei_rail_mr_hold(e->dp, task->local, task->length, task->read);
	task->held = !ret;
	if (!ret)
		ret = tei_staging_remote_start(e->staging, task);
	if (!ret)
		return;			/* slot_done will end it */
	tei_staging_remote_err(&err, task->peer, ret,
			       ret == TEI_ERR_NOT_REGISTERED ?
			       "the local memory is not registered for this access" :
			       "the engine is being destroyed");
	slot_done(task, TEI_RAIL_END_FAILED, &err);
}

static uint64_t slot_since(const struct engine_task *t)
{
	const struct tei_staging_remote_task *task = engine_task_room_const(t);

	return task->waits_ns;
}

static void slot_stop(struct engine *e, struct engine_task *t, bool deadline)
{
	tei_staging_remote_cancel(e->staging, engine_task_room(t), deadline);
}

static const struct engine_merge_ops slot_merge = {
	.adjacent = slot_adjacent,
	.start = slot_start,
	.since = slot_since,
	.cancel = slot_stop,
};

static size_t slot_start_next(struct engine *e, struct engine_task *tasks,
			      size_t n)
{
	uint64_t length;

	n = engine_merged_count(e, &slot_merge, tasks, n, TEI_STAGING_PIECE,
				&length);
	engine_merged_start(e, &slot_merge, tasks, n, length);
	return n;
}

static void slot_cancel(struct engine *e, struct engine_task *t, bool deadline)
{
	engine_merged_cancel(e, &slot_merge, t, deadline);
}

static uint64_t slot_moved(const struct engine_task *t)
{
	const struct tei_staging_remote_task *task = engine_task_room_const(t);
	uint64_t moved = __atomic_load_n(&task->moved, __ATOMIC_RELAXED);

	/* the task's operation may move the bytes of further tasks */
	return moved < t->length ? moved : t->length;
}

/* See staging_drain. */
static bool slot_drain(struct engine *e,
		       const struct engine_transport_ops *through,
		       uint64_t until_ns)
{
	return (through && through != &transport_rail) ||
	       tei_staging_remote_drain(e->staging, until_ns);
}

const struct engine_transport_ops transport_slot = {
	.takes = ENGINE_HOST_GPU,
	.through = true,
	.attach = slot_attach,
	.prepare = slot_prepare,
	.start_next = slot_start_next,
	.cancel = slot_cancel,
	.moved = slot_moved,
	.drain = slot_drain,
};
