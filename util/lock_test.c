/* SPDX-License-Identifier: BSD-2-Clause */

/* The debug form of the mutex is tested in all builds, because only this form
 * records the owner. */
#undef TEI_DEBUG
#define TEI_DEBUG 1
#undef NDEBUG
#include "util/lock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/util_test.h"

#define LOCK_THREADS	4
#define LOCK_ROUNDS	20000

struct counter {
	struct tei_mutex lock;
	long value TEI_GUARDED_BY(lock);
};

static void *lock_count(void *arg)
{
	struct counter *c = arg;
	int i;

	for (i = 0; i < LOCK_ROUNDS; i++) {
		tei_mutex_lock(&c->lock);
		tei_mutex_assert_held(&c->lock);
		c->value++;
		tei_mutex_unlock(&c->lock);
	}
	return NULL;
}

static void test_excludes_threads(void)
{
	struct counter c = { .value = 0 };
	pthread_t threads[LOCK_THREADS];
	int i;

	tei_mutex_init(&c.lock);
	for (i = 0; i < LOCK_THREADS; i++)
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL,
						     lock_count, &c), 0);
	for (i = 0; i < LOCK_THREADS; i++)
		pthread_join(threads[i], NULL);
	CU_ASSERT_EQUAL(c.value, (long)LOCK_THREADS * LOCK_ROUNDS);
	tei_mutex_fini(&c.lock);
}

static void *lock_try(void *arg)
{
	struct counter *c = arg;

	if (tei_mutex_trylock(&c->lock)) {
		c->value = 1;
		tei_mutex_unlock(&c->lock);
	}
	return NULL;
}

static void lock_try_elsewhere(struct counter *c)
{
	pthread_t thread;

	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, lock_try, c), 0);
	pthread_join(thread, NULL);
}

static void test_trylock_fails_while_held(void)
{
	struct counter c = { .value = 0 };

	tei_mutex_init(&c.lock);
	tei_mutex_lock(&c.lock);
	lock_try_elsewhere(&c);
	CU_ASSERT_EQUAL(c.value, 0);
	tei_mutex_unlock(&c.lock);
	lock_try_elsewhere(&c);
	CU_ASSERT_EQUAL(c.value, 1);
	tei_mutex_fini(&c.lock);
}

/* Runs body in a child process, without a core file, and checks that it
 * aborts. */
static void lock_expect_abort(void (*body)(struct tei_mutex *),
			      struct tei_mutex *l)
{
	struct rlimit no_core = { 0, 0 };
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CU_ASSERT_FATAL(pid >= 0);
	if (!pid) {
		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGABRT, SIG_DFL);
		close(STDERR_FILENO);
		body(l);
		_exit(0);
	}
	CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
	CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void lock_assert_body(struct tei_mutex *l)
{
	tei_mutex_assert_held(l);
}

static void *lock_assert_elsewhere(void *arg)
{
	lock_expect_abort(lock_assert_body, arg);
	return NULL;
}

static void test_owner_is_known_in_debug(void)
{
	struct tei_mutex l;
	pthread_t thread;

	tei_mutex_init(&l);
	lock_expect_abort(lock_assert_body, &l);
	tei_mutex_lock(&l);
	tei_mutex_assert_held(&l);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL,
					     lock_assert_elsewhere, &l), 0);
	pthread_join(thread, NULL);
	tei_mutex_unlock(&l);
	lock_expect_abort(lock_assert_body, &l);
	tei_mutex_fini(&l);
}

struct gate {
	struct tei_mutex lock;
	pthread_cond_t cond;
	bool open;		/* guarded by lock */
};

static void *lock_open_gate(void *arg)
{
	struct gate *g = arg;

	tei_mutex_lock(&g->lock);
	g->open = true;
	pthread_cond_signal(&g->cond);
	tei_mutex_unlock(&g->lock);
	return NULL;
}

static void test_wait_ends_by_signal_or_in_time(void)
{
	struct gate g = { .open = false };
	pthread_t thread;
	uint64_t start;

	tei_mutex_init(&g.lock);
	tei_cond_init(&g.cond);
	tei_mutex_lock(&g.lock);
	start = tei_now_ns();
	while (tei_now_ns() - start < 2 * TEI_NS_PER_MS)
		tei_mutex_wait(&g.cond, &g.lock, TEI_NS_PER_MS);
	tei_mutex_assert_held(&g.lock);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, lock_open_gate, &g),
			      0);
	while (!g.open)
		tei_mutex_wait(&g.cond, &g.lock, 3600 * TEI_NS_PER_SEC);
	tei_mutex_assert_held(&g.lock);
	tei_mutex_unlock(&g.lock);
	pthread_join(thread, NULL);
	CU_ASSERT(tei_now_ns() - start < 3600 * TEI_NS_PER_SEC);
	pthread_cond_destroy(&g.cond);
	tei_mutex_fini(&g.lock);
}

const struct tei_test_case lock_cases[] = {
	{ "excludes_threads", test_excludes_threads },
	{ "trylock_fails_while_held", test_trylock_fails_while_held },
	{ "owner_is_known_in_debug", test_owner_is_known_in_debug },
	{ "wait_ends_by_signal_or_in_time",
	  test_wait_ends_by_signal_or_in_time },
	{ NULL, NULL },
};
