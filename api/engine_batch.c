/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches and their tasks. A batch id is generation << 32 | slot. The slots are
 * freed with the engine, so the slot of any id may be accessed.
 */
#include "api/engine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_refusal.h"

static const struct tei_err batch_stale = {
	.code = TEI_ERR_INVALID,
	.text = "no such batch: freed or invented id",
};

/* --- slots --------------------------------------------------------------- */

static int batch_grow(struct engine *e) TEI_REQUIRES(e->batches)
{
	struct engine_batch *c;
	uint32_t i;

	if (e->nchunks == ENGINE_BATCH_CHUNKS)
		return TEI_ERR_TOO_MANY;
	c = calloc(ENGINE_BATCH_CHUNK, sizeof(*c));
	if (!c)
		return TEI_ERR_MEMORY;
	for (i = ENGINE_BATCH_CHUNK; i-- > 0;) {
		tei_mutex_init(&c[i].lock);
		tei_list_init(&c[i].event_link);
		c[i].engine = e;
		c[i].event_fd = -1;
		c[i].index = e->nchunks * ENGINE_BATCH_CHUNK + i;
		c[i].next_free = e->free_batch;
		e->free_batch = &c[i];
	}
	__atomic_store_n(&e->chunks[e->nchunks], c, __ATOMIC_RELEASE);
	e->nchunks++;
	return 0;
}

struct engine_batch *engine_batch_lock(struct engine *e, batch_id_t id)
	TEI_NO_TSA
{
	uint32_t index = (uint32_t)id, gen = (uint32_t)(id >> 32);
	struct engine_batch *c, *b;

	if (index / ENGINE_BATCH_CHUNK >= ENGINE_BATCH_CHUNKS)
		goto stale;
	c = __atomic_load_n(&e->chunks[index / ENGINE_BATCH_CHUNK],
			    __ATOMIC_ACQUIRE);
	if (!c)
		goto stale;
	b = &c[index % ENGINE_BATCH_CHUNK];
	tei_mutex_lock(&b->lock);
	if (b->gen == gen && (gen & 1))
		return b;
	tei_mutex_unlock(&b->lock);
stale:
	tei_err_set_last(&batch_stale);
	return NULL;
}

void engine_batch_unlock(struct engine_batch *b) TEI_NO_TSA
{
	tei_mutex_unlock(&b->lock);
}

void engine_batch_each(struct engine *e,
		       void (*fn)(struct engine_batch *b, void *arg), void *arg)
{
	struct engine_batch *c;
	uint32_t i, j;

	for (i = 0; i < ENGINE_BATCH_CHUNKS; i++) {
		c = __atomic_load_n(&e->chunks[i], __ATOMIC_ACQUIRE);
		for (j = 0; c && j < ENGINE_BATCH_CHUNK; j++)
			fn(&c[j], arg);
		if (!c)
			return;
	}
}

static void batch_clear(struct engine_batch *b)
{
	uint32_t i;

	for (i = 0; i < b->count; i++) {
		if (b->tasks[i].by == ENGINE_BY_GROUP)
			free(b->tasks[i].u.group);
		free(b->tasks[i].err);
		b->tasks[i].err = NULL;
	}
}

void engine_batch_free_all(struct engine *e)
{
	struct engine_batch *b;
	uint32_t i, j;

	for (i = 0; i < e->nchunks; i++) {
		for (j = 0; j < ENGINE_BATCH_CHUNK; j++) {
			b = &e->chunks[i][j];
			batch_clear(b);
			free(b->tasks);
			tei_mutex_fini(&b->lock);
		}
		free(e->chunks[i]);
	}
}

batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b = NULL;
	struct engine_task *tasks;
	size_t cap = batch_size ? batch_size : 1;	/* so that tasks is not
							 * NULL */
	batch_id_t id;

	if (!e || batch_size > ENGINE_BATCH_MAX) {
		engine_bad(e, __func__, "batch_size is above 1048576");
		return INVALID_BATCH;
	}
	tei_mutex_lock(&e->batches);
	if (e->free_batch || !batch_grow(e)) {
		b = e->free_batch;
		e->free_batch = b->next_free;
	}
	tei_mutex_unlock(&e->batches);
	if (!b)
		return INVALID_BATCH;
	tei_mutex_lock(&b->lock);
	if (b->cap < cap) {
		tasks = calloc(cap, sizeof(*tasks));
		if (!tasks) {
			tei_mutex_unlock(&b->lock);
			tei_mutex_lock(&e->batches);
			b->next_free = e->free_batch;
			e->free_batch = b;
			tei_mutex_unlock(&e->batches);
			return INVALID_BATCH;
		}
		free(b->tasks);
		b->tasks = tasks;
		b->cap = (uint32_t)cap;
	}
	b->size = (uint32_t)batch_size;
	b->count = 0;
	b->deadline_ns = 0;
	b->deadline_set = false;
	b->gen++;
	/* never 0, because gen is odd; never INVALID_BATCH, because index is
	 * smaller */
	id = engine_batch_id(b);
	tei_mutex_unlock(&b->lock);
	return id;
}

int freeBatchID(transfer_engine_t engine, batch_id_t batch_id)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b;
	uint32_t i;

	if (!e)
		return 1;
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return 1;
	for (i = 0; i < b->count; i++) {
		if (!engine_task_ended(&b->tasks[i])) {
			engine_batch_unlock(b);
			return 4;
		}
	}
	engine_event_freed(b);
	engine_deadline_freed(b);
	batch_clear(b);
	b->gen++;
	b->count = 0;
	if (b->cap > ENGINE_KEEP_TASKS) {
		free(b->tasks);
		b->tasks = NULL;
		b->cap = 0;
	}
	engine_batch_unlock(b);
	engine_wait_freed(b);
	tei_mutex_lock(&e->batches);
	b->next_free = e->free_batch;
	e->free_batch = b;
	tei_mutex_unlock(&e->batches);
	return 0;
}

/* --- ends ---------------------------------------------------------------- */

static void submission_free(struct engine *e, struct engine_submission *sub)
{
	if (sub->note)
		engine_note_discard(e, sub->note);
	tei_rail_outgoing_free(sub->out);
	if (sub->peer)
		tei_rail_peer_put(sub->peer);
	free(sub);
}

/* A task of the submission has ended. The last one sends the notification. */
static void submission_step(struct engine *e, struct engine_submission *sub,
			    int status)
{
	if (status != STATUS_COMPLETED)
		__atomic_store_n(&sub->failed, true, __ATOMIC_RELAXED);
	if (__atomic_sub_fetch(&sub->left, 1, __ATOMIC_ACQ_REL))
		return;
	if (!__atomic_load_n(&sub->failed, __ATOMIC_RELAXED)) {
		/* the callees take over out and note */
		if (sub->out)
			tei_rail_outgoing_queue(sub->out);
		else
			engine_note_arrived(e, sub->note);
		sub->out = NULL;
		sub->note = NULL;
	}
	submission_free(e, sub);
}

void engine_task_end(struct engine_task *t, int status,
		     const struct tei_err *err)
{
	struct engine_submission *sub = t->sub;
	struct engine_batch *b = t->batch;
	size_t index = (size_t)(t - b->tasks);

	if (status != STATUS_COMPLETED && err) {
		t->err = malloc(sizeof(*t->err));
		if (t->err)
			*t->err = *err;
		if (t->err && err->absent.length)
			engine_segment_absent(t->engine, t->target, t->err);
	}
	if (sub) {
		t->sub = NULL;
		submission_step(t->engine, sub, status);
	}
	__atomic_store_n(&t->status, status, __ATOMIC_RELEASE);
	engine_wait_ended(b, index);
}

