/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_SIGPIPE_H
#define TEI_META_META_SIGPIPE_H

/*
 * Functions that protect the process from SIGPIPE while it calls a library that
 * writes to sockets without MSG_NOSIGNAL. meta_sigpipe_block, before the call,
 * blocks SIGPIPE in the calling thread. meta_sigpipe_restore, after the call,
 * removes a SIGPIPE that the call has raised, and restores the signal mask.
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
