/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Jobs that block, on worker threads: look up peers that do not answer, read
 * descriptors, publish changed rails, provide new memory for remote bounce
 * slots.
 *
 * At most one job per segment name runs at a time, so that one dead peer does
 * not block the others. Retried jobs, which may take longer, occupy at most
 * ENGINE_WORKERS_AGAIN of the workers.
 */
#include "api/engine_int.h"
#include "util/thread.h"

#include <stdlib.h>
#include <string.h>

static void work_free(struct engine_work *w)
{
	if (w->peer)
		tei_rail_peer_put(w->peer);
	free(w->name);
	free(w);
}

static void work_publish(struct engine *e)
{
	struct tei_err err;
	int ret;

	if (!engine_published(e))
		return;
	tei_mutex_lock(&e->control);
	ret = engine_republish(e, &err);
	tei_mutex_unlock(&e->control);
	if (!ret)
		engine_publish(e, false, &err);
}

static void work_run(struct engine *e, struct engine_work *w)
{
	switch (w->kind) {
	case ENGINE_WORK_PUBLISH:
		work_publish(e);
		break;
	case ENGINE_WORK_STORE:
		engine_publish_later(e);
		break;
	case ENGINE_WORK_DEVICES:
		engine_devices_open(e);
		break;
	case ENGINE_WORK_RESOLVE:
		engine_segment_resolve(e, w->peer);
		break;
	case ENGINE_WORK_REFRESH:
		engine_segment_refresh(e, w->name, w->tries);
		break;
	case ENGINE_WORK_RELOAD:
		engine_segment_reload(e, w->name);
		break;
	case ENGINE_WORK_ENDED:
		engine_segment_notify_end(e, w->name);
		break;
	case ENGINE_WORK_RENEW:
		tei_staging_slot_renew(e->staging, w->slot);
		break;
	}
}

static bool work_under_way(struct engine *e, const char *name)
	TEI_REQUIRES(e->work_lock)
{
	struct engine_work *w;

	tei_list_foreach(w, &e->working, struct engine_work, link)
		if (w->name && !strcmp(w->name, name))
			return true;
	return false;
}

static uint32_t work_again(struct engine *e) TEI_REQUIRES(e->work_lock)
{
	struct engine_work *w;
	uint32_t n = 0;

	tei_list_foreach(w, &e->working, struct engine_work, link)
		n += w->tries != 0;
	return n;
}

/* Returns the first job that a worker may do now, or NULL. *wait is the time
 * until another one may be due. */
static struct engine_work *work_next(struct engine *e, uint64_t *wait)
	TEI_REQUIRES(e->work_lock)
{
	bool full = work_again(e) >= ENGINE_WORKERS_AGAIN;
	struct engine_work *w;
	uint64_t left;

	*wait = 60 * TEI_NS_PER_SEC;
	tei_list_foreach(w, &e->work, struct engine_work, link) {
		left = w->due_ns ? tei_ns_left(w->due_ns) : 0;
		if (left) {
			*wait = left < *wait ? left : *wait;
			continue;
		}
		if ((!w->tries || !full) &&
		    (!w->name || !work_under_way(e, w->name)))
			return w;
	}
	return NULL;
}

/* Does a job. Jobs that wait for its end are found by this worker
 * afterwards. */
static void work_do(struct engine *e, struct engine_work *w)
	TEI_REQUIRES(e->work_lock)
{
	tei_list_del(&w->link);
	tei_list_add_tail(&e->working, &w->link);
	if (w->kind == ENGINE_WORK_PUBLISH)
		e->publish_queued = false;
	if (w->kind == ENGINE_WORK_STORE)
		e->store_queued = NULL;
	tei_mutex_unlock(&e->work_lock);
	work_run(e, w);
	tei_mutex_lock(&e->work_lock);
	tei_list_del(&w->link);
	tei_mutex_unlock(&e->work_lock);
	work_free(w);
	tei_mutex_lock(&e->work_lock);
}

static void *work_main(void *arg)
{
	struct engine *e = arg;
	struct engine_work *w;
	uint64_t wait;

	tei_mutex_lock(&e->work_lock);
	for (;;) {
		while (!(w = work_next(e, &wait)) && !e->work_stop) {
			e->idle_workers++;
			tei_mutex_wait(&e->work_cond, &e->work_lock, wait);
			e->idle_workers--;
		}
		if (!w)
			break;
		work_do(e, w);
	}
	tei_mutex_unlock(&e->work_lock);
	return NULL;
}

/* Starts a worker if more jobs are queued than workers are idle. If that fails,
 * the jobs wait. */
static void work_staff(struct engine *e) TEI_REQUIRES(e->work_lock)
{
	struct engine_work *w;
	uint32_t waiting = 0;

	tei_list_foreach(w, &e->work, struct engine_work, link)
		waiting++;
	if (e->idle_workers >= waiting || e->nworkers == ENGINE_WORKERS)
		return;
	if (!tei_thread_start(&e->workers[e->nworkers], false, work_main, e))
		e->nworkers++;
}

/* Returns true if a job of that kind is queued. It is then due no later than
 * w. */
