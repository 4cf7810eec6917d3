/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport for copies inside this process and between processes of this
 * host, and for atomics on memory of this process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "api/engine_ipc.h"
#include "api/engine_transport.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_desc.h"
#include "prov/local/tei_local.h"
#include "prov/local/tei_local_atomic.h"

struct local_group;

/* What a task does. */
enum local_kind {
	LOCAL_COPY,   /* one copy, in u.op */
	LOCAL_GROUP,  /* several copies, in u.group */
	LOCAL_ATOMIC, /* an atomic, in u.atomic, which the submitting thread
		       * executes */
	LOCAL_ENDED,  /* an atomic that fails, because the target process has
		       * ended */
};

/* The data of this transport in a task (engine_task.room). */
struct local_task {
	/*
	 * process of the target, with one reference from the start to the end
	 * of the task; NULL: this process
	 */
	struct engine_local_process *process;
	enum local_kind kind;
	union {
		struct tei_local_op op;
		struct local_group *group;
		struct tei_local_atom atomic;
	} u;
};

_Static_assert(sizeof(struct local_task) <= ENGINE_TASK_ROOM, "fits");

/*
 * The copies of a task with several ranges. Created when the task is prepared
 * and freed with the batch, so a thread that holds the batch's lock may access
 * it.
 */
struct local_group {
	struct engine_task *task;
	uint32_t left;	     /* atomic: number of copies that have not ended,
			      * plus one until all of them are started */
	int code;	     /* atomic: error code of the first copy that has
			      * failed, or 0 */
	uint64_t moved;	     /* atomic: number of bytes that were copied */
	/*
	 * error record that belongs to code, or NULL; the thread that has set
	 * code sets this member before it lowers left
	 */
	struct tei_err *why;
	uint32_t n; /* number of elements of op; does not change */
	struct tei_local_op op[];
};

static struct local_task *local_task(struct engine_task *t)
{
	return engine_task_room(t);
}

/* --- installation --------------------------------------------------------- */

static int local_install(struct engine *e, const char *proto,
			 struct tei_err *err) TEI_REQUIRES(e->control)
{
	(void)proto;
	(void)err;
	__atomic_store_n(&e->local_on, true, __ATOMIC_RELAXED);
	engine_ipc_export_all(e);
	engine_segment_reevaluate(e);
	return 0;
}

/* Switches copies to other processes off and waits until they have ended. If
 * some have not ended at until_ns, switches such copies on again and returns an
 * error. Copies inside this process stay possible. */
static int local_uninstall(struct engine *e, const char *proto,
			   uint64_t until_ns, struct tei_err *err)
{
	(void)proto;
	__atomic_store_n(&e->local_on, false, __ATOMIC_RELAXED);
	engine_segment_reevaluate(e);
	if (engine_transports_drain(e, &transport_local, until_ns) &&
	    engine_segment_drain(e, until_ns))
		return 0;
	__atomic_store_n(&e->local_on, true, __ATOMIC_RELAXED);
	engine_segment_reevaluate(e);
	return tei_err_fail(err, TEI_ERR_BUSY, "engine", NULL,
			    "local: copies are still in progress");
}

/* --- ends ----------------------------------------------------------------- */

static struct engine_traffic *local_traffic(struct engine_task *t)
{
	struct engine_local_process *process = local_task(t)->process;

	return process ? &process->traffic : &t->engine->own;
}

static void local_count(struct engine_task *t, uint64_t bytes, int status)
{
	engine_traffic_count(local_traffic(t), t->read, bytes, status);
}

/* Called for a copy that has failed because memory is not registered. If that
 * memory is the target's and not the local memory, records its range in
 * err->absent. */
static void local_absent(struct engine_task *t, struct tei_err *err)
{
	const struct local_task *l = local_task(t);
	const struct tei_local_op *op = &l->u.op;

	if (!l->process || l->kind != LOCAL_COPY ||
	    tei_local_peer_covers(op->peer, op->remote, op->length, false))
		return;
	err->absent.addr = op->remote;
	err->absent.length = op->length;
}

/* Sets err->peer to the name of the segment, as the data plane does. The
 * description of the process, which err->peer contains before, is moved to the
 * start of err->text. */
