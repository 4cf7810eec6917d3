/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Marks the file descriptors of libfabric close-on-exec. libfabric 1.17 opens
 * its sockets and epoll file descriptors without that flag, so a program that
 * the application starts keeps the connections open after this process has
 * ended.
 *
 * Only file descriptors that a lane's wait object reaches are marked: the wait
 * object itself, the file descriptors that it watches, and those that nested
 * epoll descriptors watch, as listed in /proc/self/fdinfo (proc(5)). A number
 * in that list may have been closed and opened again for another file. kcmp(2)
 * compares the file of a number with the watched file. If the kernel refuses
 * kcmp, the inode is compared instead, which is possible only for sockets that
 * the lane's own wait object watches; all other file descriptors are left
 * alone. So a file descriptor of the application is never marked.
 *
 * libfabric opens and closes the file descriptors of a lane in calls that hold
 * the lane's lock. The lists are read without that lock, because they may be
 * long; each file descriptor is checked and marked under the lock.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"
#include "util/world.h"

#define CLOEXEC_DEPTH	4		/* depth to which epoll descriptors
					 * inside epoll descriptors are
					 * followed */
#define CLOEXEC_SLOTS	4		/* limit of the entries of one epoll
					 * descriptor that have the same file
					 * descriptor number */

/* A file descriptor that an epoll descriptor lists. */
struct cloexec_fd {
	const struct cloexec_fd *parent;	/* entry of the epoll descriptor
						 * that lists this one; NULL if
						 * that is the lane's wait
						 * object */
	int epoll, fd;
	unsigned long ino;		/* inode number; 0 if it is unknown */
};

struct cloexec {
	struct rail_lane *lane;
	bool locked;			/* the caller holds the lane's lock */
	uint32_t marked;
};

/* Returns 1 if the file descriptor number belongs to the file that the epoll
 * descriptor watches, 0 if it belongs to another file, -1 if the kernel refuses
 * the comparison. */
static int cloexec_compare(const struct cloexec_fd *f)
{
	struct kcmp_epoll_slot slot = { .efd = (uint32_t)f->epoll,
					.tfd = (uint32_t)f->fd };
	long ret = 1;

	for (; ret > 0 && slot.toff < CLOEXEC_SLOTS; slot.toff++)
		ret = syscall(SYS_kcmp, getpid(), getpid(), KCMP_EPOLL_TFD,
			      (unsigned long)f->fd, &slot);
	if (ret >= 0)
		return !ret;
	return errno == ENOSYS || errno == EPERM || errno == EACCES ||
	       errno == EOPNOTSUPP ? -1 : 0;
}

/* Returns true if the file descriptor, and all epoll descriptors between it and
 * the lane's wait object, still belong to the same files. */
static bool cloexec_is(const struct cloexec_fd *f)
{
	struct statx st;
	int is;

	for (; f; f = f->parent) {
		is = cloexec_compare(f);
		if (!is)
			return false;
		if (is > 0)
			continue;
		if (f->parent || !f->ino ||
		    statx(f->fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO,
			  &st) ||
		    !S_ISSOCK(st.stx_mode) || st.stx_ino != f->ino)
			return false;
	}
	return true;
}

static bool cloexec_missing(int fd)
{
	int flags = fcntl(fd, F_GETFD);

	return flags >= 0 && !(flags & FD_CLOEXEC);
}

/* Sets close-on-exec on the file descriptor if the flag is missing and the file
 * descriptor still belongs to the listed file. */
static void cloexec_mark(struct cloexec *c, const struct cloexec_fd *f)
	TEI_NO_TSA
{
	if (!cloexec_missing(f->fd))
		return;
	if (!c->locked)
		tei_mutex_lock(&c->lane->lock);
	if (c->lane->wait_fd >= 0 && cloexec_is(f) &&
	    !fcntl(f->fd, F_SETFD, FD_CLOEXEC))
		c->marked++;
	if (!c->locked)
		tei_mutex_unlock(&c->lane->lock);
}

/* Sets close-on-exec on the file descriptors that the epoll descriptor watches.
 * Does nothing if "epoll" is not an epoll descriptor. */
static void cloexec_watched(struct cloexec *c, int epoll,
			    const struct cloexec_fd *parent, int depth)
{
	struct cloexec_fd f = { .parent = parent, .epoll = epoll };
	char conn[64], line[256];
	FILE *list;
	int n;

	if (!depth)
		return;
	snprintf(conn, sizeof(conn), "/proc/self/fdinfo/%d", epoll);
	list = fopen(conn, "re");
	if (!list)
		return;
	while (fgets(line, sizeof(line), list)) {
		f.ino = 0;
		n = sscanf(line,
			   "tfd: %d events: %*x data: %*x pos:%*d ino:%lx",
			   &f.fd, &f.ino);
		if (n < 1)
			continue;
		cloexec_mark(c, &f);
		cloexec_watched(c, f.fd, &f, depth - 1);
	}
	fclose(list);
}

void rail_cloexec_opened(struct rail_lane *lane)
{
	struct cloexec c = { .lane = lane, .locked = true };

	if (lane->wait_fd < 0 || !tei_world->net.kernel_fds)
		return;
	if (cloexec_missing(lane->wait_fd))
		fcntl(lane->wait_fd, F_SETFD, FD_CLOEXEC);
	cloexec_watched(&c, lane->wait_fd, NULL, CLOEXEC_DEPTH);
}

uint32_t rail_cloexec_lane(struct rail_lane *lane)
{
	struct cloexec c = { .lane = lane };
	int fd = -1;

	if (!tei_world->net.kernel_fds)
		return 0;
	tei_mutex_lock(&lane->lock);
	if (lane->wait_fd >= 0)
		fd = fcntl(lane->wait_fd, F_DUPFD_CLOEXEC, 0);
	tei_mutex_unlock(&lane->lock);
	if (fd < 0)
		return 0;
	cloexec_watched(&c, fd, NULL, CLOEXEC_DEPTH);
	close(fd);
	return c.marked;
}
