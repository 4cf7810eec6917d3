/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the graceful shutdown when a signal arrives while an engine is being
 * destroyed. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/api_test.h"
#include "api/engine_int.h"
#include "meta/meta_store_int.h"

static struct meta_store_ops shutdown_ops;
/*
 * write end of a pipe, to which one byte is written when the engine withdraws
 * its descriptor from the store
 */
static int shutdown_fd;
static bool shutdown_held;		 /* atomic: the thread that destroys the
					  * engine is being held in
					  * pthread_mutex_lock */
static _Thread_local bool shutdown_hold; /* true in the thread that destroys the
					  * engine */

static void shutdown_nap(void)
{
	struct timespec nap = { .tv_nsec = 1000000 };

	nanosleep(&nap, NULL);
}

/* Replaces the function of the C library. Holds the thread that destroys the
 * engine when it locks its first mutex. */
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	/* atomic: address of the C library's function */
	static int (*next)(pthread_mutex_t *mutex);
	int (*real)(pthread_mutex_t *mutex);
	void *symbol;

	__atomic_load(&next, &real, __ATOMIC_RELAXED);
	if (!real) {
		symbol = dlsym(RTLD_NEXT, "pthread_mutex_lock");
		memcpy(&real, &symbol, sizeof(real));
		__atomic_store(&next, &real, __ATOMIC_RELAXED);
	}
	while (shutdown_hold) {
		__atomic_store_n(&shutdown_held, true, __ATOMIC_RELEASE);
		shutdown_nap();
	}
	return real(mutex);
}

static int shutdown_withdraw(struct tei_meta_store *store, const char *name,
			     uint64_t deadline_ns, struct tei_err *err)
{
	(void)store;
	(void)name;
	(void)deadline_ns;
	(void)err;
	return write(shutdown_fd, "w", 1) == 1 ? 0 : TEI_ERR_METADATA;
}

static void *shutdown_destroy(void *arg)
{
	shutdown_hold = true;
	destroyTransferEngine(arg);
	return NULL;
}

/* Raises SIGTERM in a child process while a thread destroys an engine. The
 * process ends by the graceful shutdown, or with status 1 after an error. */
static void shutdown_child(void)
{
	struct engine *e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1",
						"127.0.0.1", 0, 0);
	pthread_t thread;

	if (!e || enableGracefulShutdown(e))
		_exit(1);
	shutdown_ops = *e->store->ops;
	shutdown_ops.withdraw = shutdown_withdraw;
	e->store->ops = &shutdown_ops;
	if (pthread_create(&thread, NULL, shutdown_destroy, e))
		_exit(1);
	while (!__atomic_load_n(&shutdown_held, __ATOMIC_ACQUIRE))
		shutdown_nap();
	raise(SIGTERM);
	for (;;)
		shutdown_nap();
}

/* Tests that the descriptor is withdrawn if a signal arrives during a
 * destruction. The shutdown must not rely on the thread that destroys the
 * engine, which never continues. */
static void test_signal_during_destruction_withdraws_descriptor(void)
{
	int fds[2], status = 0;
	char notified = 0;
	pid_t pid;

	CU_ASSERT_FATAL(!pipe(fds));
	shutdown_fd = fds[1];
	pid = fork();
	if (!pid)
		shutdown_child();
	close(fds[1]);
	CU_ASSERT_FATAL(pid > 0 && waitpid(pid, &status, 0) == pid);
	CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM);
	CU_ASSERT(read(fds[0], &notified, 1) == 1 && notified == 'w');
	close(fds[0]);
}

const struct tei_test_case shutdown_cases[] = {
	{ "signal_during_destruction_withdraws_descriptor",
	  test_signal_during_destruction_withdraws_descriptor },
	{ NULL, NULL },
};
