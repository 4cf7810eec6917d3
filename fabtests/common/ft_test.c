/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_test.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"

static struct {
	pthread_mutex_t lock;	/* guards all fields and the output */
	unsigned int made;
	unsigned int failed;
} test_count = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void test_line(const char *head, const char *text, va_list args)
{
	fputs(head, stdout);
	vprintf(text, args);
	putchar('\n');
	fflush(stdout);
}

bool ft_ok(bool cond, const char *name, ...)
{
	va_list args;

	va_start(args, name);
	pthread_mutex_lock(&test_count.lock);
	test_count.made++;
	test_count.failed += !cond;
	test_line(cond ? "ok - " : "not ok - ", name, args);
	pthread_mutex_unlock(&test_count.lock);
	va_end(args);
	return cond;
}

void ft_diag(const char *text, ...)
{
	va_list args;

	va_start(args, text);
	pthread_mutex_lock(&test_count.lock);
	test_line("# ", text, args);
	pthread_mutex_unlock(&test_count.lock);
	va_end(args);
}

int ft_skip(const char *reason, ...)
{
	va_list args;

	va_start(args, reason);
	pthread_mutex_lock(&test_count.lock);
	test_line("SKIP: ", reason, args);
	pthread_mutex_unlock(&test_count.lock);
	va_end(args);
	return FT_SKIPPED;
}

int ft_result(void)
{
	int result;

	pthread_mutex_lock(&test_count.lock);
	result = test_count.made && !test_count.failed ? FT_PASS : FT_FAIL;
	pthread_mutex_unlock(&test_count.lock);
	return result;
}

void ft_forked(void)
{
	pthread_mutex_lock(&test_count.lock);
	test_count.made = test_count.failed = 0;
	pthread_mutex_unlock(&test_count.lock);
}

bool ft_wait_until(ft_cond_fn fn, void *arg, unsigned int ms)
{
	uint64_t deadline = ft_now_ns() + (uint64_t)ms * 1000000;
	struct timespec pause = { .tv_nsec = 1000000 };

	while (!fn(arg)) {
		if (ft_now_ns() >= deadline)
			return fn(arg);
		nanosleep(&pause, NULL);
	}
	return true;
}

static unsigned int test_load(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	const char *text = getenv("FT_LOAD");
	double load = text ? atof(text) : 0;

	if (!text && cpus > 0 && getloadavg(&load, 1) == 1)
		load /= (double)cpus;
	return load < 1 ? 1 : load > 8 ? 8 : (unsigned int)(load + 0.5);
}

unsigned int ft_load(void)
{
	static unsigned int most;	/* highest factor so far; accessed
					 * atomically */
	unsigned int load = test_load();
	unsigned int seen = __atomic_load_n(&most, __ATOMIC_RELAXED);

	while (seen < load &&
	       !__atomic_compare_exchange_n(&most, &seen, load, true,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return seen < load ? load : seen;
}
