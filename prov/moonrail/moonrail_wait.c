/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wait objects of queues: an eventfd, or no file descriptor if programs wait
 * only in blocking calls.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "prov/moonrail/moonrail_fabric.h"

int moonrail_wait_open(enum fi_wait_obj kind, struct moonrail_wait *w)
{
	w->fd = -1;
	w->signaled = false;
	w->kind = kind;
	switch (kind) {
	case FI_WAIT_NONE:
	case FI_WAIT_UNSPEC:
		return 0;
	case FI_WAIT_FD:
		w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		return w->fd < 0 ? -FI_EMFILE : 0;
	default:
		return -FI_ENOSYS;
	}
}

void moonrail_wait_close(struct moonrail_wait *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

void moonrail_wait_signal(struct moonrail_wait *w)
{
	uint64_t one = 1;
	ssize_t ret;

	if (w->fd < 0 || w->signaled)
		return;
	ret = write(w->fd, &one, sizeof(one));
	(void)ret;
	w->signaled = true;
}

void moonrail_wait_reset(struct moonrail_wait *w)
{
	uint64_t junk;
	ssize_t ret;

	if (!w->signaled)
		return;
	ret = read(w->fd, &junk, sizeof(junk));
	(void)ret;
	w->signaled = false;
}

int moonrail_wait_control(const struct moonrail_wait *w, int command, void *arg)
{
	switch (command) {
	case FI_GETWAIT:
		if (w->fd < 0)
			return -FI_ENODATA;
		*(int *)arg = w->fd;
		return 0;
	case FI_GETWAITOBJ:
		*(enum fi_wait_obj *)arg = w->kind;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}
