/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_THREAD_H
#define TEI_UTIL_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

/*
 * Starts a thread with all signals blocked, so that signals of the process are
 * delivered to the program's own threads. Every thread of the library is
 * started by this function. Writes *thread before it returns; the handle of a
 * detached thread must not be used. Returns 0 or an errno.
 */
int tei_thread_start(pthread_t *thread, bool detached, void *(*fn)(void *),
		     void *arg);

/*
 * Parses a CPU list in the kernel's format, "0-3,8". Returns 0, or
 * TEI_ERR_INVALID for any other text, an empty list or numbers from CPU_SETSIZE
 * on.
 */
int tei_cpus_parse(const char *text, cpu_set_t *out);

#endif /* TEI_UTIL_THREAD_H */
