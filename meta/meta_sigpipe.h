/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_SIGPIPE_H
#define TEI_META_META_SIGPIPE_H

/*
 * For libraries that may write to a socket without MSG_NOSIGNAL: SIGPIPE is
 * blocked in the calling thread during a call, and removed afterwards if the
 * call has caused it.
 */

#include <signal.h>
#include <stdbool.h>

struct meta_sigpipe {
	sigset_t before;
	bool pending; /* before the call */
};

void meta_sigpipe_block(struct meta_sigpipe *s);
void meta_sigpipe_restore(const struct meta_sigpipe *s);

#endif /* TEI_META_META_SIGPIPE_H */
