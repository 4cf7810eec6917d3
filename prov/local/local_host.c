/* SPDX-License-Identifier: BSD-2-Clause */
/* Information from /proc and pidfds about this host and its processes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "prov/local/local_int.h"

#define HOST_STAT_TEXT		1024
#define HOST_START_FIELD	22	/* field number in /proc/PID/stat, see
					 * proc(5) */
#define HOST_START_BITS		42

/*
 * Reads a small file into buf and appends a null byte. Returns its length or
 * -errno.
 */
static ssize_t host_read_file(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	int err;

	if (fd < 0)
		return -errno;
	do {
		n = read(fd, buf, len - 1);
	} while (n < 0 && errno == EINTR);
	err = errno;
	close(fd);
	if (n < 0)
		return -err;
	buf[n] = '\0';
	return n;
}

int local_proc_start_time(pid_t pid, uint64_t *out)
{
	char path[64], text[HOST_STAT_TEXT], *s;
	ssize_t n;
	int field;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	n = host_read_file(path, text, sizeof(text));
	if (n < 0)
		return (int)n;
	/* start at the last bracket, because the command name may contain
	 * blanks and brackets */
	s = strrchr(text, ')');
	for (field = 2; s && field < HOST_START_FIELD; field++)
		s = strchr(s + 1, ' ');
	if (!s)
		return -EINVAL;
	*out = strtoull(s + 1, NULL, 10);
	return 0;
}

int local_pidfd_open(pid_t pid)
{
#ifdef SYS_pidfd_open
	int fd = (int)syscall(SYS_pidfd_open, pid, 0u);

	return fd < 0 ? -errno : fd;
#else
	(void)pid;
	return -ENOSYS;
#endif
}

int local_pidfd_getfd(int pidfd, int number)
{
#ifdef SYS_pidfd_getfd
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0u);

	return fd < 0 ? -errno : fd;
#else
	(void)pidfd;
	(void)number;
	return -ENOSYS;
#endif
}

bool local_pidfd_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

uint64_t local_owner(pid_t pid, uint64_t start_time)
{
	return (uint64_t)pid << HOST_START_BITS |
	       (start_time & ((UINT64_C(1) << HOST_START_BITS) - 1));
}

/*
 * Returns true if the owner of a slot is alive, or if that cannot be
 * determined. Checks the pidfd and not the process state in /proc: the main
 * thread may be a zombie while another thread is still inside the kernel's
 * copy.
 */
bool local_owner_alive(uint64_t owner)
{
	pid_t pid = (pid_t)(owner >> HOST_START_BITS);
	uint64_t start;
	bool alive = true;
	int fd;

	if (pid <= 0)
		return false;
	fd = local_pidfd_open(pid);
	if (fd < 0)
		return fd != -ESRCH && fd != -EINVAL;
	if (local_pidfd_ended(fd))
		alive = false;
	else if (!local_proc_start_time(pid, &start))
		alive = local_owner(pid, start) == owner;
	close(fd);
	return alive;
}

static const char *host_read_boot_id(struct local_host *h)
{
	ssize_t n = host_read_file("/proc/sys/kernel/random/boot_id",
				   h->boot_id, sizeof(h->boot_id));

	if (n <= 0)
		return "/proc/sys/kernel/random/boot_id";
	h->boot_id[strcspn(h->boot_id, "\n")] = '\0';
	return NULL;
}

static const char *host_read_process(struct local_host *h)
{
	char self[32];
	struct stat st;
	ssize_t n = readlink("/proc/self", self, sizeof(self) - 1);
	int fd;

	if (n < 0)
		return "/proc";
	self[n] = '\0';
	if (atoi(self) != h->pid)
		return "/proc of this pid namespace";
	if (stat("/proc/self/ns/pid", &st))
		return "/proc/self/ns/pid";
	h->pid_ns = st.st_ino;
	if (local_proc_start_time(h->pid, &h->start_time))
		return "/proc/self/stat";
	fd = local_pidfd_open(h->pid);
	if (fd < 0)
		return "pidfd_open";
	close(fd);
	return NULL;
}

void local_host_read(struct local_host *h)
{
	memset(h, 0, sizeof(*h));
	h->pid = getpid();
	h->missing = host_read_boot_id(h);
	if (!h->missing)
		h->missing = host_read_process(h);
	h->usable = !h->missing;
}

static const char *const host_reasons[] = {
	[TEI_LOCAL_OK] = "reachable",
	[TEI_LOCAL_BAD_ID] = "the local identity is invalid",
	[TEI_LOCAL_OTHER_HOST] =
		"the process is on another host, or this host was restarted",
	[TEI_LOCAL_OTHER_PIDNS] = "the process is in another pid namespace",
	[TEI_LOCAL_NO_KERNEL] =
		"this system does not support copies between processes",
	[TEI_LOCAL_GONE] = "the process has ended",
	[TEI_LOCAL_RESTARTED] =
		"the process or its engine was replaced by another one",
	[TEI_LOCAL_NO_PERMISSION] =
		"the kernel or a seccomp filter refuses access to the process",
	[TEI_LOCAL_BAD_MAGIC] = "its shared registration table is invalid",
	[TEI_LOCAL_NO_RESOURCE] = "out of memory or file descriptors",
	[TEI_LOCAL_FORKED] =
		"a forked child cannot use the context of its parent",
};

const char *tei_local_reason_text(enum tei_local_reason reason)
{
	unsigned int i = (unsigned int)reason;

	if (i >= sizeof(host_reasons) / sizeof(host_reasons[0]))
		return "unknown reason";
	return host_reasons[i];
}
