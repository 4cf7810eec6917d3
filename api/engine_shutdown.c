/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Graceful shutdown, for programs that call enableGracefulShutdown. A signal
 * handler may call only few functions, so the handler passes the number of the
 * signal to a thread through a pipe. That thread closes the engines and ends
 * the process with status 128 + signal. It frees nothing, because other threads
 * of the program are still running.
 */
#include "api/engine_int.h"
#include "util/hint.h"
#include "util/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int shutdown_signals[] = { SIGTERM, SIGINT };

/* shutdown_pipe and shutdown_pid do not change after the handlers are
 * installed */
static int shutdown_pipe[2] = { -1, -1 };
static pid_t shutdown_pid;

/* Held while the engines are closed, so that a shutdown at a signal and a
 * shutdown at a normal exit run one after the other. */
static pthread_mutex_t shutdown_turn = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t shutdown_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t shutdown_cond = PTHREAD_COND_INITIALIZER;
/* the variables from shutdown_ready to shutdown_leaving are guarded by
 * shutdown_lock */
static bool shutdown_ready;
static struct engine **shutdown_engines;
static size_t shutdown_count, shutdown_room;
static unsigned int shutdown_leaving; /* number of engines that are being
				       * destroyed */
/* list of the closed engines, which are not freed, so that leak checkers find
 * them; guarded by shutdown_turn */
static struct engine *shutdown_left;

/*
 * The signal handler. It does not call the previous handler, because the
 * handlers of some libfabric providers end the process at once.
 */
static void shutdown_handler(int sig)
{
	unsigned char byte = (unsigned char)sig;
	int saved = errno;
	ssize_t ret;

	if (getpid() == shutdown_pid) {
		ret = write(shutdown_pipe[1], &byte, 1);
		(void)ret;
	} else {
		/* In a child of fork: the thread, the engines and the pipe
		 * belong to the parent, so the signal ends the child. */
		signal(sig, SIG_DFL);
		raise(sig);
	}
	errno = saved;
}

/*
 * Takes an engine to close from the list, and removes its handle. Returns false
 * if the list is empty. The thread that removes the handle of an engine under
 * shutdown_lock must also close that engine. A destruction removes its engine
 * from the list under the same lock, so all engines on the list are alive.
 */
static bool shutdown_take(struct engine **e)
{
	bool any;

	pthread_mutex_lock(&shutdown_lock);
	any = shutdown_count > 0;
	if (any) {
		*e = shutdown_engines[--shutdown_count];
		engine_handle_remove(*e);
	}
	pthread_mutex_unlock(&shutdown_lock);
	return any;
}

/* Closes all engines on the list, and waits until those that are being
 * destroyed are closed, too. Called by exit() and by shutdown_main. */
static void shutdown_all(void)
{
	struct engine *e;

	if (getpid() != shutdown_pid)
		return;
	pthread_mutex_lock(&shutdown_turn);
	while (shutdown_take(&e)) {
		engine_leave(e);
		e->left_next = shutdown_left;
		shutdown_left = e;
	}
	pthread_mutex_lock(&shutdown_lock);
	while (shutdown_leaving)
		pthread_cond_wait(&shutdown_cond, &shutdown_lock);
	pthread_mutex_unlock(&shutdown_lock);
	pthread_mutex_unlock(&shutdown_turn);
}

static void shutdown_unlist(const struct engine *e)
{
	size_t i;

	for (i = 0; i < shutdown_count; i++)
		if (shutdown_engines[i] == e)
			shutdown_engines[i--] =
				shutdown_engines[--shutdown_count];
}

bool engine_shutdown_enter(struct engine *e, bool *graceful)
{
	bool ours;

	pthread_mutex_lock(&shutdown_lock);
	ours = engine_handle_remove(e);
	*graceful = ours && e->graceful;
	if (*graceful) {
		shutdown_unlist(e);
		shutdown_leaving++;
	}
	pthread_mutex_unlock(&shutdown_lock);
	return ours;
}

void engine_shutdown_leave(bool graceful)
{
	if (!graceful)
		return;
	pthread_mutex_lock(&shutdown_lock);
	shutdown_leaving--;
	pthread_cond_broadcast(&shutdown_cond);
	pthread_mutex_unlock(&shutdown_lock);
}

static void *shutdown_main(void *arg)
{
	unsigned char sig;

	(void)arg;
	while (read(shutdown_pipe[0], &sig, 1) != 1)
		;
	shutdown_all();
	/* _exit() and not exit(): other threads of the program are still
	 * running, and its exit handlers expect to run in the main thread */
	_exit(128 + sig);
	return NULL;
}

static void shutdown_handle(int i)
{
	struct sigaction act;

	/* a signal that the program ignores, as in a background job of a shell,
	 * stays ignored */
	sigaction(shutdown_signals[i], NULL, &act);
	if (act.sa_handler == SIG_IGN)
		return;
	memset(&act, 0, sizeof(act));
	act.sa_handler = shutdown_handler;
	act.sa_flags = SA_RESTART;
	sigfillset(&act.sa_mask);
	sigaction(shutdown_signals[i], &act, NULL);
}

static int shutdown_start(struct tei_err *err)
{
	pthread_t thread;
	int ret;

	if (pipe2(shutdown_pipe, O_CLOEXEC))
		return tei_err_fail(err, TEI_ERR_SOCKET, "engine",
				    tei_hint(TEI_HINT_OBJECT, errno),
				    "graceful shutdown: cannot create a pipe: %s",
				    strerror(errno));
	ret = tei_thread_start(&thread, true, shutdown_main, NULL);
	if (ret) {
		close(shutdown_pipe[0]);
		close(shutdown_pipe[1]);
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine",
				    tei_hint(TEI_HINT_THREAD, ret),
				    "graceful shutdown: cannot start a thread: %s",
				    strerror(ret));
	}
	shutdown_pid = getpid();
	atexit(shutdown_all);
	shutdown_handle(0);
	shutdown_handle(1);
	return 0;
}

static int shutdown_add(struct engine *e, struct tei_err *err)
{
	struct engine **grown;

	if (shutdown_count == shutdown_room) {
		grown = realloc(shutdown_engines,
				(shutdown_room * 2 + 8) * sizeof(*grown));
		if (!grown)
			return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
					    "no memory for graceful shutdown");
		shutdown_engines = grown;
		shutdown_room = shutdown_room * 2 + 8;
	}
	shutdown_engines[shutdown_count++] = e;
	e->graceful = true;
	return 0;
}

int enableGracefulShutdown(transfer_engine_t engine)
{
	struct engine *e = engine_from(engine);
	struct tei_err err;
	int ret = 0;

	if (!e)
		return TEI_ERR_INVALID;
	pthread_mutex_lock(&shutdown_lock);
	if (!shutdown_ready)
		ret = shutdown_start(&err);
	shutdown_ready = !ret;
	if (!ret && !e->graceful)
		ret = shutdown_add(e, &err);
	pthread_mutex_unlock(&shutdown_lock);
	return ret;
}
