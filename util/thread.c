/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/thread.h"

#include <signal.h>
#include <stdlib.h>

#include "util/err.h"

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

static bool cpu_number(const char **p, long *out)
{
	char *end;

	if (**p < '0' || **p > '9')
		return false;
	*out = strtol(*p, &end, 10);
	*p = end;
	return *out < CPU_SETSIZE;
}

int tei_cpus_parse(const char *text, cpu_set_t *out)
{
	const char *p = text;
	long first, last;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	for (;; p++) {
		if (!cpu_number(&p, &first))
			return TEI_ERR_INVALID;
		last = first;
		if (*p == '-' && (p++, !cpu_number(&p, &last)))
			return TEI_ERR_INVALID;
		if (last < first)
			return TEI_ERR_INVALID;
		for (; first <= last; first++)
			CPU_SET((size_t)first, &cpus);
		if (*p != ',')
			break;
	}
	if (*p && *p != '\n')
		return TEI_ERR_INVALID;
	*out = cpus;
	return 0;
}