static void local_err_peer(struct engine_task *t, struct tei_err *err)
{
	char process[sizeof(err->peer)], text[sizeof(err->text)];
	struct tei_meta_desc *desc = NULL;

	if (local_task(t)->process)
		desc = tei_meta_cache_get(t->engine->cache, t->target);
	if (!desc)
		return;
	memcpy(process, err->peer, sizeof(process));
	memcpy(text, err->text, sizeof(text));
	if (*process)
		snprintf(err->text, sizeof(err->text), "%.30s: %.120s", process,
			 text);
	snprintf(err->peer, sizeof(err->peer), "%.95s", desc->name);
	tei_meta_desc_unref(desc);
}

static struct tei_err local_err(struct engine_task *t, int code,
				const struct tei_err *why)
{
	bool expired = __atomic_load_n(&t->expired, __ATOMIC_RELAXED);
	struct tei_err err;

	memset(&err, 0, sizeof(err));
	if (code == TEI_LOCAL_CANCELLED) {
		code = expired ? TEI_ERR_TIMED_OUT : TEI_ERR_CANCELED;
		why = NULL;
	}
	if (why && why->code == code)
		err = *why;
	else
		snprintf(err.text, sizeof(err.text),
			 "copy inside this host: %s", tei_err_name(code));
	err.code = code;
	err.when_ns = tei_now_ns();
	snprintf(err.rail, sizeof(err.rail), "local");
	snprintf(err.provider, sizeof(err.provider), "local");
	local_err_peer(t, &err);
	return err;
}

/* Ends a task. "code" is 0, TEI_LOCAL_CANCELLED or an error code, "bytes" the
 * number of bytes that were copied, "why" the error record or NULL. */
static void local_end(struct engine_task *t, int code, uint64_t bytes,
		      const struct tei_err *why)
{
	struct engine_local_process *process = local_task(t)->process;
	struct tei_err err;
	int status;

	if (!code) {
		local_count(t, bytes, STATUS_COMPLETED);
		engine_task_end(t, STATUS_COMPLETED, NULL);
		return;
	}
	err = local_err(t, code, why);
	if (code == TEI_ERR_NOT_REGISTERED)
		local_absent(t, &err);
	else if (code == TEI_ERR_CONTEXT && process)
		engine_segment_ended(t->engine, t->target, process);
	status = err.code == TEI_ERR_CANCELED ? STATUS_CANCELED : STATUS_FAILED;
	local_count(t, bytes, status);
	engine_task_end(t, status, &err);
}

/* --- one copy ------------------------------------------------------------- */

static void copy_done(struct tei_local_op *op, int code, uint64_t bytes)
{
	struct local_task *l = tei_container_of(op, struct local_task, u.op);
	struct engine_local_process *process = l->process;

	local_end(engine_task_from(l), code, bytes, op->why);
	engine_local_process_put(process);
}

static void *local_attach(struct engine *e, const struct engine_segment *s)
{
	return s ? (void *)s->local : (void *)e->local;
}

/* Returns the local process of a target. Returns NULL if the target is the own
 * segment. */
static struct engine_local_process *
local_process(const struct engine_target *target, void *at)
{
	return target->id == LOCAL_SEGMENT ? NULL : at;
}

static int local_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 struct engine_target *target, void *at)
{
	struct engine_local_process *process = local_process(target, at);
	struct local_task *l = local_task(t);

	if (target->kind != ENGINE_UNREGISTERED_HOST &&
	    tei_local_region_check(e->local, r->source, r->length,
				   r->opcode == OPCODE_READ))
		return 3;
	engine_task_init(e, t, r, &transport_local);
	l->process = process;
	l->u.op.peer = process ? process->peer : NULL;
	l->u.op.opcode =
		r->opcode == OPCODE_READ ? TEI_LOCAL_READ : TEI_LOCAL_WRITE;
	l->u.op.local = r->source;
	l->u.op.registered = target->kind != ENGINE_UNREGISTERED_HOST;
	l->u.op.remote = r->target_offset;
	l->u.op.length = r->length;
	l->u.op.done = copy_done;
	return 0;
}

/* Starts a copy. If "here" is true and a copy slot is free, copies in this
 * thread; otherwise passes the copy to a copy thread. */
