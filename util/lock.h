/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_LOCK_H
#define TEI_UTIL_LOCK_H

/*
 * Mutexes and reader-writer locks. Mutexes have annotations for clang's
 * thread-safety analysis. In debug builds they also record their owner, so that
 * a function can assert that the calling thread holds a mutex.
 *
 * docs/LOCKING.md states the lock order of the whole project, the data that
 * each lock guards and the calls that are forbidden under it. A new lock gets a
 * row there.
 */

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "util/world.h"

#if defined(__clang__)
#define TEI_TSA(x) __attribute__((x))
#else
#define TEI_TSA(x)
#endif

#define TEI_CAPABILITY		TEI_TSA(capability("mutex"))
/* States which lock guards a member, for the reader only: the macro expands to
 * nothing, because in C clang's attribute guarded_by cannot name another member
 * of the same struct. */
#define TEI_GUARDED_BY(l)
#define TEI_REQUIRES(...)	TEI_TSA(requires_capability(__VA_ARGS__))
#define TEI_EXCLUDES(...)	TEI_TSA(locks_excluded(__VA_ARGS__))
#define TEI_ACQUIRE(...)	TEI_TSA(acquire_capability(__VA_ARGS__))
#define TEI_RELEASE(...)	TEI_TSA(release_capability(__VA_ARGS__))
#define TEI_TRY_ACQUIRE(...)	TEI_TSA(try_acquire_capability(__VA_ARGS__))
#define TEI_NO_TSA		TEI_TSA(no_thread_safety_analysis)

/* A mutex. Its members are public so that functions can be inlined; only the
 * functions below may use them. */
struct TEI_CAPABILITY tei_mutex {
	pthread_mutex_t m;
	uint32_t waiters;	/* atomic: number of threads that wait for the
				 * mutex */
#ifdef TEI_DEBUG
	pthread_t owner;	/* thread that holds the mutex; valid only if
				 * held is true */
	bool held;		/* true if a thread holds the mutex */
#endif
};

static inline void tei_mutex_init(struct tei_mutex *l)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&l->m, &attr);
	pthread_mutexattr_destroy(&attr);
	l->waiters = 0;
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
	if (pthread_mutex_trylock(&l->m)) {
		__atomic_fetch_add(&l->waiters, 1, __ATOMIC_RELAXED);
		tei_world->lock_contended(l);
		__atomic_fetch_sub(&l->waiters, 1, __ATOMIC_RELAXED);
	}
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

/* Returns true if another thread waits for the mutex. A thread that locks a
 * mutex in a loop must leave it to such a thread, because the mutex is not
 * fair. */
static inline bool tei_mutex_wanted(const struct tei_mutex *l)
{
	return __atomic_load_n(&l->waiters, __ATOMIC_RELAXED) != 0;
}

static inline void tei_mutex_unlock(struct tei_mutex *l) TEI_RELEASE(l) TEI_NO_TSA
{
#ifdef TEI_DEBUG
	l->held = false;
#endif
	pthread_mutex_unlock(&l->m);
}

/*
 * Waits on cond until it is signalled or timeout_ns has passed (UINT64_MAX: no
 * limit). The caller holds l, which is released during the wait. cond must have
 * been initialised with tei_cond_init. May return before the condition holds.
 */
static inline void tei_mutex_wait(pthread_cond_t *cond, struct tei_mutex *l,
				  uint64_t timeout_ns) TEI_REQUIRES(l)
{
	tei_world->cond_wait(cond, l, timeout_ns);
	tei_mutex_note_held(l);
}

/* Initialises a condition variable for tei_mutex_wait. */
static inline void tei_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* Asserts, in debug builds, that the calling thread holds l. */
static inline void tei_mutex_assert_held(const struct tei_mutex *l)
{
#ifdef TEI_DEBUG
	assert(l->held && pthread_equal(l->owner, pthread_self()));
#else
	(void)l;
#endif
}

/* A lock that several threads can hold for reading, or one thread for writing.
 * Its member is public so that functions can be inlined; only the functions
 * below may use it. */
struct tei_rwlock {
	pthread_rwlock_t rw;
};

static inline void tei_rwlock_init(struct tei_rwlock *l)
{
	pthread_rwlock_init(&l->rw, NULL);
}

static inline void tei_rwlock_fini(struct tei_rwlock *l)
{
	pthread_rwlock_destroy(&l->rw);
}

static inline void tei_rwlock_read(struct tei_rwlock *l) TEI_NO_TSA
{
	if (pthread_rwlock_tryrdlock(&l->rw))
		tei_world->rwlock_contended(l, false);
}

static inline void tei_rwlock_write(struct tei_rwlock *l) TEI_NO_TSA
{
	if (pthread_rwlock_trywrlock(&l->rw))
		tei_world->rwlock_contended(l, true);
}

/* Releases a lock that the calling thread holds for reading or for writing. */
static inline void tei_rwlock_unlock(struct tei_rwlock *l) TEI_NO_TSA
{
	pthread_rwlock_unlock(&l->rw);
}

#endif /* TEI_UTIL_LOCK_H */