int engine_rail_status(enum tei_rail_end end)
{
	static const int status[] = {
		[TEI_RAIL_END_COMPLETED] = STATUS_COMPLETED,
		[TEI_RAIL_END_FAILED] = STATUS_FAILED,
		[TEI_RAIL_END_UNFENCED] = STATUS_TIMEOUT,
		[TEI_RAIL_END_CANCELED] = STATUS_CANCELED,
	};

	return status[end];
}

void engine_task_done(struct tei_rail_task *task, enum tei_rail_end end,
		      const struct tei_err *err)
{
	engine_task_end(tei_container_of(task, struct engine_task, u.rail),
			engine_rail_status(end), err);
}

static void task_local_count(struct engine_task *t, uint64_t bytes, int status)
{
	struct engine_traffic *traffic = t->local ? &t->local->traffic :
						    &t->engine->own;

	engine_traffic_count(traffic, t->read, bytes, status);
}

/* Records the target range in err->absent if the unregistered memory is that of
 * the target and not the local memory. */
static void task_local_absent(const struct engine_task *t, struct tei_err *err)
{
	const struct tei_local_op *op = &t->u.op;

	if (!t->local || t->by != ENGINE_BY_COPY ||
	    tei_local_peer_covers(op->peer, op->remote, op->length, false))
		return;
	err->absent.addr = op->remote;
	err->absent.length = op->length;
}

/* Names the segment in the record, as the records of rails do, and moves the
 * process into the text. */
