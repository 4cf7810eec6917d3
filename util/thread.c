/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/thread.h"

#include <signal.h>

int tei_thread_start(pthread_t *thread, bool detached, void *(*fn)(void *),
		     void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int rc;

	pthread_attr_init(&attr);
	if (detached)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, &attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return rc;
}
