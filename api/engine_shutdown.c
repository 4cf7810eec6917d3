/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Graceful shutdown, only where asked for. A signal handler may do next to
 * nothing, so it hands the signal to a thread through a pipe; that thread
 * destroys the engines and ends the process with 128 + signal.
 */
#include "api/engine_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int shutdown_pipe[2] = { -1, -1 };
static pthread_mutex_t shutdown_lock = PTHREAD_MUTEX_INITIALIZER;
static bool shutdown_ready;
static pid_t shutdown_pid;

static void shutdown_handler(int sig)
{
	unsigned char byte = (unsigned char)sig;
	int saved = errno;
	ssize_t ret;

	ret = write(shutdown_pipe[1], &byte, 1);
	(void)ret;
	errno = saved;
}

static void shutdown_destroy(struct engine *e)
{
	if (e->graceful)
		destroyTransferEngine(e);
}

/* Of a normal exit, and of the thread below. */
static void shutdown_all(void)
{
	if (getpid() == shutdown_pid)
		engine_handle_each(shutdown_destroy);
}

static void *shutdown_main(void *arg)
{
	unsigned char sig;

	(void)arg;
	while (read(shutdown_pipe[0], &sig, 1) != 1)
		;
	shutdown_all();
	/* not exit(): other threads of the program are still running, and its
	 * own exit handlers were written for the main thread */
	_exit(128 + sig);
	return NULL;
}

static int shutdown_start(void)
{
	struct sigaction act;
	pthread_t thread;
	sigset_t all, old;
	int ret;

	if (pipe2(shutdown_pipe, O_CLOEXEC))
		return TEI_ERR_SOCKET;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&thread, NULL, shutdown_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		return TEI_ERR_MEMORY;
	pthread_detach(thread);
	memset(&act, 0, sizeof(act));
	act.sa_handler = shutdown_handler;
	sigfillset(&act.sa_mask);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	atexit(shutdown_all);
	shutdown_pid = getpid();
	return 0;
}

int enableGracefulShutdown(transfer_engine_t engine)
{
	struct engine *e = engine_from(engine);
	int ret = 0;

	if (!e)
		return TEI_ERR_INVALID;
	pthread_mutex_lock(&shutdown_lock);
	if (!shutdown_ready)
		ret = shutdown_start();
	shutdown_ready = !ret;
	pthread_mutex_unlock(&shutdown_lock);
	if (!ret)
		e->graceful = true;
	return ret;
}
