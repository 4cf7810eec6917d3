/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Worker threads, and the queue of their jobs.
 *
 * For each segment name, at most one job runs at a time, so that a dead peer
 * cannot occupy all worker threads. Jobs that are repeated after a failure may
 * take longer. They occupy at most WORK_THREADS_AGAIN of the worker threads.
 */
#include "api/engine_work.h"

#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "util/thread.h"
#include "util/world.h"

#define WORK_THREADS 4 /* greatest number of worker threads */
/* greatest number of worker threads that run jobs again after a failure */
#define WORK_THREADS_AGAIN 2

/* The jobs and the worker threads of an engine. */
struct engine_works {
	struct tei_mutex lock; /* leaf; guards the members below */
	pthread_cond_t cond;
	/* jobs that wait, and jobs that are running, linked by
	 * engine_work.link */
	struct tei_list queued, running;
	/* for each value of enum engine_work_single, the job that is in
	 * `queued`, or NULL */
	struct engine_work *single[ENGINE_WORK_SINGLES];
	uint32_t nworkers, nidle;
	bool stop;
	pthread_t workers[WORK_THREADS];
};

static void work_free(struct engine_work *w)
{
	if (w->peer)
		tei_rail_peer_put(w->peer);
	free(w->name);
	free(w);
}

static bool work_under_way(struct engine *e, const char *name)
	TEI_REQUIRES(e->works->lock)
{
	struct engine_work *w;

	tei_list_foreach (w, &e->works->running, struct engine_work, link)
		if (w->name && !strcmp(w->name, name))
			return true;
	return false;
}

static uint32_t work_again(struct engine *e) TEI_REQUIRES(e->works->lock)
{
	struct engine_work *w;
	uint32_t n = 0;

	tei_list_foreach (w, &e->works->running, struct engine_work, link)
		n += w->tries != 0;
	return n;
}

/* Returns the first queued job that a worker thread may do now, or NULL. Sets
 * *wait to the time after which to check again, ns. */