static bool work_sooner(struct engine *e, const struct engine_work *w)
	TEI_REQUIRES(e->work_lock)
{
	struct engine_work *q;

	tei_list_foreach(q, &e->work, struct engine_work, link) {
		if (q->kind != w->kind)
			continue;
		if (w->due_ns < q->due_ns) {
			q->due_ns = w->due_ns;
			pthread_cond_signal(&e->work_cond);
		}
		return true;
	}
	return false;
}

/* Returns true if the same job is queued already; it then replaces w. */
static bool work_queued(struct engine *e, const struct engine_work *w)
	TEI_REQUIRES(e->work_lock)
{
	struct engine_work *q;

	if (w->kind == ENGINE_WORK_PUBLISH)
		return e->publish_queued;
	if (w->kind == ENGINE_WORK_STORE)
		return e->store_queued;
	if (w->kind == ENGINE_WORK_DEVICES)
		return work_sooner(e, w);
	if (w->name)
		tei_list_foreach(q, &e->work, struct engine_work, link)
			if (q->kind == w->kind && !strcmp(q->name, w->name)) {
				if (w->tries < q->tries) {
					q->tries = w->tries;
					pthread_cond_signal(&e->work_cond);
				}
				return true;
			}
	return false;
}

/* Takes over w and queues it. w is NULL if memory was short; then does nothing.
 * Returns false if w was not queued. */
static bool work_add(struct engine *e, struct engine_work *w)
{
	bool taken;

	if (!w)
		return false;
	tei_mutex_lock(&e->work_lock);
	taken = !e->work_stop && !work_queued(e, w);
	if (taken) {
		if (w->kind == ENGINE_WORK_PUBLISH)
			e->publish_queued = true;
		if (w->kind == ENGINE_WORK_STORE)
			e->store_queued = w;
		tei_list_add_tail(&e->work, &w->link);
		work_staff(e);
		pthread_cond_signal(&e->work_cond);
	}
	tei_mutex_unlock(&e->work_lock);
	if (!taken)
		work_free(w);
	return taken;
}

static struct engine_work *work_new(enum engine_work_kind kind)
{
	struct engine_work *w = calloc(1, sizeof(*w));

	if (w)
		w->kind = kind;
	return w;
}

void engine_work_publish(struct engine *e)
{
	work_add(e, work_new(ENGINE_WORK_PUBLISH));
}

/* Returns true if the job is queued already. It is then due at the earlier of
 * the two times. */
static bool work_hasten_store(struct engine *e, uint64_t due_ns)
{
	struct engine_work *w;

	tei_mutex_lock(&e->work_lock);
	w = e->store_queued;
	if (w && due_ns < w->due_ns) {
		w->due_ns = due_ns;
		pthread_cond_signal(&e->work_cond);
	}
	tei_mutex_unlock(&e->work_lock);
	return w;
}

void engine_work_store(struct engine *e, uint64_t due_ns)
{
	struct engine_work *w;

	/* usually true, so that a registration allocates nothing */
	if (work_hasten_store(e, due_ns))
		return;
	w = work_new(ENGINE_WORK_STORE);
	if (w)
		w->due_ns = due_ns;
	work_add(e, w);
}

void engine_work_devices(struct engine *e, uint64_t due_ns)
{
	struct engine_work *w = work_new(ENGINE_WORK_DEVICES);

	if (w)
		w->due_ns = due_ns;
	work_add(e, w);
}

void engine_work_resolve(struct engine *e, struct tei_rail_peer *peer)
{
	struct engine_work *w = work_new(ENGINE_WORK_RESOLVE);

	if (w)
		w->peer = peer;
	else
		tei_rail_peer_put(peer);
	work_add(e, w);
}

static void work_add_named(struct engine *e, enum engine_work_kind kind,
			   const char *name, uint32_t tries)
{
	struct engine_work *w = work_new(kind);

	if (w) {
		w->tries = tries;
		w->name = strdup(name);
	}
	if (w && !w->name) {
		free(w);
		w = NULL;
	}
	work_add(e, w);
}

void engine_work_refresh(struct engine *e, const char *name, uint32_t tries)
{
	work_add_named(e, ENGINE_WORK_REFRESH, name, tries);
}

void engine_work_reload(struct engine *e, const char *name)
{
	work_add_named(e, ENGINE_WORK_RELOAD, name, 0);
}

void engine_work_ended(struct engine *e, const char *name)
{
	work_add_named(e, ENGINE_WORK_ENDED, name, 0);
}

bool engine_work_renew(struct engine *e, struct staging_remote_slot *slot)
{
	struct engine_work *w = work_new(ENGINE_WORK_RENEW);

	if (w)
		w->slot = slot;
	return work_add(e, w);
}

void engine_work_stop(struct engine *e)
{
	struct engine_work *w;
	uint32_t i;

	tei_mutex_lock(&e->work_lock);
	e->work_stop = true;
	e->store_queued = NULL;
	while (!tei_list_empty(&e->work)) {
		w = tei_list_first(&e->work, struct engine_work, link);
		tei_list_del(&w->link);
		work_free(w);
	}
	pthread_cond_broadcast(&e->work_cond);
	tei_mutex_unlock(&e->work_lock);
	for (i = 0; i < e->nworkers; i++)
		pthread_join(e->workers[i], NULL);
	e->nworkers = 0;
}
