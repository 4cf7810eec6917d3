/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file descriptors of the simulated world. They are numbers from
 * FAB_FD_BASE on. A number is not used again, so it also serves as the inode
 * number of a socket.
 */

#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

int fab_fd_new(enum fab_fd_kind kind, void *of)
{
	struct fab_net *net = fab_net;
	uint32_t max = net->max_fds ? 2 * net->max_fds : 64;
	struct fab_fd *more;

	if (net->nfds == net->max_fds) {
		more = fab_alloc(max * sizeof(*more));
		if (net->nfds)
			memcpy(more, net->fds, net->nfds * sizeof(*more));
		free(net->fds);
		net->fds = more;
		net->max_fds = max;
	}
	net->fds[net->nfds].kind = kind;
	net->fds[net->nfds].of = of;
	return FAB_FD_BASE + (int)net->nfds++;
}

struct fab_fd *fab_fd_get(int fd)
{
	struct fab_fd *f;

	if (!fab_net || fd < FAB_FD_BASE ||
	    (uint32_t)(fd - FAB_FD_BASE) >= fab_net->nfds)
		return NULL;
	f = &fab_net->fds[fd - FAB_FD_BASE];
	if (f->kind == FAB_FD_DUP)
		return fab_fd_get(f->dup);
	return f->kind == FAB_FD_NONE ? NULL : f;
}

void fab_fd_close(int fd)
{
	if (fab_net && fd >= FAB_FD_BASE &&
	    (uint32_t)(fd - FAB_FD_BASE) < fab_net->nfds)
		memset(&fab_net->fds[fd - FAB_FD_BASE], 0,
		       sizeof(*fab_net->fds));
}

void fab_fd_fire(int fd)
{
	struct fab_fd *f = fab_fd_get(fd);
	void (*fn)(void *arg) = f ? f->fn : NULL;

	if (!fn)
		return;
	f->fn = NULL;
	fn(f->arg);
}

bool sim_net_fd_ready(int fd)
{
	struct fab_fd *f = fab_fd_get(fd);

	if (!f)
		return false;
	if (f->kind == FAB_FD_CHANGES)
		return ((struct fab_host *)f->of)->changed;
	return f->kind == FAB_FD_CQ && fab_cq_ready(f->of);
}

void sim_net_fd_notify(int fd, void (*fn)(void *arg), void *arg)
{
	struct fab_fd *f = fab_fd_get(fd);

	if (!f)
		return;
	f->fn = fn;
	f->arg = arg;
}