static void task_local_peer(const struct engine_task *t, struct tei_err *err)
{
	char process[sizeof(err->peer)], text[sizeof(err->text)];
	struct tei_meta_desc *desc = NULL;

	if (t->local)
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

static struct tei_err task_local_err(const struct engine_task *t, int code,
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
		snprintf(err.text, sizeof(err.text), "copy inside this host: %s",
			 tei_err_name(code));
	err.code = code;
	err.when_ns = tei_now_ns();
	snprintf(err.rail, sizeof(err.rail), "local");
	snprintf(err.provider, sizeof(err.provider), "local");
	task_local_peer(t, &err);
	return err;
}

void engine_task_local_end(struct engine_task *t, int code, uint64_t bytes,
			   const struct tei_err *why)
{
	struct tei_err err;
	int status;

	if (!code) {
		task_local_count(t, bytes, STATUS_COMPLETED);
		engine_task_end(t, STATUS_COMPLETED, NULL);
		return;
	}
	err = task_local_err(t, code, why);
	if (code == TEI_ERR_NOT_REGISTERED)
		task_local_absent(t, &err);
	else if (code == TEI_ERR_CONTEXT && t->local)
		engine_segment_ended(t->engine, t->target, t->local);
	status = err.code == TEI_ERR_CANCELED ? STATUS_CANCELED : STATUS_FAILED;
	task_local_count(t, bytes, status);
	engine_task_end(t, status, &err);
}

static void task_local_done(struct tei_local_op *op, int code, uint64_t bytes)
{
	struct engine_task *t = tei_container_of(op, struct engine_task, u.op);
	struct engine_local_process *n = t->local;

	engine_task_local_end(t, code, bytes, op->why);
	if (n)
		__atomic_sub_fetch(&n->refs, 1, __ATOMIC_RELEASE);
}

/* --- submit -------------------------------------------------------------- */

int engine_batch_target(struct engine *e, segment_id_t id,
			struct engine_target *t)
{
	struct engine_segment *s;

	if (t->valid && t->id == id)
		return 0;
	memset(t, 0, sizeof(*t));
	t->id = id;
	if (id == LOCAL_SEGMENT) {
		t->valid = true;
		t->local = true;
		return 0;
	}
	s = engine_segment_find(e, id);
	if (!s)
		return 1;
	t->valid = true;
	t->local = s->local != NULL;
	t->local_process = s->local;
	t->peer = s->peer;
	t->files = s->files;
	t->gpu = s->gpu ? s->desc : NULL;
	if (s->local || s->peer || s->files)
		return 0;
	engine_segment_unresolved(e, s);
	return 8;
}

bool engine_batch_gpu(const struct engine_target *target, uint64_t addr)
{
	const struct tei_meta_buffer *b;

	if (!target->gpu)
		return false;
	b = tei_meta_desc_find(target->gpu, addr, 1);
	return b && engine_segment_on_gpu(b);
}

bool engine_batch_lent(const struct engine_target *target, uint64_t addr,
		       uint64_t len)
{
	const struct tei_meta_buffer *b;
	uint64_t have;

	/* memory that is not published is refused by its transport later */
	for (; target->gpu && len; addr += have, len -= have) {
		b = tei_meta_desc_find(target->gpu, addr, 1);
		if (!b)
			return false;
		if (engine_segment_on_gpu(b) &&
		    !tei_meta_desc_has_keys(target->gpu, b))
			return true;
		have = b->length - (addr - b->addr);
		have = have < len ? have : len;
	}
	return false;
}

static bool batch_bad_request(const struct transfer_request *r)
{
	return (r->opcode != OPCODE_READ && r->opcode != OPCODE_WRITE) ||
	       !r->source || !r->length ||
	       (uintptr_t)r->source + r->length < (uintptr_t)r->source ||
	       r->target_offset + (r->length - 1) < r->target_offset;
}

void engine_batch_task(struct engine *e, struct engine_task *t,
		       const struct transfer_request *r, enum engine_task_by by)
{
	memset(t, 0, sizeof(*t));
	t->engine = e;
	t->target = r->target_id;
	t->length = r->length;
	t->by = by;
	t->read = r->opcode == OPCODE_READ;
}

void engine_batch_by_rail(struct engine *e, struct engine_task *t,
			  const struct transfer_request *r,
			  const struct engine_target *target)
{
	engine_batch_task(e, t, r, ENGINE_BY_RAIL);
	t->u.rail.peer = target->peer;
	t->u.rail.remote = r->target_offset;
	t->u.rail.length = r->length;
	t->u.rail.local = r->source;
	t->u.rail.read = t->read;
}

static void batch_by_copy(struct engine *e, struct engine_task *t,
			  const struct transfer_request *r,
			  const struct engine_target *target)
{
	engine_batch_task(e, t, r, ENGINE_BY_COPY);
	t->local = target->local_process;
	t->u.op.peer =
		target->local_process ? target->local_process->peer : NULL;
	t->u.op.opcode = r->opcode == OPCODE_READ ? TEI_LOCAL_READ :
						    TEI_LOCAL_WRITE;
	t->u.op.local = r->source;
	t->u.op.registered = true;
	t->u.op.remote = r->target_offset;
	t->u.op.length = r->length;
	t->u.op.done = task_local_done;
}

int engine_batch_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 struct engine_target *target)
{
	bool gpu;
	int ret;

	if (batch_bad_request(r))
		return 1;
	ret = engine_batch_target(e, r->target_id, target);
	if (ret)
		return ret;
	if (engine_gpu_concerns(e, r))
		return engine_gpu_prepare(e, t, r, target);
	gpu = engine_batch_gpu(target, r->target_offset);
	if (gpu && (!target->peer ||
		    engine_batch_lent(target, r->target_offset, r->length)))
		return engine_lease_prepare(e, t, r, target);
	if (gpu) {
		engine_batch_by_rail(e, t, r, target);
		return 0;
	}
	if ((target->local || target->files) &&
	    tei_local_region_check(e->local, r->source, r->length,
				   r->opcode == OPCODE_READ))
		return 3;
	if (target->files)
		return engine_files_prepare(e, t, r, target->files);
	if (target->local)
		batch_by_copy(e, t, r, target);
	else
		engine_batch_by_rail(e, t, r, target);
	return 0;
}

