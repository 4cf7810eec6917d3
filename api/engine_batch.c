/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches. A batch id is generation << 32 | index of the slot. Slots are freed
 * only with the engine, so the slot of a freed batch may still be accessed.
 */
#include "api/engine_int.h"

#include <stdlib.h>

#include "api/engine_transport.h"

static const struct tei_err batch_stale = {
	.code = TEI_ERR_INVALID,
	.text = "no such batch: freed or unknown id",
};

/* --- slots --------------------------------------------------------------- */

static int batch_grow(struct engine *e) TEI_REQUIRES(e->slots.lock)
{
	struct engine_batch *c;
	uint32_t i;

	if (e->slots.nchunks == ENGINE_BATCH_CHUNKS)
		return TEI_ERR_TOO_MANY;
	c = calloc(ENGINE_BATCH_CHUNK, sizeof(*c));
	if (!c)
		return TEI_ERR_MEMORY;
	for (i = ENGINE_BATCH_CHUNK; i-- > 0;) {
		tei_mutex_init(&c[i].lock);
		tei_list_init(&c[i].event_link);
		c[i].engine = e;
		c[i].event_fd = -1;
		c[i].index = e->slots.nchunks * ENGINE_BATCH_CHUNK + i;
		c[i].next_free = e->slots.free;
		e->slots.free = &c[i];
	}
	__atomic_store_n(&e->slots.chunks[e->slots.nchunks], c,
			 __ATOMIC_RELEASE);
	e->slots.nchunks++;
	return 0;
}

struct engine_batch *engine_batch_slot(struct engine *e, batch_id_t id)
{
	uint32_t index = (uint32_t)id;
	struct engine_batch *c;

	if (index / ENGINE_BATCH_CHUNK >= ENGINE_BATCH_CHUNKS)
		return NULL;
	c = __atomic_load_n(&e->slots.chunks[index / ENGINE_BATCH_CHUNK],
			    __ATOMIC_ACQUIRE);
	return c ? &c[index % ENGINE_BATCH_CHUNK] : NULL;
}

struct engine_batch *engine_batch_lock(struct engine *e,
				       batch_id_t id) TEI_NO_TSA
{
	struct engine_batch *b = engine_batch_slot(e, id);
	uint32_t gen = (uint32_t)(id >> 32);

	if (b) {
		tei_mutex_lock(&b->lock);
		if (b->gen == gen && (gen & 1))
			return b;
		tei_mutex_unlock(&b->lock);
	}
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
		c = __atomic_load_n(&e->slots.chunks[i], __ATOMIC_ACQUIRE);
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
		if (b->tasks[i].by->release)
			b->tasks[i].by->release(&b->tasks[i]);
		free(b->tasks[i].err);
		b->tasks[i].err = NULL;
	}
}

void engine_batch_free_all(struct engine *e)
{
	struct engine_batch *b;
	uint32_t i, j;

	for (i = 0; i < e->slots.nchunks; i++) {
		for (j = 0; j < ENGINE_BATCH_CHUNK; j++) {
			b = &e->slots.chunks[i][j];
			batch_clear(b);
			free(b->tasks);
			tei_mutex_fini(&b->lock);
		}
		free(e->slots.chunks[i]);
	}
}

batch_id_t engine_batch_alloc(struct engine *e, size_t batch_size,
			      bool internal)
{
	struct engine_batch *b = NULL;
	struct engine_task *tasks;
	/* an array of at least one element, so that tasks is not NULL */
	size_t cap = batch_size ? batch_size : 1;
	batch_id_t id;

	tei_mutex_lock(&e->slots.lock);
	if (e->slots.free || !batch_grow(e)) {
		b = e->slots.free;
		e->slots.free = b->next_free;
	}
	tei_mutex_unlock(&e->slots.lock);
	if (!b)
		return INVALID_BATCH;
	tei_mutex_lock(&b->lock);
	if (b->cap < cap) {
		tasks = calloc(cap, sizeof(*tasks));
		if (!tasks) {
			tei_mutex_unlock(&b->lock);
			tei_mutex_lock(&e->slots.lock);
			b->next_free = e->slots.free;
			e->slots.free = b;
			tei_mutex_unlock(&e->slots.lock);
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
	b->internal = internal;
	b->gen++;
	/* the id is never 0, because gen is odd, and never INVALID_BATCH,
	 * because the index of a slot is less than 0xffffffff */
	id = engine_batch_id(b);
	tei_mutex_unlock(&b->lock);
	return id;
}

batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size)
{
	struct engine *e = engine_from(engine);

	if (!e || batch_size > ENGINE_BATCH_MAX) {
		engine_bad(e, __func__, "batch_size is above 1048576");
		return INVALID_BATCH;
	}
	return engine_batch_alloc(e, batch_size, false);
}

/* Returns true if every task of the batch is terminal. */
static bool batch_ended(const struct engine_batch *b)
{
	uint32_t i;

	for (i = 0; i < b->count; i++)
		if (!engine_task_ended(&b->tasks[i]))
			return false;
	return true;
}

int engine_batch_free(struct engine *e, batch_id_t batch_id)
{
	struct engine_batch *b = engine_batch_lock(e, batch_id);

	if (!b)
		return 1;
	if (!batch_ended(b)) {
		engine_batch_unlock(b);
		return 4;
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
	tei_mutex_lock(&e->slots.lock);
	b->next_free = e->slots.free;
	e->slots.free = b;
	tei_mutex_unlock(&e->slots.lock);
	return 0;
}

int freeBatchID(transfer_engine_t engine, batch_id_t batch_id)
{
	struct engine *e = engine_from(engine);

	return e ? engine_batch_free(e, batch_id) : 1;
}

int te_batch_reset(transfer_engine_t engine, batch_id_t batch_id)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b;
	int ret = 4;

	if (!e)
		return 1;
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return 1;
	if (batch_ended(b)) {
		engine_event_reset(b);
		engine_deadline_freed(b);
		b->deadline_set = false;
		batch_clear(b);
		b->count = 0;
		b->resets++;
		ret = 0;
	}
	engine_batch_unlock(b);
	return ret;
}
