/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "meta/meta_sigpipe.h"

static void sigpipe_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGPIPE);
}

void meta_sigpipe_block(struct meta_sigpipe *s)
{
	sigset_t pipe, pending;

	sigpipe_set(&pipe);
	sigemptyset(&pending);
	sigpending(&pending);
	s->pending = sigismember(&pending, SIGPIPE) == 1;
	pthread_sigmask(SIG_BLOCK, &pipe, &s->before);
}

void meta_sigpipe_restore(const struct meta_sigpipe *s)
{
	const struct timespec now = { 0 };
	sigset_t pipe;

	sigpipe_set(&pipe);
	if (!s->pending)
		while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &s->before, NULL);
}