/* Checks and prepares all requests before any of them starts. */
static int batch_check(struct engine *e, const char *call,
		       struct engine_task *tasks,
		       const struct transfer_request *reqs, size_t n)
{
	struct engine_target target = { .valid = false };
	size_t i;
	int ret;

	for (i = 0; i < n; i++) {
		ret = engine_batch_prepare(e, &tasks[i], &reqs[i], &target);
		if (ret)
			return engine_refuse_request(e, call, i, &reqs[i],
						     ret);
	}
	return 0;
}

static void batch_start_local(struct engine *e, struct engine_task *t)
{
	struct tei_local_op *op = &t->u.op;
	struct engine_local_process *n = t->local;
	int ret = TEI_ERR_TOO_MANY;

	if (op->length <= TEI_LOCAL_INLINE)
		ret = tei_local_copy_op(e->local, op, NULL);
	if (ret == TEI_ERR_TOO_MANY) {
		if (n)
			__atomic_add_fetch(&n->refs, 1, __ATOMIC_RELAXED);
		ret = tei_local_submit(e->local, op);
		if (!ret)
			return;		/* task_local_done ends it */
		if (n)
			__atomic_sub_fetch(&n->refs, 1, __ATOMIC_RELEASE);
	}
	/* after a refusal the record is this thread's last error */
	engine_task_local_end(t, ret, ret ? 0 : op->length, tei_err_last());
}

static int batch_start_rail(struct engine *e, struct engine_task *tasks,
			    size_t n, size_t by_rail)
{
	struct tei_rail_task *few[64], **list = few;
	size_t i, k = 0;
	int ret;

	if (by_rail > sizeof(few) / sizeof(few[0])) {
		list = malloc(by_rail * sizeof(*list));
		if (!list)
			return TEI_ERR_MEMORY;
	}
	for (i = 0; i < n; i++)
		if (tasks[i].by == ENGINE_BY_RAIL)
			list[k++] = &tasks[i].u.rail;
	ret = tei_rail_submit(e->dp, list, by_rail);
	if (ret == TEI_ERR_NO_DEVICE)
		ret = TEI_ERR_UNSUPPORTED;
	if (list != few)
		free(list);
	return ret;
}

int engine_batch_start(struct engine *e, struct engine_batch *b, size_t n)
{
	struct engine_task *tasks = b->tasks + b->count;
	size_t i, by_rail = 0;
	int ret;

	engine_deadline_submit(b);
	if (b->deadline_ns && tei_now_ns() >= b->deadline_ns)
		return TE_TIMED_OUT;
	for (i = 0; i < n; i++) {
		tasks[i].batch = b;
		by_rail += tasks[i].by == ENGINE_BY_RAIL;
	}
	engine_wait_expect(b, (uint32_t)n);
	if (by_rail) {
		ret = batch_start_rail(e, tasks, n, by_rail);
		if (ret) {
			engine_wait_unexpect(b, (uint32_t)n);
			return tei_err_transfer_code(ret);
		}
	}
	b->count += (uint32_t)n;
	for (i = 0; i < n && by_rail < n; i++) {
		if (tasks[i].by == ENGINE_BY_COPY)
			batch_start_local(e, &tasks[i]);
		else if (tasks[i].by == ENGINE_BY_FILE)
			engine_files_start(e, &tasks[i]);
		else if (tasks[i].by == ENGINE_BY_GPU)
			engine_gpu_start(e, &tasks[i]);
		else if (tasks[i].by == ENGINE_BY_STAGE)
			engine_stage_start(e, &tasks[i]);
		else if (tasks[i].by == ENGINE_BY_LEASE)
			engine_lease_start_task(e, &tasks[i]);
		else if (tasks[i].by != ENGINE_BY_RAIL)
			engine_submit_start(e, &tasks[i]);
	}
	return 0;
}

