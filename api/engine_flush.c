/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for all submitted tasks, of one segment or of the engine. There are
 * no counters of unfinished tasks per segment, because each transfer would have
 * to change them. Instead, the call lists the batches that have unfinished
 * tasks, and waits for one batch after the other. The destruction of the engine
 * waits for the whole call, because the call accesses the engine between two
 * batches.
 */
#include <stdlib.h>

#include "api/engine_int.h"

#define FLUSH_ALL	((segment_id_t)-1)

static const struct tei_err flush_no_segment = {
	.code = TEI_ERR_INVALID,
	.text = "no such segment: closed or unknown id",
};

/* The batches that had unfinished tasks when the call began, and the number of
 * tasks that each of them had then. The struct is on the caller's stack. */
struct flush {
	struct flush_batch {
		batch_id_t id;
		uint32_t count, resets;
	} *batches;
	size_t n, cap;
	bool no_memory;
};

static void flush_grow(struct flush *f)
{
	size_t cap = f->cap ? 2 * f->cap : 64;
	struct flush_batch *batches;

	batches = realloc(f->batches, cap * sizeof(*batches));
	if (!batches) {
		f->no_memory = true;
		return;
	}
	f->batches = batches;
	f->cap = cap;
}

static void flush_note(struct engine_batch *b, void *arg)
{
	struct flush *f = arg;

	if (!(__atomic_load_n(&b->pending, __ATOMIC_SEQ_CST) &
	      ENGINE_PENDING_LEFT))
		return;
	if (f->n == f->cap)
		flush_grow(f);
	if (f->n == f->cap)
		return;
	tei_mutex_lock(&b->lock);
	if (b->gen & 1) {
		f->batches[f->n].id = engine_batch_id(b);
		f->batches[f->n].resets = b->resets;
		f->batches[f->n++].count = b->count;
	}
	tei_mutex_unlock(&b->lock);
}

/* Finds the first unfinished task to the segment seg among the tasks that the
 * batch had when the call began. Begins with task *next and sets *next to the
 * task. Returns false if there is none, or if the batch was freed or reset,
 * which means that those tasks have ended. */
static bool flush_find(struct engine *e, const struct flush_batch *f,
		       segment_id_t seg, uint32_t *next)
{
	struct engine_batch *b = engine_batch_lock(e, f->id);
	const struct engine_task *t;
	bool found = false;

	if (!b)
		return false;
	for (; b->resets == f->resets && *next < f->count && !found;
	     *next += !found) {
		t = &b->tasks[*next];
		found = (seg == FLUSH_ALL || t->target == seg) &&
			!engine_task_ended(t);
	}
	engine_batch_unlock(b);
	return found;
}

static int flush_batch(struct engine *e, const struct flush_batch *f,
		       segment_id_t seg, uint64_t deadline_ns)
{
	uint32_t next = 0;
	int ret;

	while (flush_find(e, f, seg, &next)) {
		ret = engine_wait(e, f->id, next, deadline_ns, NULL);
		if (ret == TE_TIMED_OUT)
			return ret;
		if (ret && __atomic_load_n(&e->waits.closing, __ATOMIC_SEQ_CST))
			return ret;
	}
	return 0;
}

static int flush_run(struct engine *e, segment_id_t seg, uint64_t deadline_ns)
{
	struct flush f = { .batches = NULL };
	struct tei_err last = *tei_err_last();
	int ret = 0;
	size_t i;

	engine_batch_each(e, flush_note, &f);
	if (f.no_memory)
		ret = 302;
	for (i = 0; i < f.n && !ret; i++)
		ret = flush_batch(e, &f.batches[i], seg, deadline_ns);
	free(f.batches);
	/* restores the last error, because a batch that was freed during the
	 * call is not an error of the call */
	if (!ret || ret == TE_TIMED_OUT)
		tei_err_set_last(&last);
	return ret;
}

static bool flush_known(struct engine *e, segment_id_t seg)
{
	bool known;

	if (seg == LOCAL_SEGMENT)
		return true;
	tei_rwlock_read(&e->segments);
	known = engine_segment_find(e, seg) != NULL;
	tei_rwlock_unlock(&e->segments);
	return known;
}

int te_flush(transfer_engine_t engine, segment_id_t segment_id,
	     int64_t timeout_us)
{
	struct engine *e = engine_from(engine);
	uint64_t deadline_ns = engine_wait_deadline(timeout_us);
	int ret = 1;

	if (!e)
		return 1;
	engine_wait_enter(e);
	if (flush_known(e, segment_id))
		ret = flush_run(e, segment_id, deadline_ns);
	else
		tei_err_set_last(&flush_no_segment);
	engine_wait_leave(e);
	return ret;
}

int te_drain(transfer_engine_t engine, int64_t timeout_us)
{
	struct engine *e = engine_from(engine);
	int ret;

	if (!e)
		return 1;
	engine_wait_enter(e);
	ret = flush_run(e, FLUSH_ALL, engine_wait_deadline(timeout_us));
	engine_wait_leave(e);
	return ret;
}
