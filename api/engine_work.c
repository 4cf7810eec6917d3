/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work that blocks, on threads of its own: looking up peers that do not
 * answer, publishing rails that have changed. A few threads, so that one dead
 * peer does not hold up the others.
 */
#include "api/engine_int.h"

#include <signal.h>
#include <stdlib.h>

static void work_run(struct engine *e, struct engine_work *w)
{
	struct tei_err err;

	switch (w->kind) {
	case ENGINE_WORK_PUBLISH:
		tei_mutex_lock(&e->control);
		if (e->published)
			engine_publish(e, &err);
		tei_mutex_unlock(&e->control);
		break;
	case ENGINE_WORK_RESOLVE:
		engine_segment_resolve(e, w->peer);
		tei_rail_peer_put(w->peer);
		break;
	}
	free(w);
}

static void *work_main(void *arg)
{
	struct engine *e = arg;
	struct engine_work *w;

	tei_mutex_lock(&e->work_lock);
	for (;;) {
		while (tei_list_empty(&e->work) && !e->work_stop) {
			e->idle_workers++;
			tei_mutex_wait(&e->work_cond, &e->work_lock,
				       60 * TEI_NS_PER_SEC);
			e->idle_workers--;
		}
		if (tei_list_empty(&e->work))
			break;
		w = tei_list_first(&e->work, struct engine_work, link);
		tei_list_del(&w->link);
		if (w->kind == ENGINE_WORK_PUBLISH)
			e->publish_queued = false;
		tei_mutex_unlock(&e->work_lock);
		work_run(e, w);
		tei_mutex_lock(&e->work_lock);
	}
	tei_mutex_unlock(&e->work_lock);
	return NULL;
}

/* Another thread where all are busy; without one the work waits. */
static void work_staff(struct engine *e) TEI_REQUIRES(e->work_lock)
{
	sigset_t all, old;

	if (e->idle_workers || e->nworkers == ENGINE_WORKERS)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!pthread_create(&e->workers[e->nworkers], NULL, work_main, e))
		e->nworkers++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static bool work_add(struct engine *e, enum engine_work_kind kind,
		     struct tei_rail_peer *peer)
{
	struct engine_work *w = calloc(1, sizeof(*w));
	bool taken = false;

	if (!w)
		return false;
	w->kind = kind;
	w->peer = peer;
	tei_mutex_lock(&e->work_lock);
	if (!e->work_stop &&
	    (kind != ENGINE_WORK_PUBLISH || !e->publish_queued)) {
		if (kind == ENGINE_WORK_PUBLISH)
			e->publish_queued = true;
		tei_list_add_tail(&e->work, &w->link);
		work_staff(e);
		pthread_cond_signal(&e->work_cond);
		taken = true;
	}
	tei_mutex_unlock(&e->work_lock);
	if (!taken)
		free(w);
	return taken;
}

void engine_work_publish(struct engine *e)
{
	work_add(e, ENGINE_WORK_PUBLISH, NULL);
}

void engine_work_resolve(struct engine *e, struct tei_rail_peer *peer)
{
	if (!work_add(e, ENGINE_WORK_RESOLVE, peer))
		tei_rail_peer_put(peer);
}

void engine_work_stop(struct engine *e)
{
	struct engine_work *w;
	uint32_t i;

	tei_mutex_lock(&e->work_lock);
	e->work_stop = true;
	while (!tei_list_empty(&e->work)) {
		w = tei_list_first(&e->work, struct engine_work, link);
		tei_list_del(&w->link);
		if (w->peer)
			tei_rail_peer_put(w->peer);
		free(w);
	}
	pthread_cond_broadcast(&e->work_cond);
	tei_mutex_unlock(&e->work_lock);
	for (i = 0; i < e->nworkers; i++)
		pthread_join(e->workers[i], NULL);
	e->nworkers = 0;
}