static int batch_submit_locked(struct engine *e, const char *call,
			       struct engine_batch *b,
			       const struct transfer_request *reqs, size_t n,
			       struct engine_submission *sub)
{
	struct engine_task *tasks = b->tasks + b->count;
	size_t i;
	int ret;

	if (n > b->size - b->count)
		return engine_refuse_full(call, b, n);
	ret = batch_check(e, call, tasks, reqs, n);
	if (ret)
		return ret;
	for (i = 0; i < n; i++)
		tasks[i].sub = sub;
	ret = engine_batch_start(e, b, n);
	return ret ? engine_refuse_start(e, call, reqs, n, ret) : 0;
}

static int batch_submit(struct engine *e, const char *call, batch_id_t id,
			const struct transfer_request *reqs, size_t n,
			struct engine_submission *sub)
{
	struct engine_batch *b;
	int ret;

	if (!reqs && n)
		return engine_refuse(call, ENGINE_REFUSE_CALL, 1, NULL,
				     "entries is NULL");
	b = engine_batch_lock(e, id);
	if (!b)
		return 1;
	if (!n) {
		engine_batch_unlock(b);
		return 0;
	}
	pthread_rwlock_rdlock(&e->segments);
	ret = batch_submit_locked(e, call, b, reqs, n, sub);
	pthread_rwlock_unlock(&e->segments);
	engine_batch_unlock(b);
	return ret;
}

int submitTransfer(transfer_engine_t engine, batch_id_t batch_id,
		   struct transfer_request *entries, size_t count)
{
	struct engine *e = engine_from(engine);

	if (!e)
		return 1;
	return batch_submit(e, __func__, batch_id, entries, count, NULL);
}

/* Finds the peer of the first request, to which the notification is sent. */
static int submission_target(struct engine *e, const char *call,
			     segment_id_t id, struct engine_submission *sub)
{
	struct engine_segment *s;
	int ret;

	pthread_rwlock_rdlock(&e->segments);
	s = engine_segment_find(e, id);
	if (s && s->peer) {
		sub->peer = s->peer;
		tei_rail_peer_hold(s->peer);
	}
	ret = !s ? engine_refuse_target(call, 0, id) :
	      !sub->peer ? engine_refuse_transport(e, call, 0, id) : 0;
	pthread_rwlock_unlock(&e->segments);
	return ret;
}

/*
 * Creates the notification before anything is submitted, so that it cannot fail
 * for lack of memory or room after the data has been written.
 */
static int submission_note(struct engine *e, const char *call,
			   segment_id_t id, const struct notify_msg *msg,
			   struct engine_submission *sub)
{
	struct tei_err err;
	int ret;

	if (id == LOCAL_SEGMENT) {
		sub->note = engine_note_own(e, msg, &err);
		return sub->note ? 0 : tei_err_transfer_code(err.code);
	}
	ret = submission_target(e, call, id, sub);
	if (ret)
		return ret;
	return tei_err_transfer_code(tei_rail_outgoing_new(
		sub->peer, msg->name, msg->msg, &err, &sub->out));
}

int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
			     struct transfer_request *entries, size_t count,
			     notify_msg_t notify_msg)
{
	struct engine *e = engine_from(engine);
	struct engine_submission *sub;
	int ret;

	if (e && !count)
		return batch_submit(e, __func__, batch_id, NULL, 0, NULL);
	if (!e || !entries || !notify_msg.name || !notify_msg.msg)
		return -engine_bad(e, __func__, NULL);
	sub = calloc(1, sizeof(*sub));
	if (!sub)
		return 302;
	sub->left = (uint32_t)count;
	ret = submission_note(e, __func__, entries[0].target_id, &notify_msg,
			      sub);
	if (!ret)
		ret = batch_submit(e, __func__, batch_id, entries, count, sub);
	if (ret)
		submission_free(e, sub);
	return ret;
}