static struct engine_work *work_next(struct engine *e, uint64_t *wait)
	TEI_REQUIRES(e->works->lock)
{
	bool full = work_again(e) >= WORK_THREADS_AGAIN;
	struct engine_work *w;
	uint64_t left;

	*wait = 60 * TEI_NS_PER_SEC;
	tei_list_foreach (w, &e->works->queued, struct engine_work, link) {
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

/* Does a job, with the lock released. Jobs for the same segment name have to
 * wait meanwhile; this worker thread finds them when it calls work_next
 * again. */
static void work_do(struct engine *e, struct engine_work *w)
	TEI_REQUIRES(e->works->lock)
{
	tei_list_del(&w->link);
	tei_list_add_tail(&e->works->running, &w->link);
	if (w->kind->single)
		e->works->single[w->kind->single] = NULL;
	tei_mutex_unlock(&e->works->lock);
	w->kind->run(e, w);
	tei_mutex_lock(&e->works->lock);
	tei_list_del(&w->link);
	tei_mutex_unlock(&e->works->lock);
	work_free(w);
	tei_mutex_lock(&e->works->lock);
}

static void *work_main(void *arg)
{
	struct engine *e = arg;
	struct engine_work *w;
	uint64_t wait;

	tei_mutex_lock(&e->works->lock);
	for (;;) {
		while (!(w = work_next(e, &wait)) && !e->works->stop) {
			e->works->nidle++;
			tei_mutex_wait(&e->works->cond, &e->works->lock, wait);
			e->works->nidle--;
		}
		if (!w)
			break;
		work_do(e, w);
	}
	tei_mutex_unlock(&e->works->lock);
	return NULL;
}

/* Starts a worker thread if there are more queued jobs than idle worker
 * threads. If the thread cannot be started, the jobs stay queued. */
static void work_staff(struct engine *e) TEI_REQUIRES(e->works->lock)
{
	struct engine_work *w;
	uint32_t waiting = 0;

	tei_list_foreach (w, &e->works->queued, struct engine_work, link)
		waiting++;
	if (e->works->nidle >= waiting || e->works->nworkers == WORK_THREADS)
		return;
	if (!tei_thread_start(&e->works->workers[e->works->nworkers], false,
			      work_main, e))
		e->works->nworkers++;
}

/* Returns true if the same job is already queued, so that w need not be queued.
 * If w has fewer failed attempts than the queued job, the queued job gets the
 * lower number. */
static bool work_queued(struct engine *e, const struct engine_work *w)
	TEI_REQUIRES(e->works->lock)
{
	struct engine_work *q;

	if (w->kind->single)
		return e->works->single[w->kind->single];
	if (w->name)
		tei_list_foreach (q, &e->works->queued, struct engine_work, link)
			if (q->kind == w->kind && !strcmp(q->name, w->name)) {
				if (w->tries < q->tries) {
					q->tries = w->tries;
					tei_cond_signal(&e->works->cond);
				}
				return true;
			}
	return false;
}

/* Queues w and takes ownership of it. w may be NULL, if the caller could not
 * allocate it. Returns false if w was not queued. */
static bool work_add(struct engine *e, struct engine_work *w)
{
	bool taken;

	if (!w)
		return false;
	tei_mutex_lock(&e->works->lock);
	taken = !e->works->stop && !work_queued(e, w);
	if (taken) {
		if (w->kind->single)
			e->works->single[w->kind->single] = w;
		tei_list_add_tail(&e->works->queued, &w->link);
		work_staff(e);
		tei_cond_signal(&e->works->cond);
	}
	tei_mutex_unlock(&e->works->lock);
	if (!taken)
		work_free(w);
	return taken;
}

static struct engine_work *work_new(const struct engine_work_kind *kind)
{
	struct engine_work *w = calloc(1, sizeof(*w));

	if (w)
		w->kind = kind;
	return w;
}

/* If a job of that kind is already queued, returns true, after making the job
 * due at due_ns if that is earlier. Otherwise returns false. */
static bool work_hasten(struct engine *e, const struct engine_work_kind *kind,
			uint64_t due_ns)
{
	struct engine_work *w;

	tei_mutex_lock(&e->works->lock);
	w = e->works->single[kind->single];
	if (w && due_ns < w->due_ns) {
		w->due_ns = due_ns;
		tei_cond_signal(&e->works->cond);
	}
	tei_mutex_unlock(&e->works->lock);
	return w;
}

void engine_work_at(struct engine *e, const struct engine_work_kind *kind,
		    uint64_t due_ns)
{
	struct engine_work *w;

	/* usually the job is queued already; then a registration allocates no
	 * memory here */
	if (work_hasten(e, kind, due_ns))
		return;
	w = work_new(kind);
	if (w)
		w->due_ns = due_ns;
	work_add(e, w);
}

void engine_work_peer(struct engine *e, const struct engine_work_kind *kind,
		      struct tei_rail_peer *peer)
{
	struct engine_work *w = work_new(kind);

	if (w)
		w->peer = peer;
	else
		tei_rail_peer_put(peer);
	work_add(e, w);
}

void engine_work_named(struct engine *e, const struct engine_work_kind *kind,
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

bool engine_work_arg(struct engine *e, const struct engine_work_kind *kind,
		     void *arg)
{
	struct engine_work *w = work_new(kind);

	if (w)
		w->arg = arg;
	return work_add(e, w);
}

bool engine_work_init(struct engine *e)
{
	struct engine_works *works = calloc(1, sizeof(*works));

	if (!works)
		return false;
	tei_mutex_init(&works->lock);
	tei_cond_init(&works->cond);
	tei_list_init(&works->queued);
	tei_list_init(&works->running);
	e->works = works;
	return true;
}

void engine_work_fini(struct engine *e)
{
	pthread_cond_destroy(&e->works->cond);
	tei_mutex_fini(&e->works->lock);
	free(e->works);
}

void engine_work_stop(struct engine *e)
{
	struct engine_work *w;
	uint32_t i;

	tei_mutex_lock(&e->works->lock);
	e->works->stop = true;
	memset(e->works->single, 0, sizeof(e->works->single));
	while (!tei_list_empty(&e->works->queued)) {
		w = tei_list_first(&e->works->queued, struct engine_work, link);
		tei_list_del(&w->link);
		work_free(w);
	}
	tei_cond_broadcast(&e->works->cond);
	tei_mutex_unlock(&e->works->lock);
	for (i = 0; i < e->works->nworkers; i++)
		tei_thread_join(e->works->workers[i]);
	e->works->nworkers = 0;
}
