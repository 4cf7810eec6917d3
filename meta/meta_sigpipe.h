/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_SIGPIPE_H
#define TEI_META_META_SIGPIPE_H

/*
 * Functions for calls of libraries that may write to a socket without
 * MSG_NOSIGNAL. SIGPIPE is blocked in the calling thread during the call. If
 * the call has raised SIGPIPE, the signal is removed afterwards.
 */

#include <signal.h>
#include <stdbool.h>

struct meta_sigpipe {
	sigset_t before;
	bool pending; /* SIGPIPE was pending before the call */
};

void meta_sigpipe_block(struct meta_sigpipe *s);
void meta_sigpipe_restore(const struct meta_sigpipe *s);

#endif /* TEI_META_META_SIGPIPE_H */
