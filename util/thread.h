/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_THREAD_H
#define TEI_UTIL_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/world.h"

/*
 * Starts a thread with all signals blocked, so that signals of the process are
 * delivered to the program's own threads. Every thread of the library is
 * started by this function. Writes *thread before it returns; the handle of a
 * detached thread must not be used. Returns 0 or an errno.
 */
static inline int tei_thread_start(pthread_t *thread, bool detached,
				   void *(*fn)(void *), void *arg)
{
	return tei_world->thread_start(thread, detached, fn, arg);
}

/* Waits for the end of a thread that is not detached. */
static inline void tei_thread_join(pthread_t thread)
{
	tei_world->thread_join(thread);
}

/* Gives the thread a name of at most 15 characters, which debuggers show. */
static inline void tei_thread_name(pthread_t thread, const char *name)
{
	tei_world->thread_name(thread, name);
}

/* Returns the number of processors on which the calling thread may run, at
 * least 1. */
static inline uint32_t tei_cpus(void)
{
	return tei_world->cpus();
}

/* Parses a CPU list in the kernel's format, "0-3,8". Returns 0. Returns
 * TEI_ERR_INVALID if the text has another format, if the list is empty, or if
 * it contains a number >= CPU_SETSIZE. */
int tei_cpus_parse(const char *text, cpu_set_t *out);

#endif /* TEI_UTIL_THREAD_H */
