/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport for GPU memory of other processes of this host. This process
 * maps that memory (engine_ipc.c) and copies with its own GPU, so the target is
 * not involved. If the memory cannot be mapped, the transport declines the
 * request, and other transports move the bytes through host memory.
 */
#include <stdio.h>
#include <string.h>

#include "api/engine_int.h"
#include "api/engine_ipc.h"
#include "api/engine_transport.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_desc.h"
#include "prov/local/tei_local.h"

/* The data of this transport in a task (engine_task.room). */
struct ipc_task {
	struct engine_ipc_op op;
	struct engine_local_process *process; /* with one reference from the
					       * start to the end of the task */
};

_Static_assert(sizeof(struct ipc_task) <= ENGINE_TASK_ROOM, "fits");

static struct tei_gpu *ipc_gpu(struct engine *e)
{
	return __atomic_load_n(&e->gpu, __ATOMIC_ACQUIRE);
}

/* --- tasks ---------------------------------------------------------------- */

static void ipc_end(struct engine_task *t, int status,
		    const struct tei_err *err)
{
	struct ipc_task *task = engine_task_room(t);
	struct engine_local_process *process = task->process;

	if (status == STATUS_COMPLETED)
		tei_local_gpu_count(t->engine->local, t->read, t->length);
	engine_traffic_count(&process->traffic, t->read,
			     status == STATUS_COMPLETED ? t->length : 0,
			     status);
	engine_task_end(t, status, err);
	engine_local_process_put(process);
}

/* Returns true if the memory of this process is still registered, so that only
 * the memory of the target can be missing. */
static bool ipc_source_there(const struct engine_task *t)
{
	const struct ipc_task *task = engine_task_room_const(t);

	return tei_gpu_kind(ipc_gpu(t->engine),
			    t->read ? task->op.op.dst : task->op.op.src,
			    t->length) != TEI_GPU_NOT_REGISTERED;
}

/* Completes the error record of a task that has failed. */
static void ipc_err(struct engine_task *t, int code, struct tei_err *err)
{
	struct ipc_task *task = engine_task_room(t);
	struct tei_meta_desc *desc;

	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->rail, sizeof(err->rail), "local");
	snprintf(err->provider, sizeof(err->provider), "cuda");
	if (!*err->text)
		snprintf(err->text, sizeof(err->text),
			 "copy of GPU memory of another process: %s",
			 tei_err_name(code));
	desc = tei_meta_cache_get(t->engine->cache, t->target);
	if (desc)
		snprintf(err->peer, sizeof(err->peer), "%.95s", desc->name);
	tei_meta_desc_unref(desc);
	if (code == TEI_ERR_NOT_REGISTERED && ipc_source_there(t)) {
		err->absent.addr = task->op.range.addr;
		err->absent.length = task->op.range.len;
	} else if (code == TEI_ERR_CONTEXT) {
		engine_segment_ended(t->engine, t->target, task->process);
	}
}

static void ipc_fail(struct engine_task *t, int code, const struct tei_err *why)
{
	struct tei_err err;

	if (why)
		err = *why;
	else
		memset(&err, 0, sizeof(err));
	if (code == TEI_GPU_CANCELLED)
		code = __atomic_load_n(&t->expired, __ATOMIC_RELAXED) ?
			       TEI_ERR_TIMED_OUT :
			       TEI_ERR_CANCELED;
	else if (code == TEI_ERR_TIMED_OUT) {
		ipc_err(t, code, &err);
		ipc_end(t, STATUS_TIMEOUT, &err);
		return;
	}
	ipc_err(t, code, &err);
	ipc_end(t, code == TEI_ERR_CANCELED ? STATUS_CANCELED : STATUS_FAILED,
		&err);
}