static void copy_start(struct engine *e, struct engine_task *t, bool here)
{
	struct engine_local_process *process = local_task(t)->process;
	struct tei_local_op *op = &local_task(t)->u.op;
	int ret = TEI_ERR_TOO_MANY;

	if (here)
		ret = tei_local_copy_op(e->local, op, NULL);
	if (ret == TEI_ERR_TOO_MANY) {
		engine_local_process_hold(process);
		ret = tei_local_submit(e->local, op);
		if (!ret)
			return; /* copy_done ends it */
		engine_local_process_put(process);
	}
	/* the copy has ended or was refused; if it was refused, this thread's
	 * last error is the reason */
	local_end(t, ret, ret ? 0 : op->length, tei_err_last());
}

/*
 * Collects the copies of the first tasks in ops[], as long as they go to the
 * same process, which is not this one, and each is short enough for the calling
 * thread. Returns their number. Sets *bytes to their total length.
 */
static size_t copy_gather(struct engine_task *tasks, size_t n,
			  struct tei_local_op *ops[TEI_LOCAL_RUN],
			  uint64_t *bytes)
{
	const struct engine_local_process *process =
		local_task(&tasks[0])->process;
	struct local_task *l;
	size_t i;

	*bytes = 0;
	if (!process || tei_local_peer_is_self(process->peer))
		return 0;
	for (i = 0; i < n && i < TEI_LOCAL_RUN; i++) {
		l = local_task(&tasks[i]);
		if (tasks[i].by != &transport_local || l->kind != LOCAL_COPY ||
		    l->process != process || l->u.op.length > TEI_LOCAL_INLINE)
			break;
		*bytes += l->u.op.length;
		ops[i] = &l->u.op;
	}
	return i;
}

/* Ends n tasks of one run as COMPLETED. They have the same process and the same
 * direction, so they are counted together. */
static void copy_end_run(struct engine_task *tasks,
			 struct tei_local_op *const ops[], size_t n)
{
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < n; i++)
		bytes += ops[i]->length;
	engine_traffic_completed(local_traffic(&tasks[0]), tasks[0].read, bytes,
				 n);
	for (i = 0; i < n; i++)
		engine_task_end(&tasks[i], STATUS_COMPLETED, NULL);
}

/* Executes the copies of n tasks in this thread, with as few system calls as
 * possible, and ends the tasks. */
static void copy_start_here(struct engine *e, struct engine_task *tasks,
			    struct tei_local_op *const ops[], size_t n)
{
	size_t at = 0, done;

	while (at < n) {
		done = tei_local_copy_run(e->local, ops + at, n - at);
		if (done)
			copy_end_run(&tasks[at], ops + at, done);
		else
			copy_start(e, &tasks[at], true);
		at += done ? done : 1;
	}
}

/* --- several ranges ------------------------------------------------------- */

