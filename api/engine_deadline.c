/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Deadlines of batches. The batches that have one are in a heap, ordered by the
 * deadline. A thread sleeps until the earliest deadline and ends the unfinished
 * tasks of that batch. The thread is separate because it may have to wait for
 * the lock of a batch, and until a part of a local copy is complete; the
 * progress thread and the copy threads must not wait for these. The thread is
 * started when the first batch gets a deadline.
 */
#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "util/hint.h"
#include "util/thread.h"
#include "util/world.h"

/* The batches that have a deadline, and the thread that ends their tasks. */
struct engine_timers {
	struct tei_mutex lock;		/* leaf; guards the members below */
	pthread_cond_t cond;
	struct tei_heap heap; /* heap of batches, linked by
			       * engine_batch.timer */
	bool started, stop;
	pthread_t thread;
};

static struct engine_batch *deadline_batch(struct tei_heap_node *n)
{
	return tei_container_of(n, struct engine_batch, timer);
}

/* Ends the unfinished tasks of the batch if the batch still has this
 * deadline. */
static void deadline_fire(struct engine_batch *b, uint64_t deadline_ns)
{
	tei_mutex_lock(&b->lock);
	if (b->gen & 1 && b->deadline_ns == deadline_ns)
		engine_cancel_tasks(b, 0, b->count, true);
	tei_mutex_unlock(&b->lock);
}

/* If the earliest deadline has passed, removes its batch from the heap and
 * returns it. Otherwise sleeps until that deadline or a signal, 1 s at most,
 * and returns NULL. */
static struct engine_batch *deadline_next(struct engine_timers *t,
					  uint64_t *deadline_ns)
	TEI_REQUIRES(t->lock)
{
	struct tei_heap_node *n = tei_heap_first(&t->heap);
	uint64_t now = tei_now_ns();

	if (n && n->key <= now) {
		*deadline_ns = n->key;
		tei_heap_remove(&t->heap, n);
		return deadline_batch(n);
	}
	tei_mutex_wait(&t->cond, &t->lock,
		       n && n->key - now < TEI_NS_PER_SEC ? n->key - now :
							    TEI_NS_PER_SEC);
	return NULL;
}

static void *deadline_main(void *arg)
{
	struct engine_timers *t = arg;
	struct engine_batch *b;
	uint64_t deadline_ns;

	tei_mutex_lock(&t->lock);
	while (!t->stop) {
		b = deadline_next(t, &deadline_ns);
		if (!b)
			continue;
		tei_mutex_unlock(&t->lock);
		deadline_fire(b, deadline_ns);
		tei_mutex_lock(&t->lock);
	}
	tei_mutex_unlock(&t->lock);
	return NULL;
}

static int deadline_start(struct engine_timers *t) TEI_REQUIRES(t->lock)
{
	int ret;

	if (t->started)
		return 0;
	ret = tei_thread_start(&t->thread, false, deadline_main, t);
	if (ret)
		return tei_err_fail(NULL, TEI_ERR_CONTEXT, "engine",
				    tei_hint(TEI_HINT_THREAD, ret),
				    "cannot start the deadline thread: %s", strerror(ret));
	tei_thread_name(t->thread, "tei-deadline");
	t->started = true;
	return 0;
}

bool engine_deadline_init(struct engine *e)
{
	struct engine_timers *t = calloc(1, sizeof(*t));

	if (!t)
		return false;
	tei_mutex_init(&t->lock);
	tei_cond_init(&t->cond);
	e->timers = t;
	return true;
}

void engine_deadline_stop(struct engine *e)
{
	struct engine_timers *t = e->timers;
	bool started;

	tei_mutex_lock(&t->lock);
	t->stop = true;
	started = t->started;
	tei_cond_signal(&t->cond);
	tei_mutex_unlock(&t->lock);
	if (started)
		tei_thread_join(t->thread);
}

void engine_deadline_fini(struct engine *e)
{
	tei_heap_fini(&e->timers->heap);
	pthread_cond_destroy(&e->timers->cond);
	tei_mutex_fini(&e->timers->lock);
	free(e->timers);
}

void engine_deadline_freed(struct engine_batch *b)
{
	struct engine_timers *t = b->engine->timers;

	if (!b->deadline_ns)
		return;
	b->deadline_ns = 0;
	tei_mutex_lock(&t->lock);
	tei_heap_remove(&t->heap, &b->timer);
	tei_mutex_unlock(&t->lock);
}

static int deadline_set(struct engine_batch *b, uint64_t deadline_ns)
{
	struct engine_timers *t = b->engine->timers;
	int ret = 0;

	tei_mutex_lock(&t->lock);
	tei_heap_remove(&t->heap, &b->timer);
	if (deadline_ns) {
		ret = deadline_start(t);
		if (!ret && !tei_heap_add(&t->heap, &b->timer, deadline_ns))
			ret = tei_err_fail(NULL, TEI_ERR_MEMORY, "engine", NULL,
					   "no memory for a deadline");
		tei_cond_signal(&t->cond);
	}
	tei_mutex_unlock(&t->lock);
	b->deadline_ns = ret ? 0 : deadline_ns;
	return ret;
}

void engine_deadline_submit(struct engine_batch *b)
{
	uint64_t limit =
		b->engine->settings.failure.transfer_timeout_s * TEI_NS_PER_SEC;

	/* the result is ignored: if the deadline thread cannot be started,
	 * deadline_set logs that, and the batch has no deadline */
	if (limit && !b->deadline_set)
		deadline_set(b, tei_now_ns() + limit);
}

static int deadline_call(transfer_engine_t engine, batch_id_t batch_id,
			 uint64_t deadline_ns)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b;
	int ret;

	if (!e)
		return 1;
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return 1;
	b->deadline_set = true;
	ret = deadline_set(b, deadline_ns);
	engine_batch_unlock(b);
	return tei_err_transfer_code(ret);
}

int te_batch_deadline(transfer_engine_t engine, batch_id_t batch_id,
		      uint64_t deadline_ns)
{
	return deadline_call(engine, batch_id, deadline_ns);
}

int te_batch_timeout(transfer_engine_t engine, batch_id_t batch_id,
		     int64_t timeout_us)
{
	uint64_t deadline_ns = engine_wait_deadline(timeout_us);

	if (deadline_ns == UINT64_MAX)
		deadline_ns = 0; /* 0: no deadline */
	else if (!timeout_us)
		deadline_ns = tei_now_ns();
	return deadline_call(engine, batch_id, deadline_ns);
}
