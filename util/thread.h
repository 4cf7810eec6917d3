/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_THREAD_H
#define TEI_UTIL_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

/*
 * Every thread of the library is started by this: it blocks all signals, as
 * the program's signals are for the program's threads. thread is written
 * before this returns; of a detached one it is of no use. 0 or an errno.
 */
int tei_thread_start(pthread_t *thread, bool detached, void *(*fn)(void *),
		     void *arg);

/*
 * CPUs as the kernel writes them, "0-3,8": 0, or TEI_ERR_INVALID for anything
 * else, none at all, and numbers from CPU_SETSIZE on.
 */
int tei_cpus_parse(const char *text, cpu_set_t *out);

#endif /* TEI_UTIL_THREAD_H */
