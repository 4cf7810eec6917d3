/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_LOCK_H
#define TEI_UTIL_LOCK_H

/*
 * Mutexes with clang thread-safety annotations and, in debug builds, an owner
 * so that "held by me" can be asserted.
 *
 * THE LOCK ORDER of the whole project, outermost first. A thread that holds
 * one of these may only take locks that stand below it.
 *
 *   1. engine->control     api/: registration, segments, transports (slow path),
 *                          then the admin of staging and of leasing; their
 *                          locks, one at a time, held for no call but those
 *                          of 6 and the queuing of work (7); a batch's
 *                          lock, then engine->segments: for as long as
 *                          either is held the cache may be read (2)
 *                          listing.store, over a publication and without
 *                          control; under it and under control, listing.lock,
 *                          held for no call but a descriptor's making
 *   2. meta: server, cache locks; the server's source_lock is outside of
 *                          listing.lock
 *   3. dp->admin           prov/rail: peers opened/closed, lanes rebuilt
 *   4. lane->lock          prov/rail: one endpoint, its CQ, its posting
 *   5. dp->sched           prov/rail: peer queues, tasks, slices
 *   6. local->lock         prov/local: copy queue; beside it ctx->lock of
 *                          prov/nvmeof: operations on files, and that of
 *                          prov/gpu: copies, under its ctx->admin
 *   7. leaf locks          batch table, notify queue, log, error ring
 *
 * No user callback, no blocking call and no allocation under 4 and 5.
 */

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__clang__)
#define TEI_TSA(x) __attribute__((x))
#else
#define TEI_TSA(x)
#endif

#define TEI_CAPABILITY		TEI_TSA(capability("mutex"))
/* For the reader: in C, clang takes no neighbour's name on a field. */
#define TEI_GUARDED_BY(l)
#define TEI_REQUIRES(...)	TEI_TSA(requires_capability(__VA_ARGS__))
#define TEI_EXCLUDES(...)	TEI_TSA(locks_excluded(__VA_ARGS__))
#define TEI_ACQUIRE(...)	TEI_TSA(acquire_capability(__VA_ARGS__))
#define TEI_RELEASE(...)	TEI_TSA(release_capability(__VA_ARGS__))
#define TEI_TRY_ACQUIRE(...)	TEI_TSA(try_acquire_capability(__VA_ARGS__))
#define TEI_NO_TSA		TEI_TSA(no_thread_safety_analysis)

/* Open for inlining only: touch through the functions below. */
struct TEI_CAPABILITY tei_mutex {
	pthread_mutex_t m;
#ifdef TEI_DEBUG
	pthread_t owner;	/* valid while held */
	bool held;
#endif
};

static inline void tei_mutex_init(struct tei_mutex *l)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&l->m, &attr);
	pthread_mutexattr_destroy(&attr);
#ifdef TEI_DEBUG
	l->held = false;
#endif
}

static inline void tei_mutex_fini(struct tei_mutex *l)
{
	pthread_mutex_destroy(&l->m);
}

static inline void tei_mutex_note_held(struct tei_mutex *l)
{
#ifdef TEI_DEBUG
	l->owner = pthread_self();
	l->held = true;
#else
	(void)l;
#endif
}

static inline void tei_mutex_lock(struct tei_mutex *l) TEI_ACQUIRE(l) TEI_NO_TSA
{
	pthread_mutex_lock(&l->m);
	tei_mutex_note_held(l);
}

static inline bool tei_mutex_trylock(struct tei_mutex *l)
	TEI_TRY_ACQUIRE(true, l) TEI_NO_TSA
{
	if (pthread_mutex_trylock(&l->m))
		return false;
	tei_mutex_note_held(l);
	return true;
}

static inline void tei_mutex_unlock(struct tei_mutex *l) TEI_RELEASE(l) TEI_NO_TSA
{
#ifdef TEI_DEBUG
	l->held = false;
#endif
	pthread_mutex_unlock(&l->m);
}

/*
 * Waits on cond, whose clock is CLOCK_MONOTONIC, with l held before and after,
 * until it is signalled or timeout_ns is over. Wakes up for no reason too.
 */
static inline void tei_mutex_wait(pthread_cond_t *cond, struct tei_mutex *l,
				  uint64_t timeout_ns) TEI_REQUIRES(l)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	timeout_ns += (uint64_t)ts.tv_nsec;
	ts.tv_sec += (time_t)(timeout_ns / 1000000000u);
	ts.tv_nsec = (long)(timeout_ns % 1000000000u);
	pthread_cond_timedwait(cond, &l->m, &ts);
	tei_mutex_note_held(l);
}

/* A condition variable for tei_mutex_wait. */
static inline void tei_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* Asserts in debug builds that the calling thread holds l. */
static inline void tei_mutex_assert_held(const struct tei_mutex *l)
{
#ifdef TEI_DEBUG
	assert(l->held && pthread_equal(l->owner, pthread_self()));
#else
	(void)l;
#endif
}

#endif /* TEI_UTIL_LOCK_H */
