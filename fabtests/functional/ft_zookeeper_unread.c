/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabtests/functional/ft_zookeeper.h"

/*
 * Tests a change that ZooKeeper reports and that the initiator cannot read.
 * With a shared secret it must read the descriptor from the target, but for a
 * while it cannot open a socket.
 */

struct unread_look {
	struct zk_rig *rig;
	segment_id_t seg;
};

static bool unread_nothing_left(void *arg)
{
	const struct unread_look *l = arg;
	size_t n = 0;

	return !te_segment_buffers(l->rig->engine, l->seg, NULL, 0, &n) && !n;
}

/* Returns true if at least one message was logged. */
static bool unread_logged(void *arg)
{
	const int *fd = arg;
	struct stat st;

	return !fstat(*fd, &st) && st.st_size > 0;
}

/* Lowers the limit of file descriptors so that no new one can be opened. Saves
 * the previous limit in *old. Returns true on success. */
static bool unread_starve(struct rlimit *old)
{
	int fd = fcntl(0, F_DUPFD_CLOEXEC, 0);
	struct rlimit few;

	if (fd < 0 || getrlimit(RLIMIT_NOFILE, old))
		return false;
	close(fd);
	few = *old;
	few.rlim_cur = (rlim_t)fd;
	return !setrlimit(RLIMIT_NOFILE, &few);
}

/* Makes the target unregister its memory while this process cannot open a
 * socket. Returns true when this process has logged a failed attempt to read
 * the change. */
static bool unread_change(struct fx_peer *target)
{
	int log = memfd_create("log", MFD_CLOEXEC);
	int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	struct rlimit old;
	bool good;

	if (log < 0 || saved < 0 || dup2(log, STDERR_FILENO) < 0)
		return false;
	good = unread_starve(&old);
	if (good) {
		good = !fx_ask(target, "unreg 0") &&
		       ft_wait_until(unread_logged, &log, FX_LONG_MS);
		setrlimit(RLIMIT_NOFILE, &old);
	}
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(log);
	return good;
}

void zk_unread(struct zk_rig *rig)
{
	struct unread_look look = { .rig = rig };
	struct fx_peer target;
	size_t n = 0;

	if (!ft_ok(zk_target_for(&target, "target", ZK_LONG_SESSION_MS),
		   "a_target_publishes"))
		return;
	look.seg = zk_open(rig, "target");
	ft_ok(look.seg >= 0 &&
		      !te_segment_buffers(rig->engine, look.seg, NULL, 0, &n) &&
		      n == 1,
	      "memory_of_the_target_is_seen");
	ft_ok(unread_change(&target), "a_change_cannot_be_read");
	ft_ok(ft_wait_until(unread_nothing_left, &look, FX_LONG_MS),
	      "unread_change_is_read_later_without_a_call");
	closeSegment(rig->engine, look.seg);
	fx_peer_stop(&target);
}