static void ipc_done(struct tei_gpu_op *op, int code, const struct tei_err *err)
{
	struct ipc_task *task = tei_container_of(op, struct ipc_task, op.op);
	struct engine_task *t = engine_task_from(task);
	struct tei_err ended;

	if (err && err->prov_errno)
		engine_ipc_broken(task->process->ipc);
	/* the process may have ended before all bytes were in place */
	if (!code && !tei_local_peer_sound(task->process->peer)) {
		memset(&ended, 0, sizeof(ended));
		snprintf(ended.text, sizeof(ended.text),
			 "the process has ended, or has closed its engine");
		code = TEI_ERR_CONTEXT;
		err = &ended;
	}
	if (code)
		ipc_fail(t, code, err);
	else
		ipc_end(t, STATUS_COMPLETED, NULL);
}

static void *ipc_attach(struct engine *e, const struct engine_segment *s)
{
	return s && s->gpu && s->local && s->local->ipc &&
			       e->settings.copies.gpu_ipc ?
		       s->local :
		       NULL;
}

static int ipc_prepare(struct engine *e, struct engine_task *t,
		       const struct transfer_request *r,
		       struct engine_target *target, void *at)
{
	struct engine_local_process *process = at;
	struct ipc_task *task = engine_task_room(t);
	struct tei_local_gpu_range range = { .addr = r->target_offset,
					     .len = r->length };
	bool here = target->kind == ENGINE_GPU_GPU;
	uint64_t source = (uintptr_t)r->source, there;

	if (!ipc_gpu(e))
		return ENGINE_DECLINED;
	/* a request that is refused maps nothing */
	if (!here && tei_local_region_check(e->local, r->source, r->length,
					    r->opcode == OPCODE_READ))
		return 3;
	if (!engine_ipc_find(process->ipc, r->target_id, here ? source : 0,
			     &range, &there))
		return ENGINE_DECLINED;
	engine_task_init(e, t, r, &transport_ipc);
	task->process = process;
	task->op.range = range;
	task->op.op.dst = t->read ? source : there;
	task->op.op.src = t->read ? there : source;
	task->op.op.length = r->length;
	task->op.op.guard = engine_ipc_guard(process->ipc);
	task->op.op.done = ipc_done;
	return 0;
}

static void ipc_start(struct engine *e, struct engine_task *t)
{
	struct ipc_task *task = engine_task_room(t);
	int ret;

	(void)e;
	engine_local_process_hold(task->process);
	ret = engine_ipc_submit(task->process->ipc, &task->op,
				t->read ? task->op.op.src : task->op.op.dst);
	if (ret)
		ipc_fail(t, ret, NULL);
}

static void ipc_cancel(struct engine *e, struct engine_task *t, bool deadline)
{
	struct ipc_task *task = engine_task_room(t);

	(void)deadline;
	tei_gpu_cancel(ipc_gpu(e), &task->op.op);
}

static uint64_t ipc_moved(const struct engine_task *t)
{
	const struct ipc_task *task = engine_task_room_const(t);

	return __atomic_load_n(&task->op.op.moved, __ATOMIC_RELAXED);
}

/* Does not wait: transport_gpu waits for all copies of the GPU, and the local
 * processes that are in use are waited for (engine_segment_drain). */
static bool ipc_drain(struct engine *e, const struct engine_transport_ops *through,
		      uint64_t until_ns)
{
	(void)e;
	(void)through;
	(void)until_ns;
	return true;
}

/* Withdraws the own GPU memory before it is freed. */
static void ipc_close(struct engine *e)
{
	if (e->local && !tei_local_gpu_clear(e->local,
					     tei_now_ns() + TEI_NS_PER_SEC))
		TEI_WARN("engine", "another process has not finished a copy of GPU memory of this process: is that process stopped?");
}

const struct engine_transport_ops transport_ipc = {
	.takes = ENGINE_HOST_GPU | ENGINE_GPU_GPU,
	.through = true, /* transport_local reaches the same segments */
	.attach = ipc_attach,
	.prepare = ipc_prepare,
	.start = ipc_start,
	.cancel = ipc_cancel,
	.moved = ipc_moved,
	.drain = ipc_drain,
	.close = ipc_close,
};