static void group_fail(struct local_group *g, int code,
		       const struct tei_err *why)
{
	int none = 0;

	if (!__atomic_compare_exchange_n(&g->code, &none, code, false,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
	    !why)
		return;
	g->why = malloc(sizeof(*g->why));
	if (g->why)
		*g->why = *why;
}

/* Counts the end of one copy of the group, or the end of group_start. The last
 * of these calls ends the task. */
static void group_step(struct local_group *g, int code, uint64_t bytes,
		       const struct tei_err *why)
{
	struct engine_task *t = g->task;
	struct engine_local_process *process = local_task(t)->process;
	struct tei_err *first;

	if (code)
		group_fail(g, code, why);
	__atomic_add_fetch(&g->moved, bytes, __ATOMIC_RELAXED);
	if (__atomic_sub_fetch(&g->left, 1, __ATOMIC_ACQ_REL))
		return;
	first = g->why;
	/* local_end ends the task; after that the batch may be freed, and the
	 * group with it */
	local_end(t, __atomic_load_n(&g->code, __ATOMIC_RELAXED),
		  __atomic_load_n(&g->moved, __ATOMIC_RELAXED), first);
	free(first);
	engine_local_process_put(process);
}

static void group_done(struct tei_local_op *op, int code, uint64_t bytes)
{
	group_step(op->group, code, bytes, op->why);
}

/* Divides the request into the longest parts that are contiguous on both sides,
 * and adds one copy for each part to the group. "like" contains the members
 * that all copies have in common. */
static void group_lay(struct local_group *g, const struct te_request *r,
		      const struct tei_local_op *like)
{
	uint64_t lskip = 0, rskip = 0, len;
	const struct te_local *l = r->local;
	const struct te_remote *m = r->remote;
	struct tei_local_op *op;

	while (l < r->local + r->local_count) {
		len = l->length - lskip;
		if (len > m->length - rskip)
			len = m->length - rskip;
		op = &g->op[g->n++];
		*op = *like;
		op->local = (char *)l->addr + lskip;
		op->remote = m->addr + rskip;
		op->length = len;
		op->group = g;
		lskip += len;
		rskip += len;
		if (lskip == l->length) {
			l++;
			lskip = 0;
		}
		if (rskip == m->length) {
			m++;
			rskip = 0;
		}
	}
}

static int group_prepare(struct engine_task *t, const struct te_request *r,
			 struct engine_local_process *process,
			 bool unregistered)
{
	struct tei_local_op like = { .registered = !unregistered,
				     .done = group_done };
	struct local_group *g;

	g = calloc(1, sizeof(*g) + (size_t)(r->local_count + r->remote_count) *
					   sizeof(g->op[0]));
	if (!g)
		return 302;
	like.peer = process ? process->peer : NULL;
	like.opcode = r->opcode == TE_READ ? TEI_LOCAL_READ : TEI_LOCAL_WRITE;
	group_lay(g, r, &like);
	g->task = t;
	t->read = r->opcode == TE_READ;
	local_task(t)->kind = LOCAL_GROUP;
	local_task(t)->process = process;
	local_task(t)->u.group = g;
	return 0;
}

static void group_start_one(struct engine *e, struct local_group *g,
			    struct tei_local_op *op, bool here)
{
	int ret = TEI_ERR_TOO_MANY;

	if (here)
		ret = tei_local_copy_op(e->local, op, NULL);
	if (ret == TEI_ERR_TOO_MANY) {
		ret = tei_local_submit(e->local, op);
		if (!ret)
			return; /* group_done ends it */
	}
	/* the copy has ended or was refused; if it was refused, this thread's
	 * last error is the reason */
	group_step(g, ret, ret ? 0 : op->length, tei_err_last());
}

/* Executes n copies of the group in this thread, with as few system calls as
 * possible. */
static void group_start_here(struct engine *e, struct local_group *g,
			     struct tei_local_op *const ops[], size_t n)
{
	size_t at = 0, end;

	while (at < n) {
		end = at + tei_local_copy_run(e->local, ops + at, n - at);
		if (end == at)
			group_start_one(e, g, ops[at++], true);
		for (; at < end; at++)
			group_step(g, 0, ops[at]->length, NULL);
	}
}

/* Stores in each copy the serial number of the present registration of its target
 * range. A copy fails if the target has since unregistered that memory, even if
 * it was registered again. A copy whose range is not registered now is refused. */
static void group_set_serials(struct engine *e, struct local_group *g)
{
	struct tei_local_op *op;
	uint64_t serial;

	for (op = g->op; op < g->op + g->n; op++) {
		serial = tei_local_serial(e->local, op->peer, op->remote,
					  op->length,
					  op->opcode == TEI_LOCAL_WRITE);
		/* no registration has the number UINT64_MAX */
		op->serial = serial ? serial : UINT64_MAX;
	}
}

static void group_start(struct engine *e, struct engine_task *t)
{
	struct local_group *g = local_task(t)->u.group;
	bool here = t->length <= TEI_LOCAL_INLINE;
	struct tei_local_op *ops[TEI_LOCAL_RUN];
	uint32_t i, k, n = g->n;

	engine_local_process_hold(local_task(t)->process);
	group_set_serials(e, g);
	__atomic_store_n(&g->left, n + 1, __ATOMIC_RELAXED);
	for (i = 0; i < n && !here; i++)
		group_start_one(e, g, &g->op[i], false);
	while (i < n) {
		for (k = 0; k < TEI_LOCAL_RUN && i < n; k++)
			ops[k] = &g->op[i++];
		group_start_here(e, g, ops, k);
	}
	group_step(g, 0, 0, NULL);
}

static void local_release(struct engine_task *t)
{
	if (local_task(t)->kind == LOCAL_GROUP)
		free(local_task(t)->u.group);
}

/* --- atomics -------------------------------------------------------------- */

static void atomic_prepare(struct engine_task *t, const struct te_request *r)
{
	struct tei_local_atom *a = &local_task(t)->u.atomic;

	local_task(t)->kind = LOCAL_ATOMIC;
	a->op = engine_atomic_op(r->opcode);
	a->width = (unsigned int)t->length;
	a->addr = r->remote->addr;
	a->operand = r->operand;
	a->compare = r->compare;
	a->result = r->local_count ? r->local->addr : NULL;
}

/* Returns true if the target's process has ended. Checks it once for all
 * atomics of a submission to the same target, because the check is a system
 * call. */
static bool atomic_target_ended(struct engine *e, struct engine_target *target,
				struct engine_local_process *process)
{
	if (!target->asked) {
		target->asked = true;
		target->ended = engine_segment_ended(e, target->id, process);
	}
	return target->ended;
}

/* Ends an atomic as FAILED because its target process has ended. */
static void atomic_fail(struct engine_task *t)
{
	struct tei_err err = { .code = TEI_ERR_CONTEXT };

	snprintf(err.text, sizeof(err.text), "%s",
		 tei_local_reason_text(TEI_LOCAL_GONE));
	snprintf(err.hint, sizeof(err.hint), "open the segment again");
	local_end(t, err.code, 0, &err);
}

static void atomic_start(struct engine *e, struct engine_task *t)
{
	struct tei_local_atom atomic = local_task(t)->u.atomic;
	struct tei_err err;
	int ret, status;

	memset(&err, 0, sizeof(err));
	ret = tei_local_atomic(e->local, &atomic, &err);
	status = ret ? STATUS_FAILED : STATUS_COMPLETED;
	/* counts the atomic with 0 bytes, as the data plane does for atomics */
	engine_traffic_count(&e->own, false, 0, status);
	snprintf(err.rail, sizeof(err.rail), "local");
	snprintf(err.provider, sizeof(err.provider), "local");
	engine_task_end(t, status, &err);
}

/* --- tasks ---------------------------------------------------------------- */

/* Prepares a task with several ranges, or an atomic. Declines an atomic for
 * another process, which needs a rail. But if that process has ended, takes the
 * atomic, and lets it fail when it starts. */
static int local_prepare_ranges(struct engine *e, struct engine_task *t,
				const struct te_request *r,
				struct engine_target *target, void *at)
{
	struct engine_local_process *process = local_process(target, at);
	bool atomic = r->opcode > TE_WRITE;
	bool unregistered = target->kind == ENGINE_UNREGISTERED_HOST;

	if (atomic && process &&
	    (!engine_target_at(target, &transport_rail) ||
	     !atomic_target_ended(e, target, process)))
		return ENGINE_DECLINED;
	if (!unregistered && !engine_ranges_registered(e, r))
		return 3;
	t->by = &transport_local;
	if (!atomic)
		return group_prepare(t, r, process, unregistered);
	if (!process) {
		atomic_prepare(t, r);
		return 0;
	}
	local_task(t)->kind = LOCAL_ENDED;
	local_task(t)->process = process;
	return 0;
}

static void local_start(struct engine *e, struct engine_task *t)
{
	switch (local_task(t)->kind) {
	case LOCAL_COPY:
		copy_start(e, t,
			   local_task(t)->u.op.length <= TEI_LOCAL_INLINE);
		break;
	case LOCAL_GROUP:
		group_start(e, t);
		break;
	case LOCAL_ATOMIC:
		atomic_start(e, t);
		break;
	case LOCAL_ENDED:
		atomic_fail(t);
		break;
	}
}

/* Largest number of bytes that the calling thread copies in one submission, if
 * the memory of the target can be mapped: about one millisecond. */
#define COPY_HERE_MAX (8 * (uint64_t)TEI_LOCAL_PIECE)

/*
 * Decides how many of n copies to or from the same other process the calling
 * thread executes itself; the copy threads execute the rest. "bytes" is the total
 * length. Returns n if the total is short, because waking another thread would
 * take longer than copying. Otherwise returns the number of copies that make up
 * the calling thread's equal share if the target's memory is mapped and these are
 * the last copies of the submission. Returns 0 if the kernel makes the copies, or
 * if more copies follow: otherwise a thread with very many copies would make
 * COPY_HERE_MAX bytes of them again and again before its call returns.
 */
static size_t copy_share(const struct engine *e,
			 struct tei_local_op *const ops[], size_t n,
			 uint64_t bytes, bool last)
{
	uint64_t most = bytes / (tei_local_threads(e->local) + 1);
	size_t i;

	if (bytes <= TEI_LOCAL_PIECE)
		return n;
	if (!last || !tei_local_op_mapped(ops[0]))
		return 0;
	if (most > COPY_HERE_MAX)
		most = COPY_HERE_MAX;
	for (i = 0; i < n && ops[i]->length <= most; i++)
		most -= ops[i]->length;
	return i;
}

/* Returns true if the calling thread should execute a single long copy through a
 * mapping, because there is one copy thread, and passing the copy to it would
 * take longer. Returns false if there are several copy threads: they divide the
 * copy among them and are faster together. */
static bool copy_is_quick(const struct engine *e, struct engine_task *t)
{
	const struct local_task *l = local_task(t);

	return l->kind == LOCAL_COPY && l->process &&
	       l->u.op.length > TEI_LOCAL_INLINE &&
	       l->u.op.length <= TEI_LOCAL_PIECE &&
	       tei_local_threads(e->local) == 1 &&
	       tei_local_op_mapped(&l->u.op);
}

/*
 * Starts the first task, and the tasks after it that are copies with the same
 * process and short enough. Several such copies are divided between this thread
 * and the copy threads.
 */
static size_t local_start_next(struct engine *e, struct engine_task *tasks,
			       size_t n)
{
	struct tei_local_op *ops[TEI_LOCAL_RUN];
	uint64_t bytes;
	size_t here, i, m = 0;

	if (n > 1 && local_task(&tasks[0])->kind == LOCAL_COPY)
		m = copy_gather(tasks, n, ops, &bytes);
	if (m < 2) {
		if (n == 1 && copy_is_quick(e, &tasks[0]))
			copy_start(e, &tasks[0], true);
		else
			local_start(e, &tasks[0]);
		return 1;
	}
	here = copy_share(e, ops, m, bytes, m == n);
	for (i = here; i < m; i++)
		copy_start(e, &tasks[i], false);
	copy_start_here(e, tasks, ops, here);
	return m;
}

static void local_cancel(struct engine *e, struct engine_task *t, bool deadline)
{
	struct local_task *l = local_task(t);
	uint32_t i;

	(void)deadline;
	if (l->kind == LOCAL_COPY)
		tei_local_cancel(e->local, &l->u.op);
	for (i = 0; l->kind == LOCAL_GROUP && i < l->u.group->n; i++)
		tei_local_cancel(e->local, &l->u.group->op[i]);
}

static bool local_progress(struct engine *e)
{
	return tei_local_progress(e->local);
}

static bool local_drain(struct engine *e,
			const struct engine_transport_ops *through,
			uint64_t until_ns)
{
	if (!through && e->local)
		tei_local_drain(e->local, until_ns);
	return true;
}

static void local_close(struct engine *e)
{
	engine_segment_close_all(e);
	tei_local_fini(e->local);
}

static const char *const local_names[] = { "local", NULL };

const struct engine_transport_ops transport_local = {
	.names = local_names,
	.takes = ENGINE_HOST_HOST | ENGINE_UNREGISTERED_HOST,
	.install = local_install,
	.uninstall = local_uninstall,
	.attach = local_attach,
	.prepare = local_prepare,
	.prepare_ranges = local_prepare_ranges,
	.start = local_start,
	.start_next = local_start_next,
	.cancel = local_cancel,
	.drop = local_release,
	.release = local_release,
	.progress = local_progress,
	.drain = local_drain,
	.close = local_close,
};
